"""One run of the contest: a method on a job until its CPU seconds are over, and what its x was worth on the way."""

from __future__ import annotations

import math
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from types import FrameType
from typing import Any, NamedTuple

import bvfim
from bvfim import tree
from bvfim.core.refit import BROKEN, in_gradients
from bvfim.core.run import Run
from bvfim.core.solution import Solution
from bvfim.reproduce.bench.contest_settings import Setting, fitted
from bvfim.reproduce.bench.jobs import Job, Posed, jobs, judged
from bvfim.reproduce.experiments.resumable import finished
from bvfim.status import BvfimError

SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2)
"""A run is looked at after the first step that ends so late in its budget, and at its end."""
ENDLESS = 10**9
"""Upper steps of a run that the clock ends."""
PROBE = 0.1
"""StochasticBVFIM's steps go down over a given number of them: how many fit is measured in a run of this share of the
budget, which is not counted; a user would have to choose a number, too."""
LONGEST = 1.5
"""A step that was begun in time may end, but a run is cut off after so many times its budget."""
REFUSED, FAILED, CUT = "refused", "failed", "cut off"
"""Ends that a solution does not have: the method can't take the problem; an error; a step that does not end."""
NO_STEP = "its first step does not end in time"

Row = dict[str, Any]


class Look(NamedTuple):
    """Where a run was: CPU seconds, gradients, and x."""

    seconds: float
    gradients: float
    x: Any


class CutOff(BaseException):
    """A step did not end in time: nothing that catches errors is to catch it."""


class Watch:
    """The clock of a run, which begins with it: looks at x from time to time, and ends it.

    Args:
        budget: CPU seconds; shares: when to look.

    Attributes:
        looks: what was seen then; last: after the last step.
        first: the seconds until the first step had ended; steps: how many did.
    """

    def __init__(self, budget: float, shares: tuple[float, ...] = ()) -> None:
        self.budget, self.due = budget, [share * budget for share in shares]
        self.looks: list[Look] = []
        self.last: Look | None = None
        self.steps, self.first = 0, math.nan
        self.began = time.process_time()

    @property
    def seconds(self) -> float:
        """CPU seconds since the beginning."""
        return time.process_time() - self.began

    def __call__(self, run: Run) -> bool:
        """After a step: look where it is due, and say whether the time is up."""
        seconds, self.steps = self.seconds, self.steps + 1
        if self.steps == 1:
            self.first = seconds
        self.last = Look(seconds, in_gradients(run.problem.evaluations.as_dict()), tree.clone(run.x))
        if self.due and seconds >= self.due[0]:
            self.looks.append(self.last)
            self.due = [moment for moment in self.due if moment > seconds]
        return seconds >= self.budget


def rows(job: Job, setting: Setting, seed: int, budget: float, looked: bool) -> list[Row]:
    """The looks at one run, the last of which is its end; only this one unless it is to be looked at.

    Args:
        job: the job; seed: its seed.
        setting: the method.
        budget: CPU seconds.
        looked: whether to judge it on the way, too.
    """
    about: Row = {
        "job": job.name,
        "family": job.family,
        "method": type(setting.method).__name__,
        "setting": setting.name,
    }
    about |= {"seed": seed, "start": start(job.name, seed)}
    posed = job.build(seed)
    watch, end, status, said = ran(posed, job, setting, seed, budget, SHARES if looked else ())
    found = [(look, judged(posed, look.x), "") for look in watch.looks]
    found.append((end, math.inf if end.x is None else judged(posed, end.x), status))
    return [
        {**about, "seconds": look.seconds, "gradients": look.gradients, "value": value, "status": ended, "said": said}
        for look, value, ended in found
    ]


@cache
def start(name: str, seed: int) -> float:
    """What the start of a job is worth."""
    [job] = [job for job in jobs() if job.name == name]
    posed = job.build(seed)
    return judged(posed, posed.x)


def ran(
    posed: Posed, job: Job, setting: Setting, seed: int, budget: float, shares: tuple[float, ...]
) -> tuple[Watch, Look, str, str]:
    """The watch of a run, where it ended, how, and what there is to say; without an x where it failed."""
    method, batches = fitted(setting, posed)
    watch, limit = Watch(budget, shares), Limit(LONGEST * budget)
    try:
        steps = planned(job.build(seed), setting, budget) if isinstance(method, bvfim.StochasticBVFIM) else ENDLESS
        with quiet(), limit:
            watch = Watch(budget, shares)
            solution = solved(posed, method, setting, steps, batches, watch)
    except (CutOff, Exception) as error:
        if limit.over:  # whatever has become of it on its way: some catch all errors, and raise others
            last = watch.last or Look(0.0, 0.0, posed.x)
            return watch, last._replace(seconds=watch.seconds), CUT, "" if watch.steps else NO_STEP
        nowhere = Look(watch.seconds, math.nan, None)
        if isinstance(error, BvfimError):
            return watch, nowhere, REFUSED, str(error)
        return watch, nowhere, FAILED, f"{type(error).__name__}: {error}".splitlines()[0]
    finished(solution)
    broken = solution.status in BROKEN
    end = Look(watch.seconds, in_gradients(solution.evaluations), None if broken else solution.x)
    return watch, end, solution.status.value, "it broke off" if broken else ""


def solved(posed: Posed, method: Any, setting: Setting, steps: int, batches: Any, watch: Watch) -> Solution:
    """The solution at the end of the watch's time, without anything that costs time beside the steps."""
    return bvfim.solve(
        posed.problem, posed.x, posed.y, method, setting.optimizer, steps, batches, [watch],
        refit=False, progress=False, accelerate="none",
    )  # fmt: skip


def planned(posed: Posed, setting: Setting, budget: float) -> int:
    """How many steps fit into the budget, from a short run of its own."""
    probe = Watch(PROBE * budget)
    with quiet(), Limit(LONGEST * budget):
        solved(posed, setting.method, setting, ENDLESS, posed.batches, probe)
    seconds = probe.seconds
    if probe.steps < 2:
        return max(1, int(budget / probe.first))
    return max(1, 1 + int((budget - probe.first) * (probe.steps - 1) / (seconds - probe.first)))


@contextmanager
def quiet() -> Iterator[None]:
    """Without warnings: what a method has to say of its run is not judged here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def loaded(kinds: list[type[Any]]) -> None:
    """Take a step of each method, with no limit: what only the first run of a process has to load is nobody's time."""
    [toy, *_] = jobs()
    for kind in kinds:
        posed = toy.build(0)
        with quiet(), suppress(BvfimError):
            solved(posed, kind(), Setting("", kind()), 1, None, Watch(0.0))


AGAIN = 0.05
"""CPU seconds after which a run that loads a module is asked to end once more: half a module would break the others."""


class Limit:
    """Raises an error in what is done within it once that has taken more CPU seconds; ``over`` says whether it has.

    The timer of the system may run ahead of the clock by a half where other processes run, so that the clock is asked.

    Args:
        seconds: how long it may take.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds, self.over = seconds, False

    def __enter__(self) -> None:
        self.end = time.process_time() + self.seconds
        self.before = signal.signal(signal.SIGPROF, self._due)
        signal.setitimer(signal.ITIMER_PROF, self.seconds)

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, self.before)

    def _due(self, signum: int, frame: FrameType | None) -> None:
        left = self.end - time.process_time()
        if left > 0 or _loading(frame):
            signal.setitimer(signal.ITIMER_PROF, max(left, AGAIN))
            return
        self.over = True
        raise CutOff


def _loading(frame: FrameType | None) -> bool:
    """Whether a module is being loaded."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
