"""Gradient descent on a tree with a fixed step, plain or kept inside a region.

Neither loop synchronises with the host: no ``.item()``, no branch on a tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bvfim import tree
from bvfim.core.evaluator import At
from bvfim.dynamics import Dynamics, GradientDescent
from bvfim.tree import Tree

Inner = Callable[[Callable[[Any], Any]], Callable[[Any], Any]]


def descend(at: At, gradient: Callable[[At, Tree], Tree], y: Tree, steps: int, dynamics: Dynamics) -> Tree:
    """``steps`` times y <- project(Phi(y, gradient(at, y))), where ``at`` is the problem as the step sees it.

    A step of gradient descent has no memory and, on one draw, is the same every time: it is taken as ``at.inner`` gives
    it back.
    """
    project = at.problem.project_y
    if isinstance(dynamics, GradientDescent):

        def moved(at: At, y: Tree) -> Tree:
            return project(tree.axpy(-dynamics.lr, gradient(at, y), y))

        step = at.inner(lambda y: moved(at, y))
        for t in range(steps):
            own = at.turn(t)
            y = step(y) if own is at else moved(own, y)
        return y
    memory = dynamics.init(y)
    for t in range(steps):
        y, memory = dynamics.step(y, gradient(at.turn(t), y), memory, t)
        y = project(y)
    return y


class Probe(NamedTuple):
    """The evaluation of a point: whether it lies inside, its merit, and the direction to move against.

    Inside, the merit is the function to minimise; outside, it measures how far off the point is.
    """

    inside: Tensor
    merit: Tensor
    direction: Tree


class Walk(NamedTuple):
    """A point on its way: what is known of it, the scale of the next step, and how many trials were dropped."""

    y: Tree
    best: Probe
    scale: Tensor
    dropped: Tensor


def descend_inside(
    probe: Callable[[Tree], Probe],
    check: Callable[[Tree], tuple[Tensor, Tensor]],
    y: Tree,
    steps: int,
    lr: float,
    project: Callable[[Tree], Tree],
    inner: Inner = lambda step: step,
) -> tuple[Tree, Tensor, Tensor]:
    """Gradient descent with step size ``lr`` that never leaves a region once it is inside.

    Each step tries y - c lr d. The evaluation that yields the next gradient also decides whether to accept the
    trial: it must be inside with no larger merit or, as long as no point inside is known, move inwards. An accepted
    trial replaces y and doubles c (up to one); a rejected one is dropped, and c is halved. So the point returned was
    evaluated and accepted, at the cost of the ``steps`` gradients of the plain loop and one value.

    Args:
        probe: y -> (inside, merit, direction).
        check: y -> (inside, merit), without the gradient, for the last trial.
        y: the initial point.
        steps: the number of trials.
        lr: the step size.
        project: the projection applied to trials.
        inner: maps the step to the one that is run, such as a compiled one.

    Returns:
        y, whether it is inside (a boolean tensor), and the number of rejected trials.
    """
    best = probe(y)
    walk = Walk(y, best, torch.ones_like(best.merit), torch.zeros_like(best.merit))

    def trial(walk: Walk) -> Tree:
        return project(tree.axpy(-lr * walk.scale, walk.best.direction, walk.y))

    def advance(walk: Walk) -> Walk:
        y = trial(walk)
        return _judged(walk, y, probe(y))

    step = inner(advance)
    for _ in range(steps - 1):
        walk = step(walk)
    if steps:
        y = trial(walk)
        walk = _judged(walk, y, Probe(*check(y), walk.best.direction))
    return walk.y, walk.best.inside, walk.dropped


def _judged(walk: Walk, trial: Tree, found: Probe) -> Walk:
    best, scale = walk.best, walk.scale
    no_worse = found.merit <= best.merit
    good = torch.where(best.inside, found.inside & no_worse, found.inside | no_worse)
    return Walk(
        tree.where(good, trial, walk.y),
        tree.where(good, found, best),
        torch.where(good, (2 * scale).clamp_max(1.0), scale / 2),
        walk.dropped + ~good,
    )
