"""Lower steps that are too large for the data: what fixed steps end in, and what steps that adapt reach.

Hyper-cleaning of CIFAR-10 with the linear network (identity) at the paper's size, on raw and on centred rows, with
BVFIM at fixed lower steps and with `dynamics=Adaptive` that starts from the same steps. Exit code 1 if a fixed-step run
ends in numbers that are not finite without saying so, if none diverges, or if an adaptive run does.

    python benchmarks/steps.py --device cuda
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch

import bvfim
from bvfim.core.accelerate import tf32
from bvfim.reports.report import machine
from bvfim.reproduce.experiments import cleaning
from bvfim.reproduce.experiments.cleaning_settings import Config, method

CASES = [(False, 0.01, 0.1), (False, 0.01, 0.3), (True, 0.01, 0.3), (True, 0.01, 1.0)]
"""Whether rows are centred, the regularisers mu1 = theta, and the lower step."""


def measure(task: cleaning.Task, label: str, regulariser: float, lr: float, steps: int) -> dict[str, Any]:
    """One run: how it ended, and what it reached if it did end well."""
    config = Config(data=("cifar10",), methods=(label,), regulariser=regulariser)
    adam = partial(torch.optim.Adam, lr=config.x_lr)
    with tf32(True):
        found = bvfim.solve(task.problem, task.x, task.y, method(label, lr, config), adam, steps=steps)
    return {
        "method": label,
        "status": found.status.value,
        "advice": "" if found.status.ok else found.status.advice,
        "steps": found.steps,
        "F": found.upper,
        "accuracy": task.accuracy(found.y),
        "F1": task.f1(found.x),
    }


def sound(row: dict[str, Any]) -> bool:
    """Whether a run that counts as ended well has finite numbers, and one that does not gives advice."""
    well = bvfim.Status(row["status"]).ok
    return math.isfinite(row["F"]) if well else bool(row["advice"])


def main() -> int:
    """Measure every case and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rows", type=int, default=5000, help="training rows, and as many validation rows")
    parser.add_argument("--out", type=Path, default=Path("steps.json"))
    given = parser.parse_args()
    rows = []
    for centred, regulariser, lr in CASES:
        task = cleaning.problem(
            "cifar10",
            train=given.rows,
            validation=given.rows,
            centred=centred,
            device=given.device,
            activation="identity",
        )
        for label in ("BVFIM", "BVFIM-adaptive"):
            about = {"rows": "centred" if centred else "raw", "regulariser": regulariser, "lower step": lr}
            rows.append(about | measure(task, label, regulariser, lr, given.steps))
            print(rows[-1], flush=True)
    given.out.write_text(
        json.dumps({"machine": machine(), "settings": vars(given), "rows": rows}, indent=1, default=str)
    )
    fixed = [row for row in rows if row["method"] == "BVFIM"]
    adaptive = [row for row in rows if row["method"] == "BVFIM-adaptive"]
    broke = any(not bvfim.Status(row["status"]).ok for row in fixed)
    return int(not (broke and all(map(sound, rows)) and all(bvfim.Status(row["status"]).ok for row in adaptive)))


if __name__ == "__main__":
    sys.exit(main())
