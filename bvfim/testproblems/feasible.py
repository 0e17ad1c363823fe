r"""How far constraints are from holding, as a distance, by SciPy: an independent judge of what a solver says.

A violation is a distance, that of :math:`w = (x, y)` from the nearest point at which all constraints hold,

.. math:: \min_{w'} |w' - w| \quad\text{s.t.}\quad g(w') \le 0,\; h(w') = 0,\; G(w') \le 0,\; H(w') = 0,

so that the units of constraints play no part, and one whose gradient vanishes where it is active, as
:math:`y^2 \le 0` or a cusp, is measured like the others. SLSQP finds w', from several starts; what it returns counts
only if the constraints hold there to rounding, so that the distance is never underestimated by more than that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bvfim.core.constraints import layout, values
from bvfim.core.extras import require_extras
from bvfim.core.problem import Problem
from bvfim.sets import Box

ROUNDING = 1e-12
"""Constraints hold where none is violated by more than this, as a share of its size and of the size of the point: at a
constraint whose gradient vanishes this is a distance of 1e-6."""
NEARBY, AROUND = 6, 0.1
"""The size of a constraint is the mean of its gradient's norm at so many points, so far off as a share of |v| + 1."""
PUSHES = 60
"""Newton's steps to where constraints hold: a vanishing gradient makes the distance halve with each of them."""
TURNS = 3
"""How many more starts the nearest point is searched from: one at a cusp may be a saddle of the distance."""
SLSQP = {"ftol": 1e-12, "maxiter": 200}
"""SciPy's options: the objective is in units of its own size, or what is found is pushed to where constraints hold."""

Function = Callable[[Tensor], Tensor]


class Region:
    """The points of a box where constraints hold, each divided by how fast it changes nearby.

    Args:
        values: the constraints at a point, as a vector.
        equal: which of them are equalities; the others are at most zero.
        low, high: the bounds of each entry of a point.
        near: a point; sizes of constraints are measured around it.

    Example:
        >>> import torch
        >>> from bvfim.testproblems.feasible import Region
        >>> free, inside = torch.full((2,), torch.inf).double(), torch.tensor([False])
        >>> disc = Region(lambda v: v.square().sum()[None] - 1, inside, -free, free, torch.zeros(2).double())
        >>> found = disc.nearest(torch.tensor([3.0, 4.0]).double())
        >>> [round(v, 6) for v in found.tolist()]
        [0.6, 0.8]
    """

    def __init__(self, values: Function, equal: Tensor, low: Tensor, high: Tensor, near: Tensor) -> None:
        self.values, self.equal, self.low, self.high = values, equal, low, high
        self.sizes = torch.ones_like(equal, dtype=near.dtype)
        self.generator = torch.Generator().manual_seed(0)
        slopes = [jacobian(values, self.clamped(near + AROUND * self._noise(near))).norm(dim=1) for _ in range(NEARBY)]
        mean = torch.stack(slopes).nan_to_num(0.0, 0.0, 0.0).mean(0)
        self.sizes = torch.where(mean > 0, mean, 1.0)

    def left(self, v: Tensor) -> Tensor:
        """What is left of each constraint, with its sign; zero where an inequality holds."""
        t = self.values(v) / self.sizes
        return torch.where(self.equal, t, t.clamp_min(0))

    def holds(self, v: Tensor) -> bool:
        """Whether every constraint holds to rounding."""
        left = self.left(v).abs()
        return bool((left <= ROUNDING * (1 + v.abs().max())).all())  # False for what is not a number

    def clamped(self, v: Tensor) -> Tensor:
        """The nearest point of the box."""
        return v.clamp(self.low, self.high)

    def pushed(self, v: Tensor) -> Tensor | None:
        """A point near v where constraints hold, by Newton's steps of least norm; None if there are too few."""
        v = self.clamped(v)
        for _ in range(PUSHES):
            if self.holds(v):
                return v
            left, slopes = self.left(v), jacobian(self.left, v)
            if not (left.isfinite().all() and slopes.isfinite().all()):
                return None
            v = self._step(v, left, slopes)
        return v if self.holds(v) else None

    def _step(self, v: Tensor, left: Tensor, slopes: Tensor) -> Tensor:
        """The shortest step that meets the constraints to first order, along entries that a bound does not stop."""
        free = torch.ones_like(v)
        moved = v
        for _ in range(len(v)):
            moved = v - free * torch.linalg.lstsq(slopes * free, left[:, None], driver="gelsd").solution[:, 0]
            stopped = (moved < self.low) & (v <= self.low) | (moved > self.high) & (v >= self.high)
            if not (stopped & (free > 0)).any():
                break
            free = free * ~stopped
        return self.clamped(moved)

    def lowest(self, objective: Function, start: Tensor) -> Tensor | None:
        """Where SLSQP ends from a start, if constraints hold there or a push away."""
        found = _slsqp(objective, lambda v: self.values(v) / self.sizes, self.equal, (self.low, self.high), start)
        return None if found is None else self.pushed(found)

    def nearest(self, point: Tensor) -> Tensor | None:
        """The nearest point to the given one, as far as SLSQP finds it; None where none was found."""
        best = self.pushed(point)
        if best is None:
            best = self.lowest(lambda v: (v - point).square().sum() / 2, self.clamped(point))
        if best is None or torch.equal(best, point):
            return best
        unit = (best - point).norm()
        box = (self.low - point) / unit, (self.high - point) / unit
        near = [torch.zeros_like(point), (best - point) / unit, *(self._noise(0 * point) for _ in range(TURNS))]
        for start in near:  # in units in which the nearest point found so far is one away
            found = _slsqp(
                lambda s: s.square().sum() / 2,
                lambda s: self.values(point + unit * s) / (self.sizes * unit),
                self.equal, box, start.clamp(*box),
            )  # fmt: skip
            other = None if found is None else self.pushed(point + unit * found)
            if other is not None and (other - point).norm() < (best - point).norm():
                best = other
        return best

    def _noise(self, v: Tensor) -> Tensor:
        return (1 + v.abs()) * torch.randn(v.shape, generator=self.generator, dtype=v.dtype)


