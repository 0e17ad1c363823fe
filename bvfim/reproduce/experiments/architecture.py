"""A search for an architecture: which operation on which edge of a small network tells odd digits from even ones.

64 inputs go through a linear layer to node 0, of width 16; nodes 1 to 3 are sums over all earlier nodes, each seen
through its own edge; a linear layer leads from node 3 to two classes. Each of the six edges mixes five operations by
softmax(x_edge): zero, identity, linear + ReLU, linear + tanh, and the mean of three neighbours. y is all weights, f the
cross-entropy on 600 training rows, F that on 600 validation rows, in batches of 64; x starts at 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from bvfim import data
from bvfim.core.batches import Batches, Shuffled
from bvfim.core.problem import Problem

WIDTH, CLASSES, SIZE, ROWS = 16, 2, 64, 600
"""Of a node; of digits; the rows of a batch, and of the training and the validation part."""
EDGES = [(i, j) for j in range(1, 4) for i in range(j)]
OPERATIONS = ("zero", "identity", "relu", "tanh", "mean")
Network = dict[str, Tensor]


def network(x: Tensor, y: Network, inputs: Tensor) -> Tensor:
    """The logits of the mixture."""
    shares = torch.softmax(x, 1)
    nodes: list[Any] = [functional.linear(inputs, y["in"], y["in bias"]), 0.0, 0.0, 0.0]
    for e, (i, j) in enumerate(EDGES):
        h = nodes[i]
        inner = functional.linear(h, y["edges"][e], y["edge biases"][e])
        relu, tanh = inner[:, :WIDTH].relu(), inner[:, WIDTH:].tanh()
        mean = (h + h.roll(1, 1) + h.roll(-1, 1)) / 3
        mixed = shares[e, 1] * h + shares[e, 2] * relu + shares[e, 3] * tanh + shares[e, 4] * mean
        nodes[j] = nodes[j] + mixed
    return functional.linear(nodes[-1], y["out"], y["out bias"])


def start(seed: int) -> Network:
    """Uniform in 1/sqrt(fan-in), as torch.nn.Linear starts."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape: int) -> Tensor:
        return (2 * torch.rand(shape, generator=generator) - 1) / shape[-1] ** 0.5

    inner = {"edges": uniform(len(EDGES), 2 * WIDTH, WIDTH), "edge biases": torch.zeros(len(EDGES), 2 * WIDTH)}
    ends = {"in": uniform(WIDTH, 64), "in bias": torch.zeros(WIDTH)}
    return {**ends, **inner, "out": uniform(CLASSES, WIDTH), "out bias": torch.zeros(CLASSES)}


class Search:
    """The rows of one seed, and the problem on them."""

    def __init__(self, seed: int) -> None:
        parts = data.load("digits")
        inputs = np.concatenate([parts.train.inputs, parts.test.inputs])
        labels = np.concatenate([parts.train.labels, parts.test.labels])
        order = np.random.default_rng(seed).permutation(len(labels))
        self.inputs = torch.from_numpy(inputs[order] - inputs[order[: 2 * ROWS]].mean(0))
        self.x = torch.zeros(len(EDGES), len(OPERATIONS))
        self.labels, self.y = torch.from_numpy(labels[order] % CLASSES), start(seed)

    def loss(self, x: Tensor, y: Network, i: Tensor) -> Tensor:
        """The cross-entropy on some rows."""
        return functional.cross_entropy(network(x, y, self.inputs[i]), self.labels[i])

    def problem(self, seed: int) -> tuple[Problem, Batches]:
        """F on the second part of the rows, f on the first."""
        problem = Problem(lambda x, y, i: self.loss(x, y, ROWS + i), self.loss)
        streams = [Shuffled(ROWS, SIZE, 2 * seed + j) for j in (0, 1)]
        return problem, Batches(upper=streams[0], lower=streams[1])
