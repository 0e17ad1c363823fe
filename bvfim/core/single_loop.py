"""Runs StochasticBVFIM: holds the torch optimisers of x, y and z, which move together on one draw per step."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim import Adam, Rprop

from bvfim import tree
from bvfim.core.accelerate import Estimate, Found, estimate_of, under_way
from bvfim.core.envelopes import Saddle
from bvfim.core.evaluator import At
from bvfim.core.following import Optimised, Part, Scheduler, advance, made, scheduled, watches
from bvfim.core.multipliers import RATE, Multipliers, Place, augmented
from bvfim.core.one_scale import OneScale
from bvfim.core.problem import Problem
from bvfim.core.range_test import scales
from bvfim.core.shared_adam import SharedAdam
from bvfim.distributed.world import ALONE, World
from bvfim.methods.base import Data, OptimizerFactory, SchedulerFactory, Taken
from bvfim.methods.stochastic import WAIT, WHOLE, StochasticBVFIM, StochasticState, Tracking, pace
from bvfim.tree import Tree

EPS = 1e-30
"""Of the default Adam: small enough that the scale of the objectives does not matter."""
X_STEP, X_BETAS = 0.1, (0.9, 0.9)
"""Of Adam on x without batches: nothing is noise there, so each entry has its own scale, and forgets it as fast as its
direction. With the usual memory of a thousand steps, an entry whose gradient was large at first hardly moves later."""
FUSED = ("cpu", "cuda")
"""Devices on which torch's Adam can be one kernel."""
FAR = 1e12
"""Rprop's steps lie within this factor of the first."""


class Moved:
    """One variable, and the optimiser and scheduler that move it, in place.

    Attributes:
        variable: the variable as it is now, in the memory that the optimiser changes.
    """

    def __init__(self, variable: Tree, optimizer: OptimizerFactory, scheduler: SchedulerFactory) -> None:
        self.parameters = [t.detach().clone().requires_grad_() for t in tree.leaves(variable)]
        self.variable = tree.unflatten(variable, [p.detach() for p in self.parameters])
        self.optimizer = made(optimizer, self.parameters)
        self.scheduler = scheduled(scheduler, self.optimizer)
        self.prepare()

    def prepare(self) -> None:
        """On a CUDA device, the learning rates become tensors there, which a recorded step reads."""
        device = self.parameters[0].device
        for group in self.optimizer.param_groups:
            if device.type == "cuda" and self.capturable:
                group["lr"] = torch.as_tensor(group["lr"], dtype=torch.float32).to(device)
                group["capturable"] = True

    @property
    def capturable(self) -> bool:
        """Whether the optimiser can be recorded: torch's own, where they say so, and ours."""
        torchs = type(self.optimizer).__module__.startswith("torch.optim")
        return isinstance(self.optimizer, OneScale | SharedAdam) or (torchs and "capturable" in self.optimizer.defaults)

    @property
    def memory(self) -> list[Tensor]:
        """What a step changes in place."""
        states = [value for state in self.optimizer.state.values() for value in state.values()]
        return tree.leaves(self.variable) + [t for t in states if isinstance(t, Tensor)]

    @torch.no_grad()
    def put(self, at: Tree) -> None:
        """Put the variable there."""
        for own, new in zip(tree.leaves(self.variable), tree.leaves(at), strict=True):
            if own is not new:
                own.copy_(new)

    @torch.no_grad()
    def step(self, gradient: Tree) -> Tree:
        """The variable, after a step."""
        for p, g in zip(self.parameters, tree.leaves(gradient), strict=True):
            p.grad = g
        self.optimizer.step()
        for own, p in zip(tree.leaves(self.variable), self.parameters, strict=True):
            if own.data_ptr() != p.data_ptr():  # the optimiser gave its parameter new memory
                own.copy_(p)
                p.data = own
        return self.variable


def cosine(steps: int, power: int = 1, share: Callable[[], float] = lambda: 1.0) -> SchedulerFactory:
    """Steps that follow half a cosine down to zero, or a power of it, and stay there, times the share of the moment."""

    def factor(k: int) -> float:
        return share() * pace(k, steps) ** power

    return lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


