"""Distillation of a data set: a few synthetic images of digits, with which a network is to learn what many rows teach.

x is one image a class, or more, f the cross-entropy of the network y (64-32-10, ReLU) on them, F that on real training
rows; x starts at real rows of each class.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from bvfim import data
from bvfim.core.batches import Shuffled
from bvfim.core.problem import Problem
from bvfim.reproduce.experiments.cleaning import network, start

HIDDEN, CLASSES, SIZE, TRAIN = 32, 10, 100, 1200
"""The width of the network, its classes, the rows of a batch, and the real rows that F sees."""


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
        self.problem = Problem(self.upper, self.lower)

    def upper(self, x: Tensor, y: dict[str, Tensor], i: Tensor) -> Tensor:
        """F, on real rows."""
        return functional.cross_entropy(network(y, self.inputs[i], "relu"), self.labels[i])

    def lower(self, x: Tensor, y: dict[str, Tensor], i: Tensor) -> Tensor:
        """f, on the synthetic images."""
        return functional.cross_entropy(network(y, x, "relu"), self.given)

    def batches(self, seed: int) -> Shuffled:
        """Of real training rows."""
        return Shuffled(TRAIN, SIZE, seed)
