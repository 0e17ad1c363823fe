"""Small problems that try to mislead a solver, each with x and y in an interval, so that brute force can judge it.

Where the lower level has several minima, the answer jumps with x; where it is flat, F alone tells; where the optimum
is a kink or a bound, no gradient vanishes there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

import bvfim

D = torch.float64
F_TOL, GAP_TOL = 3e-3, 5e-3
"""Relative to 1 + |F|, and to how much f varies: a few times the solver's own tolerance."""
Objective = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Hostile:
    """F and f of numbers x and y; brute force looks within ``reach`` of zero, and the solver in ``box``, if any."""

    name: str
    F: Objective
    f: Objective
    reach: float = 4.0
    box: tuple[float, float] | None = None

    def problem(self, a: float = 1.0, b: float = 1.0, c: float = 1.0, d: float = 1.0) -> bvfim.Problem:
        """The problem with x in units of a, y of b, F of c and f of d."""
        sets = [None if self.box is None else bvfim.Box(self.box[0] * u, self.box[1] * u) for u in (a, b)]
        return bvfim.Problem(
            lambda x, y: c * self.F(x[0] / a, y[0] / b), lambda x, y: d * self.f(x[0] / a, y[0] / b), *sets
        )


def bump(y: Tensor, at: float, width: float) -> Tensor:
    """A bell of height one."""
    return torch.exp(-(((y - at) / width) ** 2))


