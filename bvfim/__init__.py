"""Bilevel optimisation without Hessians: BVFIM and every method it is compared to."""

from typing import TYPE_CHECKING, Any

from bvfim import callbacks, checkpoint, dynamics, methods, schedules, sets, testproblems
from bvfim.batches import Batches
from bvfim.certificate import Certificate
from bvfim.check import HypergradientCheck, Verdict, check_hypergradient
from bvfim.compare import compare
from bvfim.hypergradient import hypergradient
from bvfim.many import solve_many
from bvfim.methods import BDA, BVFIM, CG, FHG, RHG, TRHG, AdaptiveBVFIM, Estimator, LowerValue, Neumann
from bvfim.problem import Draw, Problem
from bvfim.run import Run
from bvfim.sets import Ball, Box, Simplex
from bvfim.solve import Solution, solve
from bvfim.status import (
    BreakdownError,
    BvfimError,
    BvfimWarning,
    CheckpointError,
    DataError,
    MethodError,
    ProblemError,
    Status,
)
from bvfim.tree import parameters
from bvfim.version import __version__

if TYPE_CHECKING:
    from bvfim.cleaning.cleaner import LabelCleaner

__all__ = [
    "BDA",
    "BVFIM",
    "CG",
    "FHG",
    "RHG",
    "TRHG",
    "AdaptiveBVFIM",
    "Ball",
    "Batches",
    "Box",
    "BreakdownError",
    "BvfimError",
    "BvfimWarning",
    "Certificate",
    "CheckpointError",
    "DataError",
    "Draw",
    "Estimator",
    "HypergradientCheck",
    "LabelCleaner",
    "LowerValue",
    "MethodError",
    "Neumann",
    "Problem",
    "ProblemError",
    "Run",
    "Simplex",
    "Solution",
    "Status",
    "Verdict",
    "__version__",
    "callbacks",
    "check_hypergradient",
    "checkpoint",
    "compare",
    "dynamics",
    "hypergradient",
    "methods",
    "parameters",
    "schedules",
    "sets",
    "solve",
    "solve_many",
    "testproblems",
]


def __getattr__(name: str) -> Any:
    """Import what needs scikit-learn, a third of the whole start, only where it is asked for."""
    if name == "LabelCleaner":
        from bvfim.cleaning.cleaner import LabelCleaner

        return LabelCleaner
    raise AttributeError(f"module 'bvfim' has no attribute {name!r}")
