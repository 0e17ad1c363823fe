r"""Hyper-cleaning as MLS-Bench's task optimization-bilevel has it: its rows, noise, networks and scores.

.. math:: F(x, y) = \frac1M \sum_{i \in \mathrm{val}} \mathrm{CE}(y; u_i, v_i), \qquad
          f(x, y) = \frac1N \sum_{i \in \mathrm{train}} \sigma(x_i)\, \mathrm{CE}(y; u_i, v_i)

Test rows come from MNIST's training file too. Half of the training rows have their labels redrawn among all ten, so
that a tenth of those are right and count as wrong all the same.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

import bvfim
from bvfim import data
from bvfim.tree import Tree

SIZES = 5000, 5000, 10_000
NOISE = 0.5
EVERY = 10
"""The suite judges at steps 0, 10, 20 and so on."""
SMALL = 1e-8
"""The suite adds it to every divisor."""
BATCH = 500
PLANTED, HELD = 1000, 1000
"""Of the validation rows, where settings are chosen: those that join the training rows, half of their labels redrawn,
which F1 is taken of; and those that accuracy is taken of. F has the others."""


@dataclass(frozen=True)
class Rows:
    """Images, a row each, their labels, and whether each label was left alone."""

    inputs: Tensor
    labels: Tensor
    clean: Tensor

    def __getitem__(self, rows: slice) -> Rows:
        """Some of them."""
        return Rows(self.inputs[rows], self.labels[rows], self.clean[rows])

    def __add__(self, others: Rows) -> Rows:
        """These, then the others."""
        pairs = zip(vars(self).values(), vars(others).values(), strict=True)
        return Rows(*(torch.cat(pair) for pair in pairs))


@dataclass(frozen=True)
class Task:
    """The rows of one seed, the network and its start.

    Attributes:
        train: with noise; trusted: those of F; test: those that accuracy is taken of.
        first: F1 is taken of the training rows from this one on.
    """

    train: Rows
    trusted: Rows
    test: Rows
    network: nn.Module
    first: int = 0

    def objectives(self) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
        """F and f on the rows of a batch, all of them by default."""
        train, trusted, network = self.train, self.trusted, self.network

        def upper(x: Tensor, y: Tree, i: Any = slice(None)) -> Tensor:
            return cross_entropy(functional_call(network, y, trusted.inputs[i]), trusted.labels[i])

        def lower(x: Tensor, y: Tree, i: Any = slice(None)) -> Tensor:
            losses = cross_entropy(functional_call(network, y, train.inputs[i]), train.labels[i], reduction="none")
            return (torch.sigmoid(x if isinstance(i, slice) else x.gather(0, i)) * losses).mean()

        return upper, lower

    @torch.no_grad()
    def scores(self, x: Tensor, y: Tree) -> dict[str, float]:
        """The suite's scores, in percent: a row with a weight of a half or more is called clean."""
        kept, clean = (x[self.first :] >= 0).double(), self.train.clean[self.first :].double()
        both = float((kept * clean).mean())
        precision, recall = both / (float(kept.mean()) + SMALL), both / (1 - NOISE + SMALL)

        def accuracy(rows: Rows) -> float:
            found = functional_call(self.network, y, rows.inputs).argmax(1)
            return 100 * float((found == rows.labels).double().mean())

        return {
            "accuracy": accuracy(self.test),
            "F1": 200 * precision * recall / (precision + recall + SMALL),
            "precision": 100 * precision,
            "recall": 100 * recall,
            "validation accuracy": accuracy(self.trusted),
        }


def task(net: str, seed: int) -> Task:
    """The suite's rows and network of a seed, drawn in its order."""
    random.seed(seed)
    torch.manual_seed(seed)
    mnist = data.load("mnist").train
    order = list(range(len(mnist.labels)))
    random.shuffle(order)
    parts, at = [], 0
    for size in SIZES:
        own, at = order[at : at + size], at + size
        labels = torch.from_numpy(mnist.labels[own])
        parts.append(Rows(torch.from_numpy(mnist.inputs[own]), labels, torch.ones(size, dtype=torch.bool)))
    layers = [nn.Linear(784, 10)] if net == "linear" else [nn.Linear(784, 300), nn.Sigmoid(), nn.Linear(300, 10)]
    train, trusted, test = parts
    return Task(noisy(train), trusted, test, nn.Sequential(*layers))


def noisy(rows: Rows) -> Rows:
    """The same with labels redrawn among all ten, for a share of them."""
    order = list(range(len(rows.labels)))
    random.shuffle(order)
    labels, clean = rows.labels.clone(), rows.clean.clone()
    for i in order[: int(NOISE * len(order))]:
        labels[i], clean[i] = random.randint(0, 9), False
    return Rows(rows.inputs, labels, clean)


def for_settings(whole: Task) -> Task:
    """A task of validation rows to choose settings on: the test rows and the noise of the training rows stay unseen."""
    planted, held = noisy(whole.trusted[:PLANTED]), whole.trusted[PLANTED : PLANTED + HELD]
    first, trusted = len(whole.train.labels), whole.trusted[PLANTED + HELD :]
    return replace(whole, train=whole.train + planted, trusted=trusted, test=held, first=first)


def solved(own: Task, steps: int, method: Any, batches: bvfim.Batches | None, **options: Any) -> dict[str, Any]:
    """A run, and its scores at the step that each rule selects."""
    seen: list[dict[str, float]] = []
    judging = 0.0

    def judge(run: bvfim.Run) -> None:
        nonlocal judging
        began = time.perf_counter()
        if run.k % EVERY == 0 or run.k == steps:
            seen.append({"step": run.k, **own.scores(run.x, run.state.y)})
        judging += time.perf_counter() - began

    x, y = torch.zeros(len(own.train.labels)), bvfim.parameters(own.network)
    problem = bvfim.Problem(*own.objectives())
    options |= {"batches": batches, "callbacks": [judge], "refit": False}
    began = time.perf_counter()
    found = bvfim.solve(problem, x, y, method, steps=steps, **options)
    return {
        "by test accuracy": max(seen, key=lambda row: (row["accuracy"], row["F1"])),
        "by validation accuracy": max(seen, key=lambda row: row["validation accuracy"]),
        "last": seen[-1],
        "F gradients": found.evaluations["upper"],
        "f gradients": found.evaluations["lower"],
        "seconds": time.perf_counter() - began - judging,
    }


def single_loop(own: Task, steps: int, x_step: float | None, multiplier: float | None, seed: int) -> dict[str, Any]:
    """StochasticBVFIM on batches; without a step of x and a multiplier, at its defaults."""
    streams = (bvfim.Shuffled(len(rows.labels), BATCH, 2 * seed + j) for j, rows in enumerate((own.trusted, own.train)))
    batches = bvfim.Batches(*streams)
    optimizer = None if x_step is None else partial(bvfim.OneScale, lr=x_step, wait=steps // 20)
    return solved(own, steps, bvfim.StochasticBVFIM(multiplier=multiplier), batches, optimizer=optimizer)


def v_pbgd(own: Task, net: str, steps: int) -> dict[str, Any]:
    """V-PBGD with the suite's settings, on all rows."""
    linear = bvfim.VPBGD(0.1, 0.1, 0.01, bvfim.schedules.linear(0.0, 0.2, 30_000))
    network = bvfim.VPBGD(0.1, 0.01, 0.01, bvfim.schedules.linear(0.0, 0.1, 10_000))
    return solved(own, steps, linear if net == "linear" else network, None)
