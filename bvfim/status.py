"""How a run ended, and the errors and warnings of the library."""

from __future__ import annotations

import difflib
import enum
import sys
import warnings
from collections.abc import Collection, Iterable


class Status(enum.Enum):
    """How a solve ended. Each member has ``advice`` on what to do next.

    Example:
        >>> import bvfim
        >>> bvfim.Status.MAX_STEPS.advice
        'All steps were taken. Check the history: if F is still changing, raise steps.'
        >>> bvfim.Status.SLACK_LOST.ok
        False
    """

    advice: str

    CONVERGED = ("converged", "The method's convergence test was met within tol.")
    MAX_STEPS = (
        "max_steps",
        "All steps were taken. Check the history: if F is still changing, raise steps.",
    )
    TIME_LIMIT = ("time_limit", "The time limit was reached. Raise it, or resume from a checkpoint.")
    STOPPED = ("stopped", "A callback or the caller stopped the run.")
    INTERRUPTED = (
        "interrupted",
        "Interrupted by Ctrl-C. The last complete step is returned; resume from a checkpoint to continue.",
    )
    NON_FINITE = (
        "non_finite",
        "A value or gradient became NaN or infinite; the best iterate before is returned, with batches the last. "
        "Lower the step sizes, adapt them to the curvature (dynamics=bvfim.dynamics.Adaptive()), or constrain x and y "
        "to sets where the objectives are defined.",
    )
    SLACK_LOST = (
        "slack_lost",
        "f*_mu(x) - f(x, y) fell to zero or below, so the barrier has no gradient. With LowerValue, "
        "raise its offset or shift the lower objective to be positive; or use a schedule for mu2.",
    )

    STUCK = (
        "stuck",
        "The lower-level gap is closed, but stationarity of x was not verified: the value function has a kink there "
        "(for example, the lower-level solution jumps), an objective is nonsmooth or badly conditioned, or tol is "
        "below rounding error. Compare F across several starts.",
    )
    GAP_OPEN = (
        "gap_open",
        "y was not verified as a lower-level solution: f(x, y) stays above the lowest value found. Try another initial "
        "point, more scouts, or float64.",
    )
    UNBOUNDED = (
        "unbounded",
        "An objective decreases without bound. Constrain x and y to sets, or add a regularisation term.",
    )

    NOT_ATTAINED = (
        "not_attained",
        "The infimum is approached but not attained: the lower-level solution jumps, and F is higher by a finite "
        "amount at the limit of x. x lies just beside it; any x still nearer gets a little closer to the infimum. "
        "certificate.approach has the sequence.",
    )
    INFEASIBLE = (
        "infeasible",
        "No point was found where all constraints hold, in each of the starts: the certificate names those that are "
        "left. Loosen one of them, widen x_set or y_set, or try more starts.",
    )
    RANK_FAILED = (
        "rank_failed",
        "A function raised an error on one of the processes, which a warning names, and all of them ended. The last "
        "complete step is returned; mend the error and resume from a checkpoint.",
    )
    RANK_LOST = (
        "rank_lost",
        "A process ended or did not answer in time, so the others ended too. The last complete step is returned; start "
        "all of them again and resume from a checkpoint, on as many processes as you like.",
    )
    RANKS_DIFFER = (
        "ranks_differ",
        "The processes no longer hold the same x and y: something moved them, or drew random numbers, on one of them "
        "alone. Seed all alike, and let callbacks do the same on each.",
    )

    def __new__(cls, value: str, advice: str) -> Status:
        """A member from its value and advice."""
        member = object.__new__(cls)
        member._value_ = value
        member.advice = advice
        return member

    @property
    def ok(self) -> bool:
        """Whether the run ended with a usable result."""
        return self not in (
            Status.NON_FINITE,
            Status.SLACK_LOST,
            Status.GAP_OPEN,
            Status.UNBOUNDED,
            Status.RANKS_DIFFER,
            Status.INFEASIBLE,
        )


SOUND = tuple(status.value for status in Status if status.ok)
"""The status values that leave a usable result, as tables list them."""


