"""One estimate of the hypergradient, for use in your own loop."""

from __future__ import annotations

from typing import Any

from bvfim import tree
from bvfim.core.arguments import check_steps
from bvfim.core.following import checked_estimate
from bvfim.core.problem import Problem, as_problem
from bvfim.core.validate import validate
from bvfim.methods import Estimator, State, as_estimator, require_able
from bvfim.status import MethodError
from bvfim.tree import Tree


def require_unconstrained(problem: Problem, name: str) -> None:
    """Reject constraints where there is no run in which their multipliers could be found.

    Example:
        >>> import bvfim
        >>> from bvfim.core.hypergradient import require_unconstrained
        >>> require_unconstrained(bvfim.Problem(max, min, lower_constraints=max), "hypergradient")
        Traceback (most recent call last):
        bvfim.status.MethodError: hypergradient takes sets, but no lower_constraints: multipliers are found along a run
    """
    if problem.stated:
        raise MethodError(f"{name} takes sets, but no {problem.stated[0]}: multipliers are found along a run")


def hypergradient(
    problem: Problem,
    x: Tree,
    y: Tree,
    method: Estimator | type | None = None,
    *,
    state: State | None = None,
    step: int = 0,
    data: Any = None,
) -> Any:
    """One estimate of d phi / d x, a tree like x.

    Args:
        problem: the objectives and sets; its ``evaluations`` count the cost.
        x: the upper variable.
        y: the initial point of the lower level.
        method: the estimator; ``bvfim.BVFIM()`` by default.
        state: the state of the last call, or ``method.init(problem, x, y)``, to continue from it; the problem is then
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
    estimator, problem = as_estimator(method), as_problem(problem)
    require_unconstrained(problem, "hypergradient")
    require_able(estimator, problem)
    check_steps(step, "step")
    if state is None:
        validate(problem, x, y, data)
    begin = estimator.init(problem, x, problem.project_y(tree.detach(y)))
    if state is not None:
        if type(state) is not type(begin):
            owner, own = type(estimator).__name__, type(begin).__name__
            raise MethodError(f"state must be a {own}, as {owner}.init makes it, not a {type(state).__name__}")
        begin = tree.detach(state)
    gradient, following, _ = checked_estimate(estimator.estimate(problem, x, begin, step, data), x, estimator)
    return gradient if state is None else (gradient, following)
