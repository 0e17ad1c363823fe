"""Few trusted rows: digits, 1000 rows with 40 per cent wrong labels, 200 trusted ones, batches of 100.

StochasticBVFIM at its defaults and at its end beside RHG(20, 0.3) with Adam 0.1 on x at its best looks: the accuracy of
y, the AUROC of the weights, and the accuracy of a network trained anew with them. Each number of RHG is the best of its
looks, one every 50 of 1000 steps, by the true noise and the test rows, which favours RHG; "seconds to ..." lead to
that look, on one core and without the looks. The network is 64-64-10 with ReLU. Rows of all writers are mixed.

    python benchmarks/few_trusted.py --out benchmarks/results/few-trusted-cpu.json
"""

from __future__ import annotations

import argparse
import json
import time
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

import bvfim
from bvfim import data
from bvfim.reports.report import machine
from bvfim.reproduce.experiments import cleaning
from bvfim.reproduce.experiments.cleaning_baselines import ranking

SIZE, STEPS, RHG_STEPS, EVERY = 100, 600, 1000, 50
NUMBERS = ("accuracy", "AUROC", "retrained")


def problem(seed: int) -> cleaning.Task:
    """A split, its noise and the network's start."""
    digits = data.load("digits")
    inputs = np.concatenate([digits.train.inputs, digits.test.inputs])
    labels = np.concatenate([digits.train.labels, digits.test.labels])
    order = np.random.default_rng(seed).permutation(len(labels))
    ours, theirs, rest = np.split(order, [1000, 1200])
    given, wrong = data.symmetric(labels[ours], 0.4, 10, seed)
    mean = inputs[order[:1200]].mean(0)

    def rows(which: np.ndarray, given: np.ndarray) -> cleaning.LabelledRows:
        return cleaning.LabelledRows(torch.from_numpy(inputs[which] - mean), torch.from_numpy(given))

    noisy, trusted = rows(ours, given), rows(theirs, labels[theirs])
    return cleaning.Task(
        problem=cleaning.objectives(torch.cat([trusted.inputs, noisy.inputs]), trusted.labels, noisy.labels, "relu"),
        x=torch.zeros(1000),
        y=cleaning.start(inputs.shape[1], 64, 10, seed),
        activation="relu",
        noisy=noisy,
        truth=torch.from_numpy(labels[ours]),
        wrong=wrong,
        trusted=trusted,
        held=rows(theirs[:0], labels[:0]),
        test=rows(rest, labels[rest]),
    )


def judged(task: cleaning.Task, x: Tensor, y: dict[str, Tensor], seconds: float) -> dict[str, Any]:
    """What x and y are worth."""
    problem, batches = cleaning.on_batches(task, SIZE, seed=7)
    anew = bvfim.refit(problem, x, task.y, batches=batches, steps=600)
    return {
        "accuracy": task.accuracy(y),
        "AUROC": ranking(task, x)["AUROC"],
        "retrained": task.accuracy(anew.y),
        "seconds": seconds,
    }


def ours(task: cleaning.Task) -> dict[str, Any]:
    """The defaults."""
    problem, batches = cleaning.on_batches(task, SIZE)
    began = time.perf_counter()
    found = bvfim.solve(problem, task.x, task.y, steps=STEPS, batches=batches, refit=False)
    row = judged(task, found.x, found.y, time.perf_counter() - began)
    return {**row, **{f"seconds to {name}": row["seconds"] for name in NUMBERS}}


def rhg(task: cleaning.Task) -> dict[str, Any]:
    """RHG at its best looks, which are not timed."""
    problem, batches = cleaning.on_batches(task, SIZE)
    rows: list[dict[str, Any]] = []
    looking, began = 0.0, time.perf_counter()

    def look(run: bvfim.Run) -> None:
        nonlocal looking
        if run.k % EVERY == 0:
            at = time.perf_counter()
            rows.append(judged(task, run.x, run.y, at - began - looking))
            looking += time.perf_counter() - at

    adam = partial(torch.optim.Adam, lr=0.1)
    method = bvfim.RHG(20, 0.3)
    bvfim.solve(problem, task.x, task.y, method, adam, steps=RHG_STEPS, batches=batches, callbacks=[look], refit=False)
    best = {name: max(rows, key=itemgetter(name)) for name in NUMBERS}
    found = {name: row[name] for name, row in best.items()}
    return {**found, "seconds": rows[-1]["seconds"], **{f"seconds to {n}": row["seconds"] for n, row in best.items()}}


def main() -> None:
    """Measure and write."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for seed in range(chosen.seeds):
        task = problem(seed)
        for method, run in (("StochasticBVFIM", ours), ("RHG(20, 0.3)", rhg)):
            rows.append({"method": method, "seed": seed, **run(task)})
            print(json.dumps(rows[-1]), flush=True)
    print(pd.DataFrame(rows).groupby("method").mean().drop(columns="seed").to_string())
    if chosen.out:
        about = {"command": "python benchmarks/few_trusted.py", "machine": machine(), "runs": rows}
        chosen.out.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
