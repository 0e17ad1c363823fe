"""The optimiser that moves x by default under noise: one scale for all of x."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from bvfim.schedules import require
from bvfim.status import MethodError


class OneScale(torch.optim.Optimizer):
    r"""Gradient steps of a size that is relative to the largest gradient so far.

    .. math:: x \leftarrow x - \eta\, g_k / \max_{j \le k} r_j, \qquad r_j = |g_j| / \sqrt m,

    with m the number of entries of x. All entries share the scale, so an entry whose gradient is noise stays where it
    is. Adam would divide each entry by its own past and walk on the noise. Multiplying the objective by a constant
    changes nothing.

    Args:
        params: the tensors to move.
        lr: :math:`\eta`, the root mean square of the longest step, in the unit of x.
        wait: the number of steps that only measure the scale, before the first one that moves.

    Example:
        >>> import torch, bvfim
        >>> x = torch.tensor([3.0], requires_grad=True)
        >>> optimizer = bvfim.OneScale([x], lr=0.5)
        >>> for _ in range(20):
        ...     (x.grad,) = torch.autograd.grad((x**2).sum(), x)
        ...     optimizer.step()
        >>> round(x.item(), 3)
        0.078
    """

    def __init__(self, params: Iterable[Tensor], lr: float = 0.1, wait: int = 0) -> None:
        self.lr, self.wait = lr, wait
        require(self, "lr", above=0)
        require(self, "wait", at_least=0, schedule=False)
        super().__init__(params, {"lr": lr, "wait": wait})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # there is no loss here
        """One step; the gradients are in ``.grad``."""
        if closure is not None:
            raise MethodError("OneScale takes no closure")
        for group in self.param_groups:
            pairs = [(p, p.grad) for p in group["params"] if p.grad is not None]
            if pairs:
                self._step(group, pairs)

    def _step(self, group: dict[str, Any], pairs: list[tuple[Tensor, Tensor]]) -> None:
        count = sum(p.numel() for p, _ in pairs)
        squares = torch.stack([g.double().square().sum() for _, g in pairs]).sum()
        first = group["params"][0]
        memory = self.state[first]
        memory.setdefault("step", torch.zeros((), dtype=torch.float64, device=first.device))
        memory.setdefault("largest", torch.zeros_like(memory["step"]))
        memory["largest"] = torch.maximum(memory["largest"], (squares / count).sqrt())
        going = memory["step"] >= group["wait"]
        memory["step"] += 1
        # Where every gradient was zero so far there is nothing to divide by, and nothing to move.
        scale = torch.where(going & (memory["largest"] > 0), 1 / memory["largest"], 0.0)
        for p, g in pairs:
            p.sub_((group["lr"] * scale).to(p.dtype) * g)
