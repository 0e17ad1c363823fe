"""One estimate of the hypergradient, for those who keep their own loop."""

from __future__ import annotations

from typing import Any

from bvfim import tree
from bvfim.methods import as_estimator
from bvfim.problem import Problem
from bvfim.tree import Tree
from bvfim.validate import validate


def hypergradient(
    problem: Problem, x: Tree, y: Tree, method: Any = None, *, state: Any = None, step: int = 0, data: Any = None
) -> Any:
    """One estimate of d phi / d x, a tree like x.

    Args:
        problem: the objectives and sets; its ``evaluations`` count what this costs.
        x: where.
        y: the lower-level start.
        method: what estimates; ``bvfim.BVFIM()`` by default.
        state: the state of the last call, or ``method.init(problem, x, y)``, to go on from it; the problem is then
            not checked again.
        step: the upper step k, for schedules.
        data: the batch.

    Returns:
        The gradient; with ``state``, the pair (gradient, next state).

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum())
        >>> x, method = torch.zeros(1), bvfim.RHG(lr=0.5, steps=1)
        >>> bvfim.hypergradient(problem, x, x, method)
        tensor([-2.])
        >>> state = method.init(problem, x, x)
        >>> for k in range(3):
        ...     gradient, state = bvfim.hypergradient(problem, x, x, method, state=state, step=k)
        ...     x = x - 0.25 * gradient
        >>> x
        tensor([0.8750])
    """
    method = as_estimator(method)
    if state is None:
        validate(problem, x, y, data)
        begin = method.init(problem, x, problem.project_y(tree.detach(y)))
    else:
        begin = tree.detach(state)
    gradient, following, _ = method.estimate(problem, x, begin, step, data)
    return gradient if state is None else (gradient, following)
