"""The methods of the paper, one small file each."""

from __future__ import annotations

from typing import Any

from bvfim.methods.adaptive import AdaptiveBVFIM, AdaptiveState
from bvfim.methods.base import Estimator, Info, LowerState, Reference
from bvfim.methods.bda import BDA
from bvfim.methods.bvfim import BVFIM, BVFIMState, LowerValue
from bvfim.methods.cg import CG
from bvfim.methods.fhg import FHG
from bvfim.methods.neumann import Neumann
from bvfim.methods.rhg import RHG
from bvfim.methods.trhg import TRHG
from bvfim.status import MethodError, no_such

ALL: tuple[type[Any], ...] = (FHG, RHG, TRHG, BDA, CG, Neumann, BVFIM, AdaptiveBVFIM)
"""Every method: those of the paper's tables in their order, then the one that goes past them."""


def as_method(method: Any) -> Any:
    """The method to use: BVFIM where none is given, an instance where a class is; anything else is refused.

    Example:
        >>> import bvfim
        >>> bvfim.methods.as_method(bvfim.CG).cg_steps
        20
    """
    method = BVFIM() if method is None else method
    method = method() if isinstance(method, type) else method
    if not (hasattr(method, "init") and (hasattr(method, "estimate") or hasattr(method, "step"))):
        raise MethodError(f"a method needs init and estimate, which a {type(method).__name__} does not have")
    return method


def as_estimator(method: Any) -> Any:
    """The same, for those who need an estimate of the hypergradient.

    Example:
        >>> import bvfim
        >>> bvfim.methods.as_estimator(bvfim.AdaptiveBVFIM())
        Traceback (most recent call last):
        bvfim.status.MethodError: AdaptiveBVFIM gives no hypergradient: it moves x itself
    """
    method = as_method(method)
    if not hasattr(method, "estimate"):
        raise MethodError(f"{type(method).__name__} gives no hypergradient: it moves x itself")
    return method


def by_name(name: str) -> type[Any]:
    """The class of the method called ``name``, in any case of letters: for command lines.

    Example:
        >>> import bvfim
        >>> bvfim.methods.by_name("rhg")(steps=10)
        RHG(steps=10, lr=0.01, dynamics=None, start='warm', segment=1)
    """
    known = {method.__name__.lower(): method for method in ALL}
    if name.lower() in known:
        return known[name.lower()]
    raise MethodError(no_such("method", name, known))


__all__ = [
    "ALL",
    "BDA",
    "BVFIM",
    "CG",
    "FHG",
    "RHG",
    "TRHG",
    "AdaptiveBVFIM",
    "AdaptiveState",
    "BVFIMState",
    "Estimator",
    "Info",
    "LowerState",
    "LowerValue",
    "Neumann",
    "Reference",
    "as_estimator",
    "as_method",
    "by_name",
]
