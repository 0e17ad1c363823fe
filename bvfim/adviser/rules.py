"""From facts to methods: a table of rules, the first that applies decides."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, NamedTuple, cast

import torch

from bvfim.adviser.facts import Facts
from bvfim.dynamics import Adaptive
from bvfim.methods import BVFIM, CG, F2SA, RHG, TRHG, AdaptiveBVFIM, Chosen, LowerValue, SiPBA, StochasticBVFIM
from bvfim.methods.base import OptimizerFactory

SMALL, SMALL_STATED = 2000, 4000
"""Up to so many entries of x and y AdaptiveBVFIM is quick: from 600 on without second derivatives, with constraints up
to 4000 with them."""
OWN = 0.05
"""Each draw has a lower level of its own where the gradients on different draws have less than this in common: of eight
draws, whose pairs are not quite at right angles by chance."""
FLAT = 1e-4
"""Along F_y, f is flat where its curvature is below this share of the largest."""
X_STEP = 0.3
"""The step of Adam on x, relative to the length of x."""
SAFE = 1.0
"""The step of gradient descent on y, times the largest curvature: below 2, with room for the curvature to grow."""
SHORT_RUN, LONG_RUN = 20, 100
"""Lower steps of a method that goes on from its last y, and the most of one that starts anew."""
STARTS = 4
"""Starts of AdaptiveBVFIM where the lower level has several minima."""
WORST = 1e6
"""f looks strongly convex where its condition number is below this: curvatures beyond are within a probe's error."""
HELD, BARRIER = 0.1, 0.25
"""Of nested BVFIM where each draw has a lower level of its own: mu1 and theta relative to the largest curvature, and
tau relative to what f falls by. The same shares served few-shot learning on Omniglot."""
PRODUCTS = 4
"""Products of CG, relative to the square root of the condition number: the error is then below 1e-3."""


@dataclass(frozen=True)
class Candidate:
    """A method ready to run.

    Attributes:
        method: with its steps.
        optimizer: of x; None for a method that moves x itself, or by its own default.
        lr: the step of that optimiser.

    Example:
        >>> import bvfim
        >>> from bvfim.adviser import Candidate
        >>> print(Candidate(bvfim.RHG(steps=20, lr=0.5), lr=0.1))
        bvfim.RHG(steps=20, lr=0.5), optimizer=lambda p: torch.optim.Adam(p, lr=0.1)
    """

    method: Chosen
    lr: float | None = None

    @property
    def optimizer(self) -> OptimizerFactory | None:
        """Adam with this step."""
        return None if self.lr is None else partial(torch.optim.Adam, lr=self.lr)

    @property
    def name(self) -> str:
        """The name of the method."""
        return type(self.method).__name__

    def __str__(self) -> str:
        own = [f.name for f in fields(cast(Any, self.method)) if getattr(self.method, f.name) != f.default]
        said = ", ".join(f"{name}={written(getattr(self.method, name))}" for name in own)
        by = "" if self.lr is None else f", optimizer=lambda p: torch.optim.Adam(p, lr={self.lr:g})"
        return f"bvfim.{self.name}({said}){by}"


def written(value: Any) -> str:
    """A field of a method as code that makes it.

    Example:
        >>> import bvfim
        >>> from bvfim.adviser.rules import written
        >>> written(bvfim.dynamics.Adaptive(lr=0.5)), written("warm")
        ('bvfim.dynamics.Adaptive(lr=0.5)', "'warm'")
    """
    homes = {"bvfim.dynamics": "bvfim.dynamics.", "bvfim.methods.bvfim": "bvfim."}
    return homes.get(type(value).__module__, "") + repr(value)


class Rule(NamedTuple):
    """A row of the table.

    Attributes:
        applies: to which facts.
        best, second: the methods it takes.
        because: the reasons, in sentences.
        otherwise: what would change it.
    """

    applies: Callable[[Facts], bool]
    best: Callable[[Facts], Candidate]
    second: Callable[[Facts], Candidate]
    because: Callable[[Facts], str]
    otherwise: str


def rounded(number: float) -> float:
    """Two digits: more would claim more than a probe tells."""
    return float(f"{number:.2g}")


