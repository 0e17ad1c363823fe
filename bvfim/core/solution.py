"""The result of a run."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bvfim.interior.certificate import Certificate
from bvfim.methods import Estimator, Method
from bvfim.status import Status
from bvfim.tree import Tree

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Solution:
    """The result of a run.

    Attributes:
        x, y, z: trees like the inputs. z is BVFIM's lower-level minimiser; for the other methods it is y.
        upper, lower: F and f at (x, y), on the last batch if there are batches.
        status: how the run ended, with advice.
        rows: the history, one dict per step.
        evaluations: gradients of F (``upper``) and f (``lower``), values (``forward``), second-order products.
        steps: the number of updates of x.
        seconds: the running time.
        method: the method.
        certificate: what :class:`bvfim.AdaptiveBVFIM` verified about the result; None for the other methods.

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
    method: Method | Estimator
    certificate: Certificate | None = None

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
        return (
            f"{type(self.method).__name__}: {self.status.value}{within} after {self.steps} steps and "
            f"{self.seconds:.1f} s; F = {self.upper:.6g}, f = {self.lower:.6g}. {self.status.advice}"
        )
