"""Checks of numbers and functions that a caller passes, with one-sentence error messages."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from bvfim.status import MethodError


def accepts(function: Callable[..., Any] | None, count: int) -> bool:
    """Whether ``function`` accepts ``count`` positional arguments, judging by its signature.

    Example:
        >>> from bvfim.core.arguments import accepts
        >>> accepts(lambda x, y: x + y, 2), accepts(lambda x: x, 2)
        (True, False)
    """
    if function is None:
        return False
    try:
        signature = inspect.signature(function.forward if isinstance(function, torch.nn.Module) else function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def as_number(found: object, source: str) -> float:
    """What a caller's function returned, as a float.

    Example:
        >>> from bvfim.core.arguments import as_number
        >>> as_number(None, "holdout")
        Traceback (most recent call last):
        bvfim.status.MethodError: holdout must return a number, not a NoneType
    """
    try:
        return float(found)  # type: ignore[arg-type]  # what has no float() is what is looked for
    except (TypeError, ValueError, RuntimeError) as error:
        shape = f" of shape {tuple(found.shape)}" if isinstance(found, Tensor) else ""
        raise MethodError(f"{source} must return a number, not a {type(found).__name__}{shape}") from error


def check_steps(steps: object, name: str = "steps") -> None:
    """Reject anything that is not a number of steps.

    Example:
        >>> from bvfim.core.arguments import check_steps
        >>> check_steps(2.5)
        Traceback (most recent call last):
        bvfim.status.MethodError: steps must be a whole number of at least 0, not 2.5
    """
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 0:
        raise MethodError(f"{name} must be a whole number of at least 0, not {steps!r}")


def check_time_limit(limit: object, name: str = "time_limit") -> None:
    """Reject anything that is not a number of seconds."""
    if limit is not None and not _at_least_zero(limit):
        raise MethodError(f"{name} must be a number of seconds, at least 0, not {limit!r}")


def check_tol(tol: object) -> None:
    """Reject anything that is not a tolerance."""
    if tol is not None and not _at_least_zero(tol):
        raise MethodError(f"tol must be a number of at least 0, not {tol!r}")


def check_flag(flag: object, name: str, *, maybe: bool = False) -> None:
    """Reject anything but True and False; and None, where the library may choose."""
    if not isinstance(flag, bool) and not (maybe and flag is None):
        raise MethodError(f"{name} must be {'True, False or None' if maybe else 'True or False'}, not {flag!r}")


def check_function(given: object, name: str, count: int, what: str) -> None:
    """Reject anything that is not a function of ``count`` arguments; ``what`` says which function it must be.

    Example:
        >>> from bvfim.core.arguments import check_function
        >>> check_function(lambda x: x, "holdout", 2, "a function of x and y")
        Traceback (most recent call last):
        bvfim.status.MethodError: holdout must be a function of x and y, not one of another number of arguments
    """
    if not callable(given):
        raise MethodError(f"{name} must be {what}, not a {type(given).__name__}")
    if not accepts(given, count):
        raise MethodError(f"{name} must be {what}, not one of another number of arguments")


def checked_callbacks(callbacks: object) -> list[Callable[[Any], bool | None]]:
    """The callbacks as a list; a bare function, a class, or anything that can't be called is refused."""
    if not isinstance(callbacks, Iterable) or isinstance(callbacks, str):
        raise MethodError(f"callbacks must be a list of functions of the run, not a {type(callbacks).__name__}")
    found = list(callbacks)
    for callback in found:
        kind = f"the class {callback.__name__}" if isinstance(callback, type) else f"a {type(callback).__name__}"
        if not callable(callback) or isinstance(callback, type):
            raise MethodError(f"callbacks must be functions of the run, but one is {kind}")
        check_function(callback, "a callback", 1, "a function of the run")
    return found


def stops(answer: object) -> bool:
    """Whether a callback's answer ends the run.

    Example:
        >>> from bvfim.core.arguments import stops
        >>> stops(None), stops(True)
        (False, True)
    """
    try:
        return answer is not None and bool(answer)
    except (RuntimeError, ValueError, TypeError) as error:
        raise MethodError(f"a callback must return True, False or None, not a {type(answer).__name__}") from error


def _at_least_zero(number: object) -> bool:
    return isinstance(number, int | float) and not isinstance(number, bool) and number >= 0
