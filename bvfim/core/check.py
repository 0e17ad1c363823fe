"""Checks of a hypergradient against finite differences and the implicit gradient."""

from __future__ import annotations

import enum
import functools
import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from bvfim import tree
from bvfim.core.arguments import check_steps, check_tol
from bvfim.core.following import checked_estimate
from bvfim.core.hypergradient import require_unconstrained
from bvfim.core.implicit import implicit_gradient
from bvfim.core.linear import dense
from bvfim.core.lower_minimum import lower_minimum
from bvfim.core.problem import Problem, as_problem
from bvfim.core.validate import validate
from bvfim.methods import BDA, Estimator, Info, State, as_estimator, require_able
from bvfim.methods.base import LowerSolver
from bvfim.status import ProblemError
from bvfim.tree import Tree

DIRECTIONS = 8
"""The number of directions for finite differences; all of them if x is no longer than this."""

SHARP, ROUGH = 1e-4, 3e-2
"""The relative error that counts as equal in float64, and in float32: what central differences lose there."""
DENSE_LIMIT = 256
"""The dense implicit gradient is formed for up to this many entries of y."""

LEFT = 0.9
"""A lower level that leaves more than this share of f's fall, or of y's response to x, has not begun to be solved."""
OPPOSITE = -0.5
"""An estimate with a cosine below this points the other way."""


class Verdict(enum.Enum):
    """The verdict of a hypergradient check.

    Example:
        >>> import bvfim
        >>> [verdict.value for verdict in bvfim.Verdict]
        ['exact', 'biased by design', 'wrong']
    """

    EXACT = "exact"
    BIASED = "biased by design"
    WRONG = "wrong"


@dataclass(frozen=True)
class HypergradientCheck:
    """The outcome of :func:`bvfim.check_hypergradient`.

    Attributes:
        verdict: exact, biased by design, or wrong. An estimate is not exact if its lower level diverged or has barely
            started, however well it matches its own value, and it is wrong if it points the other way.
        cosine, relative_error: the estimate against finite differences of the value the method claims to differentiate.
            A cosine is not a number where what it compares with is zero up to rounding.
        implicit_cosine, implicit_error: against the exact implicit gradient at a lower-level minimiser, or ``None``
            if y is too long, Y is not a box, or the Hessian is not positive definite on the free directions.
        lower_gap: f where the method's lower level ends, less f at a minimum of the lower level near there.
        bias: what the method omits by design, or that its lower level is not solved.
        estimate: the estimate itself.
        tol: the largest relative error that counts as equal.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum())
        >>> x = torch.zeros(1, dtype=torch.float64)
        >>> print(bvfim.check_hypergradient(problem, x, x, bvfim.RHG(steps=20, lr=0.1)))
        RHG: exact. Against finite differences of its value: cosine 1.0000, relative error 0.0%. Against the exact \
implicit gradient: cosine 1.0000, relative error 1.2%.
    """

    method: str
    verdict: Verdict
    cosine: float
    relative_error: float
    implicit_cosine: float | None
    implicit_error: float | None
    lower_gap: float
    bias: str
    estimate: Tree
    tol: float = SHARP

    def __str__(self) -> str:
        text = f"{self.method}: {self.verdict.value}"
        text += f" ({self.bias})" if self.verdict is Verdict.BIASED else ""
        text += (
            f". Against finite differences of its value: cosine {_shown(self.cosine)}, "
            f"relative error {self.relative_error:.1%}"
        )
        if self.tol > SHARP:
            kind = str(tree.leaves(self.estimate)[0].dtype).removeprefix("torch.")
            text += f" ({kind}: {100 * self.tol:.3g}% counts as equal)"
        text += "."
        if self.implicit_error is not None:
            text += (
                f" Against the exact implicit gradient: cosine {_shown(self.implicit_cosine)}, "
                f"relative error {self.implicit_error:.1%}."
            )
        return text


