"""The optimiser that moves y and z without noise where they lie in a set that is no box: one step for all entries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from bvfim.core.one_scale import Unrounded
from bvfim.schedules import require
from bvfim.status import MethodError

CALM, FIRST = 2 / 3, 1 / 3
"""How fast a step may grow, and what counts as its growth before the first: the numbers of the paper."""


TELLS = 0.75
"""A move shorter than this power of the precision, relative to y, tells rounding and no curvature."""


class CurvatureStep(Unrounded):
    r"""Gradient steps as long as the curvature that the last one met allows, all entries together.

    .. math:: y_{k+1} = P(y_k - t_k g_k), \qquad
              t_k = \min\Big(\sqrt{\tfrac23 + \tfrac{t_{k-1}}{t_{k-2}}}\; t_{k-1},\;
              \frac{t_{k-1}}{\sqrt{[2\, t_{k-1}^2 L_k^2 - 1]_+}}\Big), \qquad
              L_k = \frac{|g_k - g_{k-1}|}{|y_k - y_{k-1}|}

    (Malitsky and Mishchenko, 2024, whose proof for convex functions allows a projection P, which the caller applies).
    No values are needed, and nothing waits for the host. A y that has not moved tells no curvature, nor does one whose
    function has changed (:meth:`forget`): its step stays.

    Args:
        params: the tensors to move.
        lr: the root mean square of the first step.

    Example:
        >>> import torch, bvfim
        >>> from bvfim.core.curvature_step import CurvatureStep
        >>> y, ball = torch.zeros(2, requires_grad=True), bvfim.Ball(1.0)
        >>> optimizer = CurvatureStep([y])
        >>> for _ in range(50):
        ...     y.grad = torch.tensor([1.0, 4.0]) * (y.detach() - torch.tensor([0.0, 2.0]))
        ...     optimizer.step()
        ...     y.data = ball.project(y.data)
        >>> y.data
        tensor([0., 1.])
    """

    def __init__(self, params: Iterable[Tensor], lr: float = 0.1) -> None:
        self.lr = lr
        require(self, "lr", above=0)
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # there is no loss here
        """One step; the gradients are in ``.grad``."""
        if closure is not None:
            raise MethodError("CurvatureStep takes no closure")
        for group in self.param_groups:
            pairs = [(p, p.grad) for p in group["params"] if p.grad is not None]
            if pairs:
                self._step(group, pairs)

    @torch.no_grad()
    def forget(self) -> None:
        """The next gradient is that of another function: where it was taken last tells nothing of its curvature."""
        for memory in self.state.values():
            memory["point"].fill_(torch.nan)

    def _step(self, group: dict[str, Any], pairs: list[tuple[Tensor, Tensor]]) -> None:
        shared = self.state[group["params"][0]]
        for p, g in pairs:
            self.state[p].setdefault("point", p.clone())
            self.state[p].setdefault("gradient", g.clone())
        moved, turned, square, far = (
            torch.stack([a.double().square().sum() for a in found]).sum()
            for found in (
                [p - self.state[p]["point"] for p, _ in pairs],
                [g - self.state[p]["gradient"] for p, g in pairs],
                [g for _, g in pairs],
                [p for p, _ in pairs],
            )
        )
        size = shared.setdefault("size", torch.zeros_like(moved))
        growth = shared.setdefault("growth", torch.full_like(moved, FIRST))
        excess = 2 * size.square() * turned / moved - 1
        bent = torch.where(excess > 0, size / excess.sqrt(), torch.inf)
        rounding = torch.finfo(pairs[0][0].dtype).eps ** TELLS
        found = torch.where(moved > rounding**2 * far, torch.minimum((CALM + growth).sqrt() * size, bent), size)
        first = group["lr"] / (square / sum(p.numel() for p, _ in pairs)).sqrt()
        begun = size > 0
        # Where the gradient is zero there is nothing to divide by, and nothing to move.
        found = torch.where(begun, found, torch.where(square > 0, first, 0.0))
        growth.copy_(torch.where(begun, found / size, FIRST))
        size.copy_(found)
        for p, g in pairs:
            self.state[p]["point"].copy_(p)
            self.state[p]["gradient"].copy_(g)
            p.sub_((found * g.double()).to(p.dtype))
