"""The random numbers that objectives draw, so that they can be drawn again."""

from __future__ import annotations

import torch
from torch import Tensor


def random_state(device: torch.device) -> Tensor:
    """The state of the random generator of a device."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def restore_random_state(state: Tensor, device: torch.device) -> None:
    """The inverse of :func:`random_state`."""
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)
