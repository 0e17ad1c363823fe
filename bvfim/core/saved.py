"""Hyper-parameters and certificates as data: what JSON and tensors can hold, and back. Nothing is run to read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, NoReturn

from torch import Tensor

from bvfim import dynamics, schedules
from bvfim.interior.certificate import Certificate
from bvfim.interior.pessimist.certificate import PessimisticCertificate
from bvfim.methods import ALL, LowerValue
from bvfim.methods.pessimistic import PessimisticBVFIM
from bvfim.status import CheckpointError, MethodError, Status

OF_METHODS = (
    LowerValue, schedules.constant, schedules.geometric, schedules.harmonic, schedules.join,
    dynamics.GradientDescent, dynamics.Adaptive, dynamics.Momentum, dynamics.Adam,
)  # fmt: skip
"""What a method may have among its hyper-parameters, beside numbers."""
_RECORDS: tuple[type[Any], ...] = (*ALL, PessimisticBVFIM, *OF_METHODS, Certificate, PessimisticCertificate)
KNOWN = {kind.__name__: kind for kind in _RECORDS}
"""What a file may name; nothing else is made from one."""


@dataclass(frozen=True)
class Lost:
    """What stands in for a function, or for a method of your own, which a file of data can't hold.

    Attributes:
        text: what it printed as.

    Example:
        >>> from bvfim.core.saved import Lost
        >>> Lost("<function schedule>")(0)
        Traceback (most recent call last):
        bvfim.status.MethodError: <function schedule> was not saved: the file holds data, and no functions
    """

    text: str

    def __call__(self, *arguments: Any) -> NoReturn:
        """Say what is missing."""
        raise MethodError(f"{self.text} was not saved: the file holds data, and no functions")


def spelled(item: Any) -> dict[str, Any]:
    """A method, a certificate or a part of one as data that :func:`restored` reads.

    Example:
        >>> import bvfim
        >>> from bvfim.core.saved import restored, spelled
        >>> method = bvfim.RHG(steps=5, lr=bvfim.schedules.geometric(0.1, 0.9))
        >>> restored(spelled(method)) == method
        True
    """
    if isinstance(item, Status):
        return {"status": item.value}
    if KNOWN.get(type(item).__name__) is type(item):
        return {type(item).__name__: {field.name: spelled(getattr(item, field.name)) for field in fields(item)}}
    if isinstance(item, tuple):
        return {"tuple": [spelled(part) for part in item]}
    if item is None or isinstance(item, bool | int | float | str | Tensor | dict | list):
        return {"data": item}
    return {"lost": name_of(item) if not callable(item) else getattr(item, "__qualname__", name_of(item))}


def restored(saved: dict[str, Any]) -> Any:
    """The inverse of :func:`spelled`; functions come back as :class:`Lost`."""
    ((kind, content),) = saved.items()
    if kind in KNOWN:
        return KNOWN[kind](**{name: restored(value) for name, value in content.items()})
    if kind not in _MAKE:
        raise CheckpointError(f"nothing is called {kind!r}")
    return _MAKE[kind](content)


_MAKE: dict[str, Callable[[Any], Any]] = {
    "status": {status.value: status for status in Status}.__getitem__,
    "tuple": lambda parts: tuple(map(restored, parts)),
    "data": lambda item: item,
    "lost": Lost,
}


def name_of(method: object) -> str:
    """What a method is called, also one that was not saved whole.

    Example:
        >>> import bvfim
        >>> from bvfim.core.saved import Lost, name_of
        >>> name_of(bvfim.RHG()), name_of(Lost("Mine"))
        ('RHG', 'Mine')
    """
    return method.text if isinstance(method, Lost) else type(method).__name__
