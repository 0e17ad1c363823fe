"""Trees as the rows of a matrix, in units of each row's own, with the set that it is kept in."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from bvfim import sets, tree
from bvfim.sets import Box
from bvfim.tree import Tree

WIDE = 3
"""Without a box, samples lie within this multiple of the size of an entry."""


NOTHING = 100
"""What the directions of a face leave of a vector is rounding below so many times the precision of its type."""


class Space:
    """Trees like ``like``, each a row of a matrix; ``own`` has the set (or None) of each leaf.

    With ``unit``, a matrix, the entries of row i are measured in ``unit[i]``. A leaf with a set that is no box has one
    unit for all of its entries, so that what is nearest does not depend on it.
    """

    def __init__(self, like: Tree, own: Sequence[sets.Set | None], unit: Tensor | None = None) -> None:
        self.like, self.own, self.unit = like, list(own), unit
        self.size = tree.size(like)
        low, high = self._bounds()
        self.low, self.high = (low, high) if unit is None else (low / unit, high / unit)
        self.bounded = bool((self.low > -torch.inf).any() or (self.high < torch.inf).any())
        self.only_boxes = all(s is None or type(s) is Box for s in own)

    def _bounds(self) -> tuple[Tensor, Tensor]:
        """The bounds of every entry, infinite where its leaf has no box."""
        boxes = [s if isinstance(s, Box) else Box() for s in self.own]

        def entries(bounds: list[float | Tensor]) -> Tensor:
            pairs = zip(bounds, tree.leaves(self.like), strict=True)
            return torch.cat(
                [torch.as_tensor(b, dtype=t.dtype, device=t.device).expand(t.shape).reshape(-1) for b, t in pairs]
            )

        return entries([b.lower for b in boxes]), entries([b.upper for b in boxes])

    @property
    def separable(self) -> Tensor:
        """1 at the entries of leaves whose set, if any, is a box."""
        pairs = zip(self.own, tree.leaves(self.like), strict=True)
        return torch.cat([torch.full_like(t, s is None or type(s) is Box).reshape(-1) for s, t in pairs])

    def of(self, rows: Tensor) -> Space:
        """The space of some of the rows."""
        if self.unit is None:
            return self
        part = copy.copy(self)
        part.unit, part.low, part.high = self.unit[rows], self.low[rows], self.high[rows]
        return part

    def measured(self, plain: Tensor) -> Tensor:
        """Rows in their units."""
        return plain if self.unit is None else plain / self._each(self.unit, plain)

    def plain(self, rows: Tensor) -> Tensor:
        """Rows without units, as the problem takes them."""
        return rows if self.unit is None else rows * self._each(self.unit, rows)

    @staticmethod
    def _each(entries: Tensor, rows: Tensor) -> Tensor:
        """What belongs to every row, beside (B, n) or (B, k, n)."""
        return entries[:, None] if entries.dim() == 2 and rows.dim() == 3 else entries

    def tree(self, row: Tensor) -> Tree:
        """The tree of a row without units."""
        return tree.unravel(row, self.like)

    def trees(self, rows: Tensor) -> Tree:
        """All rows, without units, as one tree whose leaves have a leading dimension."""
        parts = rows.split([t.numel() for t in tree.leaves(self.like)], dim=-1)
        shaped = [p.reshape(len(rows), *t.shape) for p, t in zip(parts, tree.leaves(self.like), strict=True)]
        return tree.unflatten(self.like, shaped)

    def project(self, rows: Tensor) -> Tensor:
        """The nearest point of the set, for every row of (B, n) or (B, k, n)."""
        if self.only_boxes:
            low, high = self._each(self.low, rows), self._each(self.high, rows)
            return rows.clamp_min(low).clamp_max(high) if self.bounded else rows
        moved = []
        plain = self.plain(rows)
        for row in plain.flatten(0, -2):
            leaves = zip(self.own, tree.leaves(self.tree(row)), strict=True)
            moved.append(tree.flatten([t if s is None else s.project(t) for s, t in leaves]))
        return self.measured(torch.stack(moved).reshape(rows.shape))

    def free(self, rows: Tensor, gradient: Tensor) -> Callable[[Tensor], Tensor]:
        """The projection onto the directions that the set leaves free, for (B, n) or (B, k, n)."""
        if not self.only_boxes:
            return self._free_in_general(rows, gradient)
        if not self.bounded:
            return lambda v: v
        stopped = (rows <= self.low) & ((gradient > 0) | (rows >= self.high)) | (rows >= self.high) & (gradient < 0)
        mask = (~stopped).to(rows)
        return lambda v: v * (mask if v.dim() == 2 else mask[:, None])

    def _free_in_general(self, rows: Tensor, gradient: Tensor) -> Callable[[Tensor], Tensor]:
        slopes = gradient if self.unit is None else gradient / self.unit
        maps = [self._tangent(row, g) for row, g in zip(self.plain(rows), slopes, strict=True)]

        def free(v: Tensor) -> Tensor:
            if v.dim() == 2:
                return torch.stack([own(one) for own, one in zip(maps, v, strict=True)])
            return torch.stack([torch.stack([own(one) for one in many]) for own, many in zip(maps, v, strict=True)])

        return free

    def _tangent(self, row: Tensor, gradient: Tensor) -> Callable[[Tensor], Tensor]:
        triples = zip(self.own, tree.leaves(self.tree(row)), tree.leaves(self.tree(gradient)), strict=True)
        own = [(lambda v: v) if s is None else s.tangent(t, g).project for s, t, g in triples]

        def project(v: Tensor) -> Tensor:
            """Exactly zero where v is normal: L-BFGS would take the rounding of a normal step for a curvature."""
            found = tree.flatten([p(t) for p, t in zip(own, tree.leaves(self.tree(v)), strict=True)])
            return torch.where(found.norm() > NOTHING * torch.finfo(v.dtype).eps * v.norm(), found, 0.0)

        return project

    def region(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Where to sample: the box where it is bounded, else its part around each entry."""
        far = WIDE * (1 + rows.abs())
        boxed = self.low.isfinite() & self.high.isfinite()
        low, high = torch.maximum(self.low, rows - far), torch.minimum(self.high, rows + far)
        return torch.where(boxed, self.low, low), torch.where(boxed, self.high, high)

    def grid(self, rows: Tensor, count: int) -> Tensor:
        """Points on a grid of so many an axis: (B, count, .., count, n).

        They are even over finite bounds; else half of them lie within the size of the entry, and fewer the farther out.
        """
        shares = (torch.arange(count, dtype=rows.dtype, device=rows.device) + 0.5) / count
        far = torch.tan(torch.pi * (shares - 0.5))
        boxed = (self.low.isfinite() & self.high.isfinite()).expand_as(rows)[..., None]
        low, high = (torch.where(b.isfinite(), b, 0.0).expand_as(rows)[..., None] for b in (self.low, self.high))
        axes = torch.where(
            boxed, low + (high - low) * shares, rows[..., None] + WIDE * (1 + rows.abs())[..., None] * far
        )
        meshes = [torch.meshgrid(*axis, indexing="ij") for axis in axes]
        points = torch.stack([torch.stack(mesh, -1) for mesh in meshes])
        return self.project(points.flatten(1, -2)).reshape(points.shape)
