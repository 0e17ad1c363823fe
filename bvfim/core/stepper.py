"""A solver that takes one step at a time."""

from __future__ import annotations

import copy
import math
import re
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh

from bvfim import checkpoint, tree
from bvfim.core.arguments import check_steps, check_tol
from bvfim.core.following import Following, Optimised, Part
from bvfim.core.history import columns, floats, rows_of
from bvfim.core.mover import mover_of, mover_on, takes_no
from bvfim.core.multipliers import counted
from bvfim.core.problem import Problem, as_problem
from bvfim.core.solution import Solution
from bvfim.core.validate import BY_STEP, copies, explained, projected, require_data, validate_objectives, validate_ranks
from bvfim.distributed.twins import Twins, own, run_on
from bvfim.distributed.world import ALONE, World, world_of
from bvfim.methods import AdaptiveBVFIM, Choice, Chosen, Method, State, StochasticBVFIM, as_method, suited
from bvfim.methods.base import OptimizerFactory, SchedulerFactory
from bvfim.status import CheckpointError, MethodError, ProblemError, Status, warn
from bvfim.tree import Tree

BROKEN_OFF = (Status.NON_FINITE, Status.SLACK_LOST)
"""The ends of a step that is not taken."""


class Stepper:
    """A solver that takes one step per call, for use in your own loop; :func:`bvfim.solve` is a loop around it.

    Args:
        problem: the objectives and sets.
        x: the initial upper variable, a tree of tensors; projected onto X (with a warning) if it is outside.
        y: the initial lower variable, likewise.
        method: a method such as ``bvfim.RHG()``; ``bvfim.AdaptiveBVFIM()`` by default.
        optimizer: maps the list of x's tensors to a torch optimiser; the default is Adam with learning rate 0.01. A
            method that moves x itself takes none.
        scheduler: maps the optimiser to a torch learning-rate scheduler, stepped once per step.
        tol: x is stationary if the norm of its projected gradient :math:`|x - P_X(x - g)|` is at most this.
        accelerate: see :func:`bvfim.solve`.
        steps: the expected number of steps, over which the steps of StochasticBVFIM go down to zero; also for
            ``accelerate="auto"`` to choose by, and from which on a solution is no longer one that was stopped.
        batch: the first batch, to check the problem with.
        check: check the problem even without a batch, not at the first step.
        mesh: the processes that take the steps together; see :func:`bvfim.solve`.

    Attributes:
        x, state: the upper variable and the method's state after the last complete step.
        k, steps: the number of steps taken, and the number expected.
        rows: the history, one dict per step.
        status: how the run ended; None while it continues.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(
        ...     upper=lambda x, y, target: ((y - target) ** 2).sum(), lower=lambda x, y, _: ((y - x) ** 2).sum()
        ... )
        >>> stepper = bvfim.Stepper(problem, torch.zeros(1), torch.zeros(1), bvfim.RHG(lr=0.1))
        >>> for target in (1.0, 1.1, 0.9):
        ...     info = stepper.step(target)
        >>> stepper.k, sorted(info)[:3], stepper.solution().status
        (3, ['forward_evaluations', 'grad_norm', 'hvp_evaluations'], <Status.STOPPED: 'stopped'>)
    """

    def __init__(
        self,
        problem: Problem,
        x: Tree,
        y: Tree,
        method: Choice | None = None,
        optimizer: OptimizerFactory | None = None,
        *,
        scheduler: SchedulerFactory | None = None,
        tol: float | None = None,
        accelerate: str = "auto",
        steps: int = 500,
        batch: Any = None,
        check: bool = False,
        mesh: DeviceMesh | ProcessGroup | None = None,
    ) -> None:
        self.method: Chosen = AdaptiveBVFIM() if method is None else as_method(method)
        check_tol(tol)
        check_steps(steps)
        self.steps = steps
        self.problem = as_problem(problem).among(world_of(mesh, x))
        self.method = suited(self.method, self.problem)
        self._require_fitting(batch)
        if method is None:
            require_data(self.problem, batch, BY_STEP)
        if isinstance(y, Twins):
            self._begin_on(y, x, batch, optimizer, scheduler, tol, steps)
            return
        x, y = copies(self.world.local(x), y)
        validate_ranks(self.problem, x, y, alike=y)
        alone = problem.context is None and not problem.needs_data
        self.checked = check or alone or batch is not None or not self.method.takes_batches
        if self.checked:
            self._check(x, y, batch)
        self.x = projected(problem.project_x, x, "x")
        y = projected(problem.project_y, y, "y")
        noisy = batch is not None or (problem.takes_data and not check)
        how = optimizer, scheduler, tol, accelerate, steps, noisy
        self._begin(mover_of(self.method, self.problem, self.x, y, *how), y, batch)

    def _begin_on(self, twins: Twins, x: Tree, batch: Any, *how: Any) -> None:
        """Before the first step, where y and z are modules."""
        if twins.sharded and self.world.group is None:
            raise ProblemError("these networks are sharded: pass mesh=, the mesh that they are sharded over")
        x = copies(self.world.local(x))[0]
        validate_ranks(self.problem, x, x, alike=own(twins.y))
        self.x, self.checked = projected(self.problem.project_x, x, "x"), True
        optimizer, scheduler, tol, steps = how
        noisy = self.problem.takes_data
        mover = mover_on(twins, self.method, self.problem, self.x, optimizer, scheduler, tol, steps, noisy)
        self.problem = run_on(self.problem, twins.y).among(self.world)
        self._begin(mover, None, batch)

    def _begin(self, mover: Method, y: Tree, batch: Any = None) -> None:
        """Before the first step, at x and y."""
        self.mover, self.state = mover, mover.init(self.problem, self.x, y)
        if self.checked:
            self.state = counted(self.problem, self.x, self.state, batch)
        self.k, self.k_before = 0, 0
        self.rows: list[dict[str, float]] = []
        self.seconds_before, self.started = 0.0, time.monotonic()
        self.status: Status | None = None
        self.complete = True
        self.data = batch
        self.before: list[float] | None = None
        self.lowest: tuple[float, Tree, State] | None = None

    # -- where it stands --

    @property
    def world(self) -> World:
        """The processes of the run."""
        return self.problem.world

    @property
    def y(self) -> Tree:
        """The lower variable after the last complete step."""
        return self.state.y

    @property
    def row(self) -> dict[str, float]:
        """The last row of the history."""
        return self.rows[-1] if self.rows else {}

    @property
    def seconds(self) -> float:
        """The running time so far, including the earlier parts of a resumed run."""
        return self.seconds_before + time.monotonic() - self.started

    @property
    def following(self) -> Following | None:
        """The part that holds the optimiser, for a method that estimates a hypergradient."""
        return self.mover if isinstance(self.mover, Following) else None

    @property
    def optimizer(self) -> torch.optim.Optimizer | None:
        """The optimiser of x, if there is one."""
        found = self.parts["optimizer"]
        return found if isinstance(found, torch.optim.Optimizer) else None

    @property
    def scheduler(self) -> Part | None:
        """The learning-rate scheduler of x, if there is one."""
        return self.parts["scheduler"]

    @property
    def parts(self) -> dict[str, Part | None]:
        """The optimisers and schedulers of the run."""
        return self.mover.parts if isinstance(self.mover, Optimised) else {"optimizer": None, "scheduler": None}

    # -- moving --

    def step(self, batch: Any = None) -> dict[str, float]:
        """Take one step on a batch; return its row of the history, whose columns the reference of solutions explains.

        A step with non-finite values or a lost slack is not taken: x does not change, and ``status`` says why.
        Since the optimiser has already seen the gradient, the run can only continue from a saved state.
        """
        self._require_fitting(batch)
        if self.status in BROKEN_OFF:
            raise MethodError(
                f"the run broke off ({self.status.value}): continue from an earlier state with load_state_dict"
            )
        if not self.checked:
            self.world.together(lambda: require_data(self.problem, batch, BY_STEP))
            with explained(batch):
                self._check(self.x, self.y, batch)
            self.checked = True
        require_data(self.problem, batch, BY_STEP)
        self.data, self.complete = batch, False
        x, state, info = self.mover.step(self.problem, self.x, self.state, self.k, batch)
        row = floats(info if "x_norm" in info else {**info, "x_norm": self.world.norm(x)})
        finite = all(math.isfinite(row.get(name, 0.0)) for name in ("upper", "lower", "grad_norm", "x_norm"))
        self.rows.append({"step": self.k, **row, "seconds": self.seconds, **self.problem.evaluations.columns()})
        if row.get("slack", 1.0) <= 0:
            self.status = Status.SLACK_LOST
        elif not finite:
            self.status = Status.NON_FINITE
        else:
            if batch is None and (self.lowest is None or row.get("upper", math.inf) < self.lowest[0]):
                self.lowest = row.get("upper", math.inf), self.x, state
            self.x, self.state, self.k, self.complete = x, state, self.k + 1, True
            self.status = self.mover.status(state)
        return self.row

    def _check(self, x: Tree, y: Tree, batch: Any) -> None:
        """Reject objectives that the method can't use; only the single loop takes those that draw random numbers."""
        random = isinstance(self.method, StochasticBVFIM)
        self.world.together(lambda: validate_objectives(self.problem.among(ALONE), x, y, batch, random=random))

    def _require_fitting(self, batch: Any) -> None:
        if batch is not None and not self.method.takes_batches:
            raise MethodError(takes_no(self.method, "batches"))

    # -- ending --

    def values(self, y: Tree) -> list[float]:
        """F and f at (x, y), on the last batch if there are batches; those of the last step where a rank was lost."""
        if self.world.broken:
            return [self.row.get(name, math.nan) for name in ("upper", "lower")]
        if self.before is not None and self.k == self.k_before:
            self.problem.evaluations.add(forward=2)  # as when they were computed
            return self.before
        return [float(v) for v in self.problem.at(self.x, self.data).values(y)]

    def solution(self, status: Status | None = None) -> Solution:
        """The result so far, with ``status`` or the method's own, or else MAX_STEPS after all steps, STOPPED before."""
        before = self.problem.evaluations.as_dict()
        end = status or self.status or (Status.MAX_STEPS if self.k >= self.steps else Status.STOPPED)
        x, state, values = self.x, self.state, self.values(self.y)
        if end is Status.NON_FINITE and self.lowest is not None and not values[0] <= self.lowest[0]:
            _, x, state = self.lowest  # a run that diverged was better before
            values = [float(v) for v in self.problem.at(x, self.data).values(state.y)]
        found = self._ended(x, state, values, end, list(self.rows), None, self.k, self.seconds)
        self.problem.evaluations.reset(**before)  # looking at a run does not count as a part of it
        return found

    def _ended(
        self,
        x: Tree,
        state: State,
        values: list[float],
        status: Status,
        rows: list[dict[str, float]],
        evaluations: dict[str, int] | None,
        steps: int,
        seconds: float,
    ) -> Solution:
        """A Solution of this run's method; by default with all evaluations of the problem."""
        certify = self.method.certificate if isinstance(self.method, Method) else lambda *_: None
        certificate = certify(self.problem, x, state)
        minimiser: Callable[[Any], Tree] = self.method.minimiser  # of its own state, whatever that is
        multipliers: Callable[[Problem, Tree, Any], dict[str, torch.Tensor]] = self.method.multipliers
        return Solution(
            x=self.world.whole(x),
            y=state.y,
            z=minimiser(state),
            upper=values[0],
            lower=values[1],
            status=status,
            rows=rows,
            evaluations=evaluations or self.problem.evaluations.as_dict(),
            steps=steps,
            seconds=seconds,
            method=self.method,
            certificate=certificate,
            on_batch=self.data is not None or self.before is not None,
            multipliers=multipliers(self.problem, x, state) if self.problem.stated and not self.world.broken else {},
        )

    # -- saving --

    @property
    def _kinds(self) -> dict[str, str]:
        parts = {"method": self.method} | {name: self.parts[name] for name in ("optimizer", "scheduler")}
        return {name: type(part).__name__ for name, part in parts.items()}

    @property
    def _settings(self) -> str:
        """The method's settings as text, without the addresses of functions."""
        return re.sub(r"<function .*? at 0x[0-9a-f]+>", "<function>", repr(self.method))

    def state_dict(self) -> dict[str, Any]:
        """Everything that another stepper of the same problem and method needs to continue, bit for bit."""
        return {
            "values": self._values_on_batch(),  # first: where there are several processes, all wait for it
            "kinds": self._kinds,
            "settings": self._settings,
            "k": self.k,
            "seconds": self.seconds,
            "x": tree.leaves(self.x),
            "state": tree.leaves(self.state),
            **{name: part and copy.deepcopy(part.state_dict()) for name, part in self.parts.items()},
            "evaluations": self.problem.evaluations.as_dict(),
            "rows": columns(self.rows),
        }

    def _values_on_batch(self) -> list[float] | None:
        """What a finished run that is resumed reports; None where it can be computed again, without batches."""
        if self.data is None or (self.before is not None and self.k == self.k_before):
            return self.before
        at = self.problem.counted_anew().at(self.x, self.data)
        noise = at.random_state()
        values = [float(v) for v in at.values(self.y)]
        at.restore_random_state(noise)  # a run that is saved goes on as it would without
        return values

    def load_state_dict(self, saved: dict[str, Any], source: str = "the state") -> None:
        """Continue from the state of another stepper; error messages name it ``source``."""
        try:
            self._take_over(saved, source)
        except CheckpointError:
            raise
        except (LookupError, ValueError, TypeError, RuntimeError, AttributeError, ArithmeticError) as error:
            raise CheckpointError(f"{source}: the checkpoint belongs to another run ({error})") from error

    def _take_over(self, saved: dict[str, Any], source: str) -> None:
        for part, kind in self._kinds.items():
            if saved["kinds"][part] != kind:
                raise CheckpointError(
                    f"{source}: the checkpoint belongs to another run: its {part} is {saved['kinds'][part]}, not {kind}"
                )
        if saved["settings"] != self._settings:
            warn(f"{source}: the checkpoint was made by {saved['settings']}, and continues with {self._settings}")
        if type(saved["k"]) is not int or saved["k"] < 0:
            raise CheckpointError(f"{source}: the checkpoint is damaged: its number of steps is {saved['k']!r}")
        checkpoint.check_like(saved["x"], tree.leaves(self.x), "x", source)
        checkpoint.check_like(saved["state"], tree.leaves(self.state), "lower-level state", source)
        device = tree.leaves(self.x)[0].device
        self.x = tree.unflatten(self.x, [t.to(device).clone() for t in saved["x"]])
        self.state = tree.unflatten(self.state, [t.to(device).clone() for t in saved["state"]])
        if isinstance(self.mover, Optimised):
            self.mover.load(self.x, self.state, saved)
        self.problem.evaluations.reset(**saved["evaluations"])
        self.k, self.rows = saved["k"], rows_of(saved["rows"])
        self.k_before, self.seconds_before, self.before = saved["k"], float(saved["seconds"]), saved.get("values")
        self.started, self.complete, self.data = time.monotonic(), True, None
        self.status = self.mover.status(self.state)