def check_hypergradient(
    problem: Problem,
    x: Tree,
    y: Tree,
    method: Estimator | type,
    *,
    step: int = 0,
    data: Any = None,
    tol: float | None = None,
) -> HypergradientCheck:
    """Compare one estimate with finite differences and, on small problems, with the exact implicit gradient.

    A method without its approximations (its *sound* form, see :class:`bvfim.methods.Reference`) must match
    central differences of its own value or, for an implicit method, the dense implicit formula at its own y;
    otherwise it is wrong. If it matches, the estimate itself is exact or biased by design, and the relative error is
    the size of the bias.

    Args:
        problem: the objectives and sets.
        x: the point to check at; float64 gives a sharp verdict, float32 a rough one.
        y: the initial point of the lower level.
        method: the method to check, which may be your own.
        step: the upper step k, for schedules.
        data: the batch.
        tol: the largest relative error that counts as equal; 1e-4 in float64 and 3e-2 in float32 by default.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum())
        >>> x = torch.zeros(1, dtype=torch.float64)
        >>> bvfim.check_hypergradient(problem, x, x, bvfim.TRHG(steps=20, keep=5, lr=0.1)).verdict
        <Verdict.BIASED: 'biased by design'>
    """
    check_tol(tol)
    check_steps(step, "step")
    method, problem = as_estimator(method), as_problem(problem).counted_anew()
    require_unconstrained(problem, "check_hypergradient")
    require_able(method, problem)
    validate(problem, x, y, data)
    dtype = tree.leaves(x)[0].dtype
    if dtype not in (torch.float32, torch.float64):
        raise ProblemError(f"check_hypergradient needs float64, or float32 for a rough verdict, not {dtype}")
    x, y = tree.detach(x), problem.project_y(tree.detach(y))
    tol = (SHARP if dtype == torch.float64 else ROUGH) if tol is None else tol
    point = _Point(problem, x, method.init(problem, x, y), step, data)
    claim, sound, bias, own = method.reference(problem, x, point.state, step, data)

    gradient, following, info = point.estimate(method)
    along, differences = point.directions @ tree.flatten(gradient), point.differences(claim)
    error = _relative(along, *differences)
    verdict = Verdict.EXACT if error <= tol else Verdict.BIASED
    if not _is_sound(point, sound, differences if sound is claim else point.differences(sound), bias, tol):
        verdict = Verdict.WRONG
    if own is not None and _relative(along, *replace(point, state=own[1]).differences(own[0])) > tol:
        verdict = Verdict.WRONG
    if verdict is not Verdict.EXACT and bool(info.get("breakdown", 0)):  # the method itself says so
        verdict, bias = Verdict.BIASED, "its linear solve broke down; " + bias
    lower = _Lower(point, y, following.y, isinstance(method, LowerSolver) and not isinstance(method, BDA))
    cosine, flat = _cosine(along, *differences), tree.flatten(gradient)
    implicit_cosine = None if lower.implicit is None else _cosine(flat, lower.implicit, differences[1])
    unsolved = lower.unsolved(flat, tol) if verdict is Verdict.EXACT else ""
    if unsolved:
        verdict, bias = Verdict.BIASED, unsolved
    if verdict is Verdict.BIASED and (cosine < OPPOSITE or (unsolved and (implicit_cosine or 0.0) < OPPOSITE)):
        verdict = Verdict.WRONG
    return HypergradientCheck(
        method=type(method).__name__,
        verdict=verdict,
        cosine=cosine,
        relative_error=error,
        implicit_cosine=implicit_cosine,
        implicit_error=None if lower.implicit is None else _relative(flat, lower.implicit),
        lower_gap=lower.f_end - lower.f_low,
        bias=bias,
        estimate=gradient,
        tol=tol,
    )


@dataclass(frozen=True)
class _Point:
    """Where a method is checked, and its value and gradient there."""

    problem: Problem
    x: Tree
    state: State
    step: int
    data: Any

    def estimate(self, method: Estimator) -> tuple[Tree, State, Info]:
        found = method.estimate(self.problem, self.x, self.state, self.step, self.data)
        return checked_estimate(found, self.x, method)

    def value(self, method: Estimator) -> Tensor:
        """The number whose derivative the method claims to give; F where it names none."""
        _, following, info = self.estimate(method)
        found = info.get("value", info.get("upper"))
        return self.problem.at(self.x, self.data).upper(following.y) if found is None else found

    @functools.cached_property
    def directions(self) -> Tensor:
        """Orthonormal rows: the coordinates of a short x, random directions of a long one."""
        m, first = tree.size(self.x), tree.leaves(self.x)[0]
        if m <= DIRECTIONS:
            return torch.eye(m).to(first)
        generator = torch.Generator().manual_seed(0)
        return torch.linalg.qr(torch.randn(m, DIRECTIONS, generator=generator, dtype=torch.float64)).Q.T.to(first)

    def differences(self, method: Estimator) -> tuple[Tensor, float]:
        """Central differences of the method's value along each direction, and the size of their rounding."""
        flat = tree.flatten(self.x)
        eps = torch.finfo(flat.dtype).eps
        h = eps ** (1 / 3) * (1 + float(flat.abs().max()))

        def value(at: Tensor) -> Tensor:
            return replace(self, x=tree.unravel(at, self.x)).value(method)

        sides = torch.stack([torch.stack([value(flat + h * d), value(flat - h * d)]) for d in self.directions])
        if not bool(torch.isfinite(sides).all()):
            raise ProblemError(f"the value is not finite within {h:.1e} of x: check at a point away from the boundary")
        return (sides[:, 0] - sides[:, 1]) / (2 * h), 10 * eps * float(sides.abs().max()) / h


