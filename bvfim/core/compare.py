"""Several methods on one problem, from the same initial point and with the same budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from bvfim import tree
from bvfim.core.batches import Draws
from bvfim.core.evaluations import Evaluations
from bvfim.core.lower_minimum import lower_minimum
from bvfim.core.memory import PeakMemory
from bvfim.core.problem import Problem
from bvfim.core.run import Run
from bvfim.core.solution import Solution
from bvfim.core.solve import solve
from bvfim.methods import Choice, Estimator
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
        One row per method: ``upper`` (F), ``lower`` (f), ``lower_gap`` (f minus its value after L-BFGS from y and z at
        the final x), the evaluations, ``seconds``, ``peak_mib`` (of one estimate), ``steps``, ``status``.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum())
        >>> start = torch.zeros(1, dtype=torch.float64)
        >>> table = bvfim.compare(problem, [bvfim.RHG(lr=0.1), bvfim.CG(lr=0.1)], start, start, steps=50)
        >>> list(table.index), list(table.columns[:3])
        (['RHG', 'CG'], ['upper', 'lower', 'lower_gap'])
    """
    import pandas as pd

    named = dict(methods) if isinstance(methods, Mapping) else _labels(methods)
    batches = options.get("batches")
    begin = Draws(batches).state_dict()
    callbacks = list(options.pop("callbacks", ()))
    if gradients is not None:
        callbacks.append(lambda run: _spent(run) >= gradients)
    rows = []
    for label, method in named.items():
        Draws(batches).load_state_dict(begin)
        torch.manual_seed(seed)
        solution = solve(problem, x, y, method, callbacks=callbacks, **options)
        row = {"method": label, "upper": solution.upper, "lower": solution.lower}
        row["lower_gap"] = _gap(problem, solution) if batches is None else float("nan")
        row |= Evaluations(**solution.evaluations).columns()
        row |= {"seconds": solution.seconds, "peak_mib": _peak(problem, solution, y, batches)}
        rows.append(row | {"steps": solution.steps, "status": solution.status.value})
        if solution.status is Status.INTERRUPTED:
            break
    return pd.DataFrame(rows).set_index("method")


def _labels(methods: Sequence[Choice]) -> dict[str, Choice]:
    """Class names, numbered where one occurs again."""
    if not isinstance(methods, Sequence) or not methods:
        raise MethodError("compare needs a non-empty sequence of methods or mapping from labels to methods")
    named: dict[str, Choice] = {}
    for method in methods:
        name = method.__name__ if isinstance(method, type) else type(method).__name__
        count = sum(label.split(" ")[0] == name for label in named)
        named[name if count == 0 else f"{name} {count + 1}"] = method
    return named


def _spent(run: Run) -> int:
    count = run.problem.evaluations
    return count.upper + count.lower + count.hvp + count.jvp


def _gap(problem: Problem, solution: Solution) -> float:
    at = problem.counted_anew().at(solution.x)
    lowest = solution.lower
    for start in (solution.y, solution.z):
        found = lower_minimum(at, start)
        if found is None:
            return float("nan")
        lowest = min(lowest, found[1])
    return float(solution.lower - lowest)


def _peak(problem: Problem, solution: Solution, y: Tree, batches: Any) -> float:
    if batches is not None or not isinstance(solution.method, Estimator):
        return float("nan")
    x, problem = solution.x, problem.counted_anew()
    state = solution.method.init(problem, x, tree.detach(y))
    with PeakMemory(tree.leaves(x)[0].device) as memory:
        solution.method.estimate(problem, x, state, 0, None)
    return memory.peak / 2**20
