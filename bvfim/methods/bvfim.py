"""BVFIM: the value-function interior-point method."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from bvfim import tree
from bvfim.core.descent import Probe, descend, descend_inside
from bvfim.core.evaluator import At
from bvfim.core.multipliers import Multipliers, Place, augmented, begun, told
from bvfim.core.problem import Problem
from bvfim.dynamics import Dynamics, GradientDescent
from bvfim.methods.base import ENOUGH, Data, Estimator, Info, Reference, Step, require_dynamics, require_start
from bvfim.schedules import FloatOrSchedule, geometric, require, require_count, value
from bvfim.status import MethodError
from bvfim.tree import Tree

RATE = 1.0
"""The part of a full step of the augmented Lagrangian method that multipliers take in each upper step."""
SHORT = 10
"""A run with fewer stages says nothing about the limits of its schedules."""


@dataclass(frozen=True)
class LowerValue:
    r"""The published choice :math:`\mu_2 = f(x, y) + c`, held constant in every derivative.

    The slack becomes :math:`f(x, z) + \frac{\mu_1}{2}|z|^2 + c`: f(x, y) cancels, so the barrier turns into a
    penalty of weight :math:`\tau / \mathrm{slack}` on f(x, y). It needs no safeguard, but it is not
    invariant to a shift of f, and the run ends in ``Status.SLACK_LOST`` if the slack falls to zero or below.

    Args:
        offset: c.
        weight: a fixed weight of f(x, y) instead of :math:`\tau / \mathrm{slack}`: a plain penalty method, whose value
            is :math:`F + \frac{\theta}{2}|y|^2 + w\,(f(x, y) - f^*_{\mu_1}(x))`.

    Example:
        >>> import bvfim
        >>> bvfim.BVFIM(mu2=bvfim.LowerValue(offset=1.0)).mu2.offset
        1.0
    """

    offset: float = 0.0
    weight: float | None = None

    def __post_init__(self) -> None:
        given: Any = self.offset  # whatever a caller passed
        if not isinstance(given, numbers.Real) or not math.isfinite(given):
            raise MethodError(f"LowerValue: offset must be finite, not {self.offset!r}")
        if self.weight is not None:
            require(self, "weight", at_least=0, schedule=False)


class BVFIMState(NamedTuple):
    """The given initial point of the lower level, and the last z and y; multipliers where there are constraints.

    Example:
        >>> import bvfim
        >>> bvfim.methods.BVFIMState(start=0.0, z=1.0, y=2.0).z
        1.0
    """

    start: Tree
    z: Tree
    y: Tree
    multipliers: Place = ()


@dataclass(frozen=True)
class BVFIM(Estimator[BVFIMState]):
    r"""Value-function interior-point method (Liu et al., 2021, Algorithm 1), which needs only first gradients.

    With the regularised value function and the barrier problem

    .. math:: f^*_\mu(x) = \min_z f(x, z) + \tfrac{\mu_1}{2}|z|^2 + \mu_2, \qquad
              \varphi(x) = \min_y F(x, y) + \tfrac{\theta}{2}|y|^2 - \tau \ln\big(f^*_\mu(x) - f(x, y)\big)

    the gradient needs no derivative of z or y:

    .. math:: \frac{\partial \varphi}{\partial x} = \frac{\partial F(x, y)}{\partial x} + \frac{\tau}{s}
              \Big(\frac{\partial f(x, y)}{\partial x} - \frac{\partial f(x, z)}{\partial x}\Big), \qquad
              s = f^*_\mu(x) - f(x, y).

    Each upper step takes Tz gradient steps on z and Ty on y. **The slack s stays positive by construction**:
    s > 0 at y = z, because :math:`\mu_2 > 0`; an infeasible y descends f until it is feasible, and falls back to z if
    it does not become so; a feasible y takes a step only if the trial is feasible and the barrier objective does not
    increase, and halves the step otherwise. Nothing is clamped, and adding a constant to f changes nothing.

    **Constraints** become augmented terms (:mod:`bvfim.core.augmented`): z and s see :math:`\psi` for f, F gets the
    terms of y, and the multipliers move once in each upper step. Their weights are kept so small that gradient steps of
    ``z_lr`` and ``y_lr`` are stable with them; where those are far too short, constraints are met slowly.

    The method approaches the bilevel problem as :math:`(\mu, \theta, \tau) \to 0` with
    :math:`\tau \ln \mu_2 \to 0` (Theorem 1). Time O(c(Tz + Ty)), memory O(m + n).

    Args:
        z_steps: Tz.
        y_steps: Ty; each costs a gradient of F and one of f.
        z_lr: the step size s1 on z, a number or a schedule.
        y_lr: the step size s2 on y, likewise.
        mu1, mu2, theta, tau: numbers or schedules of the stage k // repeats; ``mu2`` may be a :class:`LowerValue`.
        repeats: L, the number of upper steps per stage.
        dynamics: another optimiser of z, and of y where ``mu2`` is a :class:`LowerValue`, instead of ``z_lr`` and
            ``y_lr``; see :mod:`bvfim.dynamics`.
        start: ``"warm"`` continues from the last z and y, ``"restart"`` starts both at the given y, ``"z"`` restarts z
            there and starts y at the resulting z.

    Example:
        >>> import torch, bvfim
        >>> toy = bvfim.Problem(lambda x, y: (x**2 + y**2).sum(), lambda x, y: torch.sin(x + y).sum())
        >>> start = torch.zeros(1, dtype=torch.float64)
        >>> solution = bvfim.solve(toy, start, start, bvfim.BVFIM.printed(), steps=500)
        >>> print(f"{solution.x.item():.2f} {solution.y.item():.2f}")  # the optimum is at -0.79
        -0.48 -0.48
    """

    capturable: ClassVar[bool] = True
    compilable: ClassVar[bool] = True
    constrained: ClassVar[bool] = True

    z_steps: int = 50
    y_steps: int = 25
    z_lr: FloatOrSchedule = 0.01
    y_lr: FloatOrSchedule = 0.01
    mu1: FloatOrSchedule = geometric(1.0, 1 / 1.01)
    mu2: FloatOrSchedule | LowerValue = geometric(1.0, 1 / 1.01)
    theta: FloatOrSchedule = geometric(1.0, 1 / 1.01)
    tau: FloatOrSchedule = geometric(1.0, 1 / 1.01)
    repeats: int = 1
    start: str = "warm"
    dynamics: Dynamics | None = None

    def __post_init__(self) -> None:
        for name in ("z_steps", "y_steps", "repeats"):
            require_count(self, name)
        for name in ("z_lr", "y_lr"):
            require(self, name, above=0)
        for name in ("mu1", "theta", "tau"):
            require(self, name, at_least=0)
        if not isinstance(self.mu2, LowerValue):
            require(self, "mu2", above=0)
        require_start(self, self.start, ("warm", "restart", "z"))
        require_dynamics(self, self.dynamics)

    @classmethod
    def printed(cls, offset: float = 1.0) -> BVFIM:
        """The published settings: mu2 = f(x, y) + offset, the others 1/1.01^k (the paper's networks use offset 0)."""
        return cls(mu2=LowerValue(offset))

    def cautions(self, steps: int) -> list[str]:
        r"""Warns if :math:`\mu_2` decreases over the run, but :math:`\tau \ln \mu_2` does not go to zero.

        The product must fall below 95 % of its largest value in the second half of the run, or to a millionth of the
        first tau. The schedules are evaluated only at stages of the run. Geometric schedules whose tau decreases no
        slower than mu2 never cause a warning, whatever their initial values and the length of the run.

        Example:
            >>> from bvfim import BVFIM
            >>> from bvfim.schedules import harmonic
            >>> len(BVFIM().cautions(500)), len(BVFIM(tau=harmonic(1.0)).cautions(500))
            (0, 1)
        """
        last = (steps - 1) // self.repeats
        if isinstance(self.mu2, LowerValue) or not callable(self.mu2) or last + 1 < SHORT:
            return []
        middle = last // 2
        try:
            first, end = (value(self.mu2, k, "mu2") for k in (0, last))
            products = [
                value(self.tau, k, "tau") * abs(math.log(value(self.mu2, k, "mu2")))
                for k in sorted({middle + (last - middle) * i // 32 for i in range(33)})
            ]
            negligible = 1e-6 * value(self.tau, 0, "tau")
        except Exception as error:  # it fails at that step, if the run gets there; what is wrong can be said now
            return [f"a schedule of mu2 or tau fails within the {steps} steps: {type(error).__name__}: {error}"]
        # Where tau and mu2 are alike, the product t e^-t with t = -ln mu2 rises at first; at t = 2 it is past its peak.
        falls = end <= min(first / 2, math.exp(-2))
        if not falls or products[-1] <= max(0.95 * max(products), negligible):
            return []
        return [
            f"Theorem 1 needs tau ln(mu2) -> 0, but with these schedules tau |ln mu2| is {products[0]:.3g} in the "
            f"middle of the run and {products[-1]:.3g} at its end: phi_k can stay above phi by that much. Let tau "
            "decrease faster than 1/|ln mu2|: for example, use the same geometric schedule for tau and mu2"
        ]

    @property
    def inner_steps(self) -> int:
        """The larger of Tz and Ty."""
        return max(self.z_steps, self.y_steps)

    def numbers(self, k: int) -> dict[str, float]:
        """The schedules at upper step k; those of the regularisers at its stage."""
        steps = {"z_lr": k, "y_lr": k}
        own = {name: getattr(self, name) for name in ("z_lr", "y_lr", "mu1", "mu2", "theta", "tau")}
        return {n: value(v, steps.get(n, k // self.repeats), n) for n, v in own.items() if callable(v)}

    def init(self, problem: Problem, x: Tree, y: Tree) -> BVFIMState:
        """z and y both start at the given y."""
        return BVFIMState(y, y, y, begun(problem, x, y))

    def multipliers(self, problem: Problem, x: Tree, state: BVFIMState) -> dict[str, Tensor]:
        """Of the constraints, as they are stated; empty where these see batches or a context."""
        return told(problem, x, state.y, state.multipliers)

    def minimiser(self, state: BVFIMState) -> Tree:
        """z."""
        return state.z

    def estimate(self, problem: Problem, x: Tree, state: BVFIMState, k: int, data: Data) -> Step[BVFIMState]:
        """d phi / d x at x, with z and y from Tz and Ty gradient steps."""
        stage = k // self.repeats
        mu1, theta, tau = (value(getattr(self, name), stage, name) for name in ("mu1", "theta", "tau"))
        z_lr, y_lr = value(self.z_lr, k, "z_lr"), value(self.y_lr, k, "y_lr")
        multipliers = state.multipliers
        if isinstance(multipliers, Multipliers):
            multipliers = multipliers.within(z_lr, y_lr)
        at = problem.at(x, data, augmented(problem, multipliers))

        z = state.z if self.start == "warm" else state.start
        z = self._descend(at, lambda at, z: tree.axpy(mu1, z, at.lower_grad(z)[1]), z, self.z_steps, z_lr)
        f_z, margin = at.lower(z), mu1 / 2 * tree.dot(z, z)
        y = {"warm": state.y, "restart": state.start, "z": z}[self.start]

        if isinstance(self.mu2, LowerValue):
            slack = f_z + margin + self.mu2.offset
            weight = tau / slack if self.mu2.weight is None else torch.full_like(slack, self.mu2.weight)
            y = self._penalty_steps(at, y, theta, weight, y_lr)
            F, f, gradient = at.barrier_grad(y, z, lambda f: weight)
            penalty = -tau * torch.log(slack) if self.mu2.weight is None else weight * (f - f_z - margin)
            notes = {"slack": slack} if self.mu2.weight is None else {}
        else:
            # f* - f as (f(z) - f) + margin: the margin is not rounded away by a large f, and is what is left at y = z.
            margin = margin + value(self.mu2, stage, "mu2")
            y, notes = self._barrier_steps(at, y, z, theta, tau, lambda f: (f_z - f) + margin, y_lr)
            F, f, gradient = at.barrier_grad(y, z, lambda f: tau / ((f_z - f) + margin))
            notes["slack"] = (f_z - f) + margin
            penalty = -tau * torch.log(notes["slack"])
        phi = F + theta / 2 * tree.dot(y, y) + penalty
        info = {"upper": F, "lower": f, "value": phi, **notes}
        if isinstance(multipliers, Multipliers):
            at_y, at_z = multipliers.distances(at, y), multipliers.distances(at, z)
            info |= multipliers.report(at_y, F, f)
            multipliers = multipliers.followed(at_y, at_z, RATE)
        return gradient, BVFIMState(state.start, z, y, multipliers), info

    def _barrier_steps(
        self, at: At, y: Tree, z: Tree, theta: float, tau: float, slack: Callable[[Tensor], Tensor], lr: float
    ) -> tuple[Tree, Info]:
        """Ty steps on F + theta/2 |y|^2 - tau ln(slack(f)) that keep the slack positive."""

        def judged(y: Tree, F: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
            """Whether y is feasible, and its merit: the barrier objective if it is, else f."""
            s = slack(f)
            inside = s > 0
            return inside, torch.where(inside, F + theta / 2 * tree.dot(y, y) - tau * torch.log(s), f)

        def weigh(F: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
            s = slack(f)
            inside = s > 0
            return inside.to(F.dtype), torch.where(inside, tau / s, 1.0)

        def probe(y: Tree) -> Probe:
            F, f, direction = at.weighted_grad(y, weigh)
            inside, merit = judged(y, F, f)
            return Probe(inside, merit, tree.axpy(theta * inside.to(f.dtype), y, direction))

        def check(y: Tree) -> tuple[Tensor, Tensor]:
            return judged(y, *at.values(y))

        y, inside, dropped = descend_inside(probe, check, y, self.y_steps, lr, at.problem.project_y, at.inner)
        return tree.where(inside, y, z), {"dropped": dropped, "at_z": 1 - inside.to(dropped.dtype)}

    def _penalty_steps(self, at: At, y: Tree, theta: float, weight: Tensor, lr: float) -> Tree:
        """Ty plain steps on F + theta/2 |y|^2 + weight f, the y problem of the published settings."""

        def gradient(at: At, y: Tree) -> Tree:
            _, _, direction = at.weighted_grad(y, lambda F, f: (torch.ones_like(F), weight))
            return tree.axpy(theta, y, direction)

        return self._descend(at, gradient, y, self.y_steps, lr)

    def _descend(self, at: At, gradient: Callable[[At, Tree], Tree], y: Tree, steps: int, lr: float) -> Tree:
        return descend(at, gradient, y, steps, GradientDescent(lr) if self.dynamics is None else self.dynamics)

    def reference(self, problem: Problem, x: Tree, state: BVFIMState, k: int, data: Data) -> Reference:
        """Both inner problems solved much more accurately; for LowerValue, with the weight frozen at its value."""
        tight = replace(self, z_steps=max(self.z_steps, ENOUGH), y_steps=max(self.y_steps, ENOUGH))
        bias = f"{self.z_steps} steps on z and {self.y_steps} on y"
        if not isinstance(self.mu2, LowerValue) or self.mu2.weight is not None:
            return Reference(tight, tight, bias)
        _, _, info = tight.estimate(problem, x, state, k, data)
        weight = value(self.tau, k // self.repeats, "tau") / float(info["slack"])
        frozen = replace(tight, mu2=replace(self.mu2, weight=weight))
        return Reference(tight, frozen, "mu2 follows f(x, y) but is held constant; " + bias)
