"""Distillation of a data set: a few synthetic images of digits, with which a network is to learn what 1200 rows teach.

x is one image a class (or --images), f the cross-entropy of the network y (64-32-10, ReLU) on them, F that on real
training rows in batches of 100; x starts at real rows of each class. f has many minimisers, and what is wanted is the
one that training from the start reaches: a y that the method carries along may lie far from it. So what matters is
whether the run says so. StochasticBVFIM at its defaults, and RHG(30, 0.3, start="restart") with Adam 0.03 on x:

- "y": the accuracy of solution.y on 597 other rows; "refit": of bvfim.refit from the first y, which is training anew;
  "other start": the same from another random y; "x's start": of bvfim.refit at the first x;
- F at the end ("upper"), after a refit ("upper_refit") and the lower gap, as the solution has them, and as it prints.

    python benchmarks/distillation.py --out benchmarks/results/distillation-cpu.json
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

import bvfim
from bvfim.reports.report import machine
from bvfim.reproduce.experiments.cleaning import network
from bvfim.reproduce.experiments.distillation import TRAIN, Distillation

STEPS, RHG_STEPS = 1000, 500
METHODS: dict[str, tuple[Any, Any, int]] = {
    "StochasticBVFIM": (bvfim.StochasticBVFIM(), None, STEPS),
    "RHG(30, 0.3), restart": (bvfim.RHG(30, 0.3, start="restart"), partial(torch.optim.Adam, lr=0.03), RHG_STEPS),
}


class Judged(Distillation):
    """The rows, the problem and what judges an x."""

    def accuracy(self, y: dict[str, Tensor]) -> float:
        """On the rows that nobody has seen."""
        found = network(y, self.inputs[TRAIN:], "relu").argmax(1)
        return float((found == self.labels[TRAIN:]).double().mean())

    def anew(self, x: Tensor, y: dict[str, Tensor]) -> float:
        """The accuracy of a network trained at x from y."""
        return self.accuracy(bvfim.refit(self.problem, x, y, batches=self.batches(7)).y)

    def solved(self, method: Any, optimizer: Any, steps: int) -> dict[str, Any]:
        """One run, judged."""
        found = bvfim.solve(self.problem, self.x, self.y, method, optimizer, steps, self.batches(0))
        print(found)
        return {
            "y": self.accuracy(found.y),
            "refit": self.anew(found.x, self.y),
            "other start": self.anew(found.x, self.other),
            "x's start": self.anew(self.x, self.y),
            "upper": found.upper,
            "upper_refit": found.upper_refit,
            "lower": found.lower,
            "lower_gap": found.lower_gap,
            "seconds": found.seconds,
            "printed": str(found),
        }


def main() -> None:
    """Measure and write."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--images", type=int, default=1, help="a class")
    options.add_argument("--share", type=float, default=1.0, help="of the upper steps, to see that it runs")
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for seed in range(chosen.seeds):
        task = Judged(seed, chosen.images)
        for name, (method, optimizer, steps) in METHODS.items():
            found = task.solved(method, optimizer, max(1, round(chosen.share * steps)))
            rows.append({"method": name, "seed": seed, **found})
            print(json.dumps({key: value for key, value in rows[-1].items() if key != "printed"}), flush=True)
    means = pd.DataFrame(rows).drop(columns=["seed", "printed"]).groupby("method").mean()
    print(means.T.to_string(float_format="%.4f"))
    if chosen.out:
        command = f"python benchmarks/distillation.py --seeds {chosen.seeds} --images {chosen.images}"
        about = {"command": f"{command} --share {chosen.share}", "machine": machine(), "runs": rows}
        chosen.out.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