def x_step(facts: Facts) -> float | None:
    """A step for Adam on x; None where the set of x is no box, and the default optimiser suits it."""
    return rounded(X_STEP * facts.x_length) if facts.boxed else None


def y_step(facts: Facts) -> float:
    """A step for gradient descent on f: one over the largest curvature."""
    return rounded(SAFE / facts.largest) if facts.largest > 0 else 0.01


def steps_on_y(facts: Facts) -> Adaptive:
    """Gradient descent on f that begins with this step, and follows the curvature as x changes it."""
    return Adaptive(lr=y_step(facts))


def adaptive(facts: Facts) -> Candidate:
    """AdaptiveBVFIM."""
    return Candidate(AdaptiveBVFIM())


def from_several(facts: Facts) -> Candidate:
    """AdaptiveBVFIM from several starts, which cost several times as much."""
    return Candidate(AdaptiveBVFIM(starts=STARTS))


def stochastic(facts: Facts) -> Candidate:
    """StochasticBVFIM at its defaults, which measures its steps itself."""
    return Candidate(StochasticBVFIM())


def nested(facts: Facts) -> Candidate:
    """BVFIM that starts anew in each draw, y from where z ended."""
    lr, held = y_step(facts), rounded(HELD * facts.largest) if facts.largest > 0 else HELD
    how: dict[str, Any] = {"mu1": held, "theta": held, "tau": rounded(BARRIER * facts.fall) if facts.fall > 0 else 1.0}
    return Candidate(BVFIM(5, 10, lr, lr, mu2=LowerValue(), start="z", **how), x_step(facts))


def warm(facts: Facts) -> Candidate:
    """RHG that goes on from its last y."""
    return Candidate(RHG(steps=SHORT_RUN, dynamics=steps_on_y(facts)), x_step(facts))


def anew(facts: Facts) -> Candidate:
    """RHG that trains y anew for every step of x: for as long as its descent took, within bounds."""
    steps = min(max(facts.descent, SHORT_RUN), LONG_RUN)
    return Candidate(RHG(steps=steps, dynamics=steps_on_y(facts), start="restart"), x_step(facts))


def truncated(facts: Facts) -> Candidate:
    """TRHG that keeps the last step."""
    return Candidate(TRHG(steps=SHORT_RUN, keep=1, dynamics=steps_on_y(facts)), x_step(facts))


def implicit(facts: Facts) -> Candidate:
    """CG with as many products as the condition of f asks for."""
    products = min(math.ceil(PRODUCTS * math.sqrt(min(facts.condition, LONG_RUN**2))), facts.n, LONG_RUN)
    return Candidate(CG(steps=LONG_RUN, dynamics=steps_on_y(facts), cg_steps=products), x_step(facts))


def difference(facts: Facts) -> Candidate:
    """F2SA."""
    return Candidate(F2SA(lr=y_step(facts)), x_step(facts))


def pessimist(facts: Facts) -> Candidate:
    """SiPBA."""
    return Candidate(SiPBA())


def convex(facts: Facts) -> bool:
    """Whether f can be differentiated twice, and no curvature that was seen is near zero."""
    return facts.twice and facts.condition < WORST


def fits(facts: Facts, most: int) -> bool:
    """Whether a line search on all of the data is quick."""
    return not facts.batches and facts.m + facts.n <= most


def own_lower(facts: Facts) -> bool:
    """Whether each draw has a lower level of its own."""
    return facts.sampled and facts.common <= OWN


def is_judged(facts: Facts) -> bool:
    """Whether a short trial tells which method is better: not with a network, which has hardly been trained by then.

    F is then that of few steps, on rows which y may soon know by heart; it does not tell who is ahead in the end.
    """
    return bool(facts.stated) or fits(facts, SMALL) or convex(facts)


def many_minimisers(facts: Facts) -> bool:
    """Whether F can fall at no cost of f, and x and y are too long to look for the best minimiser."""
    return not facts.sampled and not facts.stated and facts.m + facts.n > SMALL and facts.flat < FLAT


