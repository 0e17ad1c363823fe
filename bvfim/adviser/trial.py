"""A short run of a candidate, and what its x is worth once the lower level is solved."""

from __future__ import annotations

import math
import time
import warnings
from typing import Any, NamedTuple

from bvfim import tree
from bvfim.adviser.probes import SCATTERED, scattered
from bvfim.adviser.rules import Candidate
from bvfim.core.batches import Draws
from bvfim.core.problem import Problem
from bvfim.core.refit import descended, mean_values
from bvfim.core.solve import solve
from bvfim.methods import AdaptiveBVFIM
from bvfim.status import BvfimError, Status
from bvfim.tree import Tree

WARM_UP = 2
"""Steps that tell how long one takes; what they reach is thrown away."""
FEWEST = 5
"""With fewer steps than this a trial says nothing."""
STAGES = 500
"""The most steps of AdaptiveBVFIM, which ends by itself."""
SAME = 1e-9
"""Of ends of equal f, to rounding, the one with the lowest F is the follower's answer, who is optimistic."""
LOOKS = 4
"""F after a refit is a mean over this many draws."""
REFIT = 0.25
"""The share of the time that the refit may take."""


class Trial(NamedTuple):
    """What a short run showed.

    Attributes:
        candidate: what ran.
        upper: F at its end, where the lower level is solved if the trial is judged; infinite where it failed.
        seconds: of one step.
        steps: how many it took.
        status: how it ended; None where there was no time for a run.
        error: what the method said, where it refused or broke.
    """

    candidate: Candidate
    upper: float
    seconds: float
    steps: int
    status: Status | None
    error: str = ""

    @property
    def failed(self) -> bool:
        """Whether it refused the problem or broke, or reached nothing finite."""
        return self.upper == math.inf


def tried(
    problem: Problem, x: Tree, y: Tree, batches: Any, candidate: Candidate, seconds: float, judged: bool
) -> Trial:
    """Run a candidate for about so many seconds.

    Args:
        problem: the objectives and sets.
        x, y: the start.
        batches: as for :func:`bvfim.solve`.
        candidate: what runs.
        seconds: what the run and the refit may take.
        judged: whether f is solved at the x that it reached, to say what this is worth.
    """
    options: dict[str, Any] = {"method": candidate.method, "optimizer": candidate.optimizer, "batches": batches}
    options |= {"refit": False, "progress": False}
    began = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            steps, left = STAGES, (1 - REFIT) * seconds
            if not isinstance(candidate.method, AdaptiveBVFIM):
                warm_up = solve(problem, x, y, steps=WARM_UP, time_limit=seconds, **options)
                each_step = warm_up.seconds / max(warm_up.steps, 1)
                left -= time.perf_counter() - began
                steps = int(left / each_step)
                if steps < FEWEST:
                    return Trial(candidate, math.nan, each_step, warm_up.steps, None)
            found = solve(problem, x, y, steps=steps, time_limit=left, **options)
            upper = worth_of(problem, found.x, found.y, batches, REFIT * seconds) if judged else found.upper
    except (BvfimError, RuntimeError, NotImplementedError) as error:
        return Trial(candidate, math.inf, math.nan, 0, None, str(error).split("\n", 1)[0])
    upper = upper if math.isfinite(upper) else math.inf
    return Trial(candidate, upper, found.seconds / max(found.steps, 1), found.steps, found.status)


def worth_of(problem: Problem, x: Tree, y: Tree, batches: Any, seconds: float) -> float:
    """F(x, y') with y' at the end of a descent of f from y that takes about so long; a mean over draws.

    Without batches y' is the lowest end of descents from around y as well: at another minimum F may be lower.
    """
    own, draws = problem.counted_anew(), Draws(batches)
    y, first = own.project_y(tree.detach(y)), draws.draw()
    began = time.perf_counter()
    own.at(x, first).lower_grad(y)
    steps = max(int(seconds / (time.perf_counter() - began)), 1)
    ends = [descended(own, x, y, first, draws.draw, steps)]
    if first is None and not own.stated:
        ends += [end for _, end in scattered(own.at(x), y, ends[0], steps // SCATTERED)]
    values = mean_values(own, x, ends, first, draws.draw, LOOKS)
    lowest = min(f for _, f in values)
    return min(F for F, f in values if f - lowest <= SAME * max(1.0, abs(lowest)))
