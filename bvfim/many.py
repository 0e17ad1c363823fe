"""Many independent solves at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pandas as pd
import torch

from bvfim import tree
from bvfim.methods import AdaptiveBVFIM, as_method
from bvfim.methods.adaptive import AdaptiveState, report
from bvfim.problem import Problem
from bvfim.solve import Solution, check_steps, projected, solve
from bvfim.solve_mapped import row, solve_rows
from bvfim.stage import UNDER_WAY, Starts
from bvfim.status import MethodError, ProblemError, Status
from bvfim.tree import Tree
from bvfim.validate import validate


def solve_many(
    problem: Problem,
    xs: Tree,
    ys: Tree,
    method: Any = None,
    steps: int = 500,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> list[Solution]:
    """Solve a problem from many starts, each by itself: the starts are along the first dimension of every leaf.

    All starts run in one batch where ``torch.func.vmap`` can map the objectives and the optimiser of x works entry by
    entry, else one after another. With :class:`bvfim.AdaptiveBVFIM`, the default, start i is solved as ``solve`` with
    ``seed + i`` would.

    Args:
        problem: the objectives and sets.
        xs: the upper starts, a tree like x whose leaves have a leading dimension.
        ys: the lower starts, likewise.
        method: a method such as ``bvfim.RHG()``.
        steps: how many steps each start may take.
        progress: called with how much is done, and of how much.
        options: what else :func:`bvfim.solve` takes, for the methods that estimate a hypergradient; with anything but
            an optimizer these run one after another.

    Returns:
        One :class:`bvfim.Solution` for each start. In a batch, ``seconds`` counts from the begin of the batch.

    Example:
        >>> import torch, bvfim
        >>> toy = bvfim.testproblems.sine(a=2)
        >>> starts = torch.linspace(-10, 10, 50, dtype=torch.float64)[:, None]
        >>> found = bvfim.solve_many(toy.problem, starts, starts)
        >>> sum(abs(s.x - toy.x).item() < 1e-3 for s in found)
        50
    """
    method = AdaptiveBVFIM() if method is None else as_method(method)
    count = _count(xs, ys)
    notify = progress or (lambda done, total: None)
    if not isinstance(method, AdaptiveBVFIM):
        if set(options) <= {"optimizer"} and hasattr(method, "estimate"):
            together = solve_rows(problem, xs, ys, method, steps, options.get("optimizer"), notify)
            if together is not None:
                return together
        solutions = []
        for i in range(count):
            solutions.append(solve(problem, row(xs, i), row(ys, i), method, steps=steps, **options))
            notify(i + 1, count)
        return solutions
    if options or method.starts != 1:
        refused = ", ".join(options) or "starts"
        raise MethodError(f"solve_many with AdaptiveBVFIM takes no {refused}: every row of xs and ys is a start")
    check_steps(steps)
    problem = problem.counted_anew()
    validate(problem, row(xs, 0), row(ys, 0))
    starts = [
        (projected(problem.project_x, row(xs, i), "x"), projected(problem.project_y, row(ys, i), "y"))
        for i in range(count)
    ]
    xs, ys = tree.map(lambda *leaves: torch.stack(leaves), *starts)
    return _batched(problem, xs, ys, method, steps, notify)


def _batched(
    problem: Problem, xs: Tree, ys: Tree, method: AdaptiveBVFIM, steps: int, notify: Callable[[int, int], None]
) -> list[Solution]:
    began = time.monotonic()
    x, state = row(xs, 0), method.init_many(problem, xs, ys)
    count = len(state.starts.mu2)
    tables: list[dict[str, Any]] = []
    for k in range(steps):
        if method.status(state) is not None:
            break
        before = state.starts
        x, state, _ = method.step(problem, x, state, k, None)
        tables.append(_table(before, state.starts, tree.size(x), time.monotonic() - began))
        notify(int((state.starts.ended != UNDER_WAY).sum()), count)
    return [_solution(problem, method, x, state, i, _history(tables, i)) for i in range(count)]


def _table(before: Starts, after: Starts, x_size: int, seconds: float) -> dict[str, Any]:
    """A stage of all starts: for each column of the history an entry a start; ``ran`` where the start took part."""
    counts = dict(zip(("upper_gradients", "lower_gradients", "forward"), after.counts.unbind(1), strict=True))
    x_norm = after.w[:, :x_size].norm(dim=1)
    columns = {**report(before, after), "x_norm": x_norm, **counts, "ran": before.ended == UNDER_WAY}
    return {**{name: v.tolist() for name, v in columns.items()}, "seconds": [seconds] * len(x_norm)}


def _history(tables: list[dict[str, Any]], i: int) -> pd.DataFrame:
    """The stages of start i, up to its end."""
    own = [table for table in tables if table["ran"][i]]
    rows = [{name: values[i] for name, values in table.items() if name != "ran"} for table in own]
    return pd.DataFrame([{"step": k, **row, "hvp": 0, "jvp": 0} for k, row in enumerate(rows)])


def _solution(
    problem: Problem, method: AdaptiveBVFIM, x: Tree, state: AdaptiveState, i: int, history: pd.DataFrame
) -> Solution:
    x, own = method.only(problem, x, state, i)
    F, f = problem.at(x).values(own.y)
    gradients, lower_gradients, values = state.starts.counts[i].tolist()
    return Solution(
        x=x,
        y=own.y,
        z=own.z,
        upper=float(F),
        lower=float(f),
        status=method.status(own) or Status.MAX_STEPS,
        history=history,
        evaluations={"upper": gradients, "lower": lower_gradients, "forward": values, "hvp": 0, "jvp": 0},
        steps=len(history),
        seconds=float(history["seconds"].max()) if len(history) else 0.0,
        method=method,
        certificate=method.certificate(problem, x, own),
    )


def _count(xs: Tree, ys: Tree) -> int:
    lengths = {len(t) if isinstance(t, torch.Tensor) and t.dim() else 0 for t in tree.leaves([xs, ys])}
    if len(lengths) != 1 or 0 in lengths:
        raise ProblemError(
            "xs and ys must be trees of tensors whose leaves have the same first dimension, one row for each start"
        )
    return lengths.pop()
