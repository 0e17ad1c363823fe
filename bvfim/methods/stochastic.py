"""StochasticBVFIM: the value-function method in a single loop over batches."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from bvfim import tree
from bvfim.core.problem import Problem
from bvfim.methods.base import Configured, OptimizerFactory, SchedulerFactory
from bvfim.schedules import require_count
from bvfim.status import MethodError
from bvfim.tree import Tree

LOOSE, TIGHT = 0.3, 1e-10
"""The gap that y is allowed, relative to how far f has fallen: at first, and where rounding begins."""
TIGHTENING = 0.984
"""The factor of the allowed gap in a step in which y keeps up: a hundredth after 300 such steps."""
RISE = 0.1
"""The share of the largest gap that counts as a fall of f: a start at its minimiser has no other."""
KEEPS_UP = 1.1
"""y and z keep up while the gap is at most this many times what is allowed; a negative one shows that z lags."""
HIDDEN, SHORT = 5.0, 500
"""A gap below this many standard deviations of f between batches is hidden by their noise, in a run of up to 500 steps.
In a longer one the gap goes down in proportion to its length: the bias of x, which is like the square root of the gap,
then falls as its noise does."""
FIRST_WEIGHT, LIGHTEST, HEAVIEST = 0.3, 0.03, 1e4
"""The weight of f beside F, both of one scale: at first, and its bounds. With less, y would hardly see f."""
RATE = 0.05
"""The most that the logarithm of the weight changes in a step."""
MEMORY, NOISE_MEMORY = 0.9, 0.95
"""The averages of the gap and of the noise remember about ten and twenty steps."""
WHOLE = 3
"""The least number of inner steps without batches, where tracking alone limits how tight the gap gets."""
WAIT = 0.05
"""The part of a run in which x and the weight wait: until y and z have left their common start, their difference tells
nothing."""
SETTLED = 20
"""The noise is measured from this step on: before it, f falls too fast."""


class Tracking(NamedTuple):
    """What the weight of f is chosen by: scalar tensors in double precision.

    ``weight`` is ln w; ``scale`` makes F as large as f; ``allowed`` is the relative gap that y is allowed; ``fall`` is
    how far f has come down; ``gap``, ``lower`` and ``variance`` are running averages of the gap, of f(x, z) and of its
    variance between batches; ``noise`` is the largest standard deviation so far; ``first`` is f at the start, and
    ``last``, ``before`` are f(x, z) of the last two steps.

    Example:
        >>> import torch
        >>> from bvfim.methods.stochastic import Tracking
        >>> round(Tracking.begin(torch.tensor(1.0, dtype=torch.float64)).weight.exp().item(), 2)
        0.3
    """

    weight: Tensor
    scale: Tensor
    allowed: Tensor
    fall: Tensor
    gap: Tensor
    lower: Tensor
    variance: Tensor
    noise: Tensor
    first: Tensor
    last: Tensor
    before: Tensor

    @classmethod
    def begin(cls, scale: Tensor) -> Tracking:
        """Before the first step, with F's scale."""
        zero = torch.zeros_like(scale)
        own = {"weight": zero + math.log(FIRST_WEIGHT), "scale": scale, "allowed": zero + LOOSE}
        return cls(**{name: own.get(name, zero) for name in cls._fields})

    def weights(self) -> tuple[Tensor, Tensor]:
        """The factors of F and of f: s / (1 + w) and w / (1 + w)."""
        w = self.weight.exp()
        return self.scale / (1 + w), w / (1 + w)

    def mu(self, steps: int) -> Tensor:
        """The gap that y is allowed in a run of so many steps: relative to the fall of f, and never below the noise."""
        hidden = HIDDEN / max(1.0, steps / SHORT) * self.noise
        return torch.maximum(self.allowed * self.fall, torch.minimum(hidden, LOOSE * self.fall))

    def followed(self, k: int, f: Tensor, f_z: Tensor, steps: int, noisy: bool) -> Tracking:
        r"""After step k of a run of so many steps, in which f(x, y) and f(x, z) were seen.

        .. math:: \ln w \leftarrow \ln w + \rho_k\, \mathrm{clip}(\ln(\mathrm{gap} / \mu), \pm 1)

        with a rate that goes down as the steps do: a weight that outran y would swing.
        """
        f, f_z = f.double(), f_z.double()
        first = f_z if k == 0 else self.first
        gap, lower = (old + (new - old) / _count(k, MEMORY) for old, new in ((self.gap, f - f_z), (self.lower, f_z)))
        # Second differences: var(e) = E(e_k - 2 e_(k-1) + e_(k-2))^2 / 6, and a trend cancels.
        bend = (f_z - 2 * self.last + self.before).square() / 6
        variance = self.variance + (bend - self.variance) / _count(k - 2, NOISE_MEMORY) if k >= 2 else self.variance
        noise = torch.maximum(self.noise, variance.sqrt()) if noisy and k >= SETTLED else self.noise
        fall = torch.maximum(self.fall, torch.maximum(first - lower, RISE * gap))
        seen = self._replace(gap=gap, lower=lower, variance=variance, noise=noise, fall=fall)
        mu = seen.mu(steps)
        ratio = torch.where(gap > 0, torch.log(gap / mu), -1.0).clamp(-1.0, 1.0)
        rate = RATE * pace(k, steps) if k >= WAIT * steps else 0.0
        weight = (self.weight + rate * torch.where(mu > 0, ratio, 0.0)).clamp(*_LIMITS)
        tighter = (self.allowed * TIGHTENING).clamp_min(TIGHT)
        allowed = torch.where(gap.abs() <= KEEPS_UP * mu, tighter, self.allowed)
        return seen._replace(weight=weight, allowed=allowed, first=first, last=f_z, before=self.last)


