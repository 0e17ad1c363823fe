"""Hyper-cleaning with StochasticBVFIM at its defaults, beside the same network trained on the trusted rows alone.

784-300-10 (3072-300-10 for CIFAR-10) with ReLU, 5000 noisy and 4500 trusted rows, batches of 256, at most 40 epochs:
10,000 rows through one gradient are one. With --settings, 27 settings off the defaults instead: steps of y and of x a
third, once and three times, batches of 128, 256 and 512. With --holdout, the loss on 500 held-out rows chooses the step
that is returned. With --nested N, N upper steps of nested BVFIM are timed in the same run, of the hundred that
`bvfim reproduce cleaning` takes.

    python benchmarks/single_loop.py --out benchmarks/results/single-loop-cpu.json
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional

import bvfim
from bvfim.core.range_test import scales
from bvfim.methods.stochastic import WAIT
from bvfim.reports.report import machine
from bvfim.reproduce.experiments import cleaning, cleaning_settings
from bvfim.reproduce.experiments.cleaning_baselines import ranking, trusted_alone

EPOCH = 10_000
"""Rows through one gradient."""
SHORT = 3.0
"""Epochs of a run before those that are timed: what only the first one of a process pays counts for nobody."""
RANGE_TEST, EACH = 100, 4
"""Evaluations that the range test takes, at most, and each step: of F and f at y, of f at z, and of f at the start,
which is differentiated in x alone but counts as a gradient here."""


def solved(
    task: cleaning.Task, size: int, epochs: float, y_factor: float = 1.0, x_factor: float = 1.0, holdout: bool = False
) -> dict[str, Any]:
    """One run, judged."""
    problem, batches = cleaning.on_batches(task, size)
    steps = int((epochs * EPOCH / size - RANGE_TEST) / EACH)
    method, optimizer = bvfim.StochasticBVFIM(), None
    if (y_factor, x_factor) != (1.0, 1.0):
        first = bvfim.Draw(next(batches.upper), next(batches.lower))
        step = y_factor * scales(problem.at(task.x, first), task.y).step
        method = bvfim.StochasticBVFIM(lambda p: torch.optim.Adam(p, step, eps=1e-30))
        wait = int(WAIT * steps)
        optimizer = partial(bvfim.OneScale, lr=0.1 * x_factor, wait=wait)

    def held(x: Tensor, y: dict[str, Tensor]) -> Tensor:
        return functional.cross_entropy(cleaning.network(y, task.held.inputs, task.activation), task.held.labels)

    options: dict[str, Any] = {"steps": steps, "batches": batches, "refit": False, "holdout": held if holdout else None}
    began = time.perf_counter()
    found = bvfim.solve(problem, task.x, task.y, method, optimizer, **options)
    seconds = time.perf_counter() - began
    evaluations = sum(found.evaluations[kind] for kind in ("upper", "lower", "forward"))
    return {
        "size": size,
        "y step": y_factor,
        "x step": x_factor,
        "steps": steps,
        "epochs": evaluations * size / EPOCH,
        "accuracy": task.accuracy(found.y),
        "F1": task.f1(found.x),
        "AUROC": ranking(task, found.x)["AUROC"],
        "seconds": seconds,
    }


def nested(task: cleaning.Task, steps: int) -> dict[str, Any]:
    """The time of a whole run of nested BVFIM, from so many of its upper steps after the first."""
    method = cleaning_settings.method("BVFIM", 0.1, cleaning_settings.Config())
    stepper = bvfim.Stepper(task.problem, task.x, task.y, method)
    stepper.step()
    began = time.perf_counter()
    for _ in range(steps):
        stepper.step()
    return {"method": "BVFIM", "seconds": cleaning_settings.PAPER.steps * (time.perf_counter() - began) / steps}


def main() -> None:
    """Measure and write."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", default="mnist,fashion-mnist,cifar10")
    options.add_argument("--splits", type=int, default=5)
    options.add_argument("--epochs", type=float, default=40)
    options.add_argument("--settings", action="store_true")
    options.add_argument("--holdout", action="store_true")
    options.add_argument("--nested", type=int, default=0)
    options.add_argument("--device", default="cpu")
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    factors = (1 / 3, 1.0, 3.0)
    grid = list(itertools.product((128, 256, 512), factors, factors)) if chosen.settings else [(256, 1.0, 1.0)]
    rows: list[dict[str, Any]] = []
    for name, split in itertools.product(chosen.data.split(","), range(1 if chosen.settings else chosen.splits)):
        task = cleaning.problem(name, held=500, activation="relu", centred=True, seed=split, device=chosen.device)
        if chosen.nested:
            solved(task, 256, SHORT)
        for size, y_factor, x_factor in grid:
            found = solved(task, size, chosen.epochs, y_factor, x_factor, chosen.holdout)
            rows.append({"data": name, "split": split, "method": "StochasticBVFIM", **found})
            print(json.dumps(rows[-1]), flush=True)
        if chosen.nested:
            rows.append({"data": name, "split": split, **nested(task, chosen.nested)})
            print(json.dumps(rows[-1]), flush=True)
        if not (chosen.settings or chosen.holdout or chosen.nested):
            rows.append({"data": name, "split": split, **trusted_alone(task)})
            print(json.dumps(rows[-1]), flush=True)
    print(
        pd.DataFrame(rows).groupby(["data", "method"])[["accuracy", "F1", "seconds"]].agg(["mean", "min"]).to_string()
    )
    if chosen.out:
        command = " ".join(["python", "benchmarks/single_loop.py", *sys.argv[1:]])
        about = {"command": command, "machine": machine(), "runs": rows}
        chosen.out.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
