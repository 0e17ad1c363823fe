"""StochasticBVFIM: the value-function method in a single loop over batches."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from bvfim.core.multipliers import Place, begun, told
from bvfim.core.problem import Problem
from bvfim.methods.base import Configured, OptimizerFactory, SchedulerFactory
from bvfim.schedules import require, require_count
from bvfim.status import MethodError
from bvfim.tree import Tree

LOOSE = 0.6
"""The gap that y is allowed at first, relative to how far f falls from the start."""
HALVED = 50
"""With batches, the allowed gap is a half, a third, a quarter of the first after this many steps each in which y keeps
up. The bias of x, which is like the square root of the gap, then falls as the noise of x does."""
TIGHTEST = 1e-10
"""Without batches nothing is noise, and the allowed gap falls geometrically by this factor over the run."""
RISE = 0.1
"""The share of the largest gap that counts as a fall of f: a start at its minimiser has no other."""
KEEPS_UP, EXACT = 1.1, 3.0
"""y and z keep up while the gap is at most this many times what is allowed, with batches and without: there the weight
then rises at its full rate. A gap as far below zero shows that z lags."""
FIRST_WEIGHT, LIGHTEST, HEAVIEST = 0.3, 0.03, 1e5
"""The weight of f beside F, both of one scale: at first, and its bounds. With less, y would hardly see f."""
RATE = 0.05
"""The most that the logarithm of the weight changes in a step."""
MEMORY = 0.9
"""The averages of the gap and of the fall remember about ten steps."""
WHOLE = 3
"""The least number of inner steps without batches, where tracking alone limits how tight the gap gets."""
WAIT = 0.05
"""The part of a run in which x and the weight wait: until y and z have left their common start, their difference tells
nothing."""
SHORTEN, SHORTEST = 0.9, 0.1
"""While x waits, the steps of y and z shorten by this factor in each step in which f at y is above f at z, and f at z
above f at the start, until they are this share of the first: z trains on f alone, so they are too long. A start at a
minimiser of f lies below z however short they are."""


class Tracking(NamedTuple):
    """What the weight of f is chosen by.

    ``step`` is k; ``weight`` is ln w; ``scale`` makes F as large as f; ``allowed`` is the gap that y is allowed,
    relative to the fall of f; ``gap`` and ``fall`` are running averages of f(x, y) - f(x, z) and f(x, y0) - f(x, z),
    each on the same rows; ``largest`` is the largest gap so far; ``calm`` is the factor of the steps of y and z.

    Example:
        >>> import math
        >>> from bvfim.methods.stochastic import Tracking
        >>> round(math.exp(Tracking().weight), 2)
        0.3
    """

    step: float = 0.0
    weight: float = math.log(FIRST_WEIGHT)
    scale: float = 1.0
    allowed: float = LOOSE
    gap: float = 0.0
    fall: float = 0.0
    largest: float = 0.0
    calm: float = 1.0

    def weights(self, relative: bool, held: bool = False, waits: bool = True) -> dict[str, float]:
        """The factors of F and of f, s / (1 + w) and w / (1 + w), rho, and whether x moves.

        rho is the gap relative to the fall of f, at most what is allowed: with more, x would gain by raising f at the
        start. It is 0 where y started at a minimiser of f, and where it is not wanted: without batches, where the gap
        soon closes. A gap below zero shows that z lags behind x, which then waits; where constraints hold y and z in
        the same place (``held``), only one as far below zero as is allowed above does: the others are rounding. Without
        ``waits``, as with a multiplier that is given, x always moves: noise may make the gap negative, and so may an f
        that falls all along, because y learns from F too.
        """
        w = math.exp(self.weight)
        relative = relative and self.fall > RISE * self.largest
        lag = -self.mu if held else 0.0
        rho = min(self.allowed, max(self.gap, 0.0) / self.fall) if relative else 0.0
        return {"a": self.scale / (1 + w), "b": w / (1 + w), "rho": rho, "moves": float(not waits or self.gap >= lag)}

    @property
    def mu(self) -> float:
        """The gap that y is allowed."""
        return self.allowed * max(self.fall, RISE * self.largest)

    def followed(self, f: float, f_z: float, f_0: float, steps: int, noisy: bool) -> Tracking:
        r"""After a step of a run of so many, in which f(x, y), f(x, z) and f(x, y0) were seen.

        .. math:: \ln w \leftarrow \ln w + \eta_k\, \mathrm{clip}(\ln(\mathrm{gap} / \mu), \pm 1)

        with a rate that goes down as the steps do: a weight that outran y would swing.
        """
        k = self.step
        count = min(k + 1, 1 / (1 - MEMORY))  # of all values at first, later of the last ones
        gap, fall = (old + (new - f_z - old) / count for old, new in ((self.gap, f), (self.fall, f_0)))
        seen = self._replace(step=k + 1, gap=gap, fall=fall, largest=max(self.largest, gap))
        mu = seen.mu
        weight, allowed, calm = self.weight, self.allowed, self.calm
        if k >= WAIT * steps and min(gap, mu) > 0:
            weight += RATE * pace(k, steps) * min(max(math.log(gap / mu), -1.0), 1.0)
        if abs(gap) <= (KEEPS_UP if noisy else EXACT) * mu:
            allowed = 1 / (1 / allowed + 1 / (LOOSE * HALVED)) if noisy else allowed * TIGHTEST ** (1 / steps)
        if noisy and k < WAIT * steps and gap > 0 and fall < -RISE * seen.largest:
            calm = max(SHORTEN * calm, SHORTEST)
        weight = min(max(weight, math.log(LIGHTEST)), math.log(HEAVIEST))
        return seen._replace(weight=weight, allowed=allowed, calm=calm)


def pace(k: float, steps: int) -> float:
    """Half a cosine from 1 down to 0 over the run: the size of step k relative to the first.

    Example:
        >>> from bvfim.methods.stochastic import pace
        >>> [round(pace(k, 4), 2) for k in range(6)]
        [1.0, 0.85, 0.5, 0.15, 0.0, 0.0]
    """
    return 0.5 * (1 + math.cos(math.pi * min(k / max(steps, 1), 1.0)))


class StochasticState(NamedTuple):
    """The last y and z, the y that the run started with, and the entries of :class:`Tracking` in double precision.

    ``multipliers`` are those of the constraints; empty where there are none.

    Example:
        >>> import bvfim
        >>> bvfim.methods.StochasticState(y=1.0, z=2.0, start=0.0, tracking=None).z
        2.0
    """

    y: Tree
    z: Tree
    start: Tree
    tracking: Tensor
    multipliers: Place = ()


@dataclass(frozen=True)
class StochasticBVFIM(Configured[StochasticState]):
    r"""The value-function method in a single loop: for networks and batches, with nothing to tune.

    x, y and z move together, each by its own torch optimiser, along the gradients of

    .. math:: s F(x, y) + w\,\big(f(x, y) - (1 - \rho) f(x, z) - \rho f(x, y_0)\big),

    down in x and y and up in z, on one draw per step: the same rows of f for y, z and the initial y_0, so that the
    differences have little variance. One backward pass gives all three, first gradients only, and memory is O(m + n).

    **The gap is relative.** z follows the minimiser of f(x, .), and the constraint of the value function,
    :math:`f(x, y) \le f^*(x)`, is relaxed to a share of how far f falls:

    .. math:: f(x, y) - f(x, z) \le \rho\,\big(f(x, y_0) - f(x, z)\big).

    The sum above is its Lagrangian, with the multiplier w/s. Both sides grow with f, so x gains nothing by making f
    small: with an absolute gap, as in F2SA or BVFIM, every weight of a weighted loss is pulled to zero.

    **The multiplier follows the gap.** ln w rises where the gap is above what is allowed and falls where it is below.
    What is allowed goes down while y keeps up, like 1/k with batches and geometrically without; :math:`\rho` is the
    measured gap relative to the fall of f, at most what is allowed, and 0 without batches. s makes F as large as f. So
    F, c F, f + d and c f give the same path.

    **The steps.** With batches, y and z move by Adam, with a step from a short range test at the start, and x by
    :class:`bvfim.OneScale`, which waits for y and z in the first twentieth of the run; all steps follow a cosine to
    zero. Where f at z rises above f at the start in that time, the steps of y and z are too long, and the cosine starts
    lower. Without batches nothing is noise: y and z move by Rprop, and x by an Adam that forgets fast. In sets that are
    no boxes, where only steps along gradients end at stationary points, all three move by :class:`bvfim.OneScale`, and
    without batches y and z by gradient steps that follow the curvature (Malitsky and Mishchenko, 2024).

    **Constraints** become terms of F and f, whose multipliers take a part of a full step with every step of x: see
    :mod:`bvfim.core.multipliers`. With batches, each has to be the same entry of what its function returns for every
    batch, such as a mean over rows. Modules (:class:`bvfim.Twins`) and several processes take none.

    Args:
        y_optimizer: maps a list of tensors to the torch optimiser of y, and of z: exactly as you would train the
            network, such as ``lambda params: torch.optim.AdamW(params, 1e-3)``, or ``torch.optim.AdamW`` with the step
            that is its default. The default is Adam with a step from the range test, where ``y_set`` is a box.
        y_scheduler: maps this optimiser to its learning-rate scheduler, stepped once per step. The default is a cosine
            to zero over the run, lower where the first steps prove too long; one of yours is left alone.
        inner_steps: steps of y and z for one of x; more of them track better. Without batches, at least 3.
        multiplier: a fixed weight :math:`\lambda` of f beside F, in the place of one that follows the gap; x never
            waits. A heavy one, :math:`\lambda s \ge 1`, makes it the penalty
            :math:`F + \lambda\,(f(x, y) - f(x, z))`, whose bias is O(1/:math:`\lambda`): :math:`\rho` is zero, and
            with batches the default optimiser of y and z has one scale for an entry of both, so that the noise of a row
            that both see cancels in their difference. Where f is smooth and strongly convex, 100 and more costs hardly
            any noise.
        micro_batches: where y is given as :class:`bvfim.Twins`, the parts in which a batch goes through the networks,
            to save memory.
        clip: there, the longest gradient of y and of z.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(
        ...     upper=lambda x, y, target: ((y - target) ** 2).sum(), lower=lambda x, y, _: ((y - x) ** 2).sum()
        ... )
        >>> start = torch.zeros(1, dtype=torch.float64)
        >>> solution = bvfim.solve(problem, start, start, bvfim.StochasticBVFIM(), batches=[0.9, 1.1], steps=3000)
        >>> print(f"{solution.x.item():.1f}")
        1.0
    """

    constrained: ClassVar[bool] = True

    y_optimizer: OptimizerFactory | None = None
    y_scheduler: SchedulerFactory | None = None
    inner_steps: int = 1
    multiplier: float | None = None
    micro_batches: int = 1
    clip: float | None = None

    def __post_init__(self) -> None:
        require_count(self, "inner_steps")
        require_count(self, "micro_batches")
        for name in ("multiplier", "clip"):
            if getattr(self, name) is not None:
                require(self, name, above=0, schedule=False)
        for name in ("y_optimizer", "y_scheduler"):
            given = getattr(self, name)
            if given is not None and not callable(given):
                raise MethodError(f"StochasticBVFIM: {name} must be a function, not a {type(given).__name__}")

    @property
    def turns(self) -> int:
        """All inner steps but the last, which is taken on the draw of the values."""
        return self.inner_steps - 1

    def init(self, problem: Problem, x: Tree, y: Tree) -> StochasticState:
        """z and y both start at the given y; the scale of F is measured at the first step."""
        return StochasticState(y, y, y, torch.tensor(Tracking(), dtype=torch.float64), begun(problem, x, y))

    def held(self, tracking: Tracking) -> Tracking:
        """The same with the given multiplier, if there is one."""
        return tracking._replace(weight=math.log(self.multiplier * tracking.scale)) if self.multiplier else tracking

    def heavy(self, tracking: Tracking) -> bool:
        """Whether a given multiplier weighs f at least as much as F: y then follows f above all, as z does."""
        return self.multiplier is not None and self.held(tracking).weight >= 0

    def multipliers(self, problem: Problem, x: Tree, state: StochasticState) -> dict[str, Tensor]:
        """Of the constraints, as they are stated; empty where these see batches or a context."""
        return told(problem, x, state.y, state.multipliers)

    def minimiser(self, state: StochasticState) -> Tree:
        """z."""
        return state.z
