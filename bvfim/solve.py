"""The only outer loop."""

from __future__ import annotations

import math
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from bvfim import tree
from bvfim.accelerate import stepper
from bvfim.batches import Draws
from bvfim.certificate import Certificate
from bvfim.methods import AdaptiveBVFIM, as_method
from bvfim.problem import Problem
from bvfim.run import Run
from bvfim.status import BvfimWarning, MethodError, Status
from bvfim.tree import Tree
from bvfim.validate import validate

Callback = Callable[[Run], bool | None]
"""Called after each step; returning True stops the run. An optional ``finish(run)`` is called at the end."""
OptimizerFactory = Callable[[list[Tensor]], torch.optim.Optimizer]
SchedulerFactory = Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler]


@dataclass(frozen=True)
class Solution:
    """The end of a run.

    Attributes:
        x, y, z: trees like the inputs. z is BVFIM's lower-level minimiser; for the other methods it is y.
        upper, lower: F and f at (x, y), on the last batch where there are batches.
        status: how the run ended, with advice.
        history: one row per step; the columns of every method are ``step``, ``upper``, ``lower``, ``value``,
            ``grad_norm``, ``seconds`` and the evaluations so far (``upper_gradients``, ``lower_gradients``,
            ``forward``, ``hvp``, ``jvp``); methods add their own.
        evaluations: gradients of F (``upper``) and f (``lower``), values (``forward``), second-order products.
        steps: how often x was updated.
        seconds: how long it took.
        method: what ran.
        certificate: what :class:`bvfim.AdaptiveBVFIM` has shown of the result; None for the other methods.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum())
        >>> start = torch.zeros(1)
        >>> solution = bvfim.solve(problem, start, start, bvfim.RHG(steps=10, lr=0.1), steps=3)
        >>> solution.steps, solution.evaluations["hvp"]
        (3, 30)
        >>> list(solution.history.columns[:4])
        ['step', 'upper', 'lower', 'value']
    """

    x: Tree
    y: Tree
    z: Tree
    upper: float
    lower: float
    status: Status
    history: pd.DataFrame
    evaluations: dict[str, int]
    steps: int
    seconds: float
    method: Any
    certificate: Certificate | None = None

    def __str__(self) -> str:
        return (
            f"{type(self.method).__name__}: {self.status.value} after {self.steps} steps and {self.seconds:.1f} s; "
            f"F = {self.upper:.6g}, f = {self.lower:.6g}. {self.status.advice}"
        )


