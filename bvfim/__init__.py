"""Bilevel optimisation without Hessians: BVFIM and every method it is compared to."""

from bvfim import callbacks, checkpoint, dynamics, methods, schedules, sets
from bvfim.batches import Batches
from bvfim.hypergradient import hypergradient
from bvfim.methods import BDA, BVFIM, CG, FHG, RHG, TRHG, Estimator, LowerValue, Neumann
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

__version__ = "0.1.0"
