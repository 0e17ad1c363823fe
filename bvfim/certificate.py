"""What a run of the interior point has shown, and what it has not."""

from __future__ import annotations

from dataclasses import dataclass

from bvfim.status import Status


@dataclass(frozen=True)
class Certificate:
    """The evidence behind a result of :class:`bvfim.AdaptiveBVFIM`. All of it is local: no global optimum is proved.

    Attributes:
        relaxed: F inside the barrier, locally a lower estimate of the optimum.
        polished: F with y at the bottom of its lower basin, locally an upper estimate.
        gap: f(x, y) less the lowest f(x, .) that any start, scout or probe has found.
        gap_allowed: what a gap has to stay below to count as closed.
        stationarity: the free gradient of the barrier problem against the gradient of F. Large at a kink of the value
            function, where the lower solution jumps.
        multimodal: whether f(x, .) was seen to have a minimum that is not its lowest.
        starts: how many there were.
        solved: how many of them ended with a closed gap.
        agreeing: how many of those have the F of the result, within the tolerance.
        status: how the chosen start ended; None if it was still under way.
        advice: what to do next.

    Example:
        >>> import torch, bvfim
        >>> toy = bvfim.testproblems.sine(a=2)
        >>> start = torch.zeros(1, dtype=torch.float64)
        >>> shown = bvfim.solve(toy.problem, start, start, bvfim.AdaptiveBVFIM(starts=4)).certificate
        >>> shown.relaxed < toy.upper < shown.polished, shown.gap < shown.gap_allowed, shown.solved
        (True, True, 4)
    """

    relaxed: float
    polished: float
    gap: float
    gap_allowed: float
    stationarity: float
    multimodal: bool
    starts: int
    solved: int
    agreeing: int
    status: Status | None

    @property
    def advice(self) -> str:
        """What to do next."""
        if self.status is None:
            return "The run was stopped before its end: raise steps."
        if self.status is not Status.CONVERGED:
            return self.status.advice
        if self.starts == 1:
            more = "several lower minima were seen; " if self.multimodal else ""
            return f"Solved from one start, which shows a local optimum ({more}starts=8 looks further)."
        if self.agreeing == 1:
            return "Only one start found this F: raise starts, a lower one may be left."
        return f"{self.agreeing} of {self.starts} starts agree."

    def __str__(self) -> str:
        return (
            f"F in [{self.relaxed:.6g}, {self.polished:.6g}], lower gap {self.gap:.2g} (allowed: "
            f"{self.gap_allowed:.2g}), stationarity {self.stationarity:.2g}, the lower level "
            f"{'has' if self.multimodal else 'showed no'} other minima; {self.solved} of {self.starts} starts solved, "
            f"{self.agreeing} agree. {self.advice}"
        )
