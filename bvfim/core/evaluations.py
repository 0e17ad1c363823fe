"""Counts of evaluations."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Evaluations:
    """The number of evaluations of each kind.

    ``upper`` and ``lower`` count gradients of F and f, ``forward`` values without a gradient, ``hvp``
    products with the lower Hessian, ``jvp`` products with the mixed second derivative.
    """

    upper: int = 0
    lower: int = 0
    forward: int = 0
    hvp: int = 0
    jvp: int = 0

    def as_dict(self) -> dict[str, int]:
        """The counts by name."""
        return dict(vars(self))

    def reset(self, **counts: int) -> None:
        """Go back to these counts; those that are not named are zero."""
        for kind, number in Evaluations(**counts).as_dict().items():
            setattr(self, kind, int(number))

    def columns(self) -> dict[str, int]:
        """The counts as tables name them, where ``upper`` and ``lower`` are F and f."""
        return {f"{kind}_evaluations": number for kind, number in self.as_dict().items()}

    def add(self, upper: int = 0, lower: int = 0, forward: int = 0, hvp: int = 0, jvp: int = 0) -> None:
        """Count some more."""
        self.upper += upper
        self.lower += lower
        self.forward += forward
        self.hvp += hvp
        self.jvp += jvp
