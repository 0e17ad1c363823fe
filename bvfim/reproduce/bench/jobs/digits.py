"""Jobs on digits in which x is not a weight of rows: synthetic images, and the operations of a network.

Both are judged by the cross-entropy, on rows that no method sees, of a network trained anew with the x that was found:
in distillation from the start that every method was given, since what is wanted is an x that teaches that network.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from bvfim import tree
from bvfim.core.batches import Batches, Shuffled
from bvfim.reproduce.bench.jobs.base import Job, Posed
from bvfim.reproduce.bench.jobs.trained import trained
from bvfim.reproduce.experiments import architecture, distillation
from bvfim.reproduce.experiments.cleaning import network

DISTILLATION_SECONDS, SEARCH_SECONDS = 4.0, 6.0
"""CPU seconds."""


def jobs() -> list[Job]:
    """Distillation into one image of a class, and the search for an architecture."""
    return [
        Job("distillation", "distillation", DISTILLATION_SECONDS, partial(_distilled, 1)),
        Job("architecture", "architecture", SEARCH_SECONDS, _searched),
    ]


def _distilled(images: int, seed: int) -> Posed:
    task = distillation.Distillation(seed, images)
    first, start = distillation.TRAIN, tree.clone(task.y)

    def judge(x: Tensor) -> float:
        x = x.detach()
        y = trained(lambda y: functional.cross_entropy(network(y, x, "relu"), task.given), start)
        return float(functional.cross_entropy(network(y, task.inputs[first:], "relu"), task.labels[first:]))

    blocks = Shuffled(distillation.TRAIN, distillation.SIZE, seed, blocks=True)
    return Posed(task.problem, task.x, task.y, judge, task.batches(seed), blocks)


def _searched(seed: int) -> Posed:
    task = architecture.Search(seed)
    problem, batches = task.problem(seed)
    rows, size = architecture.ROWS, architecture.SIZE
    start = tree.clone(task.y)
    learned, unseen = torch.arange(rows), torch.arange(2 * rows, len(task.labels))

    def judge(x: Tensor) -> float:
        x = x.detach()
        return float(task.loss(x, trained(lambda y: task.loss(x, y, learned), start), unseen))

    upper, lower = (Shuffled(rows, size, 2 * seed + j, blocks=True) for j in (0, 1))
    return Posed(problem, task.x, task.y, judge, batches, Batches(upper=upper, lower=lower))
