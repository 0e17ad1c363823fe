"""Adam for y and z where their difference counts: one scale for an entry of both."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim import Adam


class SharedAdam(Adam):
    r"""Adam on two variables, y and z, whose entries share the running mean of their squared gradients.

    .. math:: v \leftarrow \beta_2 v + (1 - \beta_2) (g_y^2 + g_z^2) / 2

    Equal gradients then give equal steps, so that the noise of rows which y and z both see cancels in y - z. Adam would
    divide it by two numbers that differ, for long after gradients that did, and the gradient of x has the difference
    times the multiplier.

    The first half of the parameters is y, the second z.

    Example:
        >>> import torch
        >>> from bvfim.core.shared_adam import SharedAdam
        >>> y, z = (torch.zeros(1, requires_grad=True) for _ in range(2))
        >>> optimizer = SharedAdam([y, z], lr=0.1)
        >>> for noise in (3.0, -3.0, 3.0):
        ...     y.grad, z.grad = torch.tensor([noise + 1]), torch.tensor([noise])
        ...     optimizer.step()
        >>> bool(y < z)
        True
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One step of Adam, and the mean of both running means."""
        found = super().step(closure)
        squares = [self.state[p]["exp_avg_sq"] for group in self.param_groups for p in group["params"]]
        of_y, of_z = squares[: len(squares) // 2], squares[len(squares) // 2 :]
        torch._foreach_lerp_(of_y, of_z, 0.5)
        torch._foreach_copy_(of_z, of_y)
        return found
