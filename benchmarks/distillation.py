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

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional

import bvfim
from bvfim import data
from bvfim.reports.report import machine
from bvfim.reproduce.experiments.cleaning import network, start

HIDDEN, CLASSES, SIZE, TRAIN, STEPS, RHG_STEPS = 32, 10, 100, 1200, 1000, 500
METHODS: dict[str, tuple[Any, Any, int]] = {
    "StochasticBVFIM": (bvfim.StochasticBVFIM(), None, STEPS),
    "RHG(30, 0.3), restart": (bvfim.RHG(30, 0.3, start="restart"), partial(torch.optim.Adam, lr=0.03), RHG_STEPS),
}


class Distillation:
    """The rows of one seed, the problem on them, and the starts."""

    def __init__(self, seed: int, images: int) -> None:
        parts = data.load("digits")
        inputs = np.concatenate([parts.train.inputs, parts.test.inputs])
        labels = np.concatenate([parts.train.labels, parts.test.labels])
        order = np.random.default_rng(seed).permutation(len(labels))
        self.inputs = torch.from_numpy(inputs[order] - inputs[order[:TRAIN]].mean(0))
        self.labels = torch.from_numpy(labels[order])
        chosen = torch.cat([torch.nonzero(self.labels[:TRAIN] == c)[:images, 0] for c in range(CLASSES)])
        self.x, self.given = self.inputs[chosen], self.labels[chosen]
        self.y, self.other = (start(inputs.shape[1], HIDDEN, CLASSES, s) for s in (seed, seed + 1000))
        self.problem = bvfim.Problem(self.upper, self.lower)

    def upper(self, x: Tensor, y: dict[str, Tensor], i: Tensor) -> Tensor:
        """F, on real rows."""
        return functional.cross_entropy(network(y, self.inputs[i], "relu"), self.labels[i])

    def lower(self, x: Tensor, y: dict[str, Tensor], i: Tensor) -> Tensor:
        """f, on the synthetic images."""
        return functional.cross_entropy(network(y, x, "relu"), self.given)

    def batches(self, seed: int) -> bvfim.Shuffled:
        """Of real training rows."""
        return bvfim.Shuffled(TRAIN, SIZE, seed)

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
        task = Distillation(seed, chosen.images)
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
