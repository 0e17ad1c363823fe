"""The outer loop."""

from __future__ import annotations

import math
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh

from bvfim import tree
from bvfim.callbacks import ProgressBar, own_progress
from bvfim.core.arguments import (
    as_number,
    check_flag,
    check_function,
    check_steps,
    check_time_limit,
    checked_callbacks,
    stops,
)
from bvfim.core.doubts import UNTRAINED, doubts_of_course
from bvfim.core.mover import takes_no
from bvfim.core.problem import Problem
from bvfim.core.refit import BROKEN, judged
from bvfim.core.run import Callback, Run
from bvfim.core.solution import Solution
from bvfim.distributed.twins import Twins
from bvfim.methods import AdaptiveBVFIM, Choice, State, StochasticBVFIM, as_method
from bvfim.methods.base import OptimizerFactory, SchedulerFactory
from bvfim.status import MethodError, RankError, Status, warn
from bvfim.tree import Tree

LOOKS = 50
"""A held-out score is looked at about this many times in a run."""
HARDLY = 0.01
"""A later look at it counts as lower where it is so by this share of what the score has fallen by since the first."""

CHECKED = 50
"""Every so many steps, several processes make sure that they hold the same x and y."""

LARGE = 10_000
"""From this many lower variables on, a line search on all of the data is slow beside a loop over batches of it."""
FASTER = "solve (with so large a y, batches= or method=bvfim.StochasticBVFIM() would be faster)"


def large(y: Tree) -> bool:
    """Whether y has the size of a network."""
    return not isinstance(y, Twins) and tree.size(y) > LARGE


