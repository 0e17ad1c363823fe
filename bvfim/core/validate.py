"""Checks of the inputs before any work is done, with one-sentence error messages."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bvfim import sets, tree
from bvfim.core.draw import Draw, Several
from bvfim.core.evaluator import At
from bvfim.core.problem import Problem, accepts
from bvfim.status import ProblemError
from bvfim.tree import Tree


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


def validate_objectives(problem: Problem, x: Tree, y: Tree, batch: Any = None, random: bool = False) -> None:
    """Reject objectives that are not valid on this batch; ``random`` ones may draw numbers of their own."""
    if batch is None and problem.context is None:
        for name in ("upper", "lower"):
            if not accepts(getattr(problem, name), 2):
                raise ProblemError(f"{name} takes (x, y, data), but there is no data: pass batches= or a context")
    if problem.context is not None and isinstance(batch, Draw) and isinstance(batch.lower, Several):
        raise ProblemError(
            "a context is computed once for each upper step, so it can't be combined with Batches(every='inner')"
        )
    at = problem.at(x, batch)
    _check_objective(at, "upper", y, random)
    _check_objective(at, "lower", y, random)
    if problem.joint is not None:
        _check_joint(at, y)


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
            if leaf.numel() == 0:
                raise ProblemError(f"{name} holds an empty tensor")
            first = leaf if first is None else first
            if leaf.dtype != first.dtype:
                raise ProblemError(f"x and y must share one dtype, but hold {first.dtype} and {leaf.dtype}")
            if leaf.device != first.device:
                raise ProblemError(f"x and y must be on one device, but are on {first.device} and {leaf.device}")


def _check_objective(at: At, name: str, y: Tree, random: bool) -> None:
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
        if name == "lower":
            found = torch.autograd.grad(value, tree.leaves(v), allow_unused=True)
            if all(g is None for g in found):
                raise ProblemError("lower does not depend on y, so every y is a lower-level solution")
        again = value.detach() if random else evaluate(u, v).detach()
    tolerance = 1e3 * torch.finfo(value.dtype).eps
    if not torch.allclose(value.detach(), again, rtol=tolerance, atol=tolerance, equal_nan=True):
        raise ProblemError(
            f"{name} gives different values at the same point ({value.item():g} and {again.item():g}): put modules "
            "with dropout in eval() mode, pass random batches through batches=, or use bvfim.StochasticBVFIM"
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
