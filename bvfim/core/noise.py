"""The random numbers that objectives draw, so that they can be drawn again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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


class Drawing:
    """The part of an evaluator that lets objectives draw the same numbers again."""

    u: list[Tensor]
    values: Callable[[Any], Any]

    def random_state(self) -> Tensor | None:
        """The state of the random generator that objectives draw from; None while a step is recorded or compiled."""
        device = self.u[0].device
        if torch.compiler.is_compiling() or (device.type == "cuda" and torch.cuda.is_current_stream_capturing()):
            return None
        return random_state(device)

    def restore_random_state(self, state: Tensor | None) -> None:
        """The inverse of :meth:`random_state`."""
        if state is not None:
            restore_random_state(state, self.u[0].device)

    def draws_random(self, y: Any) -> bool:
        """Whether an objective draws random numbers; the generator is left as it was."""
        before = self.random_state()
        self.values(y)
        after = self.random_state()
        self.restore_random_state(before)
        return before is not None and after is not None and not torch.equal(before, after)