RULES = (
    Rule(
        lambda p: p.follower == "pessimistic",
        adaptive,
        pessimist,
        lambda p: "The follower breaks ties against the leader; only AdaptiveBVFIM and SiPBA are made for that.",
        "With an optimistic follower the other methods come in.",
    ),
    Rule(
        lambda p: bool(p.stated) and fits(p, SMALL_STATED),
        adaptive,
        stochastic,
        lambda p: f"There are constraints ({', '.join(p.stated)}), and x and y are small enough for a line search.",
        f"With batches, or more than {SMALL_STATED} entries in x and y: StochasticBVFIM, which takes constraints too.",
    ),
    Rule(
        lambda p: bool(p.stated),
        stochastic,
        lambda p: Candidate(BVFIM(z_lr=y_step(p), y_lr=y_step(p)), x_step(p)),
        lambda p: f"There are constraints ({', '.join(p.stated)}), and batches or too many entries for a line search.",
        "On a smaller problem without batches: AdaptiveBVFIM, which checks its answer.",
    ),
    Rule(
        own_lower,
        nested,
        lambda p: anew(p) if p.twice else difference(p),
        lambda p: (
            f"Each draw has a lower level of its own: the gradients of f on different draws have {p.common:.0%} in "
            "common, so y has to be found anew for each."
        ),
        "If the draws are rows of one data set: StochasticBVFIM, whose y goes on from draw to draw.",
    ),
    Rule(
        many_minimisers,
        lambda p: anew(p) if p.twice else nested(p),
        stochastic,
        lambda p: (
            f"The lower level has many minimisers: along F_y, f is flat (its curvature there is {p.flat:.0e} "
            "of the largest). What training reaches from the start counts, not the y that suits F best."
        ),
        "If y may be chosen among the minimisers, as the optimistic problem says: StochasticBVFIM.",
    ),
    Rule(
        lambda p: p.batches,
        stochastic,
        lambda p: warm(p) if p.twice else difference(p),
        lambda p: (
            "There are batches: a single loop takes one gradient of each objective a step, and measures its own steps"
            + (f"; {p.common:.0%} of a gradient of f is common to all draws, the rest is noise." if p.sampled else ".")
        ),
        "If every batch has a lower level of its own: BVFIM or RHG, started anew.",
    ),
    Rule(
        lambda p: fits(p, SMALL),
        adaptive,
        lambda p: from_several(p) if p.minima > 1 else stochastic(p),
        lambda p: (
            f"x and y have {p.m} and {p.n} entries, and there are no batches: a line search finds its own steps, and "
            "probes look for lower minima of f."
        ),
        f"With batches, or more than {SMALL} entries: StochasticBVFIM.",
    ),
    Rule(
        convex,
        implicit,
        stochastic,
        lambda p: (
            f"f looks strongly convex at its minimum (condition {p.condition:.0e}) and y is long: implicit "
            "differentiation with few products is exact there."
        ),
        "If f has other minima, or flat directions: StochasticBVFIM.",
    ),
    Rule(
        lambda p: True,
        stochastic,
        lambda p: truncated(p) if p.twice else difference(p),
        lambda p: f"y has {p.n} entries and f is not strongly convex there: a single loop with first gradients.",
        f"With fewer than {SMALL} entries in x and y: AdaptiveBVFIM, which checks its answer.",
    ),
)
"""The first that applies decides."""


def decided(facts: Facts) -> tuple[Candidate, Candidate, tuple[str, ...], str]:
    """The best, the second, the reasons and what would change them, by the first rule that applies."""
    rule = next(rule for rule in RULES if rule.applies(facts))
    reasons = [rule.because(facts)] + [text(facts) for applies, text in REMARKS if applies(facts)]
    return rule.best(facts), rule.second(facts), tuple(reasons), rule.otherwise


REMARKS: tuple[tuple[Callable[[Facts], bool], Callable[[Facts], str]], ...] = (
    (
        lambda p: not p.twice,
        lambda p: "f can't be differentiated twice, so RHG, FHG, TRHG, BDA, CG, Neumann, SOBA and SABA can't run.",
    ),
    (
        lambda p: p.minima > 1,
        lambda p: f"Descents of f from around the start ended at {p.minima} different values: it has several minima.",
    ),
    (
        lambda p: not p.stated and not p.sampled and p.reached and p.condition < WORST,
        lambda p: f"At its minimum f has curvatures from {p.smallest:.1g} to {p.largest:.1g}.",
    ),
)
"""What else is worth a word, and when."""
