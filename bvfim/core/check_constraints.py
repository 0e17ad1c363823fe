"""Checks of constraints at the initial point, before any work is done."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bvfim import tree
from bvfim.core.constraints import LOWER, of_level
from bvfim.core.evaluator import At
from bvfim.core.of_rank import Objectives
from bvfim.status import ProblemError
from bvfim.tree import Tree

LOOKS, FAR, SAME = 3, 0.1, 1e4
"""Entries are the same constraint if they agree at so many points, that share of the size of x and y apart, within so
many rounding errors."""


def check_constraints(at: At, x: Tree, y: Tree) -> None:
    """Reject constraints that are not tensors, not finite at (x, y), or about which y can do nothing."""
    _, data = at.inputs()
    with torch.enable_grad():
        for name in at.problem.stated:
            _check_one(at.problem, name, tree.variable(x), tree.variable(y), of_level(name, data))
    _check_equalities(at.problem, x, y, data)


def _check_one(problem: Objectives, name: str, x: Tree, y: Tree, data: Any) -> None:
    found = problem.call(name, x, y, data)
    if not isinstance(found, Tensor):
        raise ProblemError(f"{name} must return a tensor, not a {type(found).__name__}")
    if not found.is_floating_point():
        raise ProblemError(f"{name} must return floating-point numbers, not {found.dtype}")
    if found.numel() == 0:
        raise ProblemError(f"{name} returns an empty tensor: leave it out where there are no constraints")
    bad = (~found.isfinite()).flatten().nonzero()
    if len(bad):
        at = f"{name}[{int(bad[0])}]"
        raise ProblemError(f"{at} is not a finite number at the initial point: start where it is defined")
    if not found.requires_grad:
        raise ProblemError(f"{name} is not differentiable: its result carries no gradient in x or y")
    slopes = torch.autograd.grad(found.sum(), tree.leaves(y), allow_unused=True)
    if name in LOWER and all(slope is None for slope in slopes):
        kind = name.replace("lower", "upper")
        raise ProblemError(f"{name} does not depend on y, so no y can meet it: it constrains x, as {kind} does")


def _check_equalities(problem: Objectives, x: Tree, y: Tree, data: Any) -> None:
    """Reject an equality that is stated twice: its two multipliers could not be told apart."""
    generator = torch.Generator().manual_seed(0)
    columns, names = [], []
    with torch.no_grad():
        for _ in range(LOOKS):
            u, v = (tree.map(lambda t: _moved(t, generator), w) for w in (x, y))
            parts = [(n, problem.call(n, u, v, of_level(n, data)).reshape(-1)) for n in problem.stated]
            names = [f"{n}[{i}]" for n, part in parts for i in range(len(part))]
            columns.append(torch.cat([part for _, part in parts]))
    values = torch.stack(columns, 1)
    values = torch.where(values[:, :1] < 0, -values, values)  # h = 0 and -h = 0 are the same
    order = values[:, 0].argsort(stable=True)
    allowed = SAME * torch.finfo(values.dtype).eps * values.abs().amax(1)
    alike = ((values[order[1:]] - values[order[:-1]]).abs() <= allowed[order[1:], None]).all(1)
    for i in alike.nonzero()[:, 0].tolist():
        first, second = sorted(order[i : i + 2].tolist())
        if "equalities" in names[first] + names[second]:
            raise ProblemError(f"{names[second]} states {names[first]} again: state an equality once, at one level")


def _moved(t: Tensor, generator: torch.Generator) -> Tensor:
    step = torch.randn(t.shape, generator=generator, dtype=torch.float64).to(t)
    return t.detach() + FAR * (1 + t.detach().abs()) * step
