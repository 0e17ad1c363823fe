"""Trees as the rows of a matrix, with the set that each row is kept in: what the batched solvers compute on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from bvfim import sets, tree
from bvfim.sets import Box
from bvfim.tree import Tree

WIDE = 3
"""Without a box, samples lie within this multiple of the size of an entry."""


class Space:
    """Trees like ``like``, each a row of a matrix; ``own`` has the set (or None) of each leaf."""

    def __init__(self, like: Tree, own: Sequence[sets.Set | None]) -> None:
        self.like, self.own = like, list(own)
        self.size = tree.size(like)
        self.low, self.high = self._bounds()
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

    def tree(self, row: Tensor) -> Tree:
        """The tree of a row."""
        return tree.unravel(row, self.like)

    def trees(self, rows: Tensor) -> Tree:
        """All rows as one tree whose leaves have a leading dimension."""
        parts = rows.split([t.numel() for t in tree.leaves(self.like)], dim=-1)
        shaped = [p.reshape(len(rows), *t.shape) for p, t in zip(parts, tree.leaves(self.like), strict=True)]
        return tree.unflatten(self.like, shaped)

    def project(self, rows: Tensor) -> Tensor:
        """The nearest point of the set, for every row of (..., n)."""
        if self.only_boxes:
            return rows.clamp_min(self.low).clamp_max(self.high) if self.bounded else rows
        moved = []
        for row in rows.flatten(0, -2):
            leaves = zip(self.own, tree.leaves(self.tree(row)), strict=True)
            moved.append(tree.flatten([t if s is None else s.project(t) for s, t in leaves]))
        return torch.stack(moved).reshape(rows.shape)

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
        maps = [self._tangent(row, g) for row, g in zip(rows, gradient, strict=True)]

        def free(v: Tensor) -> Tensor:
            if v.dim() == 2:
                return torch.stack([own(one) for own, one in zip(maps, v, strict=True)])
            return torch.stack([torch.stack([own(one) for one in many]) for own, many in zip(maps, v, strict=True)])

        return free

    def _tangent(self, row: Tensor, gradient: Tensor) -> Callable[[Tensor], Tensor]:
        triples = zip(self.own, tree.leaves(self.tree(row)), tree.leaves(self.tree(gradient)), strict=True)
        own = [(lambda v: v) if s is None else s.tangent(t, g).project for s, t, g in triples]
        return lambda v: tree.flatten([p(t) for p, t in zip(own, tree.leaves(self.tree(v)), strict=True)])

    def region(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Where to sample: the box where it is bounded, else its part around each entry."""
        far = WIDE * (1 + rows.abs())
        boxed = self.low.isfinite() & self.high.isfinite()
        low, high = torch.maximum(self.low, rows - far), torch.minimum(self.high, rows + far)
        return torch.where(boxed, self.low, low), torch.where(boxed, self.high, high)
