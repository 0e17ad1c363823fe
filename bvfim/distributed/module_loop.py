"""StochasticBVFIM on two modules: ordinary forward and backward passes, which FSDP2 gathers and scatters."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from bvfim import tree
from bvfim.core.draw import Draw
from bvfim.core.following import Scheduler, cosine, made, scheduled
from bvfim.core.noise import random_state, restore_random_state
from bvfim.core.problem import Problem
from bvfim.core.range_test import scales
from bvfim.core.single_loop import EPS, SingleLoop
from bvfim.distributed.mesh import count, is_sharded
from bvfim.distributed.twins import Sharded, Twins, copy_to, own
from bvfim.distributed.world import World
from bvfim.methods.base import Data, OptimizerFactory, SchedulerFactory
from bvfim.methods.stochastic import StochasticBVFIM, StochasticState, Tracking
from bvfim.status import ProblemError
from bvfim.tree import Tree


class Trained:
    """A module, and the optimiser and scheduler that train it."""

    def __init__(self, module: nn.Module, optimizer: OptimizerFactory, scheduler: SchedulerFactory) -> None:
        self.module = module
        self.optimizer: Optimizer = made(optimizer, list(module.parameters()))
        self.scheduler: Scheduler = scheduled(scheduler, self.optimizer)

    def step(self, clip: float | None) -> None:
        """A step along the gradients that are there."""
        if clip is not None:
            nn.utils.clip_grad_norm_(self.module.parameters(), clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


class ModuleLoop(SingleLoop):
    """The loop of :class:`bvfim.StochasticBVFIM` where y and z are modules.

    A step takes three passes, forward and backward: F and f at y, whose gradients add up, and f at z. There is no y0:
    the gap is not relative to how far f falls, and f at the start is its value there at the first step.

    Args:
        method: the hyper-parameters.
        problem: F and f, functions of (x, module, batch).
        twins: the modules.
        x, optimizer, scheduler, steps, world: as for :class:`SingleLoop`.
    """

    def __init__(
        self,
        method: StochasticBVFIM,
        problem: Problem,
        twins: Twins,
        x: Tree,
        optimizer: OptimizerFactory | None,
        scheduler: SchedulerFactory | None,
        steps: int,
        world: World,
    ) -> None:
        super().__init__(method, problem, x, optimizer, scheduler, steps, True, "none")
        self.stated, self.twins, self.relative = problem, twins, False
        self.trained: list[Trained] = []
        self.finite = True

    def init(self, problem: Problem, x: Tree, y: Tree) -> StochasticState:
        """y and z are the modules' own parameters; the start is the value of f there, which is not yet known."""
        y, z = self.twins.start()
        nothing = torch.tensor(math.nan, dtype=torch.float64, device=tree.leaves(x)[0].device)
        return StochasticState(y, z, nothing, torch.tensor(Tracking(), dtype=torch.float64))

    @property
    def _moved(self) -> list[Any]:
        return [self.x, *self.trained]

    def _begun(self, problem: Problem, x: Tree, state: StochasticState, data: Data, tracking: Tracking) -> Tracking:
        """The range test and the optimisers of y and z, at the first step of a run."""
        if self.trained:
            return tracking
        test = RangeTest(Passes(self.stated, self.twins, x, data, problem.world))
        found = scales(test, test.start, test.size)
        copy_to(test.own, test.start)
        self._train(found.step)
        return tracking._replace(scale=found.upper)

    def _train(self, step: float) -> None:
        optimizer = self.method.y_optimizer or partial(Adam, lr=step, eps=EPS)
        scheduler = self.method.y_scheduler or cosine(self.steps, share=lambda: self.calm)
        self.trained = [Trained(module, optimizer, scheduler) for module in (self.twins.y, self.twins.z)]

    def _moved_on(
        self, problem: Problem, x: Tree, state: StochasticState, k: int, data: Data
    ) -> tuple[Tree, StochasticState, Callable[[], list[float]]]:
        """F and f at y, f at z, and a step of each; none where a value is not a number."""
        a, b, moves = (self.weights[name] for name in ("a", "b", "moves"))
        problem.evaluations.add(upper=1, lower=2)
        passes = Passes(self.stated, self.twins, x, data, problem.world, self.method.micro_batches)
        at_y, at_z = tree.variable(x), tree.variable(x)
        F = passes.backward("upper", self.twins.y, at_y, a)
        f = passes.backward("lower", self.twins.y, at_y, b)
        f_z = passes.backward("lower", self.twins.z, at_z, 1.0)
        in_x = tree.map(lambda s, t: (s - b * t) / a, passes.gradient(at_y), passes.gradient(at_z))
        values, in_x = passes.summed([F, f, f_z], in_x, self.twins.y, self.twins.z)
        gradient_norm, x_norm = problem.world.norm(in_x), problem.world.norm(x)
        numbers = torch.stack([*values, gradient_norm.double(), x_norm.double()]).tolist()
        if k == 0:
            state.start.fill_(numbers[1])
        numbers.insert(3, float(state.start))
        self.finite = all(map(math.isfinite, numbers))
        if self.finite:
            for trained in self.trained:
                trained.step(self.method.clip)
            if moves:
                self.x.put(x)
                x = tree.clone(problem.project_x(self.x.step(in_x)))
        return x, state, lambda: numbers

    def _advance(self, due: Callable[[Scheduler], bool], values: Sequence[float] = (0.0, 0.0, 0.0)) -> None:
        """Schedules go on with the steps that are taken."""
        if self.finite:
            super()._advance(due, values)

    def load(self, x: Tree, state: StochasticState, saved: dict[str, Any]) -> None:
        """Continue from saved states, whose parameters go into the modules."""
        for module, values in ((self.twins.y, state.y), (self.twins.z, state.z)):
            copy_to(own(module), values)
        if saved["optimizer_y"] is not None:
            self._train(1.0)  # the step is in the saved state
        self._load_parts(saved)


