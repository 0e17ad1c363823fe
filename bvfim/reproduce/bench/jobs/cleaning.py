"""Jobs of hyper-cleaning: digits with two labels in five wrong, and two hundred that can be trusted, in batches.

Judged by the cross-entropy, on rows that no method sees, of a network trained anew on the noisy rows with the weights
that were found, from a start of its own.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from bvfim.core.batches import Batches, Shuffled
from bvfim.reproduce.bench.jobs.base import Job, Posed
from bvfim.reproduce.bench.jobs.trained import Network, trained
from bvfim.reproduce.experiments import cleaning

NOISE, TRUSTED, SIZE = 0.4, 200, 100
"""The share of wrong labels, the trusted rows, the rows of a batch."""
ELSEWHERE = 1000
"""Added to the seed of a start to give that of the network which judges."""
SIZES = {"cleaning": (500, 32, 4.0), "cleaning, larger": (1200, 128, 8.0)}
"""Noisy rows, the width of the network, CPU seconds."""


def jobs() -> list[Job]:
    """A small one and a larger one."""
    return [
        Job(name, "cleaning", seconds, partial(_posed, rows, hidden)) for name, (rows, hidden, seconds) in SIZES.items()
    ]


def _posed(rows: int, hidden: int, seed: int) -> Posed:
    task = cleaning.problem(
        "digits",
        train=rows,
        validation=TRUSTED,
        hidden=hidden,
        activation="relu",
        centred=True,
        noise=NOISE,
        seed=seed,
    )
    problem, batches = cleaning.on_batches(task, SIZE, seed)
    start = cleaning.start(task.noisy.inputs.shape[1], hidden, len(task.y["bias"]), seed + ELSEWHERE)

    def judge(x: Tensor) -> float:
        weights = torch.sigmoid(x.detach())

        def loss(y: Network) -> Tensor:
            logits = cleaning.network(y, task.noisy.inputs, task.activation)
            return (weights * functional.cross_entropy(logits, task.noisy.labels, reduction="none")).mean()

        logits = cleaning.network(trained(loss, start), task.test.inputs, task.activation)
        return float(functional.cross_entropy(logits, task.test.labels))

    upper, lower = (Shuffled(n, SIZE, 2 * seed + j, blocks=True) for j, n in enumerate((TRUSTED, rows)))
    return Posed(problem, task.x, task.y, judge, batches, Batches(upper=upper, lower=lower))