class SingleLoop(Optimised[StochasticState]):
    """The loop of :class:`bvfim.StochasticBVFIM`, with its equations.

    Args:
        method: the hyper-parameters.
        x: the initial upper variable.
        optimizer: of x; :class:`bvfim.OneScale` by default, and Adam without batches.
        scheduler: of x's optimiser; a cosine to zero by default.
        steps: the number of steps of the run.
        noisy: whether there are batches.
        accelerate: how a step is run, as for :func:`bvfim.solve`.
        world: the processes of the run.
    """

    compilable = True

    def __init__(
        self,
        method: StochasticBVFIM,
        x: Tree,
        optimizer: OptimizerFactory | None,
        scheduler: SchedulerFactory | None,
        steps: int,
        noisy: bool,
        accelerate: str,
        world: World = ALONE,
    ) -> None:
        self.method, self.steps, self.noisy, self.accelerate = method, steps, noisy, accelerate
        one_scale = partial(OneScale, wait=math.ceil(WAIT * steps), mean=world.mean_square)
        own = one_scale if noisy else partial(Adam, lr=X_STEP, betas=X_BETAS)
        self.x = Moved(x, optimizer or own, scheduler or cosine(steps, 1 if noisy else 3))
        self.lower: list[Moved] = []  # of y and z, after the first step: the range test needs a batch
        self.random, self.calm, self.relative = False, 1.0, noisy
        self.taken: Estimate | None = None
        self.weights: dict[str, Any] = {}

    def init(self, problem: Problem, x: Tree, y: Tree) -> StochasticState:
        """The method's state."""
        return self.method.init(problem, x, y)

    def step(self, problem: Problem, x: Tree, state: StochasticState, k: int, data: Data) -> Taken[StochasticState]:
        """One step, recorded where that is wanted; the weights and the learning rates follow outside of it."""
        tracking = Tracking(*state.tracking.tolist())
        self.calm = tracking.calm
        tracking = self.method.held(self._begun(problem, x, state, data, tracking))
        relative, waits = self.relative and not self.method.heavy(tracking), self.method.multiplier is None
        self.weights = tracking.weights(relative, bool(problem.stated), waits) | self._rate(problem, k)
        x, state, numbers = self._moved_on(problem, x, state, k, data)
        if settled := k >= WAIT * self.steps:  # from here on no step of y shortens, so none waits for the numbers
            self._advance(lambda scheduler: not watches(scheduler))
        F, f, f_z, f_0, grad_norm, x_norm, *of_constraints = numbers()
        multiplier, rho = self.weights["b"] / self.weights["a"], self.weights["rho"]
        tracking = tracking.followed(f, f_z, f_0, self.steps, self.noisy)
        report = {
            "upper": F,
            "lower": f,
            "value": F + multiplier * (f - (1 - rho) * f_z - rho * f_0),
            "gap": tracking.gap,
            "mu": tracking.mu,
            "multiplier": multiplier,
            "moves": self.weights["moves"],
            "grad_norm": grad_norm,
            "x_norm": x_norm,
        }
        report |= dict(zip(("upper", "lower", "violation"), of_constraints, strict=False))
        self.calm = tracking.calm
        self._advance(lambda scheduler: watches(scheduler) or not settled, (F, f, f_z))
        return x, state._replace(tracking=torch.tensor(tracking, dtype=torch.float64)), report

    def _rate(self, problem: Problem, k: int) -> dict[str, float]:
        """How fast the multipliers of constraints move, if there are any; slower and slower under noise."""
        return {"rate": RATE * (pace(k, self.steps) if self.noisy else 1.0)} if problem.stated else {}

    def _begun(self, problem: Problem, x: Tree, state: StochasticState, data: Data, tracking: Tracking) -> Tracking:
        """The range test and the optimisers of y and z, at the first step; how steps are taken, in each process."""
        if self.taken is not None:
            return tracking
        self.random = problem.counted_anew().at(x, data).draws_random(state.y)
        if not self.lower:
            found = scales(problem.at(x, data, augmented(problem, state.multipliers)), state.y)
            tracking = tracking._replace(scale=found.upper)
            self._build(state.y, found.step, self.method.heavy(tracking))
        self.taken = estimate_of(self, self.accelerate, problem, x, state.y, self.steps)
        return tracking

    def _moved_on(
        self, problem: Problem, x: Tree, state: StochasticState, k: int, data: Data
    ) -> tuple[Tree, StochasticState, Callable[[], list[float]]]:
        """The next x and state, and F, f at y, z and the start, and the norms of the gradient and of x, to wait for.

        Where there are constraints, F and f have their terms; without them they follow, and the largest violation.
        """
        assert self.taken is not None
        self._put(x, state.y, state.z)
        _, held, seen = self.taken(problem, self.x.variable, (*self._pair, state.start, state.multipliers), k, data)
        numbers = under_way(seen["all"])
        x, y, z = self._copied()
        return x, state._replace(y=y, z=z, multipliers=held[2]), numbers

    def estimate(self, problem: Problem, x: Tree, state: tuple[Tree, Tree, Tree, Place], k: int, data: Data) -> Found:
        """z, y and x, which the optimisers hold, each take a step on one draw; with inner steps, z and y take several.

        ``state`` is (y, z, y0) and the multipliers of constraints.
        """
        y, z, start, multipliers = state
        at = problem.at(x, data, augmented(problem, multipliers))
        a, b, rho, moves = (self.weights[name] for name in ("a", "b", "rho", "moves"))
        last = max(self.method.inner_steps, 1 if self.noisy else WHOLE) - 1
        for t in range(last + 1):
            if t == last and isinstance(multipliers, Multipliers):
                at_y, at_z = multipliers.distances(at, y), multipliers.distances(at, z)
            seen = _saddle(at if t == last else at.turn(t), y, z, start, a, b, rho)
            values = torch.stack([seen.upper, seen.lower, seen.lower_z, seen.lower_start])  # which may be views of y
            gradients = (seen.in_y, tree.scale(-1 / (b * (1 - rho)), seen.in_z))
            if problem.stated:
                gradients = (reduced(problem, y, gradients[0]), reduced(problem, z, gradients[1]))
            for moved, gradient in zip(self.lower, self._by_optimiser(gradients), strict=True):
                moved.step(gradient)
            self._put_pair(problem.project_y(y), problem.project_y(z))
        gradient, before = tree.scale(1 / a, seen.in_x), tree.clone(x)
        moved_x = problem.project_x(self.x.step(gradient))
        self.x.put(tree.where(torch.as_tensor(moves) > 0, moved_x, before))
        norms = torch.stack([problem.world.norm(gradient), problem.world.norm(x)])
        numbers = [values.double(), norms.double()]
        if isinstance(multipliers, Multipliers):
            numbers.append(torch.stack([*multipliers.report(at_y, values[0], values[1]).values()]))
            multipliers = multipliers.followed(at_y, at_z, self.weights["rate"])
        return x, (y, z, multipliers), {"all": torch.cat(numbers)}

    # -- what the optimisers hold --

    def _by_optimiser(self, pair: tuple[Tree, Tree]) -> Sequence[Tree]:
        """What belongs to y and to z: together where one optimiser holds both, which saves launches."""
        return [pair] if len(self.lower) == 1 else pair

    @property
    def _pair(self) -> tuple[Tree, Tree]:
        """y and z."""
        y, z = self.lower[0].variable if len(self.lower) == 1 else (moved.variable for moved in self.lower)
        return y, z

    def _put_pair(self, y: Tree, z: Tree) -> None:
        for moved, v in zip(self.lower, self._by_optimiser((y, z)), strict=True):
            moved.put(v)

    @torch.no_grad()
    def _put(self, *given: Tree) -> None:
        """Put x, y and z there, in one launch: a callback may have moved them, or a step broken off."""
        torch._foreach_copy_(tree.leaves((self.x.variable, *self._pair)), tree.leaves(given))

    def _copied(self) -> tuple[Tree, Tree, Tree]:
        """Copies of x, y and z, in one launch."""
        held = (self.x.variable, *self._pair)
        leaves = [torch.empty_like(t) for t in tree.leaves(held)]
        torch._foreach_copy_(leaves, tree.leaves(held))
        x, y, z = tree.unflatten(held, leaves)
        return x, y, z

    def _advance(self, due: Callable[[Scheduler], bool], values: Sequence[float] = (0.0, 0.0, 0.0)) -> None:
        """A step of the schedulers that are due, of x, y and z with these values."""
        for moved, value in zip(self._moved, values, strict=False):
            if due(moved.scheduler):
                advance(moved.scheduler, value)

    # -- recording --

    @property
    def capturable(self) -> bool:
        """Whether the step can be recorded: not where the objectives draw random numbers."""
        return not self.random and all(moved.capturable for moved in self._moved)

    @property
    def memory(self) -> list[Tensor]:
        """The optimisers' variables and states."""
        return [t for moved in self._moved for t in moved.memory]

    def numbers(self, k: int) -> dict[str, float]:
        """The weights of this step."""
        return self.weights

    def fed(self, numbers: dict[str, Tensor]) -> SingleLoop:
        """The same loop with scalar tensors for its weights."""
        own = copy.copy(self)
        own.weights = dict(numbers)
        return own

    @property
    def _moved(self) -> list[Moved]:
        return [self.x, *self.lower]

    def _build(self, y: Tree, step: float, shared: bool) -> None:
        """The optimisers of y and z, the default ones with this step: Adam, and without batches Rprop.

        Where both follow f above all, Adam has a ``shared`` scale. Rprop lengthens or halves the step of each entry as
        its gradient keeps or changes its sign, so it needs no cosine; under noise signs tell nothing.
        """
        scheduler = self.method.y_scheduler or cosine(self.steps, share=lambda: self.calm)
        own: OptimizerFactory | None = self.method.y_optimizer
        if own is not None:
            self.lower = [Moved(y, own, scheduler), Moved(y, own, scheduler)]
            return
        if self.noisy:
            kind = SharedAdam if shared else Adam
            own = partial(kind, lr=step, eps=EPS, fused=tree.leaves(y)[0].device.type in FUSED)
        else:
            own = partial(Rprop, lr=step, step_sizes=(step / FAR, step * FAR))
        self.lower = [Moved((y, y), own, scheduler)]

    # -- saving --

    @property
    def parts(self) -> dict[str, Part | None]:
        """Every optimiser and scheduler, by the name it is saved under."""
        found: dict[str, Part | None] = {}
        for ending, moved in itertools.zip_longest(("", "_y", "_z"), self._moved):
            found["optimizer" + ending] = None if moved is None else moved.optimizer
            found["scheduler" + ending] = None if moved is None else moved.scheduler
        return found

    def load(self, x: Tree, state: StochasticState, saved: dict[str, Any]) -> None:
        """Continue from saved states; y and z have optimisers as soon as the run has taken a step."""
        self.taken, self.lower = None, []  # what was recorded reads the optimisers of before
        if saved["optimizer_y"] is not None:
            heavy = self.method.heavy(Tracking(*state.tracking.tolist()))
            self._build(state.y, 1.0, heavy)  # the step is in the saved state
        self._load_parts(saved)
        for moved in self._moved:
            moved.prepare()


def _saddle(at: At, *inputs: Any) -> Saddle:
    """The gradients; a context, whose own graph they go through, keeps them from being compiled."""
    found: Saddle = (
        at.inner(lambda v: at.saddle_grad(*v))(inputs) if at.problem.context is None else at.saddle_grad(*inputs)
    )
    return found


def reduced(problem: Problem, y: Tree, gradient: Tree) -> Tree:
    """A gradient without the entries that y can't follow, at bounds: there Rprop's steps would grow without end."""
    after = problem.project_y(tree.sub(y, tree.map(torch.sign, gradient)))
    return tree.map(lambda g, s, t: torch.where(s == t, 0.0, g), gradient, y, after)
