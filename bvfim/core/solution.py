"""The result of a run."""

from __future__ import annotations

import functools
import math
import os
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from torch import Tensor

from bvfim import checkpoint, tree
from bvfim.core.history import columns, rows_of
from bvfim.core.saved import name_of, restored, spelled
from bvfim.core.shown import drawn, html
from bvfim.distributed.mesh import is_sharded
from bvfim.interior.certificate import Certificate
from bvfim.methods import Chosen
from bvfim.status import CheckpointError, ProblemError, Status
from bvfim.tree import Tree

if TYPE_CHECKING:
    import pandas as pd

COARSE = " x and y are float32, in which small differences of f are lost: float64 shows more."


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
        doubts: what these figures and the course of the run say against the result, and what StochasticBVFIM did not
            look at, in sentences; empty too with ``solve(refit=False)``.
        on_batch: whether ``upper`` and ``lower`` are those of the last batch.

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
    on_batch: bool = False

    @property
    def violation(self) -> float:
        """How far the constraints are from holding at (x, y), as a distance; 0 where there are none."""
        if self.certificate is not None:
            return self.certificate.violation
        return self.rows[-1].get("violation", 0.0) if self.rows else 0.0

    @functools.cached_property
    def history(self) -> pd.DataFrame:
        """One row per step.

        Every method has the columns ``step``, ``upper``, ``lower``, ``grad_norm``, ``x_norm``, ``seconds`` and the
        evaluations so far (``upper_evaluations`` for ``evaluations["upper"]``, and so on); methods add their own.
        """
        import pandas as pd  # half as slow to load as torch, and most runs are not looked into

        return pd.DataFrame(self.rows)

    @property
    def advice(self) -> str:
        """What to do next: as the certificate says, where it is about this end, or else the status."""
        own = self.certificate if self.certificate is not None and self.certificate.status is self.status else None
        found = self.status.advice if own is None else own.advice
        coarse = self.certificate is not None and self.certificate.coarse and "float64" not in found
        return found + (COARSE if coarse else "")

    @property
    def _notes(self) -> list[str]:
        """What stands against the result: the doubts, and what the certificate says of y."""
        caution = self.certificate.caution if self.certificate is not None else ""
        return [f"Note: {text}." for text in (*self.doubts, caution) if text]

    @property
    def _end(self) -> str:
        """How the run ended, in a few words."""
        within = f" (tol {self.certificate.tol:.2g})" if self.certificate and self.status is Status.CONVERGED else ""
        return f"{name_of(self.method)}: {self.status.value}{within} after {self.steps} steps and {self.seconds:.1f} s"

    def __str__(self) -> str:
        refit = f"{self.lower_gap:.2g} above a refit, where F = {self.upper_refit:.6g}"
        refit = "its gap not measured" if math.isnan(self.lower_gap) else refit
        values = f"F = {self.upper:.6g}, f = {self.lower:.6g}{' on the last batch' if self.on_batch else ''}"
        return " ".join([f"{self._end}; {values} ({refit}).", self.advice, *self._notes])

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        where = " on the last batch" if self.on_batch else ""
        facts = {f"F{where}": f"{self.upper:.6g}", f"f{where}": f"{self.lower:.6g}"}
        if not math.isnan(self.lower_gap):
            facts |= {"lower-level gap": f"{self.lower_gap:.3g}", "F after a refit": f"{self.upper_refit:.6g}"}
        if self.multipliers:
            facts["largest violation"] = f"{self.violation:.3g}"
        facts |= {f"evaluations, {kind}": f"{count}" for kind, count in self.evaluations.items() if count}
        return html(self._end, facts, [self.advice, *self._notes])

    def plot(self) -> Any:
        """Draw F, f and the method's own measures over the steps, with matplotlib (``pip install 'bvfim[app]'``).

        Returns:
            The panels, an array of matplotlib's axes: ``solution.plot()[0].figure.savefig("run.png")``.
        """
        if not self.rows:
            raise ProblemError("there is nothing to plot: the run took no step")
        return drawn(self.history)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all of it into one file of data, as checkpoints are: tensors, and JSON for the rest.

        Functions are left out: in the place of a schedule or a method of your own, :meth:`load` gives back its name.

        Example:
            >>> import tempfile, torch, bvfim
            >>> problem = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum())
            >>> solution = bvfim.solve(problem, torch.zeros(1), torch.zeros(1), bvfim.RHG(steps=10), steps=3)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     solution.save(f"{folder}/solution.safetensors")
            ...     again = bvfim.Solution.load(f"{folder}/solution.safetensors")
            >>> torch.equal(again.x, solution.x), again.history.equals(solution.history), again.method
            (True, True, RHG(steps=10, lr=0.01, dynamics=None, start='warm', segment=1))
        """
        if any(map(is_sharded, tree.leaves((self.x, self.y, self.z)))):
            raise CheckpointError(f"{path}: x or y lies on several processes: save the run with callbacks.Checkpoint")
        content = {own.name: getattr(self, own.name) for own in fields(self)}
        content |= {name: spelled(content[name]) for name in ("method", "certificate", "status")}
        checkpoint.write(path, {"solution": content | {"rows": columns(self.rows)}})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Solution:
        """A solution that :meth:`save` wrote, bit for bit, its tensors on the CPU."""
        found = checkpoint.read(path)
        if "solution" not in found:
            raise CheckpointError(f"{path}: this is the checkpoint of a run, not a solution: resume it with solve")
        try:
            content = dict(found["solution"])
            content |= {name: restored(content[name]) for name in ("method", "certificate", "status")}
            return cls(**content | {"rows": rows_of(content["rows"])})
        except (LookupError, ValueError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{path}: not a solution that this version can read ({error})") from error
