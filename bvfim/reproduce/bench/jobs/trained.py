"""Training anew, by which the jobs with networks are judged: always the same steps from the same start."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

STEPS, LR = 150, 0.01
"""Of Adam, on all rows at once, down to zero by a cosine: a fixed fit, that every x gets alike."""

Network = dict[str, Tensor]


def trained(loss: Callable[[Network], Tensor], y: Network, steps: int = STEPS, lr: float = LR) -> Network:
    """The network after so many steps on a loss.

    Example:
        >>> import torch
        >>> from bvfim.reproduce.bench.jobs.trained import trained
        >>> found = trained(lambda y: ((y["w"] - 1) ** 2).sum(), {"w": torch.zeros(1)}, steps=500)
        >>> bool((found["w"] - 1).abs() < 1e-2)
        True
    """
    own = {name: tensor.clone().requires_grad_() for name, tensor in y.items()}
    adam = torch.optim.Adam(own.values(), lr)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(adam, steps)
    for _ in range(steps):
        adam.zero_grad()
        loss(own).backward()
        adam.step()
        falling.step()
    return {name: tensor.detach() for name, tensor in own.items()}