class BvfimError(Exception):
    """The base class of every error that the library raises.

    Example:
        >>> import bvfim
        >>> try:
        ...     bvfim.methods.by_name("rgh")
        ... except bvfim.BvfimError as error:
        ...     print(error)
        no method is called 'rgh'; did you mean 'rhg'?
    """


class ProblemError(BvfimError, ValueError):
    """The objectives, initial points or sets do not define a bilevel problem.

    Example:
        >>> import torch, bvfim
        >>> bad = bvfim.Problem(upper=lambda x, y: x + y, lower=lambda x, y: (x * y).sum())
        >>> bvfim.solve(bad, torch.ones(2), torch.ones(2), steps=1)
        Traceback (most recent call last):
        bvfim.status.ProblemError: upper must return a scalar, but its result has shape (2,): sum or average it
    """


class MethodError(BvfimError, ValueError):
    """A method's hyper-parameters are out of range, or the method can't be used this way.

    Example:
        >>> import bvfim
        >>> bvfim.RHG(steps=-1)
        Traceback (most recent call last):
        bvfim.status.MethodError: RHG: steps must be a whole number of at least 1, not -1
    """


class BreakdownError(BvfimError, ArithmeticError):
    """A linear solve encountered a Hessian it can't handle, and ``strict=True`` was set.

    Example:
        >>> import torch, bvfim
        >>> saddle = bvfim.Problem(upper=lambda x, y: (x * y).sum(), lower=lambda x, y: -(y**2).sum() + (x * y).sum())
        >>> start = torch.ones(1)
        >>> bvfim.hypergradient(saddle, start, start, bvfim.CG(steps=1, strict=True))
        Traceback (most recent call last):
        bvfim.status.BreakdownError: CG encountered a direction of curvature -2 after 0 steps: the lower Hessian is \
not positive definite there; add damping, or use BVFIM, which needs no Hessian
    """


class CheckpointError(BvfimError, ValueError):
    """A checkpoint is missing, damaged, or belongs to another run.

    Example:
        >>> import bvfim
        >>> bvfim.checkpoint.read("no-such-file")
        Traceback (most recent call last):
        bvfim.status.CheckpointError: no-such-file: there is no such checkpoint
    """


class RankError(BvfimError, RuntimeError):
    """Something failed on another process of the run, or a process was lost.

    Example:
        >>> import bvfim
        >>> issubclass(bvfim.RankError, bvfim.BvfimError)
        True
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
    """Something was corrected or could not be verified, and the run continues.

    Example:
        >>> import bvfim
        >>> issubclass(bvfim.BvfimWarning, UserWarning)
        True
    """


def warn(message: str) -> None:
    """Warn at the line that called into the library, however deep inside of it the reason was found.

    Example:
        >>> import warnings
        >>> from bvfim.status import warn
        >>> with warnings.catch_warnings(record=True) as seen:
        ...     warnings.simplefilter("always")
        ...     warn("too steep")
        >>> seen[0].category.__name__
        'BvfimWarning'
    """
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "bvfim":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, BvfimWarning, stacklevel=level)


def no_such(kind: str, name: str, known: Collection[str]) -> str:
    """The error message for an unknown name, which suggests the closest known one.

    Example:
        >>> from bvfim.status import no_such
        >>> no_such("colour", "rde", ["red", "blue"])
        "no colour is called 'rde'; did you mean 'red'?"
    """
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    return f"no {kind} is called {name!r}; " + (
        f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(known)}"
    )


def require_known(kind: str, names: Iterable[str], known: Collection[str]) -> None:
    """Raise a :class:`DataError` for the first unknown name.

    Example:
        >>> from bvfim.status import require_known
        >>> require_known("colour", ["red", "rde"], ["red", "blue"])
        Traceback (most recent call last):
        bvfim.status.DataError: no colour is called 'rde'; did you mean 'red'?
    """
    for name in names:
        if name not in known:
            raise DataError(no_such(kind, name, known))
