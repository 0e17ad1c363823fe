"""Gradient descent on a tree with a fixed step, plain or kept inside a region.

Neither loop waits for the host: no ``.item()``, no branch on a tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from bvfim import tree
from bvfim.tree import Tree


def descend(gradient: Callable[[Tree], Tree], y: Tree, steps: int, lr: float, project: Callable[[Tree], Tree]) -> Tree:
    """``steps`` times y <- project(y - lr gradient(y))."""
    for _ in range(steps):
        y = project(tree.axpy(-lr, gradient(y), y))
    return y


class Probe(NamedTuple):
    """What is known of a point: whether it lies inside, its merit, and the direction to move against.

    Inside, the merit is the function to minimise; outside, it measures how far off the point is.
    """

    inside: Tensor
    merit: Tensor
    direction: Tree


def descend_inside(
    probe: Callable[[Tree], Probe],
    check: Callable[[Tree], tuple[Tensor, Tensor]],
    y: Tree,
    steps: int,
    lr: float,
    project: Callable[[Tree], Tree],
) -> tuple[Tree, Tensor, Tensor]:
    """Gradient descent with step ``lr`` that never leaves a region once it is in it.

    Each step makes a trial y - c lr d. The evaluation that would give the next gradient anyway tells
    whether the trial is good: inside with no larger merit, or, as long as no point inside is known, any step
    inwards. A good trial replaces y and doubles c (up to one); a bad one is dropped, and c is halved. So the
    point returned was evaluated and accepted, at the price of the ``steps`` gradients of the plain loop and one
    value.

    Args:
        probe: y -> (inside, merit, direction).
        check: y -> (inside, merit), without the gradient, for the last trial.

    Returns:
        y, whether it is inside (a boolean tensor), and the number of trials that were dropped.
    """
    best = probe(y)
    scale = torch.ones_like(best.merit)
    dropped = torch.zeros_like(best.merit)
    for t in range(steps):
        trial = project(tree.axpy(-lr * scale, best.direction, y))
        if t + 1 < steps:
            found = probe(trial)
        else:
            inside, merit = check(trial)
            found = Probe(inside, merit, best.direction)
        no_worse = found.merit <= best.merit
        good = torch.where(best.inside, found.inside & no_worse, found.inside | no_worse)
        y = tree.where(good, trial, y)
        best = Probe(
            torch.where(good, found.inside, best.inside),
            torch.where(good, found.merit, best.merit),
            tree.where(good, found.direction, best.direction),
        )
        scale = torch.where(good, (2 * scale).clamp_max(1.0), scale / 2)
        dropped = dropped + ~good
    return y, best.inside, dropped
