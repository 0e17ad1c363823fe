"""Checks of a hypergradient against finite differences and the implicit gradient."""

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from bvfim import tree
from bvfim.core.implicit import implicit_gradient
from bvfim.core.linear import dense
from bvfim.core.lower_minimum import lower_minimum
from bvfim.core.problem import Problem
from bvfim.core.validate import validate
from bvfim.methods import Estimator, Info, State, as_estimator
from bvfim.status import ProblemError
from bvfim.tree import Tree

DIRECTIONS = 8
"""The number of directions for finite differences; all of them if x is no longer than this."""

DENSE_LIMIT = 256
"""The dense implicit gradient is formed for up to this many entries of y."""


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
        verdict: exact, biased by design, or wrong.
        cosine, relative_error: the estimate against finite differences of the value the method claims to differentiate.
        implicit_cosine, implicit_error: against the exact implicit gradient at a lower-level minimiser, or ``None``
            if y is too long, Y is not a box, or the Hessian is not positive definite on the free directions.
        bias: what the method omits by design.
        estimate: the estimate itself.

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
    bias: str
    estimate: Tree

    def __str__(self) -> str:
        text = f"{self.method}: {self.verdict.value}"
        text += f" ({self.bias})" if self.verdict is Verdict.BIASED else ""
        text += (
            f". Against finite differences of its value: cosine {self.cosine:.4f}, "
            f"relative error {self.relative_error:.1%}."
        )
        if self.implicit_error is not None:
            text += (
                f" Against the exact implicit gradient: cosine {self.implicit_cosine:.4f}, "
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
    method, problem = as_estimator(method), problem.counted_anew()
    validate(problem, x, y, data)
    x, y = tree.detach(x), problem.project_y(tree.detach(y))
    tol = (1e-4 if tree.leaves(x)[0].dtype == torch.float64 else 3e-2) if tol is None else tol
    point = _Point(problem, x, method.init(problem, x, y), step, data)
    claim, sound, bias, own = method.reference(problem, x, point.state, step, data)

    gradient, _, info = point.estimate(method)
    along, differences = point.directions @ tree.flatten(gradient), point.differences(claim)
    error = _relative(along, *differences)
    verdict = Verdict.EXACT if error <= tol else Verdict.BIASED
    if not _is_sound(point, sound, differences if sound is claim else point.differences(sound), bias, tol):
        verdict = Verdict.WRONG
    if own is not None and _relative(along, *replace(point, state=own[1]).differences(own[0])) > tol:
        verdict = Verdict.WRONG
    if verdict is not Verdict.EXACT and bool(info.get("breakdown", 0)):  # the method itself says so
        verdict, bias = Verdict.BIASED, "its linear solve broke down; " + bias
    exact = _implicit_at_minimum(point, y)
    return HypergradientCheck(
        method=type(method).__name__,
        verdict=verdict,
        cosine=_cosine(along, differences[0]),
        relative_error=error,
        implicit_cosine=None if exact is None else _cosine(tree.flatten(gradient), exact),
        implicit_error=None if exact is None else _relative(tree.flatten(gradient), exact),
        bias=bias,
        estimate=gradient,
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
        return method.estimate(self.problem, self.x, self.state, self.step, self.data)

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


def _implicit_at_minimum(point: _Point, y: Tree) -> Tensor | None:
    """The exact implicit gradient where the lower level is solved; ``None`` where there is none to trust."""
    at = point.problem.at(point.x, point.data)
    found = lower_minimum(at, y) if tree.size(y) <= DENSE_LIMIT else None
    if found is None:
        return None
    _, _, gradient, linear = implicit_gradient(at, found[0], dense)
    # On a face of Y the entries that are held have no curvature; elsewhere a singular Hessian has no implicit gradient.
    definite = float(linear.curvature) > 0 or (point.problem.y_set is not None and not bool(linear.breakdown))
    solved = float(linear.residual) < torch.finfo(linear.residual.dtype).eps ** 0.5
    return tree.flatten(at.pull(gradient)) if definite and solved else None


def _relative(a: Tensor, b: Tensor, noise: float = 0.0) -> float:
    """|a - b| / |b|, with what lies within the noise counted as nothing."""
    floor = torch.finfo(b.dtype).eps ** 0.5
    return max(float((a - b).norm()) - noise * len(b) ** 0.5, 0.0) / max(float(b.norm()), floor)


def _cosine(a: Tensor, b: Tensor) -> float:
    return float((a @ b) / (a.norm() * b.norm()).clamp_min(torch.finfo(b.dtype).tiny))
