"""The single loop on a CUDA device: recorded and compiled, beside the whole run of nested BVFIM.

Hyper-cleaning as in benchmarks/single_loop.py. Each way is taken twice on the first split: what only the first run of a
process pays is in its row. "recorded" is the time of all steps after the first two: the first measures the step of y,
the second is recorded.

    python benchmarks/single_loop_cuda.py --out benchmarks/results/single-loop-h200.json
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch

import bvfim
from bvfim.core.accelerate import tf32
from bvfim.reports.report import machine
from bvfim.reproduce.experiments import cleaning, cleaning_settings

STEPS, SIZE = 365, 256


def timed(task: cleaning.Task, options: dict[str, Any]) -> dict[str, Any]:
    """A run, judged, with the time of its parts."""
    moments: list[float] = []

    def look(run: bvfim.Run) -> None:
        if run.k <= 2:
            torch.cuda.synchronize()
            moments.append(time.perf_counter())

    torch.cuda.synchronize()
    began = time.perf_counter()
    found = bvfim.solve(**options, callbacks=[look], refit=False)
    torch.cuda.synchronize()
    ended = time.perf_counter()
    last = ended - moments[1]
    return {
        "accuracy": task.accuracy(found.y),
        "F1": task.f1(found.x),
        "seconds": ended - began,
        "range_test_and_recording": moments[1] - began,
        "recorded": last,
        "ms": 1e3 * last / (found.steps - 2),
    }


def rows(split: int, device: str) -> list[dict[str, Any]]:
    """The runs of one split."""
    task = cleaning.problem("mnist", held=500, activation="relu", centred=True, seed=split, device=device)
    config, found = cleaning_settings.Config(), []
    for way in ("auto", "auto", "compile", "compile") if split == 0 else ("auto", "auto"):
        problem, batches = cleaning.on_batches(task, SIZE)
        options = {"problem": problem, "x": task.x, "y": task.y, "steps": STEPS, "batches": batches, "accelerate": way}
        found.append({"method": "StochasticBVFIM", "split": split, "way": way, **timed(task, options)})
    nested = {
        "problem": task.problem,
        "x": task.x,
        "y": task.y,
        "method": cleaning_settings.method("BVFIM", 0.1, config),
        "optimizer": partial(torch.optim.Adam, lr=config.x_lr),
        "steps": cleaning_settings.PAPER.steps,
    }
    whole = timed(task, nested)
    del whole["ms"]  # an upper step of a hundred gradients, which is not one of the loop's
    found.append({"method": "BVFIM nested", "split": split, "way": "auto", **whole})
    return found


def main() -> None:
    """Measure and write."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--splits", type=int, default=3)
    options.add_argument("--device", default="cuda")
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    found: list[dict[str, Any]] = []
    for allowed in (True, False):
        for split in range(chosen.splits):
            with tf32(allowed):
                for row in rows(split, chosen.device):
                    found.append({**row, "tf32": allowed})
                    print(json.dumps(found[-1]), flush=True)
    if chosen.out:
        command = " ".join(["python", "benchmarks/single_loop_cuda.py", *sys.argv[1:]])
        chosen.out.write_text(json.dumps({"command": command, "machine": machine(), "runs": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