def solve(
    problem: Problem,
    x: Tree,
    y: Tree,
    method: Choice | None = None,
    optimizer: OptimizerFactory | None = None,
    steps: int = 500,
    batches: Any = None,
    callbacks: Iterable[Callback] = (),
    *,
    scheduler: SchedulerFactory | None = None,
    tol: float | None = None,
    time_limit: float | None = None,
    resume: str | os.PathLike[str] | None = None,
    accelerate: str = "auto",
    refit: bool = True,
    progress: bool | None = None,
    holdout: Callable[[Tree, Tree], float | Tensor] | None = None,
    mesh: DeviceMesh | ProcessGroup | None = None,
) -> Solution:
    r"""Minimise F(x, y) over x in X with y in argmin f(x, .), from the initial point (x, y).

    Each step computes an estimate g of the hypergradient, updates x with a torch optimiser and projects it:
    :math:`x \leftarrow P_X(\mathrm{optimizer}(x, g))`. The inputs are never changed in place; they determine dtype and
    device.

    Args:
        problem: the objectives and sets.
        x: the initial upper variable, a tree of tensors; projected onto X (with a warning) if it is outside.
        y: the initial lower variable, likewise; or :class:`bvfim.Twins`, two networks that are called as modules.
        method: a method such as ``bvfim.RHG()``; the default is ``bvfim.AdaptiveBVFIM()``, which moves x itself, or
            ``bvfim.StochasticBVFIM()`` if there are batches. No other option affects this choice: an option that the
            method can't take raises an error.
        optimizer: maps the list of x's tensors to a torch optimiser, as a class does that has a default step, such as
            ``torch.optim.Adam``. The default is Adam with learning rate 0.01, and :class:`bvfim.OneScale` for
            StochasticBVFIM.
        steps: the number of updates of x.
        batches: a stream of batches or :class:`bvfim.Batches`; one draw per step, or one per inner step.
        callbacks: functions of the :class:`bvfim.Run`, called after each step; the run stops if one returns True.
        scheduler: maps the optimiser to a torch learning-rate scheduler, stepped once per step.
        tol: stop when the norm of the projected gradient :math:`|x - P_X(x - g)|` is at most this.
        time_limit: stop after this many seconds; a resumed run gets the full time again.
        resume: a checkpoint to continue from, bit for bit; ``steps`` includes the steps taken before it. Any number of
            processes can continue what others wrote; then batches are shared out anew.
        accelerate: how to run the step of any method but AdaptiveBVFIM. ``"cudagraph"`` records it once and replays it,
            with bitwise identical results; ``"compile"`` also compiles the problem's context, the inner steps of BVFIM,
            CG and Neumann (those of plain gradient descent) and the gradients of StochasticBVFIM, with results equal up
            to rounding;
            ``"none"`` does neither. ``"auto"`` records on a CUDA device if launches dominate the time, and compiles
            from 5000 steps on. Whatever can't be compiled or recorded runs as it is, with a warning.
        refit: solve the lower level again at the end, for ``solution.lower_gap`` and ``solution.upper_refit``; it costs
            at most a tenth of the run. Networks given as :class:`bvfim.Twins` are not trained again.
        progress: show a progress bar once the run has taken two seconds; by default on a terminal and in a notebook,
            unless the callbacks include one.
        holdout: a function of (x, y) such as the loss on rows that neither objective sees; lower is better. It is
            evaluated about fifty times, and the x and y where it was lowest are returned: of values that differ by less
            than a hundredth of its fall, those of the first.
        mesh: a :class:`torch.distributed.device_mesh.DeviceMesh` of one dimension, or a process group: its processes,
            started by ``torchrun``, solve the problem together, each on its own share of the rows. Objectives are means
            over the rows of a rank; their values and gradients are summed over the ranks, weighted by the rows of the
            batches, and without batches all ranks count alike. x and y are the same everywhere, or x holds a
            ``DTensor`` sharded along its first dimension, whose rows stay on their rank; the objectives see these rows.

    Returns:
        A :class:`bvfim.Solution`. Ctrl-C ends the run and returns what it has. A non-finite value ends it with the
        best iterate before, or the last one with batches.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(
        ...     upper=lambda x, y: ((x - 2) ** 2 + (y - 2) ** 2).sum(),
        ...     lower=lambda x, y: ((y - x + 1) ** 2).sum(),
        ... )
        >>> start = torch.zeros(1, dtype=torch.float64)
        >>> solution = bvfim.solve(problem, start, start, bvfim.CG(lr=0.1), optimizer=lambda p: torch.optim.SGD(p, 0.1))
        >>> print(f"x = {solution.x.item():.3f}, y = {solution.y.item():.3f}, F = {solution.upper:.3f}")
        x = 2.500, y = 1.500, F = 0.500
    """
    default = AdaptiveBVFIM if batches is None else StochasticBVFIM
    chosen = as_method(default if method is None else method)
    check_steps(steps)
    check_time_limit(time_limit)
    called = checked_callbacks(callbacks)
    if holdout is not None:
        check_function(holdout, "holdout", 2, "a function of x and y")
    check_flag(progress, "progress", maybe=True)
    check_flag(refit, "refit")
    if isinstance(y, Twins) and holdout is not None:
        raise MethodError("holdout: networks given as bvfim.Twins are trained in place, so no earlier step can be kept")
    if batches is not None and not chosen.takes_batches:
        raise MethodError(takes_no(chosen, "batches"))
    options: dict[str, Any] = {"optimizer": optimizer, "scheduler": scheduler, "tol": tol}
    options |= {"accelerate": accelerate, "mesh": mesh}
    run = Run(problem, x, y, chosen, steps, batches, **options)
    if resume is not None:
        run.load(resume)
    for caution in chosen.cautions(steps):
        warn(caution)
    if run.world.rank == 0 and not any(isinstance(callback, ProgressBar) for callback in called):
        called += own_progress(progress, FASTER if method is None and batches is None and large(y) else "solve")
    best = None if holdout is None else Best(holdout, steps)
    try:
        status = drive(run, called if best is None else [best, *called], time_limit)
        if best is not None:
            best.restore(run)
        if status in BROKEN or not refit:
            return run.solution(status)
        if isinstance(y, Twins):
            return doubted(run, replace(run.solution(status), doubts=(UNTRAINED,)))
        return doubted(run, run.world.together(lambda: judged(run, run.solution(status))))
    except RankError as error:
        if not run.world.broken:
            raise
        warn(str(error))
        return run.solution(Status.RANK_LOST)


def doubted(run: Run, solution: Solution) -> Solution:
    """The solution, also with what the course of the run says against it."""
    return replace(solution, doubts=(*solution.doubts, *doubts_of_course(run)))


