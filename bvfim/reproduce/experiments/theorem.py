r"""Theorem 1, seen: :math:`\varphi_k` against :math:`\varphi` on a grid of x, with schedules that obey it and others.

Two problems with x and y in one dimension. The sine is the paper's toy. In the double well the two lower minima tie at
x = 0, where :math:`\varphi` jumps and has its minimum:

.. math:: \min_x (x - \tfrac12)^2 + \tfrac12 (y - 1)^2 \quad\text{s.t.}\quad
          y \in \arg\min_y\; (y^2 - 1)^2 + \tfrac12 x y

Every minimum over y is that of a dense grid, refined around each of its valleys: what is seen is the functions
themselves, and no solver.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import pandas as pd
import torch
from torch import Tensor

from bvfim.methods import BVFIM
from bvfim.reports.report import Results
from bvfim.reproduce.experiments import theorem_report
from bvfim.reproduce.experiments.resumable import How, Part, measured
from bvfim.schedules import geometric, harmonic, value

Function: TypeAlias = Callable[[Tensor], Tensor]
VALLEYS = 4
"""How many valleys of a function of y are refined; neither problem has more."""
TIE = 1e-12
"""Lower values this close are equal: far above rounding, far below what an x off the tie makes of it."""


@dataclass(frozen=True)
class Plane:
    """A problem with F and f of two numbers, and the boxes [-x, x] and [-y, y] that it is looked at in."""

    upper: Callable[[Tensor, Tensor], Tensor]
    lower: Callable[[Tensor, Tensor], Tensor]
    x: float
    y: float


PROBLEMS = {
    "sine": Plane(lambda x, y: x**2 + y**2, lambda x, y: torch.sin(x + y), x=2.0, y=12.0),
    "double well": Plane(
        lambda x, y: (x - 0.5) ** 2 + (y - 1) ** 2 / 2, lambda x, y: (y**2 - 1) ** 2 + x * y / 2, x=1.0, y=2.5
    ),
}

_FIFTH, _FAST = geometric(0.2, 0.2), geometric(math.exp(-3), math.exp(-3))
SCHEDULES = {
    "falling": BVFIM(mu1=_FIFTH, mu2=_FIFTH, theta=_FIFTH, tau=_FIFTH),
    "broken": BVFIM(mu1=_FAST, mu2=_FAST, theta=_FAST, tau=harmonic(1 / 3)),
}
"""All four as 5^-k; and mu2 = exp(-1/tau) with tau = 1/(3k), so that tau ln(mu2) = -1. The stages k count from 1."""


@dataclass(frozen=True)
class Config:
    """How finely the functions are looked at.

    Args:
        points: of the grid of x, on each side of zero.
        lower_points: of the grid of y, likewise.
        stages: k = 1, ..., stages.
        seed: nothing here is random; every experiment has one.
        device: where the tensors are.
    """

    points: int = 200
    lower_points: int = 1200
    stages: int = 6
    seed: int = 0
    device: str = "cpu"

    def quick(self) -> Config:
        """Smaller, to see that it runs."""
        return replace(self, points=50, lower_points=300, stages=4)


def phi(plane: Plane, x: Tensor, config: Config) -> Tensor:
    """The least F over the global minimisers of f(x, .), for each x."""
    y, f = _valleys(lambda y: plane.lower(x[:, None, None], y), x, plane, config)
    tied = f <= f.amin(1, keepdim=True) + TIE
    return plane.upper(x[:, None], y).where(tied, math.inf).amin(1)


def phi_k(plane: Plane, x: Tensor, k: int, schedules: BVFIM, config: Config) -> Tensor:
    """The value of the barrier problem with the regularisers of stage k, for each x."""
    names = ("mu1", "mu2", "theta", "tau")
    mu1, mu2, theta, tau = (value(getattr(schedules, name), k - 1, name) for name in names)
    column = x[:, None, None]

    def lower(y: Tensor) -> Tensor:
        return plane.lower(column, y)

    least = _valleys(lambda y: lower(y) + mu1 / 2 * y**2, x, plane, config)[1].amin(1)[:, None, None]

    def barrier(y: Tensor) -> Tensor:
        slack = (least - lower(y)) + mu2
        inside = plane.upper(column, y) + theta / 2 * y**2 - tau * torch.log(slack.clamp(min=1e-300))
        return inside.where(slack > 0, math.inf)

    # The feasible set can be narrower than the grid; it holds the minimisers of f.
    bottoms = _valleys(lower, x, plane, config)[0]
    return _valleys(barrier, x, plane, config, bottoms)[1].amin(1)


def _grid(half: float, points: int, config: Config) -> Tensor:
    """From -half to half, with zero itself."""
    return torch.arange(-points, points + 1, dtype=torch.float64, device=config.device) * (half / points)


def _valleys(g: Function, x: Tensor, plane: Plane, config: Config, also: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The lowest local minimisers of g over y for each x and their values, from the grid and other starts."""
    y = _grid(plane.y, config.lower_points, config)
    values = g(y[None, None])[:, 0]
    inner = values[:, 1:-1]
    local = (inner <= values[:, :-2]) & (inner <= values[:, 2:])
    starts = y[1:-1][inner.where(local, math.inf).topk(VALLEYS, largest=False).indices]
    starts = starts if also is None else torch.cat([starts, also], 1)
    return zoom(g, starts, float(y[1] - y[0]), levels=6)