def solve(
    problem: Problem,
    x: Tree,
    y: Tree,
    method: Any = None,
    optimizer: OptimizerFactory | None = None,
    steps: int = 500,
    batches: Any = None,
    callbacks: Iterable[Callback] = (),
    *,
    scheduler: SchedulerFactory | None = None,
    tol: float | None = None,
    time_limit: float | None = None,
    resume: str | os.PathLike[str] | None = None,
    accelerate: str = "auto",
) -> Solution:
    r"""Minimise F(x, y) over x in X with y in argmin f(x, .), from the start (x, y).

    Each step takes an estimate g of the hypergradient, moves x with a torch optimiser and projects it:
    :math:`x \leftarrow P_X(\mathrm{optimizer}(x, g))`. The inputs are never changed in place, and dtype and device
    are theirs.

    Args:
        problem: the objectives and sets.
        x: the upper start, a tree of tensors; projected onto X (with a warning) if it is outside.
        y: the lower start, likewise.
        method: a method such as ``bvfim.RHG()``; the default is ``bvfim.AdaptiveBVFIM()``, which moves x itself, and
            ``bvfim.BVFIM()`` with batches, an optimizer, a scheduler or a tol.
        optimizer: takes the list of x's tensors and gives a torch optimiser; the default is Adam with 0.01.
        steps: how many updates of x.
        batches: a stream of batches or :class:`bvfim.Batches`; one draw per step, or one per inner step.
        callbacks: functions of the :class:`bvfim.Run`, called after each step; one that returns True stops.
        scheduler: takes the optimiser and gives a torch learning-rate scheduler, stepped once per step.
        tol: stop at an x whose projected gradient :math:`|x - P_X(x - g)|` is at most this.
        time_limit: stop after this many seconds; a resumed run has them anew.
        resume: a checkpoint to go on from, bit for bit; ``steps`` counts from the start of the first part.
        accelerate: how the step of a method that estimates a hypergradient is taken. ``"cudagraph"`` records it once
            and replays it, bit for bit the same; ``"compile"`` also compiles the problem's context and the inner steps
            of BVFIM, CG and Neumann (those of plain gradient descent), the same up to rounding; ``"none"`` does
            neither. ``"auto"`` records on a CUDA device where launches are what takes the time, and compiles from 5000
            steps on. What can't be compiled or recorded is left as it is, and that is said.

    Returns:
        A :class:`bvfim.Solution`. Ctrl-C ends the run with what it has. A value that is not finite ends it with the
        last good iterate.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(
        ...     upper=lambda x, y: ((x - 2) ** 2 + (y - 2) ** 2).sum(),
        ...     lower=lambda x, y: ((y - x + 1) ** 2).sum(),
        ... )
        >>> start = torch.zeros(1, dtype=torch.float64)
        >>> solution = bvfim.solve(problem, start, start, bvfim.CG(lr=0.1), optimizer=lambda p: torch.optim.SGD(p, 0.1))
        >>> print(f"x = {solution.x.item():.3f}, y = {solution.y.item():.3f}, F = {solution.upper:.3f}")
        x = 2.500, y = 1.500, F = 0.500
    """
    if method is None and all(given is None for given in (batches, optimizer, scheduler, tol)):
        method = AdaptiveBVFIM()
    method = as_method(method)
    check_steps(steps)
    if tol is not None and not tol >= 0:
        raise MethodError(f"tol must be a number of at least 0, not {tol!r}")
    draws, problem = Draws(batches, getattr(method, "inner_steps", 1)), problem.counted_anew()
    first = draws.draw()
    x, y = _copies(x, y)
    validate(problem, x, y, first)
    x = projected(problem.project_x, x, "x")
    y = projected(problem.project_y, y, "y")
    mover, rates = _movers(method, optimizer, scheduler, batches, tol, x)
    run = Run(problem, method, x, method.init(problem, x, y), mover, rates, draws, steps)
    run.estimate = stepper(accelerate, problem, method, x, y, steps)
    pending = [first]
    if resume is not None:
        run.load(resume)
        pending = []
    for caution in getattr(method, "cautions", lambda steps: [])(steps):
        warnings.warn(caution, BvfimWarning, stacklevel=2)
    callbacks = list(callbacks)
    data = first
    finished = run.method.status(run.state) if run.optimizer is None and resume is not None else None
    status = finished or Status.MAX_STEPS
    try:
        with _interrupts() as interrupted:
            while run.k < steps and finished is None:
                data = pending.pop() if pending else draws.draw()
                ended = _advance(run, data, tol)
                stops = [callback(run) for callback in callbacks] if run.complete else []
                if ended is None and any(stop is not None and bool(stop) for stop in stops):
                    ended = Status.STOPPED
                if ended is None and time_limit is not None and run.seconds - run.seconds_before >= time_limit:
                    ended = Status.TIME_LIMIT
                if ended is None and interrupted:
                    ended = Status.INTERRUPTED
                if ended is not None:
                    status = ended
                    break
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    finally:
        for callback in callbacks:
            getattr(callback, "finish", lambda run: None)(run)
    return _solution(run, y, data, status)


def _advance(run: Run, data: Any, tol: float | None) -> Status | None:
    """One step of the method and of x; the status that ends the run, if one does."""
    run.complete = False
    if run.optimizer is None:
        x, state, info = run.method.step(run.problem, run.x, run.state, run.k, data)
        converged = False
    else:
        x, state, info, converged = _descend(run, data, tol)
    row = _floats({**info, "x_norm": tree.norm(x)})
    finite = all(math.isfinite(row.get(name, 0.0)) for name in ("upper", "lower", "grad_norm", "x_norm"))
    count = run.problem.evaluations
    row = {"step": run.k, **row, "seconds": run.seconds, "upper_gradients": count.upper, "lower_gradients": count.lower}
    run.rows.append({**row, "forward": count.forward, "hvp": count.hvp, "jvp": count.jvp})
    if row.get("slack", 1.0) <= 0:
        return Status.SLACK_LOST
    if not finite:
        return Status.NON_FINITE
    run.complete_step(x, state)
    if run.optimizer is None:
        return run.method.status(state)
    return Status.CONVERGED if converged else None


