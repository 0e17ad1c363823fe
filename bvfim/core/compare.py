"""Several methods on one problem, from the same initial point and with the same budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from bvfim import tree
from bvfim.core.arguments import check_steps, checked_callbacks
from bvfim.core.batches import Draws
from bvfim.core.evaluations import Evaluations
from bvfim.core.lower_minimum import lower_minimum
from bvfim.core.memory import PeakMemory
from bvfim.core.problem import Problem, as_problem
from bvfim.core.refit import apart
from bvfim.core.run import Run
from bvfim.core.solution import Solution
from bvfim.core.solve import solve
from bvfim.methods import Choice, Estimator, as_method
from bvfim.status import MethodError, Status
from bvfim.tree import Tree

if TYPE_CHECKING:
    import pandas as pd


def compare(
    problem: Problem,
    methods: Sequence[Choice] | Mapping[str, Choice],
    x: Tree,
    y: Tree,
    *,
    gradients: int | None = None,
    seed: int = 0,
    **options: Any,
) -> pd.DataFrame:
    """Solve one problem with several methods from the same initial point, with the same seed and budget.

    Args:
        problem: the objectives and sets.
        methods: a sequence of methods, or a mapping from labels to methods.
        x: the initial upper variable.
        y: the initial lower variable.
        gradients: stop each method after this many gradients of F and f in total; each second-order product counts as
            one gradient.
        seed: the random seed of torch, set before each solve.
        options: passed to :func:`bvfim.solve` (``steps``, ``optimizer``, ``batches``, ``time_limit``...).

    Returns:
        One row per method: ``upper`` (F), ``lower`` (f), ``lower_gap`` (f minus its value after a refit from y and z at
        the final x), ``upper_refit`` (F there) and ``uses_slack`` (whether F is lower by more than the tolerance at a y
        that is no lower-level solution), the evaluations, ``seconds``, ``peak_mib`` (of one estimate), ``steps``,
        ``status``. With batches, the second three are those of the solution.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum())
        >>> start = torch.zeros(1, dtype=torch.float64)
        >>> table = bvfim.compare(problem, [bvfim.RHG(lr=0.1), bvfim.CG(lr=0.1)], start, start, steps=50)
        >>> list(table.index), list(table.columns[:3])
        (['RHG', 'CG'], ['upper', 'lower', 'lower_gap'])
    """
    import pandas as pd

    named = {label: as_method(method) for label, method in _labelled(methods).items()}
    problem = as_problem(problem)
    if gradients is not None:
        check_steps(gradients, "gradients")
    if type(seed) is not int or not -(2**63) <= seed < 2**64:
        raise MethodError(f"seed must be a whole number that torch takes, not {seed!r}")
    batches = options.get("batches")
    begin = Draws(batches).state_dict()
    callbacks = checked_callbacks(options.pop("callbacks", ()))
    if gradients is not None:
        callbacks.append(lambda run: _spent(run) >= gradients)
    rows = []
    for label, method in named.items():
        Draws(batches).load_state_dict(begin)
        torch.manual_seed(seed)
        solution = solve(problem, x, y, method, callbacks=callbacks, **options)
        row = {"method": label, "upper": solution.upper, "lower": solution.lower}
        row |= _refitted(problem, solution, batches)
        row |= Evaluations(**solution.evaluations).columns()
        row |= {"seconds": solution.seconds, "peak_mib": _peak(problem, solution, y, batches)}
        rows.append(row | {"steps": solution.steps, "status": solution.status.value})
        if solution.status is Status.INTERRUPTED:
            break
    return pd.DataFrame(rows).set_index("method")


def _labelled(methods: Sequence[Choice] | Mapping[str, Choice]) -> dict[str, Choice]:
    """The methods by their labels: those of a mapping, or class names, numbered where one occurs again."""
    if not isinstance(methods, Sequence | Mapping) or not methods:
        raise MethodError("compare needs a non-empty sequence of methods or mapping from labels to methods")
    if isinstance(methods, Mapping):
        return dict(methods)
    named: dict[str, Choice] = {}
    for method in methods:
        name = type(as_method(method)).__name__
        count = sum(label.split(" ")[0] == name for label in named)
        named[name if count == 0 else f"{name} {count + 1}"] = method
    return named


def _spent(run: Run) -> int:
    count = run.problem.evaluations
    return count.upper + count.lower + count.hvp + count.jvp


def _refitted(problem: Problem, solution: Solution, batches: Any) -> dict[str, Any]:
    if batches is not None:
        names = ("lower_gap", "upper_refit", "uses_slack")
        return {name: getattr(solution, name) for name in names}
    at = problem.counted_anew().at(solution.x)
    ends = [lower_minimum(at, start) for start in (solution.y, solution.z)]
    y, lowest = min([(solution.y, solution.lower), *ends], key=lambda end: end[1])
    refit = float(at.upper(y))
    slack = refit > solution.upper and apart(solution.upper, refit)
    return {"lower_gap": float(solution.lower - lowest), "upper_refit": refit, "uses_slack": slack}


def _peak(problem: Problem, solution: Solution, y: Tree, batches: Any) -> float:
    if batches is not None or not isinstance(solution.method, Estimator):
        return float("nan")
    x, problem = solution.x, problem.counted_anew()
    state = solution.method.init(problem, x, tree.detach(y))
    with PeakMemory(tree.leaves(x)[0].device) as memory:
        solution.method.estimate(problem, x, state, 0, None)
    return memory.peak / 2**20
