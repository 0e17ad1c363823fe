"""What a run of the interior-point method verified, and what it did not."""

from __future__ import annotations

from dataclasses import dataclass

from bvfim.status import Status


@dataclass(frozen=True)
class Certificate:
    """The evidence for a result of :class:`bvfim.AdaptiveBVFIM`. It is local: global optimality is not proved.

    Attributes:
        relaxed: F at the iterate of the barrier problem, locally a lower estimate of the optimum.
        polished: F with y at the bottom of its lower-level basin, locally an upper estimate.
        gap: the lower-level gap: f(x, y) minus the lowest f(x, .) that any start, scout or probe found.
        gap_allowed: the tolerance on the gap; a smaller gap counts as closed.
        tol: the tolerance used: the requested one, or the finest that the dtype allows.
        stationarity: the free gradient of the barrier problem relative to the gradient of F. Large at a kink of the
            value function, where the lower-level solution jumps.
        multimodal: whether f(x, .) was found to have a minimum that is not its lowest: a descent came to rest above it
            where the gradient does not lead down to it, as that of a convex f would.
        starts: the number of starts.
        solved: the number of starts that ended with a closed gap.
        agreeing: the number of these whose F equals that of the result, within the tolerance.
        status: how the chosen start ended; None if it was still running.
        searched: how other minima of f were looked for; empty if nobody did.
        coarse: whether the dtype is coarser than float64.
        violation: how far the constraints are from holding at (x, y), as a distance in the units of x and y.
        complementarity: the largest product of a multiplier of the lower level and the distance from its constraint.
        conflict: the constraints that stand against each other, if no point was found where all hold.
        lower_set: ``"empty"`` or ``"a point"`` if that is what the constraints of the lower level leave of y at x.
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
    tol: float
    stationarity: float
    multimodal: bool
    starts: int
    solved: int
    agreeing: int
    status: Status | None
    searched: str = ""
    coarse: bool = False
    violation: float = 0.0
    complementarity: float = 0.0
    conflict: tuple[str, ...] = ()
    lower_set: str = ""

    @property
    def advice(self) -> str:
        """What to do next."""
        if self.status is None:
            return "The run stopped before it finished: raise steps."
        if self.status is Status.STUCK:
            return self._stuck
        if self.status is Status.INFEASIBLE:
            return self._infeasible
        if self.status is not Status.CONVERGED:
            return self.status.advice
        if self.starts == 1:
            return (
                "Solved from one start, which shows a local optimum (try bvfim.AdaptiveBVFIM(starts=8), at several "
                "times the cost)."
            )
        if self.agreeing == 1:
            return "Only one start found this F: raise starts, since a lower F may exist."
        return f"{self.agreeing} of {self.starts} starts agree."

    @property
    def caution(self) -> str:
        """What stands against y, if anything does and the advice does not say it."""
        if self.gap > self.gap_allowed:
            return f"y is not the lowest minimum of f(x, ·): f(x, y) is {self.gap:.2g} above the lowest value found"
        return self._others if self.multimodal and self.status is not Status.STUCK else ""

    @property
    def _others(self) -> str:
        """What y is among several minima."""
        return "the lower level has other minima; y is the lowest that was found"

    @property
    def _stuck(self) -> str:
        """Why stationarity was not shown, as far as the run can tell."""
        closed = "The lower-level gap is closed, but stationarity of x was not shown: "
        if self.coarse:
            return closed + "float32 is too coarse to tell; use float64."
        if self.multimodal:
            return closed + (
                "the lower level has several minima, and where they are equally low the value function has a kink, "
                "which may well be the optimum. Compare F across several starts."
            )
        return closed + (
            "no second lower-level minimum was seen, so the problem is badly conditioned or nonsmooth there. F is "
            "usually right to a few digits; compare it across several starts."
        )

    @property
    def _infeasible(self) -> str:
        """What stands against what."""
        if not self.conflict:
            return self.status.advice if self.status else ""
        if len(self.conflict) == 1:
            return (
                f"{self.conflict[0]} can't be met with the sets and with the y that follows: loosen it, or widen a set."
            )
        return f"These constraints stand against each other: {', '.join(self.conflict)}. Loosen one of them."

    @property
    def _constraints(self) -> str:
        """How the constraints stand; empty where all is well."""
        left = f"the lower level's constraints leave {self.lower_set} at x, " if self.lower_set else ""
        return left + (f"constraints violated by {self.violation:.2g}, " if self.violation > 0 else "")

    @property
    def _minima(self) -> str:
        """What is known of other minima of f."""
        if self.multimodal:
            return "the lower level has other minima"
        if not self.searched:
            return "other minima of the lower level were not looked for"
        return f"the lower level showed no lower minimum ({self.searched})"

    def __str__(self) -> str:
        return (
            f"F in [{self.relaxed:.6g}, {self.polished:.6g}], lower-level gap {self.gap:.2g} (allowed: "
            f"{self.gap_allowed:.2g}), stationarity {self.stationarity:.2g}, {self._constraints}{self._minima}; "
            f"{self.solved} of {self.starts} starts solved within tol = {self.tol:.2g}, {self.agreeing} agree. "
            f"{self.advice}"
        )
