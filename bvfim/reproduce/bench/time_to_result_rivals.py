"""Who takes part in ``bvfim bench time-to-result``: each runs on a task until a watch says that its time is up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from itertools import product
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

import bvfim
from bvfim.reproduce.bench.peers.base import Budget, OnBatches
from bvfim.reproduce.bench.speed import PEERS
from bvfim.reproduce.bench.time_to_result_watch import ENDLESS, Watch
from bvfim.reproduce.experiments import cleaning, cleaning_settings
from bvfim.reproduce.experiments.cleaning_baselines import ALONE
from bvfim.reproduce.experiments.resumable import finished

OURS = "StochasticBVFIM"
DESCENT = {"cifar10": (0.03, 0.1, 0.3)}
"""Lower steps of gradient descent on batches by data set, :data:`SHORT_ROWS` elsewhere; long rows bear shorter ones."""
SHORT_ROWS = (0.1, 0.3, 1.0)
ADAM = (0.0003, 0.001, 0.003)
"""Lower steps of Adam."""
X_STEPS = (0.03, 0.1, 0.3)
"""Steps of Adam on x."""
DECAYS = (0.0, 0.1, 1.0)
"""Weight decays of the plain network, which has no x."""


class Setting(NamedTuple):
    """What is chosen on the held rows: the step of the lower level and that of the upper one."""

    lower: float
    upper: float


Runner: TypeAlias = Callable[[cleaning.Task, Budget, int, Watch], None]
"""Runs on a task, with a budget and batches of so many rows, until the watch says that its time is up."""


@dataclass(frozen=True)
class Rival:
    """One who takes part.

    Args:
        run: how it runs.
        lower, upper: the steps to choose from.
        library: the package that it needs, by the name it is imported by.
        bilevel: whether it is a bilevel method.
    """

    run: Runner
    lower: tuple[float, ...]
    upper: tuple[float, ...] = X_STEPS
    library: str = "bvfim"
    bilevel: bool = True

    @property
    def grid(self) -> list[Setting]:
        """All settings, those in the middle first."""
        return sorted(
            (Setting(*both) for both in product(self.lower, self.upper)),
            key=lambda s: (s.lower != self.lower[1]) + (s.upper != self.upper[1]),
        )


def rivals(data: str) -> dict[str, Rival]:
    """All but ours, on a data set, by name."""
    descent = DESCENT.get(data, SHORT_ROWS)
    one_step = partial(_estimating, lambda b: bvfim.RHG(1, b.lr))
    return {
        "nested BVFIM": Rival(nested, cleaning_settings.DATA[data][1].grid),
        "RHG": Rival(partial(_estimating, lambda b: bvfim.RHG(b.T, b.lr, segment=b.T)), descent),
        "CG": Rival(partial(_estimating, lambda b: bvfim.CG(b.T, b.lr, cg_steps=b.J)), descent),
        "Neumann": Rival(partial(_estimating, lambda b: bvfim.Neumann(b.T, b.lr, terms=b.J)), descent),
        "one-step unrolling": Rival(one_step, descent),
        "Betty finite differences": Rival(betty, ADAM, library="betty"),
        "BOAT RAD": Rival(partial(_unrolling, "boat_torch", "BOAT RAD"), descent, library="boat_torch"),
        "TorchOpt unrolled": Rival(partial(_unrolling, "torchopt", "TorchOpt unrolled"), descent, library="torchopt"),
        ALONE: Rival(plain, ADAM, DECAYS, bilevel=False),
    }


# -- of this library --


def ours(task: cleaning.Task, size: int, watch: Watch) -> None:
    """StochasticBVFIM at its defaults, for as many steps as the watch allows."""
    problem, batches = cleaning.on_batches(task, size)
    _solved(problem, task, None, None, watch.last, batches, _rows(size, size), watch)


def nested(task: cleaning.Task, budget: Budget, size: int, watch: Watch) -> None:
    """BVFIM as ``bvfim reproduce cleaning`` runs it, on all rows."""
    method = cleaning_settings.method("BVFIM", budget.lr, cleaning_settings.Config())
    rows = _rows(len(task.trusted.labels), len(task.noisy.labels))
    _solved(task.problem, task, method, budget.x_lr, ENDLESS, None, rows, watch)


def _estimating(method: Callable[[Budget], Any], task: cleaning.Task, budget: Budget, size: int, watch: Watch) -> None:
    """A method that estimates hypergradients, on batches that are drawn anew for every lower step."""
    problem, batches = cleaning.on_batches(task, size)
    every = replace(batches, every="inner")
    _solved(problem, task, method(budget), budget.x_lr, ENDLESS, every, _rows(size, size), watch)


def _solved(
    problem: bvfim.Problem,
    task: cleaning.Task,
    method: Any,
    x_lr: float | None,
    steps: int,
    batches: Any,
    rows: Callable[[bvfim.Run], float],
    watch: Watch,
) -> None:
    """``bvfim.solve`` until the watch stops it; an endless run would be compiled, and is recorded on a CUDA device."""
    optimizer = None if x_lr is None else partial(torch.optim.Adam, lr=x_lr)
    accelerate = "auto" if steps < ENDLESS else "cudagraph" if task.x.is_cuda else "none"
    found = bvfim.solve(
        problem,
        task.x,
        task.y,
        method,
        optimizer,
        steps,
        batches,
        [lambda run: watch(run, rows(run))],
        accelerate=accelerate,
        refit=False,
        progress=False,
    )
    finished(found)


def _rows(upper: int, lower: int) -> Callable[[bvfim.Run], float]:
    """How many rows went through a gradient in a run whose F and f see so many; a second-order product counts twice.

    Reverse mode gets both of its products from one pass. The single loop's f at the start is differentiated in x alone,
    and counts as a gradient.
    """

    def rows(run: bvfim.Run) -> float:
        made = run.problem.evaluations
        products = max(made.hvp, made.jvp) if isinstance(run.method, bvfim.RHG) else made.hvp + made.jvp
        starts = made.forward if isinstance(run.method, bvfim.StochasticBVFIM) else 0
        return upper * made.upper + lower * (made.lower + starts + 2 * products)

    return rows


# -- of others --


def betty(task: cleaning.Task, budget: Budget, size: int, watch: Watch) -> None:
    """Betty's finite differences: a step of Adam on y, then one on x, whose gradient takes f's at two more points."""
    loops = import_module(f"bvfim.reproduce.bench.peers.{PEERS['betty']}").loops
    on = OnBatches(task, size)
    found = loops(on.task, replace(budget, T=1), on.renew, torch.optim.Adam)
    _stepping(found["Betty finite differences"](), 4 * size, watch)


def _unrolling(library: str, name: str, task: cleaning.Task, budget: Budget, size: int, watch: Watch) -> None:
    """Reverse mode through T steps of gradient descent: T gradients, as many products, and a gradient of F."""
    loops = import_module(f"bvfim.reproduce.bench.peers.{PEERS[library]}").loops
    on = OnBatches(task, size)
    _stepping(loops(on.task, budget, on.renew)[name](), (3 * budget.T + 1) * size, watch)


class Plain:
    """The network trained on batches of the trusted rows alone, by AdamW."""

    def __init__(self, task: cleaning.Task, size: int, lr: float, decay: float) -> None:
        self.whole, self.on = task, OnBatches(task, size)
        self.y = {key: t.clone().requires_grad_() for key, t in task.y.items()}
        self.adam = torch.optim.AdamW(self.y.values(), lr=lr, weight_decay=decay)

    @property
    def x(self) -> Tensor:
        """Above zero where the network gives a noisy row the label that it has."""
        with torch.no_grad():
            found = cleaning.network(self.y, self.whole.noisy.inputs, self.whole.activation).argmax(1)
        return (found == self.whole.noisy.labels).float()

    def step(self) -> None:
        """One step on the next batch."""
        self.on.renew("upper")
        self.adam.zero_grad()
        self.on.task.problem.upper(self.whole.x, self.y).backward()
        self.adam.step()


def plain(task: cleaning.Task, budget: Budget, size: int, watch: Watch) -> None:
    """Training on the trusted rows alone; the upper step of its setting is the weight decay."""
    _stepping(Plain(task, size, budget.lr, budget.x_lr), size, watch)


def _stepping(loop: Any, rows: float, watch: Watch) -> None:
    """Step until the watch says that the time is up, with so many rows through a gradient a step."""
    over = False
    while not over:
        loop.step()
        over = watch(loop, rows * (watch.steps + 1))
