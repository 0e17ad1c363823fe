"""What a run for a pessimistic follower verified, and what it did not."""

from __future__ import annotations

from dataclasses import dataclass

from bvfim.interior.certificate import Certificate
from bvfim.status import Status
from bvfim.tree import Tree


@dataclass(frozen=True)
class PessimisticCertificate(Certificate):
    """The evidence for a result with a pessimistic follower. It is local: global optimality is not proved.

    Attributes:
        relaxed: the worst F at x within the last slack of the lower level, an upper estimate of ``polished``.
        polished: the worst F that was found at x among lower-level solutions.
        edge: by how much the worst F jumps a little beside x, where the lower-level solution does; zero at a slope.
        approach: x and F at the ends of the last stages, the last one at the end: the sequence that approaches the
            infimum, whether it is attained or not.

    Example:
        >>> import torch, bvfim
        >>> test = bvfim.testproblems.unattained()[0]
        >>> start = torch.full((1,), -0.3, dtype=torch.float64)
        >>> shown = bvfim.solve(test.problem, start, start).certificate
        >>> shown.status.value, shown.edge > 1, [round(F, 2) for _, F in shown.approach][-3:]
        ('not_attained', True, [-1.0, -1.0, -1.0])
    """

    edge: float = 0.0
    approach: tuple[tuple[Tree, float], ...] = ()

    @property
    def advice(self) -> str:
        """What to do next."""
        if self.status is Status.NOT_ATTAINED:
            return self.status.advice
        if self.status is Status.STUCK:
            return (
                "The worst answer to x was found, but F had not settled, or differs within the slack: compare it "
                "across several starts."
            )
        return super().advice

    @property
    def _others(self) -> str:
        """What y is among several minima."""
        return "the lower level has several minima; of the lowest that were found, y is the worst"

    def __str__(self) -> str:
        return (
            f"worst F {self.polished:.6g} at x, {self.relaxed:.6g} within the slack, a jump of {self.edge:.2g} beside; "
            f"lower-level gap {self.gap:.2g} (allowed: {self.gap_allowed:.2g}); {self.solved} of {self.starts} starts "
            f"ended at their last slack within tol = {self.tol:.2g}, {self.agreeing} agree. {self.advice}"
        )
