"""Many starts of an estimator in one solve."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import torch

from bvfim import tree
from bvfim.mapped import ENDS, Rows, RowsState, Stacked
from bvfim.methods import Estimator
from bvfim.problem import Problem
from bvfim.run import Run
from bvfim.solve import OptimizerFactory, Solution, solve
from bvfim.status import Status
from bvfim.tree import Tree

ENTRYWISE = {"SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adagrad", "Adadelta", "RMSprop", "Rprop", "ASGD"}
"""Optimisers that move every entry by itself, so that rows do not meet in them."""


@dataclass
class _Recorder:
    """What the rows reported, step by step."""

    rows: Rows
    notify: Callable[[int, int], None]
    tables: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, run: Run) -> bool:
        self.state: RowsState = run.state
        count = self.rows.row.evaluations.as_dict()
        counts = {"upper_gradients": count.pop("upper"), "lower_gradients": count.pop("lower"), **count}
        columns = {**self.state.info, "x_norm": torch.func.vmap(tree.norm)(run.x)}
        info = {name: values.double().tolist() for name, values in columns.items()}
        self.tables.append({"step": run.k - 1, **info, "seconds": run.seconds, **counts})
        self.notify(run.k, run.steps)
        return bool((self.state.ended > 0).all())

    def history(self, i: int) -> pd.DataFrame:
        """The steps of row i, with the one that ended it."""
        length = int(self.state.steps[i]) + int(self.state.ended[i] > 0)
        own = [{n: v[i] if isinstance(v, list) else v for n, v in table.items()} for table in self.tables[:length]]
        return pd.DataFrame(own)


def solve_rows(
    problem: Problem,
    xs: Tree,
    ys: Tree,
    method: Estimator,
    steps: int,
    optimizer: OptimizerFactory | None,
    notify: Callable[[int, int], None],
) -> list[Solution] | None:
    """Solve from every row of xs and ys in one batch, or None where that cannot be done."""
    made = None if optimizer is None else optimizer([torch.zeros(1, requires_grad=True)])
    if problem.context is not None or steps < 1 or (made is not None and type(made).__name__ not in ENTRYWISE):
        return None
    stacked = Stacked(problem.upper, problem.lower, problem.x_set, problem.y_set, None, problem.joint)
    rows = Rows.of(method, problem)
    try:
        rows.estimate(stacked, xs, rows.init(stacked, xs, ys), 0, None)
    except Exception:  # one after another will do, or tell what is wrong
        return None
    rows = Rows.of(method, problem)
    recorder = _Recorder(rows, notify)
    whole = solve(stacked, xs, ys, rows, optimizer, steps, callbacks=[recorder])
    if whole.status is Status.NON_FINITE:
        return None  # an x itself has left the finite numbers
    return [_solution(problem, method, whole, recorder, i) for i in range(len(tree.leaves(xs)[0]))]


def _solution(problem: Problem, method: Estimator, whole: Solution, recorder: _Recorder, i: int) -> Solution:
    state, ended = recorder.state, int(recorder.state.ended[i])
    x, own, history = row(state.x if ended else whole.x, i), row(state.own, i), recorder.history(i)
    F, f = problem.counted_anew().at(x).values(own.y)
    last = history.iloc[-1]
    columns = {"upper": "upper_gradients", "lower": "lower_gradients", "forward": "forward", "hvp": "hvp", "jvp": "jvp"}
    counts = {kind: int(last[column]) for kind, column in columns.items()}
    counts["forward"] += 2  # F and f, just now
    return Solution(
        x=x,
        y=own.y,
        z=getattr(own, "z", own.y),
        upper=float(F),
        lower=float(f),
        status=ENDS[ended] or (Status.MAX_STEPS if whole.status is Status.STOPPED else whole.status),
        history=history,
        evaluations=counts,
        steps=int(state.steps[i]),
        seconds=float(last["seconds"]),
        method=method,
    )


def row(variable: Tree, i: int) -> Tree:
    """The i-th row of every leaf."""
    return tree.map(lambda t: t[i].detach(), variable)
