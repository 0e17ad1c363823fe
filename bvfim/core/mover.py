"""What moves x in a run: the method itself, the single loop, or a torch optimiser along the estimates of a method."""

from __future__ import annotations

from typing import Any

from bvfim import dynamics, sets
from bvfim.core.accelerate import estimate_of, require_way
from bvfim.core.following import Following, caution, cosine
from bvfim.core.one_scale import OneScale
from bvfim.core.problem import Problem
from bvfim.core.single_loop import SingleLoop
from bvfim.distributed.module_loop import ModuleLoop
from bvfim.distributed.twins import Twins
from bvfim.methods import Chosen, Estimator, Method, StochasticBVFIM
from bvfim.methods.base import OptimizerFactory, SchedulerFactory
from bvfim.status import MethodError, ProblemError, warn
from bvfim.tree import Tree


def mover_of(
    method: Chosen,
    problem: Problem,
    x: Tree,
    y: Tree,
    optimizer: OptimizerFactory | None,
    scheduler: SchedulerFactory | None,
    tol: float | None,
    accelerate: str,
    steps: int,
    noisy: bool,
) -> Method[Any]:
    """What moves x, with an error for options that it can't take.

    Args:
        method: the method.
        problem: the problem, with the processes of the run.
        x, y: the initial point.
        optimizer, scheduler, tol, accelerate, steps: as for :func:`bvfim.solve`.
        noisy: whether there are batches.
    """
    require_way(accelerate)
    _require_together(method, problem, x)
    if isinstance(method, Estimator):
        estimate = estimate_of(method, accelerate, problem, x, y, steps)
        caution_of_y(method, problem)
        if optimizer is None and not sets.entrywise(problem.x_set):
            optimizer, scheduler = OneScale, scheduler or cosine(steps)
        following = Following(method, x, optimizer, scheduler, tol, estimate)
        caution(following.optimizer, problem.x_set, "x_set")
        return following
    if isinstance(method, StochasticBVFIM):
        if tol is not None:
            raise MethodError("tol: StochasticBVFIM takes no tol: noise hides whether x is stationary")
        if (method.micro_batches, method.clip) != (1, None):
            raise MethodError("StochasticBVFIM: micro_batches and clip are for networks that are given as bvfim.Twins")
        return SingleLoop(method, problem, x, optimizer, scheduler, steps, noisy, accelerate)
    if accelerate not in ("auto", "none"):
        warn(f"accelerate={accelerate!r}: {type(method).__name__} has no step to record or compile")
    for name, given in (("optimizer", optimizer), ("scheduler", scheduler), ("tol", tol)):
        if given is not None:
            raise MethodError(takes_no(method, name))
    return method


def caution_of_y(method: Estimator[Any], problem: Problem) -> None:
    """Warn of a dynamics that scales each entry of y by itself, in a set that is no box."""
    if isinstance(getattr(method, "dynamics", None), dynamics.Adam) and not sets.entrywise(problem.y_set):
        warn(
            "y_set: bvfim.dynamics.Adam scales each entry by itself, so with a set that is no box y comes to rest away "
            "from the lower-level solution; take bvfim.dynamics.Adaptive or lr="
        )


def mover_on(
    twins: Twins,
    method: Chosen,
    problem: Problem,
    x: Tree,
    optimizer: OptimizerFactory | None,
    scheduler: SchedulerFactory | None,
    tol: float | None,
    steps: int,
    noisy: bool,
) -> ModuleLoop:
    """What moves x where y and z are modules: the single loop, and nothing that differentiates twice."""
    if not isinstance(method, StochasticBVFIM):
        raise MethodError(
            f"{type(method).__name__}: networks that are called as modules (bvfim.Twins) are trained by "
            "bvfim.StochasticBVFIM(), which needs first derivatives only: a sharded module can't be differentiated "
            "twice, or put through torch.func"
        )
    if problem.stated:
        raise MethodError(f"bvfim.Twins: y as modules takes no constraints yet: leave {problem.stated[0]} out")
    if tol is not None or method.inner_steps != 1 or not noisy:
        raise MethodError("bvfim.Twins: pass batches=, no tol, and inner_steps=1")
    return ModuleLoop(method, problem, twins, x, optimizer, scheduler, steps, problem.world)


def _require_together(method: Chosen, problem: Problem, x: Tree) -> None:
    """Reject what several processes can't do together."""
    name, world = type(method).__name__, problem.world
    if world.size > 1 and isinstance(method, Estimator) and not method.spreads:
        raise MethodError(
            f"{name} carries derivatives forward, which can't be summed over processes; choose "
            "bvfim.StochasticBVFIM(), bvfim.BVFIM() or bvfim.RHG()"
        )
    if not world.sharded:
        return
    if not isinstance(method, Estimator | StochasticBVFIM):
        raise MethodError(
            f"{name} needs all of x on every rank: pass x as tensors, or choose bvfim.StochasticBVFIM(), which moves "
            "the rows of each rank there"
        )
    if not all(own is None or isinstance(own, sets.Box) for own in sets.per_leaf(problem.x_set, x)):
        raise ProblemError(
            "x_set: where the rows of x lie on several ranks, each entry has its own bounds: a bvfim.Box"
        )


def takes_no(method: Chosen, name: str) -> str:
    """The error message for an option that a method which moves x itself does not take."""
    return (
        f"{name}: {type(method).__name__} moves x itself and takes no {name}; leave it out, or choose a method that "
        "estimates a hypergradient, such as bvfim.BVFIM()"
    )
