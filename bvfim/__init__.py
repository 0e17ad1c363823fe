"""Bilevel optimisation without Hessians: BVFIM and every method it is compared to.

Names are loaded on first use: ``import bvfim`` is immediate, and ``bvfim.solve`` loads only the solver.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from bvfim.version import __version__ as __version__

if TYPE_CHECKING:
    from bvfim import callbacks as callbacks
    from bvfim import checkpoint as checkpoint
    from bvfim import dynamics as dynamics
    from bvfim import methods as methods
    from bvfim import schedules as schedules
    from bvfim import sets as sets
    from bvfim import testproblems as testproblems
    from bvfim.adviser.advice import Advice as Advice
    from bvfim.adviser.advice import advise as advise
    from bvfim.core.batches import Batches as Batches
    from bvfim.core.batches import Shuffled as Shuffled
    from bvfim.core.check import HypergradientCheck as HypergradientCheck
    from bvfim.core.check import Verdict as Verdict
    from bvfim.core.check import check_hypergradient as check_hypergradient
    from bvfim.core.compare import compare as compare
    from bvfim.core.compare_followers import Followers as Followers
    from bvfim.core.compare_followers import compare_followers as compare_followers
    from bvfim.core.draw import Draw as Draw
    from bvfim.core.hypergradient import hypergradient as hypergradient
    from bvfim.core.one_scale import OneScale as OneScale
    from bvfim.core.problem import Problem as Problem
    from bvfim.core.refit import Refit as Refit
    from bvfim.core.refit import refit as refit
    from bvfim.core.run import Run as Run
    from bvfim.core.solution import Solution as Solution
    from bvfim.core.solve import solve as solve
    from bvfim.core.solve_many import solve_many as solve_many
    from bvfim.core.stepper import Stepper as Stepper
    from bvfim.distributed.twins import Twins as Twins
    from bvfim.interior.certificate import Certificate as Certificate
    from bvfim.labels.cleaner import LabelCleaner as LabelCleaner
    from bvfim.methods import BDA as BDA
    from bvfim.methods import BOME as BOME
    from bvfim.methods import BVFIM as BVFIM
    from bvfim.methods import CG as CG
    from bvfim.methods import F2SA as F2SA
    from bvfim.methods import FHG as FHG
    from bvfim.methods import MEHA as MEHA
    from bvfim.methods import RHG as RHG
    from bvfim.methods import SABA as SABA
    from bvfim.methods import SOBA as SOBA
    from bvfim.methods import TRHG as TRHG
    from bvfim.methods import VPBGD as VPBGD
    from bvfim.methods import AdaptiveBVFIM as AdaptiveBVFIM
    from bvfim.methods import BiCGAFFA as BiCGAFFA
    from bvfim.methods import Estimator as Estimator
    from bvfim.methods import LowerValue as LowerValue
    from bvfim.methods import Neumann as Neumann
    from bvfim.methods import SiPBA as SiPBA
    from bvfim.methods import StochasticBVFIM as StochasticBVFIM
    from bvfim.sets import Ball as Ball
    from bvfim.sets import Box as Box
    from bvfim.sets import Product as Product
    from bvfim.sets import Projected as Projected
    from bvfim.sets import Simplex as Simplex
    from bvfim.status import BreakdownError as BreakdownError
    from bvfim.status import BvfimError as BvfimError
    from bvfim.status import BvfimWarning as BvfimWarning
    from bvfim.status import CheckpointError as CheckpointError
    from bvfim.status import DataError as DataError
    from bvfim.status import MethodError as MethodError
    from bvfim.status import ProblemError as ProblemError
    from bvfim.status import RankError as RankError
    from bvfim.status import Status as Status
    from bvfim.tree import parameters as parameters

MODULES = ("callbacks", "checkpoint", "dynamics", "methods", "schedules", "sets", "testproblems")
NAMES = {
    "bvfim.adviser.advice": ("Advice", "advise"),
    "bvfim.core.batches": ("Batches", "Shuffled"),
    "bvfim.core.check": ("HypergradientCheck", "Verdict", "check_hypergradient"),
    "bvfim.core.compare": ("compare",),
    "bvfim.core.compare_followers": ("Followers", "compare_followers"),
    "bvfim.core.hypergradient": ("hypergradient",),
    "bvfim.core.solve_many": ("solve_many",),
    "bvfim.core.draw": ("Draw",),
    "bvfim.core.one_scale": ("OneScale",),
    "bvfim.core.problem": ("Problem",),
    "bvfim.core.refit": ("Refit", "refit"),
    "bvfim.core.run": ("Run",),
    "bvfim.core.solution": ("Solution",),
    "bvfim.core.solve": ("solve",),
    "bvfim.core.stepper": ("Stepper",),
    "bvfim.tree": ("parameters",),
    "bvfim.distributed.twins": ("Twins",),
    "bvfim.interior.certificate": ("Certificate",),
    "bvfim.labels.cleaner": ("LabelCleaner",),
    "bvfim.methods": (
        "BDA", "BVFIM", "CG", "FHG", "RHG", "TRHG", "AdaptiveBVFIM", "BiCGAFFA", "Estimator", "LowerValue", "Neumann",
        "SiPBA", "StochasticBVFIM", "SABA", "SOBA", "MEHA", "F2SA", "BOME", "VPBGD",
    ),
    "bvfim.sets": ("Ball", "Box", "Product", "Projected", "Simplex"),
    "bvfim.status": (
        "BreakdownError", "BvfimError", "BvfimWarning", "CheckpointError", "DataError", "MethodError", "ProblemError",
        "RankError", "Status",
    ),
}  # fmt: skip
"""Where each public name lives."""
FURTHER = ("status", "tree")
"""Modules for users who write their own method."""
_HOME = {name: home for home, names in NAMES.items() for name in names}

__all__ = sorted({*MODULES, *_HOME, "__version__"} - (set() if find_spec("sklearn") else {"LabelCleaner"}))


def __getattr__(name: str) -> Any:
    """Load a public name on first use, and keep it."""
    if name in MODULES or name in FURTHER:
        return import_module(f"bvfim.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'bvfim' has no attribute {name!r}")
    found = getattr(import_module(_HOME[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """The public names."""
    return __all__
