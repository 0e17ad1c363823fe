"""The adviser: probes, rules, and a trial of the two best."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from bvfim.adviser.facts import Facts, probed
from bvfim.adviser.rules import Candidate, decided, is_judged
from bvfim.adviser.trial import Trial, tried
from bvfim.core.arguments import check_flag, check_time_limit
from bvfim.core.batches import Draws
from bvfim.core.problem import Problem, as_problem
from bvfim.core.shown import html
from bvfim.core.validate import copies, validate
from bvfim.distributed.twins import Twins
from bvfim.methods import AdaptiveBVFIM, Chosen
from bvfim.methods.base import OptimizerFactory
from bvfim.status import MethodError, Status
from bvfim.tree import Tree

if TYPE_CHECKING:
    import pandas as pd

LONGEST = 4.0
"""The seconds that advice takes at most, about: probes a third of it, and each trial another. A run that is shorter
than its trial is tried at full length."""
BETTER, TRIFLE = 0.05, 1e-3
"""The runner-up takes over where its F is lower by this share of the other's, and by this share of what F has fallen by
since the start, which tells where the optimum is zero: a short trial is no more certain."""
STEPS = 500
"""As many as :func:`bvfim.solve` takes by default, where no step could be timed."""


@dataclass(frozen=True)
class Advice:
    """Which method to take, and why.

    Attributes:
        best: the method ready to run, with the optimiser of x where it needs one.
        second: the runner-up.
        steps: as many as fit into the seconds that were said.
        reasons: in sentences.
        otherwise: what would change the answer.
        facts: what the probes saw.
        trials: the short runs; empty where they were switched off.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum())
        >>> start = torch.zeros(2, dtype=torch.float64)
        >>> advice = bvfim.advise(problem, start, start)
        >>> print(advice.best)
        bvfim.AdaptiveBVFIM()
        >>> solution = bvfim.solve(problem, start, start, **advice.options)
    """

    best: Candidate
    second: Candidate
    steps: int
    reasons: tuple[str, ...]
    otherwise: str
    facts: Facts
    trials: tuple[Trial, ...] = ()

    @property
    def method(self) -> Chosen:
        """The method, with its steps."""
        return self.best.method

    @property
    def optimizer(self) -> OptimizerFactory | None:
        """Of x; None where the method moves x itself, or by a default of its own."""
        return self.best.optimizer

    @property
    def runner_up(self) -> Chosen:
        """The second best."""
        return self.second.method

    @property
    def options(self) -> dict[str, Any]:
        """What :func:`bvfim.solve` takes: ``method``, ``optimizer`` and ``steps``."""
        return {"method": self.method, "optimizer": self.optimizer, "steps": self.steps}

    @property
    def table(self) -> pd.DataFrame:
        """A row for each trial: F after a refit, seconds per step, steps, and how it ended."""
        import pandas as pd

        rows = [
            {
                "method": trial.candidate.name,
                "upper": trial.upper,
                "seconds per step": trial.seconds,
                "steps": trial.steps,
                "end": trial.error or ("not run" if trial.status is None else trial.status.value),
            }
            for trial in self.trials
        ]
        return pd.DataFrame(rows, columns=["method", "upper", "seconds per step", "steps", "end"]).set_index("method")

    @property
    def _line(self) -> str:
        return f"bvfim.solve(problem, x, y, {self.best}, steps={self.steps}" + (
            ", batches=batches)" if self.facts.batches else ")"
        )

    def __str__(self) -> str:
        reasons = "\n".join(f"  - {reason}" for reason in self.reasons)
        return (
            f"{self.best.name}\n{reasons}\n  Run: {self._line}\n  Runner-up: {self.second}\n"
            f"  What would change this: {self.otherwise}"
        )

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        facts = {"run": self._line, "runner-up": str(self.second), "what would change this": self.otherwise}
        return html(self.best.name, facts, self.reasons)


def advise(
    problem: Problem, x: Tree, y: Tree, batches: Any = None, *, seconds: float = 60.0, trial: bool = True
) -> Advice:
    """Which method suits a problem, with its steps, and why.

    Cheap probes look at the start: sizes, whether f can be differentiated twice, its largest and smallest curvature,
    other minima, the noise of the batches. A table of rules (:mod:`bvfim.adviser.rules`) names two methods, which then
    run for a second each; the runner-up takes over where it is clearly ahead. With a network such a trial only measures
    the time of a step, and whether the method runs at all: F on the rows of the upper level says little so early. All
    of it takes about four seconds; only where a gradient takes longer than that itself, it takes more.

    Args:
        problem: the objectives, sets and constraints.
        x, y: the start, as for :func:`bvfim.solve`.
        batches: likewise; their position is left as it was.
        seconds: how long the run may take, for the number of steps.
        trial: whether the two best are tried.

    Returns:
        An :class:`bvfim.Advice`: print it, or run ``bvfim.solve(problem, x, y, batches=batches, **advice.options)``.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(
        ...     upper=lambda x, y, target: ((y - target) ** 2).sum(), lower=lambda x, y, _: ((y - x) ** 2).sum()
        ... )
        >>> start = torch.zeros(1, dtype=torch.float64)
        >>> advice = bvfim.advise(problem, start, start, batches=[0.9, 1.1], trial=False)
        >>> print(advice.best, advice.second.name)
        bvfim.StochasticBVFIM() RHG
    """
    if seconds is None:
        raise MethodError("seconds must be a number of seconds, at least 0, not None")
    check_time_limit(seconds, "seconds")
    check_flag(trial, "trial")
    problem = as_problem(problem)
    if isinstance(y, Twins):
        raise MethodError("advise: networks given as bvfim.Twins are for StochasticBVFIM alone; there is no choice")
    begin = Draws(batches).state_dict()
    validate(problem, x, y, Draws(batches).draw())
    x, y = copies(x, y)
    x, y = problem.project_x(x), problem.project_y(y)
    share = min(LONGEST / 3, seconds)
    random = torch.get_rng_state()
    try:
        Draws(batches).load_state_dict(begin)
        facts = probed(problem, x, y, batches, share)
        best, second, reasons, otherwise = decided(facts)
        advice = Advice(best, second, STEPS, reasons, otherwise, facts)
        if not trial:
            return advice
        trials: list[Trial] = []
        for candidate in (best, second):
            Draws(batches).load_state_dict(begin)
            torch.manual_seed(0)
            trials.append(tried(problem, x, y, batches, candidate, share, is_judged(facts)))
            if trials[-1].status is Status.CONVERGED and facts.minima == 1:  # it has an answer, and has checked it
                break
        return after(advice, tuple(trials), seconds)
    finally:
        Draws(batches).load_state_dict(begin)
        torch.set_rng_state(random)


def after(advice: Advice, trials: tuple[Trial, ...], seconds: float) -> Advice:
    """The advice once trials have been seen, with as many steps as fit into so many seconds.

    Args:
        advice: what the rules say.
        trials: of the best, and of the second where the best had not converged.
        seconds: for the run.
    """
    first, last = trials[0], trials[-1]
    least = max(BETTER * max(abs(first.upper), abs(last.upper)), TRIFLE * abs(advice.facts.upper - last.upper))
    ahead = (is_judged(advice.facts) and first.upper - last.upper > least) or first.failed > last.failed
    chosen = last if ahead else first
    best, second = (advice.second, advice.best) if ahead else (advice.best, advice.second)
    timed = math.isfinite(chosen.seconds) and not isinstance(best.method, AdaptiveBVFIM)
    steps = max(int(seconds / chosen.seconds), 1) if timed else STEPS
    reasons = (*advice.reasons, *_told(advice, trials, ahead))
    return replace(advice, best=best, second=second, steps=steps, reasons=reasons, trials=trials)


def _told(advice: Advice, trials: tuple[Trial, ...], ahead: bool) -> list[str]:
    """What the trials showed, in sentences."""
    first, last = trials[0], trials[-1]
    said = [f"{t.candidate.name} failed in a trial: {t.error}" for t in trials if t.error]
    if first.status is Status.CONVERGED:
        said.append(f"In a trial {first.candidate.name} came to its end: F is {first.upper:.4g} after a refit.")
    elif slow := [t for t in trials if t.status is None and not t.error]:
        said += [f"A step of {t.candidate.name} takes {t.seconds:.2g} s, which is too long for a trial." for t in slow]
    elif not is_judged(advice.facts):
        shown = " and ".join(f"{t.seconds:.2g} s with {t.candidate.name}" for t in trials)
        said.append(f"In a trial a step took {shown}. What F is then, so early in training, says nothing.")
    elif not said:
        shown = " and ".join(f"{t.upper:.4g} with {t.candidate.name} ({t.steps} steps)" for t in trials)
        more = f": {last.candidate.name}, the second by the rules, is clearly ahead." if ahead else "."
        said.append(f"In trials of equal time F was {shown} once the lower level was solved{more}")
    return said
