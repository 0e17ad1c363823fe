"""SABA: SOBA's directions with a memory of every block of rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bvfim import sets, tree
from bvfim.core.draw import Draw, Several
from bvfim.core.problem import Problem
from bvfim.methods.base import Data, Estimator, Reference, Settled, Step
from bvfim.schedules import FloatOrSchedule, require, require_count, value
from bvfim.status import MethodError
from bvfim.tree import Tree


class Memory(NamedTuple):
    """The gradients of every block when it was last drawn, and their mean over rows.

    The mean is in double precision: it is only ever added to, and in single precision the rounding of every step would
    stay in it, as a bias that grows.
    """

    blocks: tuple[Tree, ...]
    mean: Tree

    def followed(self, block: Block, new: Tree) -> tuple[Tree, Memory]:
        """SAGA: the unbiased direction new - old + mean, and the memory with the new in the place of the old."""
        i, share = block
        change = tree.sub(new, self.blocks[i])
        sampled = tree.axpy(len(self.blocks) * share, change, self.mean)
        direction = tree.map(lambda d, g: d.to(g.dtype), sampled, new)
        blocks = (*self.blocks[:i], new, *self.blocks[i + 1 :])
        return direction, Memory(blocks, tree.axpy(share, change, self.mean))


class Block(NamedTuple):
    """The number of a block, and its share of all rows."""

    number: int
    share: float


class SABAState(NamedTuple):
    """y and v, and the memories of (f_y, f_yy v, f_xy v) and of (F_y, F_x).

    Example:
        >>> import torch, bvfim
        >>> x, problem = torch.zeros(1), bvfim.Problem(max, min)
        >>> len(bvfim.SABA(lower_rows=100, upper_rows=30, size=10).init(problem, x, x).lower.blocks)
        10
    """

    y: Tree
    v: Tree
    lower: Memory
    upper: Memory


@dataclass(frozen=True)
class SABA(Estimator[SABAState]):
    r"""The stochastic average bilevel algorithm (Dagréou, Ablin, Vaiter and Moreau, NeurIPS 2022).

    With :math:`f_{yy} v = - F_y` for the linear system of the implicit hypergradient, y, v and x move at once along

    .. math:: D_y = f_y, \qquad D_v = f_{yy} v + F_y, \qquad D_x = F_x + f_{xy} v.

    F and f are means over rows, and each of the five terms comes from one block i of these, as in SAGA: with
    :math:`g_i` its gradient now and :math:`\bar g_i` when it was last drawn,

    .. math:: g_i - \bar g_i + \frac{1}{n} \sum_j \bar g_j

    with n blocks of equal size; others are weighed by their rows. v begins at zero, so that the first estimate is
    :math:`F_x`. The variance goes to zero with the distance to the solution, so that constant steps converge: linearly
    where the bilevel problem is strongly convex. :math:`D_x` is the estimate, along which an optimiser moves x, such as
    SGD. With a set Y, v stays among the directions that are free at y. Memory: two trees like y and one like x for each
    block of f, one of each for each block of F. SABA runs in one process: memories belong to the rows of all.

    **Rows.** Batches are blocks of row numbers, drawn by ``bvfim.Shuffled(rows, size, blocks=True)``, or two such
    streams in :class:`bvfim.Batches`; objectives are means over the rows that they are given. Without batches all rows
    are one block, and nothing is random.

    Args:
        lr: :math:`\rho`, the step of y and v, a number or a schedule of the upper step.
        lower_rows, upper_rows: the numbers of rows of f and F; None without batches.
        size: the number of rows of a block.

    Example:
        >>> import torch, bvfim
        >>> data = torch.linspace(-1, 1, 40, dtype=torch.float64)
        >>> problem = bvfim.Problem(
        ...     upper=lambda x, y, rows: ((y - 1 - data[rows]) ** 2).mean(),
        ...     lower=lambda x, y, rows: ((1 + data[rows] / 2) * (y - x) ** 2).mean(),  # so y = x, and x = 1
        ... )
        >>> start = torch.zeros(1, dtype=torch.float64)
        >>> found = bvfim.solve(
        ...     problem,
        ...     start,
        ...     start,
        ...     bvfim.SABA(lower_rows=40, upper_rows=40, size=8),
        ...     optimizer=lambda p: torch.optim.SGD(p, 0.05),
        ...     batches=bvfim.Shuffled(40, 8, blocks=True),
        ... )
        >>> print(f"{found.x.item():.6f}")
        1.000000
    """

    lr: FloatOrSchedule = 0.1
    lower_rows: int | None = None
    upper_rows: int | None = None
    size: int = 64

    def __post_init__(self) -> None:
        require(self, "lr", above=0)
        for name in ("lower_rows", "upper_rows"):
            if getattr(self, name) is not None:
                require_count(self, name)
        require_count(self, "size")
        if (self.lower_rows is None) != (self.upper_rows is None):
            raise MethodError("SABA: lower_rows and upper_rows belong together")

    @property
    def turns(self) -> int:
        """None: the one step is taken on the draw of the values."""
        return 0

    def init(self, problem: Problem, x: Tree, y: Tree) -> SABAState:
        """v = 0, and memories of zeros."""
        if problem.world.size > 1:
            raise MethodError("SABA runs in one process: leave the mesh out")
        zero_x, zero_y = tree.zeros_like(x), tree.zeros_like(y)
        lower, upper = (zero_y, zero_y, zero_x), (zero_y, zero_x)
        counts = (1 if rows is None else -(-rows // self.size) for rows in (self.lower_rows, self.upper_rows))
        memories = (
            Memory((zero,) * count, tree.map(Tensor.double, zero))
            for zero, count in zip((lower, upper), counts, strict=True)
        )
        return SABAState(y, zero_y, *memories)

    def estimate(self, problem: Problem, x: Tree, state: SABAState, k: int, data: Data) -> Step[SABAState]:
        """D_x at y and v, and their next values."""
        lr, (y, v, lower, upper), at = value(self.lr, k, "lr"), state, problem.at(x, data)
        upper_drawn, lower_drawn = _drawn(data)

        F, F_u, F_y = at.upper_grads(y)
        f, f_y, cross, product = at.lower_product(y, v)
        block = self._block(upper_drawn, self.upper_rows)
        (F_y, F_x), upper = upper.followed(block, (F_y, at.pull(F_u)))
        block = self._block(lower_drawn, self.lower_rows)
        (f_y, product, f_x), lower = lower.followed(block, (f_y, product, at.pull(cross)))

        free, curved = sets.tangent(problem.y_set, y, f_y)
        in_y, in_v, in_x = f_y, tree.add(curved(v, product), F_y), tree.add(F_x, f_x)
        y, v = problem.project_y(tree.axpy(-lr, in_y, y)), free(tree.axpy(-lr, in_v, v))
        return in_x, SABAState(y, v, lower, upper), {"upper": F, "lower": f, "value": F}

    def _block(self, drawn: Any, rows: int | None) -> Block:
        """The block of the rows that were drawn."""
        if rows is None and drawn is None:
            return Block(0, 1.0)
        if rows is None or not isinstance(drawn, Tensor) or drawn.dtype != torch.long or drawn.dim() != 1:
            raise MethodError(
                "SABA remembers blocks of rows: pass batches=bvfim.Shuffled(rows, size, blocks=True), or two of these "
                "in bvfim.Batches, and their numbers as lower_rows, upper_rows and size"
            )
        if rows <= self.size and len(drawn) == rows:
            return Block(0, 1.0)
        number = int(drawn[0]) // self.size if len(drawn) else 0
        expected = torch.arange(number * self.size, min((number + 1) * self.size, rows), device=drawn.device)
        if not torch.equal(drawn, expected):
            raise MethodError(
                f"SABA: the rows of a batch are not a block of {self.size} of {rows}, as bvfim.Shuffled({rows}, "
                f"{self.size}, blocks=True) draws them"
            )
        return Block(number, len(drawn) / rows)

    def reference(self, problem: Problem, x: Tree, state: SABAState, k: int, data: Data) -> Reference:
        """y and v where so many steps at one x and on this draw lead that both have converged."""
        whole = self
        if data is not None:
            upper, lower = map(len, _drawn(data))
            whole = replace(self, upper_rows=upper, lower_rows=lower, size=max(upper, lower))
        return Reference(Settled(whole), Settled(whole), "one step of y and v, and the memory of other rows")


def _drawn(data: Data) -> tuple[Any, Any]:
    """The rows of F and those of f."""
    if not isinstance(data, Draw):
        return data, data
    return data.upper, data.lower.draws[-1] if isinstance(data.lower, Several) else data.lower
