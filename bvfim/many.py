"""Many independent solves at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pandas as pd
import torch

from bvfim import tree
from bvfim.methods import AdaptiveBVFIM, as_method
from bvfim.methods.adaptive import AdaptiveState
from bvfim.problem import Problem
from bvfim.solve import Solution, solve
from bvfim.stage import Starts
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

    :class:`bvfim.AdaptiveBVFIM`, the default, runs all starts in one batch where the objectives can be mapped by
    ``torch.func.vmap``; start i is solved as ``solve`` with ``seed + i`` would. Other methods run one after another.

    Args:
        problem: the objectives and sets.
        xs: the upper starts, a tree like x whose leaves have a leading dimension.
        ys: the lower starts, likewise.
        method: a method such as ``bvfim.RHG()``.
        steps: how many steps each start may take.
        progress: called with how many starts have ended and how many there are.
        options: what else :func:`bvfim.solve` takes, for the methods that run one after another.

    Returns:
        One :class:`bvfim.Solution` for each start. In a batch, ``seconds`` is the time of the whole batch.

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
    report = progress or (lambda done, total: None)
    if not isinstance(method, AdaptiveBVFIM):
        solutions = []
        for i in range(count):
            solutions.append(solve(problem, _row(xs, i), _row(ys, i), method, steps=steps, **options))
            report(i + 1, count)
        return solutions
    if options or method.starts != 1:
        refused = ", ".join(options) or "starts"
        raise MethodError(f"solve_many with AdaptiveBVFIM takes no {refused}: every row of xs and ys is a start")
    problem = problem.counted_anew()
    validate(problem, _row(xs, 0), _row(ys, 0))
    return _batched(problem, tree.detach(xs), tree.detach(ys), method, steps, report)


def _batched(
    problem: Problem, xs: Tree, ys: Tree, method: AdaptiveBVFIM, steps: int, report: Callable[[int, int], None]
) -> list[Solution]:
    began = time.monotonic()
    x, state = _row(xs, 0), method.init_many(problem, xs, ys)
    count = len(state.starts.mu2)
    tables, seconds = [state.starts], [0.0]
    for k in range(steps):
        if method.status(state) is not None:
            break
        x, state, _ = method.step(problem, x, state, k, None)
        tables.append(state.starts)
        seconds.append(time.monotonic() - began)
        report(int((state.starts.ended != 0).sum()), count)
    columns = _columns(tables)
    return [_solution(problem, method, x, state, i, _history(tables, columns, seconds, i)) for i in range(count)]


def _columns(tables: list[Starts]) -> dict[str, Any]:
    """The history of all starts: for each name an array (stage, start)."""
    names = {
        "upper": "relaxed",
        "lower": "lower",
        "value": "value",
        "polished": "upper",
        "slack": "slack",
        "gap": "gap",
    }
    found = {name: torch.stack([getattr(t, field) for t in tables[1:]]) for name, field in names.items()}
    found |= {name: torch.stack([getattr(t, name) for t in tables[:-1]]) for name in ("mu2", "tau")}
    for j, name in enumerate(("upper_gradients", "lower_gradients", "forward")):
        found[name] = torch.stack([t.counts[:, j] for t in tables[1:]])
    return {name: values.cpu().numpy() for name, values in found.items()}


def _history(tables: list[Starts], columns: dict[str, Any], seconds: list[float], i: int) -> pd.DataFrame:
    """The stages of start i, up to its end."""
    taken = sum(int(table.ended[i] == 0) for table in tables[:-1])
    own = {name: values[:taken, i] for name, values in columns.items()}
    return pd.DataFrame({"step": range(taken), **own, "seconds": seconds[1 : taken + 1], "hvp": 0, "jvp": 0})


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
    lengths = {len(t) if t.dim() else 0 for t in tree.leaves([xs, ys])}
    if len(lengths) != 1 or 0 in lengths:
        raise ProblemError("every leaf of xs and ys needs the same first dimension, one row for each start")
    return lengths.pop()


def _row(variable: Tree, i: int) -> Tree:
    return tree.map(lambda t: t[i].detach(), variable)