_LIMITS = math.log(LIGHTEST), math.log(HEAVIEST)


def pace(k: int, steps: int) -> float:
    """Half a cosine from 1 down to 0 over the run: the size of step k relative to the first.

    Example:
        >>> from bvfim.methods.stochastic import pace
        >>> [round(pace(k, 4), 2) for k in range(6)]
        [1.0, 0.85, 0.5, 0.15, 0.0, 0.0]
    """
    return 0.5 * (1 + math.cos(math.pi * min(k / max(steps, 1), 1.0)))


def _count(k: int, memory: float) -> float:
    """How many values a running average stands for after k + 1: all of them at first, later 1 / (1 - memory)."""
    return min(k + 1, 1 / (1 - memory))


class StochasticState(NamedTuple):
    """The last y and z, and what the weight of f is chosen by.

    Example:
        >>> import bvfim
        >>> bvfim.methods.StochasticState(y=1.0, z=2.0, tracking=None).z
        2.0
    """

    y: Tree
    z: Tree
    tracking: Tracking


@dataclass(frozen=True)
class StochasticBVFIM(Configured[StochasticState]):
    r"""The value-function method in a single loop: for networks and batches, with nothing to tune.

    x, y and z move together, each by its own torch optimiser, along the gradients of

    .. math:: s F(x, y) + w\,\big(f(x, y) - f(x, z)\big),

    down in x and y and up in z, on one draw per step: the same rows of f for y and for z, so that the difference has
    little variance. One backward pass gives all three, first gradients only, and memory is O(m + n). z follows the
    minimiser of f(x, .), so :math:`f(x, y) - f(x, z)` is the gap of the value-function constraint, and
    :math:`F_x + (w/s)(f_x(x, y) - f_x(x, z))` is the hypergradient of BVFIM with the multiplier w/s.

    **The multiplier follows the gap.** The constraint is :math:`f(x, y) - f(x, z) \le \mu`, and ln w rises where the
    gap is above :math:`\mu` and falls where it is below. :math:`\mu` is relative to how far f has fallen; it goes down
    while y keeps up, and stops where the noise of f between batches hides the gap. s makes F as large as f. So F, c F,
    f + d and c f give the same path.

    **The steps** of y and z are Adam's, with a size from a short range test at the start; x moves by
    :class:`bvfim.OneScale`, and waits for y and z in the first twentieth of the run. All steps follow a cosine to zero.

    Args:
        y_optimizer: maps a list of tensors to the torch optimiser of y, and of z: exactly as you would train the
            network, such as ``lambda params: torch.optim.AdamW(params, 1e-3)``. The default is Adam with a step from
            the range test.
        y_scheduler: maps this optimiser to its learning-rate scheduler, stepped once per step; a cosine to zero over
            the run by default.
        inner_steps: steps of y and z for one of x; more of them track better. Without batches, at least 3.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(
        ...     upper=lambda x, y, target: ((y - target) ** 2).sum(), lower=lambda x, y, _: ((y - x) ** 2).sum()
        ... )
        >>> start = torch.zeros(1, dtype=torch.float64)
        >>> solution = bvfim.solve(problem, start, start, bvfim.StochasticBVFIM(), batches=[0.9, 1.1], steps=1000)
        >>> print(f"{solution.x.item():.1f}")
        1.0
    """

    y_optimizer: OptimizerFactory | None = None
    y_scheduler: SchedulerFactory | None = None
    inner_steps: int = 1

    def __post_init__(self) -> None:
        require_count(self, "inner_steps")
        for name in ("y_optimizer", "y_scheduler"):
            given = getattr(self, name)
            if given is not None and not callable(given):
                raise MethodError(f"StochasticBVFIM: {name} must be a function, not a {type(given).__name__}")

    def init(self, problem: Problem, x: Tree, y: Tree) -> StochasticState:
        """z and y both start at the given y; the scale of F is measured at the first step."""
        one = torch.ones((), dtype=torch.float64, device=tree.leaves(y)[0].device)
        return StochasticState(y, y, Tracking.begin(one))

    def minimiser(self, state: StochasticState) -> Tree:
        """z."""
        return state.z
