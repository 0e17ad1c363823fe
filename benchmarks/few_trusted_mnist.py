"""Few trusted rows of MNIST: 3000 rows, 45 per cent of their labels changed to another class, 300 trusted ones.

StochasticBVFIM at its defaults, at its end, beside two rivals at their best looks: RHG(20, 0.3) with Adam 0.1 on x,
on the same batches of 100, and BVFIM nested on whole sets with the settings of `bvfim reproduce cleaning`. Each number
of a rival is the best over its own looks, ten a run, chosen by that number itself (AUROC by the true noise, accuracies
by the test rows): that favours the rivals. AUROC is that of the weights; "retrained" is the accuracy of a network that
bvfim.refit trains from the start with them; "accuracy" is that of y. "seconds" lead to the look with the best AUROC, on
one core, without the looks; "seconds in all" to the end. The network is 784-300-10 with ReLU.

    python benchmarks/few_trusted_mnist.py --out benchmarks/results/few-trusted-mnist-cpu.json
"""

from __future__ import annotations

import argparse
import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from few_trusted import SIZE, judged

import bvfim
from bvfim.reports.report import machine
from bvfim.reproduce.experiments import cleaning
from bvfim.reproduce.experiments.cleaning_settings import Config, method

ROWS, TRUSTED, NOISE, LOOKS = 3000, 300, 0.45, 10
STEPS = {"StochasticBVFIM": 1500, "RHG(20, 0.3)": 600, "BVFIM": 100}
"""Upper steps; BVFIM's are those of the reproduction."""
LOWER_STEP = 0.1
"""Of BVFIM: what the reproduction chose for MNIST and ReLU."""
COLUMNS = ["accuracy", "AUROC", "retrained", "seconds", "seconds in all"]


def problem(seed: int) -> cleaning.Task:
    """A split, its noise and the network's start."""
    return cleaning.problem(
        "mnist", train=ROWS, validation=TRUSTED, noise=NOISE, activation="relu", centred=True, seed=seed
    )


class Looks:
    """Judges a run ten times, and leaves this out of its time."""

    def __init__(self, task: cleaning.Task, steps: int) -> None:
        self.task, self.every, self.rows = task, max(1, steps // LOOKS), list[dict[str, Any]]()
        self.began, self.looking = time.perf_counter(), 0.0

    def __call__(self, run: bvfim.Run) -> None:
        """Look, if it is due."""
        if run.k % self.every == 0 or run.k == run.steps:
            at = time.perf_counter()
            self.rows.append({"step": run.k, **judged(self.task, run.x, run.y, at - self.began - self.looking)})
            self.looking += time.perf_counter() - at

    def best(self) -> dict[str, Any]:
        """The best of each number, and all of them."""
        first = max(self.rows, key=lambda row: row["AUROC"])
        return {
            **{key: max(row[key] for row in self.rows) for key in ("accuracy", "AUROC", "retrained")},
            "seconds": first["seconds"],
            "seconds in all": self.rows[-1]["seconds"],
            "looks": self.rows,
        }


def ours(task: cleaning.Task, steps: int) -> dict[str, Any]:
    """The defaults."""
    problem, batches = cleaning.on_batches(task, SIZE)
    began = time.perf_counter()
    found = bvfim.solve(problem, task.x, task.y, steps=steps, batches=batches, refit=False)
    row = judged(task, found.x, found.y, time.perf_counter() - began)
    return {**row, "seconds in all": row["seconds"]}


def rhg(task: cleaning.Task, steps: int) -> dict[str, Any]:
    """RHG on batches."""
    problem, batches = cleaning.on_batches(task, SIZE)
    looks, adam = Looks(task, steps), partial(torch.optim.Adam, lr=0.1)
    options: dict[str, Any] = {"steps": steps, "batches": batches, "callbacks": [looks], "refit": False}
    bvfim.solve(problem, task.x, task.y, bvfim.RHG(20, 0.3), adam, **options)
    return looks.best()


def nested(task: cleaning.Task, steps: int) -> dict[str, Any]:
    """BVFIM on whole sets."""
    config = Config()
    looks, adam = Looks(task, steps), partial(torch.optim.Adam, lr=config.x_lr)
    chosen = method("BVFIM", LOWER_STEP, config)
    bvfim.solve(task.problem, task.x, task.y, chosen, adam, steps=steps, callbacks=[looks], refit=False)
    return looks.best()


RUNS = {"StochasticBVFIM": ours, "RHG(20, 0.3)": rhg, "BVFIM": nested}


def main() -> None:
    """Measure and write."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--only", choices=[*RUNS], nargs="+", default=[*RUNS])
    options.add_argument("--share", type=float, default=1.0, help="of the upper steps, to see that it runs")
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for seed in range(chosen.seeds):
        task = problem(seed)
        for name in chosen.only:
            steps = max(1, round(chosen.share * STEPS[name]))
            rows.append({"method": name, "seed": seed, "steps": steps, **RUNS[name](task, steps)})
            print(json.dumps({key: value for key, value in rows[-1].items() if key != "looks"}), flush=True)
    means = pd.DataFrame(rows).groupby("method")[COLUMNS].mean()
    print(means.to_string(float_format="%.4f"))
    if chosen.out:
        given = f"--seeds {chosen.seeds} --share {chosen.share} --only " + " ".join(f"'{name}'" for name in chosen.only)
        about = {"command": f"python benchmarks/few_trusted_mnist.py {given}", "machine": machine()}
        means_by_method = means.to_dict("index")
        chosen.out.write_text(json.dumps({**about, "means": means_by_method, "runs": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
