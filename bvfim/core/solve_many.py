"""Many independent solves in one call."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch

from bvfim import tree
from bvfim.core.arguments import check_flag, check_function, check_steps, check_time_limit, checked_callbacks
from bvfim.core.batched import AdaptiveBatch, Batch, EstimatorBatch, row
from bvfim.core.following import caution
from bvfim.core.mover import caution_of_y
from bvfim.core.problem import Problem, as_problem
from bvfim.core.refit_many import judged_together
from bvfim.core.run import Callback, Run
from bvfim.core.solution import Solution
from bvfim.core.solve import drive, solve
from bvfim.core.validate import copies, projected, validate
from bvfim.methods import AdaptiveBVFIM, Choice, Chosen, Estimator, as_method, suited
from bvfim.sets import entrywise
from bvfim.status import CheckpointError, MethodError, ProblemError, Status, warn
from bvfim.tree import Tree

Progress = Callable[[int, int], None]


class ManyRun(Run):
    """A run of many starts; callbacks see means over the active ones, and x and y with a row for each start."""

    def __init__(self, problem: Problem, xs: Tree, ys: Tree, method: Chosen, mover: Batch, steps: int) -> None:
        self.problem, self.method, self.steps, self.checked = problem.counted_anew(), method, steps, True
        self.x = xs
        self._begin(mover, ys)
        self.batch = mover

    def draw(self) -> None:
        """There are no batches."""

    def save(self, path: Any, keep: int = 1) -> None:
        """Not supported."""
        raise CheckpointError(f"{path}: a checkpoint holds one run; solve_many can't be saved")

    def solutions(self, end: Status) -> list[Solution]:
        """The end of each start: its own, or that of the whole run."""
        return [self._solution(end, i) for i in range(len(tree.leaves(self.x)[0]))]

    def _solution(self, end: Status, i: int) -> Solution:
        x, state = self.batch.alone(self.problem, self.x, self.state, i)
        values = [float(v) for v in self.problem.counted_anew().at(x).values(state.y)]
        status = self.batch.status_of(self.state, i) or (Status.MAX_STEPS if end is Status.CONVERGED else end)
        taken, completed = self.batch.taken(self.state, i)
        own = zip(taken, self.batch.rows_of(self.state, i), strict=True)
        rows = [{**row, "seconds": self.rows[k]["seconds"]} for k, row in own]
        seconds = rows[-1]["seconds"] if rows else 0.0
        return self._ended(x, state, values, status, rows, self.batch.evaluations(self.state, i), completed, seconds)


def solve_many(
    problem: Problem,
    xs: Tree,
    ys: Tree,
    method: Choice | None = None,
    steps: int = 500,
    progress: Progress | None = None,
    *,
    callbacks: Iterable[Callback] = (),
    time_limit: float | None = None,
    refit: bool = True,
    **options: Any,
) -> list[Solution]:
    """Solve a problem independently from many starts, stacked along the first dimension of every leaf.

    All starts run in one batch if ``torch.func.vmap`` can map the objectives and the optimiser of x works entry by
    entry, as the default does where ``x_set`` is a box; otherwise one after another. With
    :class:`bvfim.AdaptiveBVFIM`, the default, start i is solved as ``solve`` with ``seed + i`` would.

    Args:
        problem: the objectives and sets.
        xs: the initial upper variables, a tree like x whose leaves have a leading dimension.
        ys: the initial lower variables, likewise.
        method: a method such as ``bvfim.RHG()``.
        steps: the maximum number of steps of each start.
        progress: called with the amount of work done and the total amount.
        callbacks: functions of the run, called after each step; if one returns True, all starts stop. In a batch the
            run's x and y have a row for each start, and its history has means over the active starts.
        time_limit: stop all starts after this many seconds.
        refit: solve the lower level again at the end, as :func:`bvfim.solve` does; in a batch for all starts at
            once, by projected L-BFGS whatever the set.
        options: other options of :func:`bvfim.solve`, for methods that estimate a hypergradient; with any option other
            than ``optimizer``, the starts run one after another.

    Returns:
        One :class:`bvfim.Solution` for each start. If Ctrl-C, a callback or the time limit ended the run, each holds
        the result reached by then. In a batch, ``seconds`` counts from the start of the batch.

    Example:
        >>> import torch, bvfim
        >>> toy = bvfim.testproblems.sine(a=2)
        >>> starts = torch.linspace(-10, 10, 50, dtype=torch.float64)[:, None]
        >>> found = bvfim.solve_many(toy.problem, starts, starts)
        >>> sum(abs(s.x - toy.x).item() < 1e-3 for s in found)
        50
    """
    problem, count = as_problem(problem), _count(xs, ys)
    chosen = suited(AdaptiveBVFIM() if method is None else as_method(method), problem)
    xs, ys = copies(xs, ys)
    notify = progress or (lambda done, total: None)
    check_function(notify, "progress", 2, "a function of the work done and the whole work")
    check_time_limit(time_limit)
    check_flag(refit, "refit")
    called = checked_callbacks(callbacks)
    if "resume" in options:
        raise MethodError("solve_many does not support resume: a checkpoint holds one run")
    mover = _mover(chosen, problem, xs, ys, steps, options)
    if mover is None:
        return _one_by_one(problem, xs, ys, chosen, steps, notify, called, time_limit, {**options, "refit": refit})
    xs, ys = _inside(problem, xs, ys)
    run = ManyRun(problem, xs, ys, chosen, mover, steps)
    for message in chosen.cautions(steps):
        warn(message)
    if isinstance(mover, AdaptiveBatch):
        run.status = mover.status(run.state)

    def tell(run: Run) -> None:
        if isinstance(mover, AdaptiveBatch):
            notify(int(mover.ended(run.state).sum()), count)
        else:
            notify(run.k, run.steps)

    found = run.solutions(drive(run, [tell, *called], time_limit))
    return judged_together(problem, found) if refit else found


def _mover(method: Chosen, problem: Problem, xs: Tree, ys: Tree, steps: int, options: dict[str, Any]) -> Batch | None:
    """What runs all starts in one batch; None where they have to run one after another."""
    check_steps(steps)
    first = row(xs, 0), row(ys, 0)
    if isinstance(method, AdaptiveBVFIM):
        if options or method.starts != 1:
            refused = ", ".join(options) or "starts"
            raise MethodError(f"solve_many with AdaptiveBVFIM takes no {refused}: every row of xs and ys is a start")
        validate(problem, *first)
        return AdaptiveBatch(method)
    alone = not set(options) <= {"optimizer"} or problem.context is not None or steps == 0
    if not isinstance(method, Estimator) or alone:
        return None
    validate(problem, *first)
    trial = EstimatorBatch(method, problem, xs, options.get("optimizer"))
    if not trial.entrywise or (options.get("optimizer") is None and not entrywise(problem.x_set)):
        return None
    try:
        trial.step(problem.counted_anew(), xs, trial.init(problem, xs, ys), 0, None)
    except Exception as error:  # told here, and again by the first start if it is not the batch that is to blame
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        warn(f"the starts can't run in one batch, so they run one after another: {reason}")
        return None
    caution(trial.optimizer, problem.x_set, "x_set")
    caution_of_y(method, problem)
    return EstimatorBatch(method, problem, xs, options.get("optimizer"))


def _inside(problem: Problem, xs: Tree, ys: Tree) -> Any:
    """The starts, each projected onto its set with a warning if it is outside."""
    starts = [
        (projected(problem.project_x, row(xs, i), "x"), projected(problem.project_y, row(ys, i), "y"))
        for i in range(len(tree.leaves(xs)[0]))
    ]
    return tree.map(lambda *leaves: torch.stack(leaves), *starts)


def _one_by_one(
    problem: Problem,
    xs: Tree,
    ys: Tree,
    method: Chosen,
    steps: int,
    notify: Progress,
    callbacks: list[Callback],
    time_limit: float | None,
    options: dict[str, Any],
) -> list[Solution]:
    """The starts one after another; what ends all of them leaves the later ones where they are."""
    began, count = time.monotonic(), _count(xs, ys)
    solutions: list[Solution] = []
    for i in range(count):
        left = None if time_limit is None else time_limit - (time.monotonic() - began)
        ends: list[Status] = [s.status for s in solutions if s.status in (Status.INTERRUPTED, Status.STOPPED)]
        ends += [Status.TIME_LIMIT] if left is not None and left <= 0 else []
        start = problem, row(xs, i), row(ys, i), method
        if ends:
            solutions.append(replace(solve(*start, steps=0, **options), status=ends[0]))
        else:
            solutions.append(solve(*start, steps=steps, callbacks=callbacks, time_limit=left, **options))
        notify(i + 1, count)
    return solutions


def _count(xs: Tree, ys: Tree) -> int:
    lengths = {len(t) if isinstance(t, torch.Tensor) and t.dim() else 0 for t in tree.leaves([xs, ys])}
    if len(lengths) != 1 or 0 in lengths:
        raise ProblemError(
            "xs and ys must be trees of tensors whose leaves have the same first dimension, one row for each start"
        )
    return lengths.pop()