class Best:
    """Looks at a held-out score from time to time, and keeps x and the state where it was lowest.

    A later look has to be lower by a share of what the score has fallen by: of looks that hardly differ, the first has
    had the least time to learn by heart what it was not meant to.
    """

    def __init__(self, score: Callable[[Tree, Tree], float | Tensor], steps: int) -> None:
        self.score, self.every = score, max(1, steps // LOOKS)
        self.first = self.lowest = math.inf
        self.kept: tuple[Tree, State] | None = None

    def __call__(self, run: Run) -> None:
        """Look, if it is due."""
        if run.k % self.every == 0 or run.k == run.steps:
            with torch.no_grad():
                own = run.world.attempt(lambda: as_number(self.score(run.x, run.y), "holdout"), math.nan)
            found = run.world.mean(own)
            run.row["holdout"] = found
            if self.kept is None and math.isfinite(found):
                self.first = self.lowest = found
                self.kept = run.x, run.state
            elif found < self.lowest - HARDLY * (self.first - self.lowest):
                self.lowest, self.kept = found, (run.x, run.state)

    def restore(self, run: Run) -> None:
        """Put the best x and state back."""
        if self.kept is not None:
            run.x, run.state = self.kept
        elif run.rows:
            warn("holdout was not a number wherever it was looked at, so the last x and y are returned")


def drive(run: Run, callbacks: Sequence[Callback], time_limit: float | None = None) -> Status:
    """Step until the run ends, a callback stops it, time is up, or Ctrl-C; return how it ended.

    Where there are several processes, what happens on one of them ends all.
    """
    status, world = run.status, run.world
    try:
        with _interrupts() as interrupted:
            while run.k < run.steps and status is None:
                run.step(world.attempt(run.draw, run.drawn))
                world.void = False
                answers = [_stops(run, callback) for callback in callbacks] if run.complete else []
                over = time_limit is not None and run.seconds - run.seconds_before >= time_limit
                ends = {Status.STOPPED: any(answers), Status.TIME_LIMIT: over, Status.INTERRUPTED: interrupted}
                status = _agreed(run, ends)
    except BaseException as error:
        if world.size > 1:  # the others may be waiting within another step
            world.broken, run.complete = True, False
        if not isinstance(error, KeyboardInterrupt):
            raise
        status = Status.INTERRUPTED
    finally:
        world.together(lambda: _finish(run, callbacks))
    return status or Status.MAX_STEPS


def _stops(run: Run, callback: Callback) -> bool:
    """Whether a callback stops the run; those after one that fails are called too: the others may wait in them."""
    answer = run.world.attempt(lambda: stops(callback(run)), True)
    run.world.void = False
    return answer


def _finish(run: Run, callbacks: Sequence[Callback]) -> None:
    """Tell the callbacks; each is called, whatever another one raises."""
    with ExitStack() as ends:
        for callback in reversed(callbacks):
            ends.callback(getattr(callback, "finish", lambda run: None), run)


def _agreed(run: Run, ends: dict[Status, Any]) -> Status | None:
    """How the run ends after a step: by the first of the ends that is due on any rank."""
    world = run.world
    failed, *due = world.agreed([world.error is not None, *map(bool, ends.values())])
    if failed:
        told, world.error = world.told(), None
        warn(f"a function failed on another process of the run, or on this one: {told}")
        return Status.RANK_FAILED
    end = run.status or next((status for status, is_due in zip(ends, due, strict=True) if is_due), None)
    last = end is not None or run.k == run.steps
    if run.complete and (last or run.k % CHECKED == 0) and not world.same(*([] if world.sharded else [run.x]), run.y):
        run.complete = False  # the last checkpoint may be from before that
        return Status.RANKS_DIFFER
    return end


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Ctrl-C lets the step finish, so that what is returned and saved is complete; a second one interrupts at once."""
    seen: list[int] = []

    def note(signum: int, frame: object) -> None:
        if seen:
            raise KeyboardInterrupt
        seen.append(signum)

    if threading.current_thread() is not threading.main_thread():
        yield seen
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)