class Passes:
    """Forward and backward passes of modules on one batch, which is taken in parts.

    FSDP2 averages gradients over the ranks, so what a rank adds is multiplied by their number there.
    """

    def __init__(self, problem: Problem, twins: Twins, x: Tree, data: Data, world: World, parts: int = 1) -> None:
        self.problem, self.twins, self.x, self.world, self.parts = problem, twins, x, world, parts
        self.draws = data if isinstance(data, Draw) else Draw(data, data)
        self.shares = world.shares(self.draws, tree.leaves(x)[0])
        self.factor = float(world.size) if twins.sharded else 1.0
        self.noise: dict[int, Tensor] = {}

    def backward(self, name: str, module: nn.Module, x: Tree, weight: float) -> Tensor:
        """The part of this rank of an objective; weight times its gradients are added where they belong."""
        if self.twins.sharded:  # the other ranks wait for this one within the module: nothing can stand for its pass
            return self._backward(name, module, x, weight)
        nothing = torch.full((), math.nan, dtype=torch.float64, device=tree.leaves(x)[0].device)
        return self.world.attempt(lambda: self._backward(name, module, x, weight), nothing)

    def _backward(self, name: str, module: nn.Module, x: Tree, weight: float) -> Tensor:
        draw = getattr(self.draws, name)
        part = 1.0 if self.shares is None else getattr(self.shares, name).part
        pieces = list(split(draw, self.parts))
        total = torch.zeros((), dtype=torch.float64, device=tree.leaves(x)[0].device)
        for i, piece in enumerate(pieces):
            if isinstance(module, Sharded):
                module.set_requires_gradient_sync(i == len(pieces) - 1)
            if name == "lower":  # at z, f draws the random numbers that it drew at y
                restore_random_state(self.noise.setdefault(i, random_state(total.device)), total.device)
            value = checked(name, self.problem.call(name, x, module, piece))
            value = value.double() * (part * (count(piece) / count(draw)))
            (weight * self.factor * value).backward()
            total += value.detach()
        return total

    def gradient(self, x: Tree) -> Tree:
        """The part of this rank of what the passes added up in x."""
        return tree.map(lambda t: torch.zeros_like(t) if t.grad is None else t.grad / self.factor, x)

    @torch.no_grad()
    def summed(self, values: list[Tensor], in_x: Tree = (), *modules: nn.Module) -> tuple[list[Tensor], Tree]:
        """The sums over the ranks of values, of a gradient in x, and of those of modules that are not sharded."""
        if self.world.size == 1:
            return values, in_x
        own = [] if self.world.sharded else tree.leaves(in_x)
        parameters = [] if self.twins.sharded else [p for module in modules for p in module.parameters()]
        for p in parameters:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        found, gradients = self.world.sum(values, [*own, *(p.grad for p in parameters if p.grad is not None)])
        for p, g in zip(parameters, gradients[len(own) :], strict=True):
            p.grad = g
        return list(found), tree.unflatten(in_x, gradients[: len(own)]) if own else in_x


