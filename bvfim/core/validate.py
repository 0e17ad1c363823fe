"""Checks of the inputs before any work is done, with one-sentence error messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from bvfim import sets, tree
from bvfim.core.check_constraints import check_constraints
from bvfim.core.draw import Draw, Several
from bvfim.core.evaluator import At
from bvfim.core.problem import Problem
from bvfim.distributed.mesh import is_sharded
from bvfim.status import BvfimError, ProblemError, warn
from bvfim.tree import Tree

NEAR = 10
"""An initial point within this many rounding errors of its set counts as inside."""
MOVED = 1e3
"""An objective has changed if it did so by this many rounding errors."""
SAME = "x and y must be the same on every rank at the start: draw them with the same seed"
BY_STEP = "pass a batch to step, with a method that takes batches, as in Stepper(..., bvfim.StochasticBVFIM())"
"""How a :class:`bvfim.Stepper` gets its data."""
SHARDED_Y = (
    "y holds DTensors: give a sharded network and another instance of it as bvfim.Twins, with objectives of "
    "(x, module, batch), to bvfim.StochasticBVFIM(), which needs first derivatives only"
)


def validate(problem: Problem, x: Tree, y: Tree, batch: Any = None) -> None:
    """Reject anything that is not a bilevel problem at (x, y). Non-finite values are left to the caller."""
    validate_start(problem, x, y)
    validate_objectives(problem, x, y, batch)


def validate_start(problem: Problem, x: Tree, y: Tree) -> None:
    """Reject variables that are not trees of tensors or do not fit their sets."""
    if torch.is_inference_mode_enabled():
        raise ProblemError("bilevel methods need gradients, which torch.inference_mode() disables")
    _check_tensors(x, y)
    sets.check_fit(problem.x_set, x, "x")
    sets.check_fit(problem.y_set, y, "y")


def validate_ranks(problem: Problem, x: Tree, y: Tree, alike: Tree) -> None:
    """Reject variables that are not valid on each rank, and those that differ: ``alike``, and x where all have it."""
    if any(map(is_sharded, tree.leaves(y))):
        raise ProblemError(SHARDED_Y)
    world = problem.world
    world.together(lambda: validate_start(problem, x, y))
    if not world.same(*([] if world.sharded else [x]), alike):
        raise ProblemError(SAME)


def validate_objectives(problem: Problem, x: Tree, y: Tree, batch: Any = None, random: bool = False) -> None:
    """Reject objectives that are not valid on this batch; ``random`` ones may draw numbers of their own."""
    require_data(problem, batch)
    if problem.context is not None and isinstance(batch, Draw) and isinstance(batch.lower, Several):
        raise ProblemError(
            "a context is computed once for each upper step, so it can't be combined with Batches(every='inner')"
        )
    at = problem.at(x, batch)
    if problem.context is not None and not any(isinstance(part, Tensor) for part in at.context):
        raise ProblemError("context must return a tree of tensors, but there is no tensor in what it returned")
    still = [_check_objective(at, name, y, random) for name in ("upper", "lower")]
    if problem.joint is not None:
        _check_joint(at, y)
    if problem.stated:
        check_constraints(at, x, y)
    if any(still) and not random:
        _check_dependence(problem.counted_anew(), x, y, batch, still)


def require_data(problem: Problem, batch: Any, way: str = "pass batches= or a context") -> None:
    """Reject a batch that no objective takes, and none where an objective needs one; ``way`` says how to pass one."""
    if batch is None and problem.needs_data:
        raise ProblemError(f"{problem.needs_data} takes (x, y, data), but there is no data: {way}")
    if batch is not None and not problem.takes_data:
        raise ProblemError("there are batches, but neither objective takes them: each is a function of (x, y) alone")


@contextmanager
def explained(batch: Any) -> Iterator[None]:
    """Where an objective fails on a pair, which may be meant as one batch for each level, say how these are given."""
    try:
        yield
    except (RuntimeError, IndexError, TypeError, AttributeError) as error:
        if isinstance(error, BvfimError) or type(batch) is not tuple or len(batch) != 2:
            raise
        said = str(error).partition("\n")[0]
        raise ProblemError(
            f"an objective fails on this pair ({said}), which both levels get whole: to give each its own, "
            "step(bvfim.Draw(upper=, lower=))"
        ) from error


def _check_tensors(x: Tree, y: Tree) -> None:
    first: Tensor | None = None
    for name, variable in (("x", x), ("y", y)):
        found = tree.leaves(variable)
        if not found:
            raise ProblemError(f"{name} holds no tensor")
        for leaf in found:
            if not isinstance(leaf, Tensor):
                raise ProblemError(f"{name} must be a tree of tensors, but holds a {type(leaf).__name__}")
            if not leaf.is_floating_point():
                raise ProblemError(f"{name} must hold floating-point tensors, not {leaf.dtype}: convert it first")
            if torch.finfo(leaf.dtype).bits < 16:
                raise ProblemError(f"{name} must hold tensors of at least 16 bits, not {leaf.dtype}: convert it first")
            if leaf.numel() == 0:
                raise ProblemError(f"{name} holds an empty tensor")
            first = leaf if first is None else first
            if leaf.dtype != first.dtype:
                raise ProblemError(f"x and y must share one dtype, but hold {first.dtype} and {leaf.dtype}")
            if leaf.device != first.device:
                raise ProblemError(f"x and y must be on one device, but are on {first.device} and {leaf.device}")
            if leaf.layout is not torch.strided or leaf.is_meta:
                kind = "meta" if leaf.is_meta else "sparse"
                raise ProblemError(f"{name} must hold dense tensors with values, not {kind} ones")


def _check_objective(at: At, name: str, y: Tree, random: bool) -> bool:
    """Reject an objective that is not valid; say whether its gradient in x is zero or absent."""
    with torch.enable_grad():
        u, v = tree.variable(at.u), tree.variable(y)
        evaluate = at.F if name == "upper" else at.f
        value = evaluate(u, v)
        if not isinstance(value, Tensor):
            raise ProblemError(f"{name} must return a scalar tensor, not a {type(value).__name__}")
        if value.is_complex():
            raise ProblemError(f"{name} must return a real number, not a complex one")
        if value.dim() != 0:
            raise ProblemError(
                f"{name} must return a scalar, but its result has shape {tuple(value.shape)}: sum or average it"
            )
        if not value.requires_grad:
            raise ProblemError(
                f"{name} is not differentiable: its result carries no gradient (was it detached, "
                "rounded, computed under no_grad, or constant?)"
            )
        of_x = tree.leaves(u)
        slopes = torch.autograd.grad(value, [*of_x, *tree.leaves(v)], allow_unused=True)
        if name == "lower" and all(g is None for g in slopes[len(of_x) :]):
            raise ProblemError("lower does not depend on y, so every y is a lower-level solution")
        again = value.detach() if random else evaluate(u, v).detach()
    tolerance = 1e3 * torch.finfo(value.dtype).eps
    if not torch.allclose(value.detach(), again, rtol=tolerance, atol=tolerance, equal_nan=True):
        raise ProblemError(
            f"{name} gives different values at the same point ({value.item():g} and {again.item():g}): put modules "
            "with dropout in eval() mode, pass random batches through batches=, or use bvfim.StochasticBVFIM"
        )
    return all(g is None or not bool(g.any()) for g in slopes[: len(of_x)])


def _check_dependence(problem: Problem, x: Tree, y: Tree, batch: Any, still: list[bool]) -> None:
    """Reject an objective that changes with x although its gradient there is zero or absent (``still``: F's, f's)."""
    row, v = tree.flatten(tree.detach(x)), tree.detach(y)
    eps = torch.finfo(row.dtype).eps
    signs = torch.where(torch.arange(len(row), device=row.device) % 2 == 0, 1.0, -1.0).to(row)
    steps = [share * eps ** (1 / 3) * (1 + row.abs()) * signs for share in (1.0, 0.1)]
    points = [tree.unravel(row + sign * step, x) for step in steps for sign in (1, -1)] + [tree.detach(x)]
    if any(not tree.equal(point, problem.project_x(point)) for point in points):
        return  # at a bound, where half of them are outside
    with torch.no_grad():
        values = torch.stack([torch.stack(problem.at(point, batch).values(v)) for point in points]).double()
    above, below, here = values[0:4:2], values[1:4:2], values[4]
    odd, even = (above - below).abs(), (above + below - 2 * here).abs()
    # A function that is level at x changes by its curvature, or by less in a tenth of the step than by a tenth.
    linear = (odd[0] > even[0]) & (odd[1] > 0.5 * 0.1 * odd[0])
    moved = odd[1] > MOVED * eps * values.abs().amax(0)
    for name, flat, changes in zip(("upper", "lower"), still, (linear & moved).tolist(), strict=True):
        if flat and changes:
            raise ProblemError(
                f"{name} changes with x, but its gradient in x is zero: is x detached, rounded, or taken from outside "
                "the arguments in it?"
            )


def _check_joint(at: At, y: Tree) -> None:
    with torch.enable_grad():
        u, v = tree.variable(at.u), tree.variable(y)
        together, apart = at.both(u, v), (at.F(u, v), at.f(u, v))
    pair = isinstance(together, tuple | list) and len(together) == 2
    if not pair or not all(isinstance(t, Tensor) and t.dim() == 0 and t.requires_grad for t in together):
        raise ProblemError("joint must return the pair (F, f) of scalar tensors that carry gradients")
    tolerance = torch.finfo(apart[0].dtype).eps ** 0.5
    for name, a, b in zip(("upper", "lower"), together, apart, strict=True):
        if not torch.allclose(a.detach(), b.detach(), rtol=tolerance, atol=tolerance, equal_nan=True):
            raise ProblemError(f"joint disagrees with {name} at the initial point: {a.item():g} versus {b.item():g}")


def projected(project: Callable[[Tree], Tree], start: Tree, name: str) -> Tree:
    """The initial point, projected onto its set with a warning if it is outside."""
    inside = project(start)
    eps = NEAR * torch.finfo(tree.leaves(start)[0].dtype).eps
    if any(
        not torch.allclose(a, b, rtol=eps, atol=eps, equal_nan=True)
        for a, b in zip(tree.leaves(inside), tree.leaves(start), strict=True)
    ):
        warn(f"{name} was outside {name}_set at the start and was projected onto it")
    return tree.clone(inside)


def copies(*variables: Tree) -> Tree:
    """Copies of the caller's tensors; anything else is left for :func:`validate` to reject."""
    return tree.map(lambda t: t.detach().clone() if isinstance(t, Tensor) else t, variables)
