"""The optimiser that moves x by default under noise: one scale for all of x."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from bvfim.schedules import require
from bvfim.status import MethodError

MEMORY = 0.95
"""The running mean remembers about twenty steps: as many as rows need to come round in a small epoch."""
LEAST = 0.003
"""Gradients below this share of the largest ones so far get shorter steps. Where a lower level fits all of its rows,
they fall by a factor of a thousand and become noise, and steps of one size would lead x away again."""


class Unrounded(torch.optim.Optimizer):
    """An optimiser whose memory has double precision, whatever the type of what it moves."""

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a saved state; torch alone would round its double precision to the type of x."""
        super().load_state_dict(state_dict)
        parameters = [p for group in self.param_groups for p in group["params"]]
        for i, memory in state_dict["state"].items():
            own = parameters[i]
            self.state[own] = {name: value.detach().clone().to(own.device) for name, value in memory.items()}


class OneScale(Unrounded):
    r"""Gradient steps of one size: relative to the recent gradients, all entries together.

    .. math:: x \leftarrow x - \eta\, g_k / r_k, \qquad r_k^2 = \text{running mean of } |g_j|^2 / m,

    with m the number of entries of x, over about the last twenty steps, and at least 0.003 of the largest such r
    so far: where the gradients have all but vanished, the steps do too. All entries share the scale, so an entry whose
    gradient is noise stays where it is. Adam would divide each entry by its own past and walk on the noise. Multiplying
    the objective by a constant changes nothing. Since the step has the direction of the gradient, it may be followed by
    a projection onto any convex set: x stays where it is only where :math:`x = P(x - t g)`.

    Args:
        params: the tensors to move.
        lr: :math:`\eta`, the root mean square of a step, in the unit of x.
        wait: the number of steps that only measure the scale, before the first one that moves.
        mean: maps the sum of squares and the number of entries to the mean square, which is that over all processes
            where each has rows of x of its own.

    Example:
        >>> import torch, bvfim
        >>> x = torch.tensor([3.0], requires_grad=True)
        >>> optimizer = bvfim.OneScale([x], lr=0.1)
        >>> for _ in range(25):
        ...     (x.grad,) = torch.autograd.grad((x**2).sum(), x)
        ...     optimizer.step()
        >>> round(x.item(), 3)
        1.058
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.1,
        wait: int = 0,
        mean: Callable[[Tensor, int], Tensor] = lambda square, count: square / count,
    ) -> None:
        self.lr, self.wait, self.mean = lr, wait, mean
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
        total = torch.stack([g.double().square().sum() for _, g in pairs]).sum()
        square = self.mean(total, sum(p.numel() for p, _ in pairs))
        memory = self.state[group["params"][0]]
        for name in ("step", "mean", "largest"):
            memory.setdefault(name, torch.zeros_like(square))
        step, mean, largest = (memory[name] for name in ("step", "mean", "largest"))
        going = step >= group["wait"]
        step += 1
        mean += (square - mean) / step.clamp_max(1 / (1 - MEMORY))
        largest.copy_(torch.maximum(largest, mean))
        # Where every gradient was zero so far there is nothing to divide by, and nothing to move.
        scale = torch.where(going & (mean > 0), 1 / torch.maximum(mean, LEAST**2 * largest).sqrt(), 0.0)
        for p, g in pairs:
            p.sub_((group["lr"] * scale * g.double()).to(p.dtype))  # the scale alone may be too large for p's type
