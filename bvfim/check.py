"""Is a hypergradient what it claims to be?"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bvfim import tree
from bvfim.implicit import implicit_gradient
from bvfim.linear import dense
from bvfim.methods.base import Reference
from bvfim.problem import Problem
from bvfim.refit import refit
from bvfim.tree import Tree
from bvfim.validate import validate

DIRECTIONS = 8
"""Along how many directions differences are taken; all of them where x is no longer than this."""

DENSE_LIMIT = 256
"""Up to how many entries of y the dense implicit gradient is formed."""


class Verdict(enum.Enum):
    """What a check found.

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
        cosine, relative_error: the estimate against differences of the value that the method claims to differentiate.
        implicit_cosine, implicit_error: against the exact implicit gradient at a lower-level minimiser, or ``None``
            where y is long, Y is no box, or the Hessian there is not positive definite on the free directions.
        bias: what the method leaves out by design.
        estimate: the estimate itself.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum())
        >>> x = torch.zeros(1, dtype=torch.float64)
        >>> print(bvfim.check_hypergradient(problem, x, x, bvfim.RHG(steps=20, lr=0.1)))
        RHG: exact. Against differences of its value: cosine 1.0000, relative error 0.0%. Against the exact implicit \
gradient: cosine 1.0000, relative error 1.2%.
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
            f". Against differences of its value: cosine {self.cosine:.4f}, relative error {self.relative_error:.1%}."
        )
        if self.implicit_error is not None:
            text += (
                f" Against the exact implicit gradient: cosine {self.implicit_cosine:.4f}, "
                f"relative error {self.implicit_error:.1%}."
            )
        return text


def check_hypergradient(
    problem: Problem, x: Tree, y: Tree, method: Any, *, step: int = 0, data: Any = None, tol: float | None = None
) -> HypergradientCheck:
    """Hold one estimate against finite differences and, on small problems, the exact implicit gradient.

    A method without its approximations (its *sound* form, see :class:`bvfim.methods.Reference`) must match
    central differences of its own value, or, for an implicit method, the dense implicit formula at its own y;
    otherwise it is wrong. If it does, the estimate itself is exact or biased by design, and the relative error is
    the size of the bias.

    Args:
        problem: the objectives and sets.
        x: where; float64 gives a sharp verdict, float32 a rough one.
        y: the lower-level start.
        method: what to check; your own as well.
        step: the upper step k, for schedules.
        data: the batch.
        tol: the relative error that still counts as equal; 1e-4 in float64, 3e-2 in float32.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum())
        >>> x = torch.zeros(1, dtype=torch.float64)
        >>> bvfim.check_hypergradient(problem, x, x, bvfim.TRHG(steps=20, keep=5, lr=0.1)).verdict
        <Verdict.BIASED: 'biased by design'>
    """
    validate(problem, x, y, data)
    x, y = tree.detach(x), problem.project_y(tree.detach(y))
    dtype = tree.leaves(x)[0].dtype
    tol = (1e-4 if dtype == torch.float64 else 3e-2) if tol is None else tol
    state = method.init(problem, x, y)
    reference = method.reference if hasattr(method, "reference") else lambda *_: Reference(method, method, "")
    claim, sound, bias = reference(problem, x, state, step, data)
    directions = _directions(x)

    def slopes(of: Any) -> Tensor:
        return _differences(problem, of, x, state, step, data, directions)

    gradient, _, _ = method.estimate(problem, x, state, step, data)
    estimate = _along(directions, gradient)
    claimed = slopes(claim)
    error = _relative(estimate, claimed)
    verdict = Verdict.EXACT if error <= tol else Verdict.BIASED
    if not _is_sound(
        problem, sound, x, state, step, data, directions, claimed if sound is claim else slopes(sound), tol
    ):
        verdict = Verdict.WRONG
    exact = _implicit_at_minimum(problem, x, y, data)
    return HypergradientCheck(
        method=type(method).__name__,
        verdict=verdict,
        cosine=_cosine(estimate, claimed),
        relative_error=error,
        implicit_cosine=None if exact is None else _cosine(tree.flatten(gradient), tree.flatten(exact)),
        implicit_error=None if exact is None else _relative(tree.flatten(gradient), tree.flatten(exact)),
        bias=bias,
        estimate=gradient,
    )


def _is_sound(
    problem: Problem, sound: Any, x: Tree, state: Any, k: int, data: Any, directions: Tensor, slopes: Tensor, tol: float
) -> bool:
    gradient, following, _ = sound.estimate(problem, x, state, k, data)
    if _relative(_along(directions, gradient), slopes) <= tol:
        return True
    # A lower level that converges slowly leaves y short of the minimum, where the implicit formula is the
    # derivative of nothing: there the formula itself is what an implicit method can be held to.
    end = getattr(following, "y", None)
    if end is None or tree.size(end) > DENSE_LIMIT:
        return False
    at = problem.at(x, data)
    formula = at.pull(implicit_gradient(at, end, dense).gradient)
    return _relative(tree.flatten(gradient), tree.flatten(formula)) <= tol


def _implicit_at_minimum(problem: Problem, x: Tree, y: Tree, data: Any) -> Tree | None:
    at = problem.at(x, data)
    if tree.size(y) > DENSE_LIMIT:
        return None
    found = refit(at, y)
    if found is None:
        return None
    _, gradient, linear = implicit_gradient(at, found[0], dense)
    scale = torch.finfo(linear.residual.dtype).eps ** 0.5
    trusted = float(linear.residual) < scale and not bool(linear.breakdown)
    return at.pull(gradient) if trusted else None


def _directions(x: Tree) -> Tensor:
    """Orthonormal rows: the coordinates of a short x, random directions of a long one."""
    m, first = tree.size(x), tree.leaves(x)[0]
    if m <= DIRECTIONS:
        rows = torch.eye(m)
    else:
        generator = torch.Generator().manual_seed(0)
        rows = torch.linalg.qr(torch.randn(m, DIRECTIONS, generator=generator, dtype=torch.float64)).Q.T
    return rows.to(first)


def _along(directions: Tensor, gradient: Tree) -> Tensor:
    return directions @ tree.flatten(gradient)


def _differences(problem: Problem, method: Any, x: Tree, state: Any, k: int, data: Any, directions: Tensor) -> Tensor:
    """Central differences of the method's value along each direction."""
    flat = tree.flatten(x)
    h = torch.finfo(flat.dtype).eps ** (1 / 3) * (1 + float(flat.abs().max()))

    def value(at: Tensor) -> Tensor:
        _, following, info = method.estimate(problem, tree.unravel(at, x), state, k, data)
        found = info.get("value", info.get("upper"))
        return problem.at(tree.unravel(at, x), data).upper(following.y) if found is None else found

    return torch.stack([(value(flat + h * d) - value(flat - h * d)) / (2 * h) for d in directions])


def _relative(a: Tensor, b: Tensor) -> float:
    floor = torch.finfo(b.dtype).eps ** 0.5
    return float((a - b).norm() / b.norm().clamp_min(floor))


def _cosine(a: Tensor, b: Tensor) -> float:
    return float((a @ b) / (a.norm() * b.norm()).clamp_min(torch.finfo(b.dtype).tiny))
