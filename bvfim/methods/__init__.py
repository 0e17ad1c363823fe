"""The methods of the paper and their kin, one small file each."""

from __future__ import annotations

from typing import Any, TypeAlias

from bvfim.core.problem import Problem
from bvfim.methods.adaptive import AdaptiveBVFIM, AdaptiveState
from bvfim.methods.base import Estimator, Info, LowerState, Method, Reference, Settled, State
from bvfim.methods.bda import BDA
from bvfim.methods.bicgaffa import BiCGAFFA, BiCGAFFAState
from bvfim.methods.bome import BOME, BOMEState
from bvfim.methods.bvfim import BVFIM, BVFIMState, LowerValue
from bvfim.methods.cg import CG
from bvfim.methods.f2sa import F2SA, F2SAState
from bvfim.methods.fhg import FHG
from bvfim.methods.meha import MEHA, MEHAState
from bvfim.methods.neumann import Neumann
from bvfim.methods.rhg import RHG
from bvfim.methods.saba import SABA, SABAState
from bvfim.methods.sipba import SiPBA, SiPBAState
from bvfim.methods.soba import SOBA, SOBAState
from bvfim.methods.stochastic import StochasticBVFIM, StochasticState
from bvfim.methods.trhg import TRHG
from bvfim.methods.vpbgd import VPBGD, VPBGDState
from bvfim.status import MethodError, no_such

ALL: tuple[type[Any], ...] = (
    FHG, RHG, TRHG, BDA, CG, Neumann, BVFIM, AdaptiveBVFIM, StochasticBVFIM, BiCGAFFA, SiPBA, VPBGD, BOME, F2SA, MEHA,
    SOBA, SABA,
)  # fmt: skip
"""Every method: those in the paper's tables, in that order, then the library's own and their kin."""


Chosen: TypeAlias = Method | Estimator | StochasticBVFIM
"""A method: one that moves x itself, one that estimates a hypergradient, or the single loop."""
Choice: TypeAlias = Chosen | type
"""What a user may pass as a method: an instance, or a class to use with its defaults."""


def as_method(given: Choice | None) -> Chosen:
    """The method to use: BVFIM for None, an instance for a class. Anything that is not a method raises an error.

    Example:
        >>> import bvfim
        >>> bvfim.methods.as_method(bvfim.CG).cg_steps
        20
    """
    given = BVFIM() if given is None else given
    method = given() if isinstance(given, type) else given
    if not isinstance(method, Method | Estimator | StochasticBVFIM):
        raise MethodError(f"a method must be a bvfim.Estimator, with init and estimate, not a {type(method).__name__}")
    return method


def as_estimator(given: Choice | None) -> Estimator:
    """The same, but only for methods that estimate the hypergradient.

    Example:
        >>> import bvfim
        >>> bvfim.methods.as_estimator(bvfim.AdaptiveBVFIM())
        Traceback (most recent call last):
        bvfim.status.MethodError: AdaptiveBVFIM does not estimate a hypergradient: it moves x itself
    """
    method = as_method(given)
    if not isinstance(method, Estimator):
        raise MethodError(f"{type(method).__name__} does not estimate a hypergradient: it moves x itself")
    return method


def require_able(method: Chosen, problem: Problem) -> None:
    """Reject a problem with constraints, or with a follower, that the method can't solve.

    Example:
        >>> import bvfim
        >>> cautious = bvfim.Problem(max, min, follower="pessimistic")
        >>> bvfim.methods.require_able(bvfim.RHG(), cautious)
        Traceback (most recent call last):
        bvfim.status.MethodError: RHG does not solve for a pessimistic follower: take AdaptiveBVFIM, SiPBA
    """
    name = type(method).__name__
    if problem.stated and not method.constrained:
        able = ", ".join(m.__name__ for m in ALL if m.constrained)
        raise MethodError(f"{name} takes sets, but no {problem.stated[0]}: these do: {able}")
    if problem.stated and problem.world.size > 1:
        raise MethodError("mesh: constraints can't be summed over processes yet: leave the mesh out")
    if problem.follower not in method.followers:
        able = ", ".join(m.__name__ for m in ALL if problem.follower in m.followers)
        article = "an" if problem.follower == "optimistic" else "a"
        raise MethodError(f"{name} does not solve for {article} {problem.follower} follower: take {able}")


def suited(method: Chosen, problem: Problem) -> Chosen:
    """The method that takes the steps on a problem, which it has to be able to solve.

    Example:
        >>> import bvfim
        >>> bvfim.methods.suited(bvfim.RHG(), bvfim.Problem(max, min)).steps
        100
    """
    require_able(method, problem)
    found: Chosen = method.suited_to(problem)
    return found


def by_name(name: str) -> type[Any]:
    """The class of the method called ``name``, ignoring case; for command lines.

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
    "BOME",
    "BVFIM",
    "CG",
    "F2SA",
    "FHG",
    "MEHA",
    "RHG",
    "SABA",
    "SOBA",
    "TRHG",
    "VPBGD",
    "AdaptiveBVFIM",
    "AdaptiveState",
    "BOMEState",
    "BVFIMState",
    "BiCGAFFA",
    "BiCGAFFAState",
    "Estimator",
    "F2SAState",
    "Info",
    "LowerState",
    "LowerValue",
    "MEHAState",
    "Method",
    "Neumann",
    "Reference",
    "SABAState",
    "SOBAState",
    "Settled",
    "SiPBA",
    "SiPBAState",
    "State",
    "StochasticBVFIM",
    "StochasticState",
    "VPBGDState",
    "as_estimator",
    "as_method",
    "by_name",
    "require_able",
    "suited",
]