class RangeTest:
    """What the range test for the step of y needs: values and gradients of F and f in the parameters of this rank."""

    def __init__(self, passes: Passes) -> None:
        self.passes, self.problem, self.module = passes, passes.problem, passes.twins.y
        self.own = {name: local(p) for name, p in own(self.module).items()}
        self.start = tree.clone(self.own)
        square = torch.stack([t.double().square().sum() for t in self.own.values()]).sum()
        entries = torch.full_like(square, tree.size(self.own))
        if passes.twins.sharded:
            (square, entries), _ = passes.world.sum([square, entries], [])
        self.size = float((square / entries).sqrt()) or 1.0

    def lower_grad(self, y: Tree) -> tuple[Tensor, Tree]:
        """f and its gradient."""
        return self._grad("lower", y)

    def upper_grads(self, y: Tree) -> tuple[Tensor, None, Tree]:
        """F and its gradient."""
        F, in_y = self._grad("upper", y)
        return F, None, in_y

    def _grad(self, name: str, y: Tree) -> tuple[Tensor, Tree]:
        copy_to(self.own, y)
        with torch.enable_grad():
            value = self.passes.backward(name, self.module, tree.variable(self.passes.x), 1.0)
        (value,), _ = self.passes.summed([value], (), self.module)
        grads = {name: p.grad for name, p in self.module.named_parameters()}
        found = {name: torch.zeros_like(t) if (g := grads[name]) is None else local(g) for name, t in self.own.items()}
        self.module.zero_grad(set_to_none=True)
        return value, found

    def random_state(self) -> Tensor | None:
        """The state of the generator that objectives draw from."""
        return random_state(tree.leaves(self.passes.x)[0].device)

    def restore_random_state(self, state: Tensor | None) -> None:
        """Its inverse."""
        assert state is not None
        restore_random_state(state, tree.leaves(self.passes.x)[0].device)


def local(t: Tensor) -> Tensor:
    """The part of a tensor that is on this rank."""
    whole: Any = t
    found: Tensor = whole.to_local() if is_sharded(t) else t
    return found


def split(batch: Any, parts: int) -> Iterator[Any]:
    """A batch in so many parts along the rows of its tensors, or fewer where there are fewer rows."""
    if parts == 1:
        yield batch
        return
    parts = min(parts, count(batch))
    pieces = [t.tensor_split(parts) if isinstance(t, Tensor) and t.dim() else [t] * parts for t in tree.leaves(batch)]
    for piece in zip(*pieces, strict=True):
        yield tree.unflatten(batch, piece)


def checked(name: str, value: Any) -> Tensor:
    """The value of an objective, with an error for anything that is not a scalar with a gradient."""
    if not isinstance(value, Tensor) or value.dim() != 0 or not value.requires_grad:
        raise ProblemError(f"{name} must return a scalar tensor that carries a gradient, as from (x, module, batch)")
    return value
