"""Schedules: functions from the step k to a float.

Wherever a method accepts a schedule, it also accepts a float. The schedules here are frozen dataclasses, so that
they print, compare and pickle; any function of ``k`` works as well.
"""

from __future__ import annotations

import math
import numbers
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

from torch import Tensor

from bvfim.core.arguments import accepts, as_number
from bvfim.status import MethodError

Schedule: TypeAlias = Callable[[int], float]
FloatOrSchedule: TypeAlias = float | Schedule


@dataclass(frozen=True)
class constant:
    """k -> value.

    Example:
        >>> import bvfim
        >>> bvfim.schedules.constant(0.5)(10)
        0.5
    """

    value: float

    def __post_init__(self) -> None:
        _require_numbers(self)

    def __call__(self, k: int) -> float:
        """The value at step k."""
        return self.value


@dataclass(frozen=True)
class geometric:
    """k -> start * rate**k, which decreases for a rate below one. The paper's 1/1.01^k has rate 1/1.01.

    Example:
        >>> import bvfim
        >>> bvfim.schedules.geometric(1.0, 0.5)(3)
        0.125
    """

    start: float
    rate: float

    def __post_init__(self) -> None:
        _require_numbers(self)

    def __call__(self, k: int) -> float:
        """The value at step k: infinite on overflow, and never rounded down to zero."""
        try:
            power = self.rate**k
        except OverflowError:
            power = math.inf
        number = self.start * power
        return number if number or not (self.start and self.rate) else math.copysign(sys.float_info.min, self.start)


@dataclass(frozen=True)
class harmonic:
    """k -> start / (k + 1): the 1/k of the paper's few-shot runs, with k counted from zero.

    Example:
        >>> import bvfim
        >>> bvfim.schedules.harmonic(1.0)(3)
        0.25
    """

    start: float

    def __post_init__(self) -> None:
        _require_numbers(self)

    def __call__(self, k: int) -> float:
        """The value at step k."""
        return self.start / (k + 1)


@dataclass(frozen=True)
class power:
    """k -> start * (k + 1)**exponent: the weights c (k + 1)^p and the steps c / k^e of single loops.

    Example:
        >>> import bvfim
        >>> bvfim.schedules.power(0.1, -0.5)(3)
        0.05
    """

    start: float
    exponent: float

    def __post_init__(self) -> None:
        _require_numbers(self)

    def __call__(self, k: int) -> float:
        """The value at step k."""
        return self.start * (k + 1) ** self.exponent


@dataclass(frozen=True)
class linear:
    """k -> the straight line from start at step 0 to end at step ``steps``, and end from there on.

    Example:
        >>> import bvfim
        >>> [bvfim.schedules.linear(0.0, 1.0, 4)(k) for k in (0, 1, 4, 9)]
        [0.0, 0.25, 1.0, 1.0]
    """

    start: float
    end: float
    steps: int

    def __post_init__(self) -> None:
        _require_numbers(self)
        require_count(self, "steps")

    def __call__(self, k: int) -> float:
        """The value at step k."""
        return self.start + (self.end - self.start) * min(k / self.steps, 1.0)


@dataclass(frozen=True)
class join:
    """One schedule after another: ``schedules[i]`` applies from ``boundaries[i-1]`` on, with k counted from there.

    Example:
        >>> import bvfim
        >>> warmup = bvfim.schedules.join([bvfim.schedules.constant(1.0), bvfim.schedules.geometric(1.0, 0.1)], [5])
        >>> [warmup(k) for k in (4, 5, 6)]
        [1.0, 1.0, 0.1]
    """

    schedules: Sequence[Schedule]
    boundaries: Sequence[int]

    def __post_init__(self) -> None:
        if not self.schedules or not all(callable(schedule) for schedule in self.schedules):
            raise MethodError(f"join: schedules must be functions of the step, not {self.schedules!r}")
        if not all(type(boundary) is int for boundary in self.boundaries):
            raise MethodError(f"join: boundaries must be whole numbers, not {self.boundaries!r}")
        if len(self.boundaries) != len(self.schedules) - 1:
            raise MethodError(
                f"join: {len(self.schedules)} schedules need {len(self.schedules) - 1} boundaries, "
                f"not {len(self.boundaries)}"
            )
        if any(b <= a for a, b in zip([0, *self.boundaries], self.boundaries, strict=False)):
            raise MethodError("join: the boundaries must be positive and increasing")

    def __call__(self, k: int) -> float:
        """The value at step k."""
        begin, schedule = 0, self.schedules[0]
        for boundary, following in zip(self.boundaries, self.schedules[1:], strict=True):
            if k >= boundary:
                begin, schedule = boundary, following
        return schedule(k - begin)


def _require_numbers(schedule: Any) -> None:
    for field in fields(schedule):
        number = getattr(schedule, field.name)
        if not isinstance(number, numbers.Real):
            raise MethodError(f"{type(schedule).__name__}: {field.name} must be a number, not {number!r}")


def value(number: FloatOrSchedule, k: int, name: str, zero: bool = False) -> float:
    """The value of a float or schedule at step ``k``; a schedule must stay positive (or zero) and finite.

    A scalar tensor, which an accelerated run passes instead of a schedule, is returned as it is.
    """
    if isinstance(number, Tensor):
        return number  # type: ignore[unreachable]
    if not callable(number):
        return float(number)
    result = as_number(number(k), f"the schedule of {name}")
    if not (math.isfinite(result) and (result > 0 or (zero and result == 0))):
        raise MethodError(f"the schedule of {name} returned {result} at step {k}: it must stay positive and finite")
    return result


def require(
    owner: object, name: str, *, at_least: float | None = None, above: float | None = None, schedule: bool = True
) -> None:
    """Reject an out-of-range number in the field ``name`` of ``owner``; schedules are checked as they run."""
    number = getattr(owner, name)
    if schedule and callable(number) and not accepts(number, 1):
        raise MethodError(f"{type(owner).__name__}: the schedule of {name} must be a function of the step")
    if (schedule and callable(number)) or (isinstance(number, Tensor) and number.dim() == 0):
        return
    bound = f"of at least {at_least:g}" if at_least is not None else f"above {above:g}"
    good = type(number) is not bool and isinstance(number, numbers.Real) and math.isfinite(number)
    if good and at_least is not None:
        good = number >= at_least
    if good and above is not None:
        good = number > above
    if not good:
        raise MethodError(f"{type(owner).__name__}: {name} must be a finite number {bound}, not {number!r}")


def require_count(owner: object, name: str, at_least: int = 1) -> None:
    """Reject anything but a whole number of at least ``at_least`` in the field ``name`` of ``owner``."""
    number = getattr(owner, name)
    if type(number) is bool or not isinstance(number, numbers.Integral) or number < at_least:
        raise MethodError(
            f"{type(owner).__name__}: {name} must be a whole number of at least {at_least}, not {number!r}"
        )