def _is_sound(point: _Point, sound: Estimator, differences: tuple[Tensor, float], bias: str, tol: float) -> bool:
    gradient, following, _ = point.estimate(sound)
    if _relative(point.directions @ tree.flatten(gradient), *differences) <= tol:
        return True
    # A lower level that converges slowly leaves y short of the minimum, where the implicit formula is the derivative
    # of nothing: there the formula itself is what an implicit method, biased by its own account, can be held to.
    end = following.y
    if not bias or tree.size(end) > DENSE_LIMIT:
        return False
    at = point.problem.at(point.x, point.data)
    formula = at.pull(implicit_gradient(at, end, dense).gradient)
    return _relative(tree.flatten(gradient), tree.flatten(formula)) <= tol


class _Lower:
    """The lower level solved further than a method did: from where the method starts, or ends if f is lower there.

    Attributes:
        f_start, f_end, f_low: f where the method starts, where it ends, and where the descent ends.
        descends: whether the method takes steps down f, and f alone.
        saddle: whether f has a direction of negative curvature there.
        implicit: the exact implicit gradient there; ``None`` where there is none to trust.
    """

    def __init__(self, point: _Point, start: Tree, end: Tree, descends: bool) -> None:
        self.descends = descends
        self.at, self.end = point.problem.at(point.x, point.data), end
        self.f_start, self.f_end = (float(self.at.lower(y)) for y in (start, end))
        found = lower_minimum(self.at, end if self.f_end < self.f_start else start)
        self.low = end if found is None else found[0]
        self.f_low = self.f_end if found is None else found[1]
        self.saddle = False
        self.implicit: Tensor | None = None
        if found is not None and tree.size(start) <= DENSE_LIMIT:
            self._differentiate(self.low)

    def _differentiate(self, y: Tree) -> None:
        _, _, gradient, linear = implicit_gradient(self.at, y, dense)
        # On a face of Y held entries have no curvature; elsewhere a singular Hessian has no implicit gradient.
        definite = float(linear.curvature) > 0 or (self.at.problem.y_set is not None and not bool(linear.breakdown))
        solved = float(linear.residual) < torch.finfo(linear.residual.dtype).eps ** 0.5
        self.saddle = bool(linear.breakdown)
        self.implicit = tree.flatten(self.at.pull(gradient)) if definite and solved else None

    def unsolved(self, gradient: Tensor, tol: float) -> str:
        """What says that the method did not solve it: f, or what the gradient has of y's response; empty if nothing."""
        left, way = self.f_end - self.f_low, max(self.f_start - self.f_low, 0.0)
        values = (
            f"f is {self.f_start:.3g} where it starts, {self.f_end:.3g} where it ends and {self.f_low:.3g} further on"
        )
        if not left <= LEFT * way + tol * max(abs(self.f_low), abs(self.f_start)):
            up = self.descends and not self.f_end <= self.f_start
            what = "the lower steps go up: the step is too long" if up else "the lower level is not solved"
            return f"{what}: {values}"
        if self.saddle:
            return "the lower level is not solved: f can fall further, along a direction of negative curvature"
        if self.implicit is None:
            return ""
        direct = [tree.flatten(self.at.pull(self.at.upper_grads(y)[1])) for y in (self.end, self.low)]
        response, solved = gradient - direct[0], self.implicit - direct[1]
        if float((response - solved).norm()) > LEFT * float(solved.norm()) + tol * float(self.implicit.norm()):
            return "the lower level is not solved: most of what y changes with x is missing"
        return ""


def _relative(a: Tensor, b: Tensor, noise: float = 0.0) -> float:
    """|a - b| / |b|, with what lies within the noise counted as nothing."""
    floor = torch.finfo(b.dtype).eps ** 0.5
    return max(float((a - b).norm()) - noise * len(b) ** 0.5, 0.0) / max(float(b.norm()), floor)


def _cosine(a: Tensor, b: Tensor, noise: float) -> float:
    """Not a number where b lies within the noise of its entries: then its direction says nothing."""
    if float(b.norm()) <= noise * len(b) ** 0.5:
        return math.nan
    return float((a @ b) / (a.norm() * b.norm()).clamp_min(torch.finfo(b.dtype).tiny))


def _shown(cosine: float | None) -> str:
    return "-" if cosine is None or math.isnan(cosine) else f"{cosine:.4f}"