def nearest(problem: Problem, x: Tensor, y: Tensor, lower_only: bool = False) -> tuple[Tensor, Tensor] | None:
    """The nearest (x, y) at which all constraints hold, or those of the lower level alone; None where none was found.

    Example:
        >>> import torch, bvfim
        >>> from bvfim.testproblems.feasible import nearest
        >>> problem = bvfim.testproblems.constrained()[8].problem  # y^2 <= 0
        >>> x, y = nearest(problem, torch.ones(1).double(), torch.tensor([0.01]).double())
        >>> float(x), bool(y < 1e-5)
        (1.0, True)
    """
    n, found = len(x), layout(problem, x, y, None)
    count = found.lower if lower_only else len(found.names)
    low, high = (torch.cat(pair) for pair in zip(bounds(problem.x_set, x), bounds(problem.y_set, y), strict=True))
    w = torch.cat([x, y]).detach()
    region = Region(lambda w: values(problem, w[:n], w[n:], None)[:count], found.equal[:count], low, high, w)
    best = region.nearest(w)
    return None if best is None else (best[:n], best[n:])


def distance(problem: Problem, x: Tensor, y: Tensor) -> float:
    """How far (x, y) is from where all constraints hold; infinite where no such point was found.

    Example:
        >>> import torch, bvfim
        >>> from bvfim.testproblems.feasible import distance
        >>> problem = bvfim.testproblems.constrained()[3].problem  # y^2 <= x
        >>> print(round(distance(problem, torch.ones(1).double(), torch.tensor([1.01]).double()), 4))
        0.0089
    """
    if not problem.stated:
        return 0.0
    require_extras("the violation of constraints as a distance", "labels")
    found = nearest(problem, x, y)
    return math.inf if found is None else float((torch.cat(found) - torch.cat([x, y]).detach()).norm())


def jacobian(function: Function, v: Tensor) -> Tensor:
    """Its matrix at v; zero for what does not depend on it."""
    found: Tensor = torch.autograd.functional.jacobian(function, v)
    return found


def bounds(given: Any, like: Tensor) -> tuple[Tensor, Tensor]:
    """Those of every entry: infinite without a set."""
    box = Box() if given is None else given
    assert isinstance(box, Box)
    low, high = (torch.as_tensor(b, dtype=like.dtype).expand_as(like) for b in (box.lower, box.upper))
    return low, high


def _slsqp(
    objective: Function, constraints: Function, equal: Tensor, box: tuple[Tensor, Tensor], start: Tensor
) -> Tensor | None:
    """Where SciPy's SLSQP ends; None if that is no point, as where a function is not defined."""
    from scipy.optimize import Bounds, minimize

    def of(function: Function, which: Tensor, sign: float) -> dict[str, Any]:
        return {
            "fun": lambda v: sign * function(torch.from_numpy(v.copy()))[which].detach().numpy(),
            "jac": lambda v: sign * jacobian(function, torch.from_numpy(v.copy()))[which].numpy(),
        }

    def with_slope(v: Any) -> tuple[float, Any]:
        point = torch.from_numpy(v.copy()).requires_grad_()
        value = objective(point)
        slope = torch.autograd.grad(value, point, allow_unused=True)[0] if value.requires_grad else None
        return float(value.detach()), (torch.zeros_like(point) if slope is None else slope).numpy()

    stated = [{"type": "eq", **of(constraints, equal, 1.0)}] if equal.any() else []
    if not equal.all():
        stated.append({"type": "ineq", **of(constraints, ~equal, -1.0)})  # SciPy's inequalities are >= 0
    try:
        found = minimize(
            with_slope, start.numpy(), jac=True, bounds=Bounds(*(b.numpy() for b in box)), constraints=stated,
            method="SLSQP", options=SLSQP,
        )  # fmt: skip
    except ValueError:  # where a function is not defined
        return None
    point = torch.from_numpy(found.x)
    return point if bool(point.isfinite().all()) else None