def _descend(run: Run, data: Any, tol: float | None) -> tuple[Tree, Any, dict[str, Any], bool]:
    """One step of x along an estimate of the hypergradient, unless x is stationary already."""
    gradient, state, info = run.estimate(run.problem, run.x, run.state, run.k, data)
    _check_like(gradient, run.x, run.method)
    info = {**info, "grad_norm": tree.norm(gradient)}
    if tol is not None:
        gap = tree.sub(run.x, run.problem.project_x(tree.sub(run.x, gradient)))
        info["stationarity"] = tree.norm(gap)
        if bool(info["stationarity"] <= tol):
            return run.x, state, info, True
    return run.moved(gradient), state, info, False


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Ctrl-C lets the step end, so that what is returned and saved is whole; a second one interrupts at once."""
    seen: list[int] = []

    def note(signum: int, frame: object) -> None:
        if seen:
            raise KeyboardInterrupt
        seen.append(signum)

    if threading.current_thread() is not threading.main_thread():
        yield seen
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)


def _floats(info: dict[str, Any]) -> dict[str, float]:
    """Scalars as floats, with one wait for the device."""
    tensors = {name: value for name, value in info.items() if isinstance(value, Tensor)}
    found = torch.stack([t.detach().double().reshape(()) for t in tensors.values()]).tolist()
    return {
        **{name: float(v) for name, v in info.items() if name not in tensors},
        **dict(zip(tensors, found, strict=True)),
    }


def _copies(*variables: Tree) -> Tree:
    """Copies of the caller's tensors; what is no tensor is left for :func:`validate` to refuse."""
    return tree.map(lambda t: t.detach().clone() if isinstance(t, Tensor) else t, variables)


def check_steps(steps: Any) -> None:
    """Refuse what is no number of steps."""
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 0:
        raise MethodError(f"steps must be a whole number of at least 0, not {steps!r}")


def projected(project: Callable[[Tree], Tree], start: Tree, name: str) -> Tree:
    """The start, projected onto its set with a warning if it is outside."""
    inside = project(start)
    eps = 10 * torch.finfo(tree.leaves(start)[0].dtype).eps
    if any(
        not torch.allclose(a, b, rtol=eps, atol=eps, equal_nan=True)
        for a, b in zip(tree.leaves(inside), tree.leaves(start), strict=True)
    ):
        warnings.warn(
            f"{name} was outside {name}_set at the start and was projected onto it", BvfimWarning, stacklevel=3
        )
    return tree.clone(inside)


def _movers(method: Any, optimizer: Any, scheduler: Any, batches: Any, tol: Any, x: Tree) -> tuple[Any, Any]:
    """The optimiser of x and its scheduler; none for a method that moves x itself."""
    if hasattr(method, "estimate"):
        return _optimizer(optimizer, scheduler, x)
    for name, given in (("optimizer", optimizer), ("scheduler", scheduler), ("batches", batches), ("tol", tol)):
        if given is not None:
            raise MethodError(f"{type(method).__name__} moves x itself and takes no {name}")
    return None, None


def _optimizer(
    optimizer: OptimizerFactory | None, scheduler: SchedulerFactory | None, x: Tree
) -> tuple[torch.optim.Optimizer, Any]:
    parameters = [t.clone().requires_grad_() for t in tree.leaves(x)]
    if optimizer is not None and not callable(optimizer):
        raise MethodError(
            f"optimizer must be a function from tensors to a torch optimiser, not a {type(optimizer).__name__}"
        )
    made = torch.optim.Adam(parameters, lr=0.01) if optimizer is None else optimizer(parameters)
    if not isinstance(made, torch.optim.Optimizer):
        raise MethodError(
            f"optimizer must be a function from tensors to a torch optimiser, but gave a {type(made).__name__}"
        )
    if isinstance(made, torch.optim.LBFGS):
        raise MethodError("LBFGS evaluates the objective several times a step, which a hypergradient does not allow")
    if [id(p) for group in made.param_groups for p in group["params"]] != [id(p) for p in parameters]:
        raise MethodError("optimizer must optimise exactly the tensors that it is given, in their order")
    return made, None if scheduler is None else scheduler(made)


def _check_like(gradient: Tree, x: Tree, method: Any) -> None:
    shapes = [[tuple(t.shape) for t in tree.leaves(a)] for a in (gradient, x)]
    if shapes[0] != shapes[1] or not tree.same_structure(gradient, x):
        raise MethodError(f"{type(method).__name__}.estimate must return a gradient like x")


def _solution(run: Run, y: Tree, data: Any, status: Status) -> Solution:
    y = getattr(run.state, "y", y)
    F, f = run.problem.at(run.x, data).values(y)
    certify = getattr(run.method, "certificate", None)
    certificate = None if certify is None else certify(run.problem, run.x, run.state)
    return Solution(
        x=run.x,
        y=y,
        z=getattr(run.state, "z", y),
        upper=float(F),
        lower=float(f),
        status=status,
        history=pd.DataFrame(run.rows),
        evaluations=run.problem.evaluations.as_dict(),
        steps=run.k,
        seconds=run.seconds,
        method=run.method,
        certificate=certificate,
    )