SMOOTH = [
    Hostile("quadratic", lambda x, y: (x - 2) ** 2 + (y - 2) ** 2, lambda x, y: (y - x + 1) ** 2),
    Hostile("steep lower level", lambda x, y: (x - 1) ** 2 + y**2, lambda x, y: 1e3 * (y - x**2 / 2) ** 2),
    Hostile("flat lower level", lambda x, y: (x - 1) ** 2 + y**2, lambda x, y: 1e-3 * (y - x) ** 2),
    Hostile("quartic lower level", lambda x, y: (x - 1) ** 2 + (y - 1) ** 2, lambda x, y: (y - x / 2) ** 4),
    Hostile("x in f alone", lambda x, y: (y - 1) ** 2, lambda x, y: (y - torch.tanh(x)) ** 2 + 0.01 * y**2),
    Hostile("x in F alone", lambda x, y: (x - 1) ** 2 + y**2, lambda x, y: (y - 0.5) ** 2 + 0 * x),
    Hostile("valley", lambda x, y: (x - 1) ** 2 + 10 * (y - x**2) ** 2, lambda x, y: (y - x) ** 2),
    Hostile("exponential", lambda x, y: (x + 1) ** 2 + (y - 1) ** 2, lambda x, y: torch.exp(y) - y * torch.exp(x / 2)),
    Hostile("logarithms", lambda x, y: (y - 0.3) ** 2 + 0.01 * x**2, lambda x, y: (y - 1) ** 2 + torch.exp(x) * y**2),
    Hostile("shifted f", lambda x, y: (x - 2) ** 2 + (y - 2) ** 2, lambda x, y: (y - x + 1) ** 2 + 1e4),
    Hostile("negative F", lambda x, y: (x - 2) ** 2 + (y - 2) ** 2 - 100, lambda x, y: (y - x + 1) ** 2),
    Hostile("fourth power of F", lambda x, y: (x - 1) ** 4 + (y - 1) ** 4, lambda x, y: (y - x) ** 2),
    Hostile("sine of x", lambda x, y: (y - 0.5) ** 2 + 0.1 * x**2, lambda x, y: (y - torch.sin(3 * x)) ** 2),
    Hostile("steep valley of F", lambda x, y: (x - 1) ** 2 + 100 * (y - x) ** 2, lambda x, y: (y - 0.5 * x) ** 2),
    Hostile("weak F", lambda x, y: 1e-4 * ((x - 1) ** 2 + y**2), lambda x, y: (y - x) ** 2 + 0.1 * y**4),
    Hostile("F of y alone", lambda x, y: (y - 0.7) ** 2, lambda x, y: (y - x / 3) ** 2 + 0.05 * (x - y) ** 2),
    Hostile("soft absolute value", lambda x, y: torch.sqrt((x - 1) ** 2 + 0.01) + y**2, lambda x, y: (y - x) ** 2),
    Hostile("product", lambda x, y: (x * y - 1) ** 2 + 0.1 * x**2, lambda x, y: (y - x) ** 2 + 0.5 * y**2),
]
WELLS = [
    Hostile("double well", lambda x, y: (x - 0.5) ** 2 + (y - 1) ** 2, lambda x, y: (y**2 - 1) ** 2 + 0.5 * x * y),
    Hostile("tilted well", lambda x, y: x**2 + (y - 1) ** 2, lambda x, y: (y**2 - 1) ** 2 + (0.3 - x) * y),
    Hostile("far wells", lambda x, y: (x - 1) ** 2 + y**2, lambda x, y: (y**2 - 9) ** 2 / 81 + 0.2 * x * y),
    Hostile("narrow well", lambda x, y: (x - 1) ** 2 + y**2, lambda x, y: 0.1 * (y - x) ** 2 - bump(y, 2.0, 0.1)),
    Hostile("narrower well", lambda x, y: (x - 1) ** 2 + y**2, lambda x, y: 0.1 * (y - x) ** 2 - bump(y, -2.0, 0.05)),
    Hostile("sines", lambda x, y: (x - 1) ** 2 + (y - 1) ** 2, lambda x, y: torch.sin(3 * y + x) + 0.1 * (y - x) ** 2),
    Hostile("cosines", lambda x, y: x**2 + (y + 1) ** 2, lambda x, y: torch.cos(2 * y) + 0.2 * (y - 2 * x) ** 2),
    Hostile("three wells", lambda x, y: x**2 + (y - 2) ** 2, lambda x, y: y**2 * (y**2 - 4) ** 2 / 8 - 0.3 * x * y),
    Hostile(
        "uneven wells", lambda x, y: (x - 1) ** 2 + y**2, lambda x, y: (y + 2) ** 2 * ((y - 1) ** 2 + 0.3 - 0.1 * x)
    ),
    Hostile("deep and narrow", lambda x, y: x**2 + (y - 1) ** 2, lambda x, y: y**2 - 4 * bump(y, 1.5 + x / 4, 0.2)),
    Hostile("moving well", lambda x, y: (x + 1) ** 2 + (y - 1) ** 2, lambda x, y: ((y - x) ** 2 - 1) ** 2 + 0.2 * y),
]
BOXED = [
    Hostile("bound of x", lambda x, y: -x + y**2, lambda x, y: (y - x / 4) ** 2, 1.0, (-1.0, 1.0)),
    Hostile("bound of y", lambda x, y: (x - 1) ** 2 + y, lambda x, y: (y - 3 * x) ** 2, 1.0, (-1.0, 1.0)),
    Hostile("corner", lambda x, y: -x - y, lambda x, y: (y - x) ** 2, 1.0, (-1.0, 1.0)),
    Hostile("linear f", lambda x, y: (x - 0.5) ** 2 + y**2, lambda x, y: (1 + x**2) * y, 1.0, (-1.0, 1.0)),
    Hostile("cubic f", lambda x, y: (x - 0.6) ** 2 + y**2, lambda x, y: y**3 / 3 - x * y, 1.0, (-1.0, 1.0)),
    Hostile("concave f", lambda x, y: (x - 0.2) ** 2 + (y - 1) ** 2, lambda x, y: -(y**2) - x * y, 1.0, (-1.0, 1.0)),
    Hostile("flat f", lambda x, y: (x - 0.3) ** 2 + (y - 0.2) ** 2, lambda x, y: x * y**2, 1.0, (0.0, 1.0)),
    Hostile("both bounds", lambda x, y: (x + y) ** 2 - x, lambda x, y: (y + 2 * x) ** 2, 1.0, (-1.0, 1.0)),
    Hostile(
        "tie at a bound", lambda x, y: (x - 0.4) ** 2 + (y - 1) ** 2, lambda x, y: -((y - x) ** 2), 1.0, (-1.0, 1.0)
    ),
    Hostile("narrow box", lambda x, y: (x - 2e-4) ** 2 + y, lambda x, y: (y - x) ** 2, 1e-3, (-1e-3, 1e-3)),
    Hostile("waves in a box", lambda x, y: x**2 + y, lambda x, y: torch.sin(6 * y) + x * y, 1.0, (-1.0, 1.0)),
]
ALL = SMOOTH + WELLS + BOXED


