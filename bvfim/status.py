"""How a run ended, and what can go wrong before it starts."""

from __future__ import annotations

import difflib
import enum
from collections.abc import Collection, Iterable


class Status(enum.Enum):
    """How a solve ended. Each member carries ``advice``: what to do next.

    Example:
        >>> import bvfim
        >>> bvfim.Status.MAX_STEPS.advice
        'All steps were taken. Look at the history: raise steps while F still moves.'
        >>> bvfim.Status.SLACK_LOST.ok
        False
    """

    advice: str

    CONVERGED = ("converged", "The method's test of convergence is met, within tol.")
    MAX_STEPS = (
        "max_steps",
        "All steps were taken. Look at the history: raise steps while F still moves.",
    )
    TIME_LIMIT = ("time_limit", "The time limit was reached. Raise it, or resume from a checkpoint.")
    STOPPED = ("stopped", "A callback asked to stop.")
    INTERRUPTED = ("interrupted", "Ctrl-C. The last complete step is returned; a checkpoint resumes it.")
    NON_FINITE = (
        "non_finite",
        "A value or gradient became NaN or infinite; the last good iterate is returned. "
        "Lower the step sizes, let them follow the curvature (dynamics=bvfim.dynamics.Adaptive()), or keep x and y in "
        "sets where the objectives are defined.",
    )
    SLACK_LOST = (
        "slack_lost",
        "f*_mu(x) - f(x, y) fell to zero or below, so the barrier has no gradient. With LowerValue, "
        "raise its offset or shift the lower objective to be positive, or give mu2 a schedule.",
    )

    STUCK = (
        "stuck",
        "The lower gap is closed, but x was not shown to be stationary: the value function has a kink there, as where "
        "the lower solution jumps, an objective is not smooth, or tol is finer than rounding allows. Compare the F of "
        "several starts.",
    )
    GAP_OPEN = (
        "gap_open",
        "y is not shown to be a lower solution: its value of f stays above the lowest that was found. Start elsewhere, "
        "with more scouts, or in float64.",
    )
    UNBOUNDED = (
        "unbounded",
        "An objective falls without bound. Keep x and y in sets, or add a term that holds them.",
    )

    def __new__(cls, value: str, advice: str) -> Status:
        """A member from its value and advice."""
        member = object.__new__(cls)
        member._value_ = value
        member.advice = advice
        return member

    @property
    def ok(self) -> bool:
        """Whether the run ended for a reason that leaves a usable result."""
        return self not in (Status.NON_FINITE, Status.SLACK_LOST, Status.GAP_OPEN, Status.UNBOUNDED)


SOUND = tuple(status.value for status in Status if status.ok)
"""The ends of a run whose result counts, as tables have them."""


class BvfimError(Exception):
    """The root of every error that the library raises itself.

    Example:
        >>> import bvfim
        >>> try:
        ...     bvfim.methods.by_name("rgh")
        ... except bvfim.BvfimError as error:
        ...     print(error)
        no method is called 'rgh'; did you mean 'rhg'?
    """


class ProblemError(BvfimError, ValueError):
    """The objectives, starting points or sets do not make a bilevel problem.

    Example:
        >>> import torch, bvfim
        >>> bad = bvfim.Problem(upper=lambda x, y: x + y, lower=lambda x, y: (x * y).sum())
        >>> bvfim.solve(bad, torch.ones(2), torch.ones(2), steps=1)
        Traceback (most recent call last):
        bvfim.status.ProblemError: upper must return a scalar, but its result has shape (2,): sum or average it
    """


class MethodError(BvfimError, ValueError):
    """A method's hyper-parameters are out of range, or it can't be used in this way.

    Example:
        >>> import bvfim
        >>> bvfim.RHG(steps=-1)
        Traceback (most recent call last):
        bvfim.status.MethodError: RHG: steps must be a whole number of at least 1, not -1
    """


class BreakdownError(BvfimError, ArithmeticError):
    """A linear solve met a Hessian that it can't handle, and ``strict=True`` asked to raise.

    Example:
        >>> import torch, bvfim
        >>> saddle = bvfim.Problem(upper=lambda x, y: (x * y).sum(), lower=lambda x, y: -(y**2).sum() + (x * y).sum())
        >>> start = torch.ones(1)
        >>> bvfim.hypergradient(saddle, start, start, bvfim.CG(steps=1, strict=True))
        Traceback (most recent call last):
        bvfim.status.BreakdownError: CG met a direction of curvature -2 after 0 steps: the lower Hessian is not \
positive definite there; add damping, or use BVFIM, which needs no Hessian
    """


class CheckpointError(BvfimError, ValueError):
    """A checkpoint is missing, damaged, or belongs to another run.

    Example:
        >>> import bvfim
        >>> bvfim.checkpoint.read("no-such-file")
        Traceback (most recent call last):
        bvfim.status.CheckpointError: no-such-file: there is no such checkpoint
    """


class DataError(BvfimError, ValueError):
    """A data set is unknown, missing or damaged.

    Example:
        >>> import bvfim.data
        >>> bvfim.data.load("minst")
        Traceback (most recent call last):
        bvfim.status.DataError: no data set is called 'minst'; did you mean 'mnist'?
    """


class BvfimWarning(UserWarning):
    """Something was put right, or could not be shown, and the run goes on.

    Example:
        >>> import bvfim
        >>> issubclass(bvfim.BvfimWarning, UserWarning)
        True
    """


def no_such(kind: str, name: str, known: Collection[str]) -> str:
    """The sentence that refuses an unknown name and points to the nearest known one.

    Example:
        >>> from bvfim.status import no_such
        >>> no_such("colour", "rde", ["red", "blue"])
        "no colour is called 'rde'; did you mean 'red'?"
    """
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    return f"no {kind} is called {name!r}; " + (
        f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
    )


def require_known(kind: str, names: Iterable[str], known: Collection[str]) -> None:
    """Refuse the first of some names that is not known.

    Example:
        >>> from bvfim.status import require_known
        >>> require_known("colour", ["red", "rde"], ["red", "blue"])
        Traceback (most recent call last):
        bvfim.status.DataError: no colour is called 'rde'; did you mean 'red'?
    """
    for name in names:
        if name not in known:
            raise DataError(no_such(kind, name, known))
