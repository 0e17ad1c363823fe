"""Many starts in one batch: methods whose x, y and state have a row for each start.

The estimators never synchronise with the host, so ``torch.func.vmap`` can map a whole estimate over the starts; the
derivatives must then come from ``torch.func`` too. :class:`bvfim.AdaptiveBVFIM` runs in batches by itself.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bvfim import tree
from bvfim.core.accelerate import Plain
from bvfim.core.backends import FUNCTIONAL
from bvfim.core.evaluations import Evaluations
from bvfim.core.following import Following, checked_estimate
from bvfim.core.problem import Problem
from bvfim.interior.batch import KINDS
from bvfim.interior.starts import UNDER_WAY
from bvfim.methods import AdaptiveBVFIM, AdaptiveState, Estimator, Info, Method
from bvfim.methods.adaptive import report
from bvfim.methods.base import Data, OptimizerFactory, S, State, Step
from bvfim.status import Status
from bvfim.tree import Tree

ENDS = (None, Status.NON_FINITE, Status.SLACK_LOST)
"""How a start of an estimator may end before the others; its place here is the entry in ``BatchState.ended``."""
ENTRYWISE = {"SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adagrad", "Adadelta", "RMSprop", "Rprop", "ASGD"}
"""Optimisers that update every entry independently, so that starts do not interact."""


class Batch(Method[S]):
    """What the loop runs for many starts, and the result of each start.

    Attributes:
        tables: for each step what it reported, a list with an entry for each start, or one number for all.
    """

    tables: list[dict[str, Any]]

    @abstractmethod
    def alone(self, problem: Problem, x: Tree, state: S, i: int) -> tuple[Tree, State]:
        """x and the state of start i."""

    @abstractmethod
    def ended(self, state: S) -> Tensor:
        """Which starts have ended."""

    @abstractmethod
    def status_of(self, state: S, i: int) -> Status | None:
        """How start i has ended."""

    @abstractmethod
    def taken(self, state: S, i: int) -> tuple[list[int], int]:
        """The steps that start i took part in, and how many of them it completed."""

    @abstractmethod
    def evaluations(self, state: S, i: int) -> dict[str, int]:
        """The evaluations of start i."""

    def status(self, state: S) -> Status | None:
        """Converged, in the sense that every start has ended, each in its own way."""
        return Status.CONVERGED if bool(self.ended(state).all()) else None

    def rows_of(self, state: S, i: int) -> list[dict[str, float]]:
        """The history of start i."""
        own = [self.tables[k] for k in self.taken(state, i)[0]]
        rows = [{name: v[i] if isinstance(v, list) else v for name, v in table.items()} for table in own]
        return [{"step": k, **row} for k, row in enumerate(rows)]


class BatchState(NamedTuple):
    """The states of all starts, whether and how each has ended, and how many steps it has completed."""

    own: State
    ended: Tensor
    steps: Tensor

    @property
    def y(self) -> Tree:
        """The lower iterates."""
        return self.own.y


class EstimatorBatch(Batch[BatchState], Following[BatchState]):
    """An estimator on many starts: each step maps its estimate over them, and one optimiser moves every x.

    A start that breaks off keeps its last good x and state; the others go on.
    """

    def __init__(self, estimator: Estimator, problem: Problem, xs: Tree, optimizer: OptimizerFactory | None) -> None:
        super().__init__(estimator, xs, optimizer, None, None, Plain(estimator))
        self.each, self.row, self.tables = estimator, problem.differentiated_by(FUNCTIONAL), []

    @property
    def entrywise(self) -> bool:
        """Whether the optimiser of all starts moves each of them as its own would."""
        return type(self.optimizer).__name__ in ENTRYWISE

    def init(self, problem: Problem, x: Tree, y: Tree) -> BatchState:
        """Every start under way."""
        own = torch.func.vmap(lambda x, y: self.each.init(self.row, x, y))(x, y)
        none = torch.zeros(len(tree.leaves(x)[0]), dtype=torch.int64, device=tree.leaves(x)[0].device)
        return BatchState(own, none, none)

    def estimates(self, x: Tree, own: State, k: int) -> Step[State]:
        """The estimate of each start."""

        def one(x: Tree, own: State) -> Step[State]:
            found = self.each.estimate(self.row, x, own, k, None)
            gradient, own, info = checked_estimate(found, x, self.each)
            return gradient, own, {**info, "grad_norm": tree.norm(gradient)}

        return torch.func.vmap(one)(x, own)

    def step(self, problem: Problem, x: Tree, state: BatchState, k: int, data: Data) -> Step[BatchState]:
        """A step of every start that is under way."""
        gradient, own, info = self.estimates(x, state.own, k)
        judged = [info[name] for name in ("upper", "lower", "grad_norm") if name in info]
        finite = torch.stack([values.isfinite() for values in judged]).all(0)
        outside = info["slack"] <= 0 if "slack" in info else torch.zeros_like(finite)
        ended = torch.where(state.ended > 0, state.ended, torch.where(outside, 2, (~finite).long()))
        moved = self._moved(problem, x, _where(ended == 0, gradient, tree.zeros_like(gradient)))
        lengths = torch.func.vmap(tree.norm)(moved)
        ended = torch.where((ended == 0) & ~lengths.isfinite(), 1, ended)
        going = ended == 0
        self._tabulate(problem, {**info, "x_norm": lengths})
        state = BatchState(_where(going, own, state.own), ended, state.steps + going)
        return _where(going, moved, x), state, _means({**info, "x_norm": lengths}, going)

    def _tabulate(self, problem: Problem, info: Info) -> None:
        own = self.row.evaluations
        self.tables.append({**{name: v.double().tolist() for name, v in info.items()}, **own.columns()})
        starts = len(info["x_norm"])
        problem.evaluations.reset(**{kind: starts * number for kind, number in own.as_dict().items()})

    def _projected(self, problem: Problem, x: Tree) -> Tree:
        return torch.func.vmap(problem.project_x)(x)

    def alone(self, problem: Problem, x: Tree, state: BatchState, i: int) -> tuple[Tree, State]:
        """x and the state of start i."""
        return row(x, i), row(state.own, i)

    def ended(self, state: BatchState) -> Tensor:
        """Which starts have broken off."""
        return state.ended > 0

    def status_of(self, state: BatchState, i: int) -> Status | None:
        """How start i broke off, if it did."""
        return ENDS[int(state.ended[i])]

    def taken(self, state: BatchState, i: int) -> tuple[list[int], int]:
        """The first steps, with the one that broke off."""
        completed = int(state.steps[i])
        return list(range(completed + int(state.ended[i] > 0))), completed

    def evaluations(self, state: BatchState, i: int) -> dict[str, int]:
        """Its evaluations up to its end, and F and f there."""
        steps = self.taken(state, i)[0]
        table = self.tables[steps[-1]] if steps else {}
        counts = {kind: int(table.get(f"{kind}_evaluations", 0)) for kind in Evaluations().as_dict()}
        return {**counts, "forward": counts["forward"] + 2}


class AdaptiveBatch(Batch[AdaptiveState]):
    """The interior point on given starts."""

    def __init__(self, method: AdaptiveBVFIM) -> None:
        self.method, self.tables = method, []
        self.took_part: list[Tensor] = []

    def init(self, problem: Problem, x: Tree, y: Tree) -> AdaptiveState:
        """Every start before its first stage."""
        return self.method.init_many(problem, x, y)

    def step(self, problem: Problem, x: Tree, state: AdaptiveState, k: int, data: Data) -> Step[AdaptiveState]:
        """A stage of every start that is under way."""
        before = state.starts
        _, state, _ = self.method.step(problem, row(x, 0), state, k, None)
        after, running = state.starts, before.ended == UNDER_WAY
        info = {**report(before, after), "x_norm": (after.w * after.unit)[:, : tree.size(row(x, 0))].norm(dim=1)}
        counts = {f"{kind}_evaluations": column for kind, column in zip(KINDS, after.counts.unbind(1), strict=True)}
        lists = {name: values.tolist() for name, values in {**info, **counts}.items()}
        self.tables.append({**Evaluations().columns(), **lists})
        self.took_part.append(running)
        return self.method.xs(problem, x, state), state, _means(info, running)

    def alone(self, problem: Problem, x: Tree, state: AdaptiveState, i: int) -> tuple[Tree, State]:
        """x and the state of start i."""
        return self.method.only(problem, row(x, 0), state, i)

    def ended(self, state: AdaptiveState) -> Tensor:
        """Which starts have ended."""
        return state.starts.ended != UNDER_WAY

    def status_of(self, state: AdaptiveState, i: int) -> Status | None:
        """How start i has ended."""
        return self.method.end_of(state.starts.ended[i])

    def taken(self, state: AdaptiveState, i: int) -> tuple[list[int], int]:
        """The stages up to its end."""
        own = [k for k, running in enumerate(self.took_part) if bool(running[i])]
        return own, len(own)

    def evaluations(self, state: AdaptiveState, i: int) -> dict[str, int]:
        """Its evaluations."""
        return Evaluations(*state.starts.counts[i].tolist()).as_dict()


def row(variable: Tree, i: int) -> Tree:
    """The i-th row of every leaf."""
    return tree.map(lambda t: t[i].detach(), variable)


def _where(which: Tensor, new: Tree, old: Tree) -> Tree:
    """The rows of ``new`` that ``which`` names, else those of ``old``."""
    return tree.map(lambda a, b: torch.where(which.reshape(-1, *[1] * (a.dim() - 1)), a, b), new, old)


def _means(info: Info, which: Tensor) -> Info:
    """What a step of many starts reports: means over those that are under way and finite.

    No slack: a run ends where it is lost, and here each start has its own.
    """
    found = {}
    for name, values in info.items():
        if name == "slack":
            continue
        counted = which & values.isfinite()
        found[name] = torch.where(counted, values, 0).double().sum() / counted.sum().clamp_min(1)
    return found
