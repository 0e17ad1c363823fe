"""The result of a run."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor

from bvfim.interior.certificate import Certificate
from bvfim.methods import Chosen
from bvfim.status import Status
from bvfim.tree import Tree

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Solution:
    """The result of a run.

    Attributes:
        x, y, z: trees like the inputs. z is the lower-level minimiser of BVFIM and StochasticBVFIM;
            for the other methods it is y.
        upper, lower: F and f at (x, y), on the last batch if there are batches.
        status: how the run ended, with advice.
        rows: the history, one dict per step.
        evaluations: gradients of F (``upper``) and f (``lower``), values (``forward``), second-order products.
        steps: the number of updates of x.
        seconds: the running time.
        method: the method.
        certificate: what :class:`bvfim.AdaptiveBVFIM` verified about the result; None for the other methods.
        lower_gap: f(x, y) - f(x, y') with y' the end of a descent of f from y at x, for at most a tenth of the run's
            cost; with batches, means over draws. Far above zero, y uses slack that the lower level does not give it.
        upper_refit: F(x, y'): what x is worth if the lower level is solved.
        uses_slack: whether F(x, y) is below F(x, y') by more than the tolerance: F uses the slack of the lower level.
        upper_z: F(x, z). These figures are not a number if ``solve(refit=False)`` left them out, or if the run was too
            short to afford them.
        multipliers: of the constraints, by the name of the argument that states them, in the shape of what it returns:
            of the lower level's in f, of the upper level's in F; empty where the method has none.
        doubts: what these figures say against the result, and what StochasticBVFIM did not look at, in sentences; empty
            too where there are no such figures.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum())
        >>> start = torch.zeros(1)
        >>> solution = bvfim.solve(problem, start, start, bvfim.RHG(steps=10, lr=0.1), steps=3)
        >>> solution.steps, solution.evaluations["hvp"]
        (3, 30)
        >>> list(solution.history.columns[:4])
        ['step', 'upper', 'lower', 'value']
    """

    x: Tree
    y: Tree
    z: Tree
    upper: float
    lower: float
    status: Status
    rows: list[dict[str, float]] = field(repr=False)
    evaluations: dict[str, int]
    steps: int
    seconds: float
    method: Chosen
    certificate: Certificate | None = None
    lower_gap: float = math.nan
    upper_refit: float = math.nan
    uses_slack: bool = False
    upper_z: float = math.nan
    doubts: tuple[str, ...] = ()
    multipliers: dict[str, Tensor] = field(default_factory=dict)

    @property
    def violation(self) -> float:
        """How far the constraints are from holding at (x, y), as a distance; 0 where there are none."""
        if self.certificate is not None:
            return self.certificate.violation
        return self.rows[-1].get("violation", 0.0) if self.rows else 0.0

    @functools.cached_property
    def history(self) -> pd.DataFrame:
        """One row per step.

        Every method has the columns ``step``, ``upper``, ``lower``, ``value``, ``grad_norm``, ``seconds`` and the
        evaluations so far (``upper_evaluations`` for ``evaluations["upper"]``, and so on); methods add their own.
        """
        import pandas as pd  # half as slow to load as torch, and most runs are not looked into

        return pd.DataFrame(self.rows)

    def __str__(self) -> str:
        within = f" (tol {self.certificate.tol:.2g})" if self.certificate and self.status is Status.CONVERGED else ""
        refit = f"{self.lower_gap:.2g} above a refit, where F = {self.upper_refit:.6g}"
        refit = "its gap not measured" if math.isnan(self.lower_gap) else refit
        return (
            f"{type(self.method).__name__}: {self.status.value}{within} after {self.steps} steps and "
            f"{self.seconds:.1f} s; F = {self.upper:.6g}, f = {self.lower:.6g} ({refit}). {self.status.advice}"
            + "".join(f" Note: {doubt}." for doubt in self.doubts)
        )