def zoom(g: Function, centre: Tensor, width: float, levels: int) -> tuple[Tensor, Tensor]:
    """The minimiser of g within a width of each centre, and the minimum: each level looks 20 times closer."""
    offsets = torch.arange(-20, 21, dtype=centre.dtype, device=centre.device) / 20
    for level in range(levels):
        near = centre[..., None] + offsets * (width / 20**level)
        least, at = g(near).min(-1, keepdim=True)
        centre = near.gather(-1, at)[..., 0]
    return centre, least[..., 0]


def lowest(function: Function, grid: Tensor) -> Tensor:
    """The minimiser of a function of x: the best point of the grid, refined."""
    best = grid[function(grid).argmin()][None]
    return zoom(lambda x: function(x.flatten()).view_as(x), best, float(grid[1] - grid[0]), levels=4)[0]


def curves(problem: str, schedule: str, config: Config) -> pd.DataFrame:
    """phi and phi_k of every stage, on the grid of x and at the minimisers of both."""
    plane, schedules = PROBLEMS[problem], SCHEDULES[schedule]
    grid, tables = _grid(plane.x, config.points, config), []
    true = partial(phi, plane, config=config)
    best = lowest(true, grid)
    for k in range(1, config.stages + 1):
        close = partial(phi_k, plane, k=k, schedules=schedules, config=config)
        x = torch.cat([grid, best, lowest(close, grid)]).unique()
        columns = {"x": x, "phi": true(x), "phi_k": close(x)}
        tables.append(pd.DataFrame({"k": k, **{name: column.tolist() for name, column in columns.items()}}))
    return pd.concat(tables, ignore_index=True)


def parts(config: Config) -> dict[str, Part]:
    """Each problem with each of the schedules."""
    return {
        name(schedule, problem): partial(curves, problem, schedule, config)
        for schedule in SCHEDULES
        for problem in PROBLEMS
    }


def name(schedule: str, problem: str) -> str:
    """The name of a part, which its file has too."""
    return f"{schedule}-{problem.replace(' ', '-')}"


def run(config: Config, how: How = How()) -> Results:
    """Look at the functions, measure both halves of epi-convergence, and report.

    Args:
        config: the grids.
        how: where the parts are saved, and how many processes share them.
    """
    tables = measured(config, parts(config), how)
    found = {schedule: {problem: tables[name(schedule, problem)] for problem in PROBLEMS} for schedule in SCHEDULES}
    return theorem_report.report(found, SCHEDULES)
