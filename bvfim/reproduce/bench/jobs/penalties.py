"""Jobs of regularisation: a penalty for every feature, and one for all, judged at the exact minimiser of f."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from bvfim.core.problem import Problem
from bvfim.reproduce.bench.jobs.base import Job, Posed
from bvfim.reproduce.experiments.penalties import HIGHEST, LOWEST, START, load, minimiser
from bvfim.sets import Box

TASKS = {
    "per feature, breast cancer": ("breast cancer", True),
    "per feature, diabetes": ("diabetes", True),
    "ridge, diabetes": ("diabetes", False),
}
"""The data, and whether each feature has a penalty of its own."""
SECONDS = 3.0
"""CPU seconds for one of these."""


def jobs() -> list[Job]:
    """Logistic and linear regression; the whole of the rows at once."""
    return [Job(name, "penalties", SECONDS, partial(_posed, *how)) for name, how in TASKS.items()]


def _posed(data: str, each: bool, seed: int) -> Posed:
    task = load(data, seed)
    x = torch.full((task.features if each else 1,), START, dtype=torch.float64)
    y = x.new_zeros(task.features + 1)

    def judge(x: Tensor) -> float:
        return float(task.upper(x, minimiser(task, x, torch.zeros_like(y))[0]))

    return Posed(Problem(task.upper, task.lower, x_set=Box(LOWEST, HIGHEST)), x, y, judge)