GOLDEN = (5**0.5 - 1) / 2
TIE = 1e-12
"""Minima of f whose values differ by less than this share of its variation are equally low."""
BRACKETS = 64
"""Lowest points of the grid beside higher ones that are refined: no problem has as many wells."""


@dataclass(frozen=True)
class Truth:
    """phi on a grid of x, by brute force: F at the best y among the minimisers of f(x, .)."""

    hostile: Hostile
    x: Tensor
    phi: Tensor

    @property
    def best(self) -> float:
        """The global optimum, as far as the grid shows it."""
        return float(self.phi.min())

    def near(self, x: float, radius: float) -> float:
        """The least phi around x, x itself included."""
        own = phi_of(self.hostile, torch.tensor([x], dtype=D))
        return float(torch.cat([own, self.phi[(self.x - x).abs() < radius]]).min())

    def gap(self, x: float, y: float) -> float:
        """f(x, y) less the least f(x, .), relative to how much f(x, .) varies."""
        at = torch.tensor([x], dtype=D)
        lowest, variation = lowest_of(self.hostile, at)[2:]
        return float((self.hostile.f(at, torch.tensor([y], dtype=D)) - lowest) / variation)


def grid(hostile: Hostile, count: int) -> Tensor:
    """Where brute force looks."""
    low, high = hostile.box or (-hostile.reach, hostile.reach)
    return torch.linspace(low, high, count, dtype=D)


def lowest_of(hostile: Hostile, x: Tensor, count: int = 2001) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Refined points y of a grid, f there, the least f, and how much f varies; a row for each x."""
    y = grid(hostile, count).expand(len(x), -1)
    x = x[:, None]
    values = hostile.f(x, y).expand_as(y)
    variation = values.median(1).values - values.min(1).values
    step = float(y[0, 1] - y[0, 0])
    low, high = y[0, 0], y[0, -1]
    beside = torch.nn.functional.pad(values, (1, 1), value=torch.inf)
    least = (values <= beside[:, :-2]) & (values <= beside[:, 2:])
    which = torch.where(least, values, torch.inf).topk(BRACKETS, largest=False).indices
    around = y.gather(1, which)
    a, b = (around - step).clamp_min(low), (around + step).clamp_max(high)
    for _ in range(45):  # each bracket shrinks to 1e-9 of its first length
        inner, outer = b - GOLDEN * (b - a), a + GOLDEN * (b - a)
        left = hostile.f(x, inner) < hostile.f(x, outer)
        a, b = torch.where(left, a, inner), torch.where(left, outer, b)
    points = torch.cat([y, (a + b) / 2], 1)
    values = hostile.f(x, points).expand_as(points)
    return points, values, values.min(1).values, variation


def phi_of(hostile: Hostile, x: Tensor) -> Tensor:
    """The least F over the minimisers of f(x, .)."""
    points, values, lowest, variation = lowest_of(hostile, x)
    F = hostile.F(x[:, None], points).expand_as(points)
    return torch.where(values <= (lowest + TIE * variation)[:, None], F, torch.inf).min(1).values


def truth(hostile: Hostile, count: int = 801) -> Truth:
    """Brute force."""
    x = grid(hostile, count)
    return Truth(hostile, x, torch.cat([phi_of(hostile, part) for part in x.split(50)]))


def wrong(found: Truth, x: float, y: float) -> str:
    """What is wrong with (x, y) as a local optimum of phi; empty where nothing is."""
    hostile = found.hostile
    F = float(hostile.F(torch.tensor(x, dtype=D), torch.tensor(y, dtype=D)))
    gap, size = found.gap(x, y), 1 + abs(F)
    low = found.near(x, hostile.reach / 200)
    if gap > GAP_TOL:
        return f"the lower-level gap is {gap:.2g}"
    if low + F_TOL * size < F:
        return f"F = {F:.5g}, and phi is {low:.5g} nearby"
    return f"F = {F:.5g} is below the optimum {found.best:.5g}" if found.best - F_TOL * size > F else ""


def start(hostile: Hostile, seed: int) -> tuple[Tensor, Tensor]:
    """A random start, in the box or within three quarters of the reach."""
    low, high = hostile.box or (-0.75 * hostile.reach, 0.75 * hostile.reach)
    numbers = torch.rand(2, dtype=D, generator=torch.Generator().manual_seed(1000 + seed))
    return tuple((low + (high - low) * numbers).split(1))
