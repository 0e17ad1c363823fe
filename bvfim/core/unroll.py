r"""The derivative of a lower-level trajectory, in reverse mode.

With :math:`y_{t+1} = \Phi_t(u, y_t)` and :math:`p_T = \partial F/\partial y`, :math:`q_T = \partial F/\partial u`:

.. math:: q_{t} = q_{t+1} + (\partial \Phi_t / \partial u)^\top p_{t+1}, \qquad
          p_{t} = (\partial \Phi_t / \partial y)^\top p_{t+1}

Only the iterates that the reverse pass needs are stored, and the graph of a segment of steps is rebuilt
when the pass reaches it (Franceschi et al., 2017; truncation: Shaban et al., 2019).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from bvfim import tree
from bvfim.core.evaluator import At
from bvfim.dynamics import Dynamics
from bvfim.tree import Tree

Direction = Callable[[At, list[Tensor], Tree, bool], Tree]
"""(the problem as the step sees it, u, y, create_graph) -> the direction d that the dynamics moves against."""


class Trajectory(NamedTuple):
    """The end of a trajectory, F there, and the derivative of F in u along it."""

    y: Tree
    upper: Tensor
    gradient: list[Tensor]


def reverse(
    at: At, direction: Direction, dynamics: Dynamics, y: Tree, *, steps: int, keep: int, segment: int
) -> Trajectory:
    """Run ``steps`` steps from y and differentiate F(u, y_T) through the last ``keep`` of them.

    Args:
        at: the problem at the current x.
        direction: what the dynamics moves against.
        dynamics: Phi.
        y: y_0, a constant.
        steps: T.
        keep: the number of steps, counted from the end, to differentiate; T for the full derivative.
        segment: the number of steps that share one graph. 1 stores only the iterates; T builds
            the whole graph at once, which saves a second pass but needs the memory of T graphs.
    """

    def step(u: list[Tensor], carry: Tree, t: int, create_graph: bool) -> Tree:
        y, memory = carry
        y, memory = dynamics.step(y, direction(at.turn(t), u, y, create_graph), memory, t)
        return at.problem.project_y(y), memory

    @torch.no_grad()
    def run_detached(carry: Tree, begin: int, end: int) -> Tree:
        for t in range(begin, end):
            carry = tree.detach(step(at.u, carry, t, create_graph=False))
        return carry

    first = steps - keep
    carry = run_detached((tree.detach(y), dynamics.init(y)), 0, first)
    starts = []
    for begin in range(first, steps, segment):
        starts.append((begin, carry))
        if begin + segment < steps:
            carry = run_detached(carry, begin, begin + segment)

    gradient: list[Tensor] = []
    cotangent: Tree = None
    for begin, carry in reversed(starts):
        end = min(begin + segment, steps)

        def run(u: list[Tensor], carry: Tree, begin: int = begin, end: int = end) -> tuple[Tree, Tree]:
            for t in range(begin, end):
                carry = step(u, carry, t, create_graph=True)
            return (at.F(u, carry[0]), carry[0]) if end == steps else (carry, [])

        if end == steps:
            at.note(upper=1)
            F, pull, y_T = at.vjp(run, at.u, carry)
            gradient, cotangent = pull(torch.ones_like(F))
        else:
            _, pull, _ = at.vjp(run, at.u, carry)
            more, cotangent = pull(cotangent)
            gradient = tree.add(gradient, more)
        at.note(hvp=end - begin, jvp=end - begin)
    return Trajectory(y_T, at.total(F), gradient)
