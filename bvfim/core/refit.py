"""Solves the lower level again at a fixed x: what y is worth once x is chosen."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bvfim import tree
from bvfim.core.arguments import check_steps
from bvfim.core.batches import Draws
from bvfim.core.constraints import LOWER
from bvfim.core.lower_minimum import held_minimum, lower_minimum
from bvfim.core.problem import Problem, as_problem
from bvfim.core.range_test import adam_step
from bvfim.core.run import Run
from bvfim.core.single_loop import Moved, cosine
from bvfim.core.solution import Solution
from bvfim.core.validate import validate
from bvfim.methods import StochasticBVFIM
from bvfim.methods.base import OptimizerFactory
from bvfim.status import MethodError, Status, warn
from bvfim.tree import Tree

SHARE = 0.1
"""The refit of a run costs at most this share of the run."""
LOOKS = 20
"""F and f are means over at most this many draws."""
VALUES = 6
"""The values of F and f at y, after the refit and at z."""
BROKEN = (
    Status.NON_FINITE, Status.INTERRUPTED, Status.RANK_FAILED, Status.RANK_LOST, Status.RANKS_DIFFER, Status.INFEASIBLE,
)  # fmt: skip
"""Runs that ended so are not judged."""
VALUE = 1 / 3
"""What a value costs, as a share of a gradient."""
RANGE_TEST = 45
"""What the range test costs, about, in gradients."""
SLACK, APART = 0.01, 0.5
"""F at y and after a refit are apart if they differ by this share of the larger; F at z and after a refit, by half of
it: z has not seen F, and a network is a little worse for that."""
TRIFLE = 1e-4
"""What is at most this share of F's fall in the run is not worth a word."""
LONGEST = 1000
"""Iterations of L-BFGS after which the refit of a run ends anyway."""

NOT_HELD = "the constraints of the lower level could not be met in a refit of that length, so its gap is not known"
ON_BATCHES = "with batches, constraints of the lower level are not refitted, so its gap is not known"


class Refit(NamedTuple):
    """A lower-level solution y at a fixed x, and F and f there; means over draws where there are batches.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(lambda x, y: (y**2).sum(), lambda x, y: ((y - x) ** 2).sum())
        >>> bvfim.refit(problem, torch.ones(1), torch.zeros(1)).upper
        1.0
    """

    y: Tree
    upper: float
    lower: float


def refit(
    problem: Problem,
    x: Tree,
    y: Tree,
    *,
    batches: Any = None,
    steps: int = LONGEST,
    optimizer: OptimizerFactory | None = None,
) -> Refit:
    """Minimise f(x, .) from y at a fixed x. From the y that a run started with, this is training anew with its x.

    Args:
        problem: the objectives and sets.
        x: the upper variable, which stays.
        y: the initial lower variable.
        batches: as for :func:`bvfim.solve`.
        steps: the number of steps with batches or with an optimizer; otherwise L-BFGS ends by itself, at the latest
            after so many iterations.
        optimizer: maps a list of tensors to the torch optimiser of y. The default is L-BFGS, and with batches Adam with
            a step from a short range test. Its steps follow a cosine to zero.

    Returns:
        A :class:`bvfim.Refit`: y, and F and f there.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(
        ...     upper=lambda x, y: ((y - 1) ** 2).sum(), lower=lambda x, y, e: ((y - x - e) ** 2).sum()
        ... )
        >>> x = torch.zeros(1)
        >>> found = bvfim.refit(problem, x, x + 3, batches=[0.1, -0.1], steps=200)
        >>> round(found.upper, 1)
        1.0
    """
    check_steps(steps)
    draws, own = Draws(batches), as_problem(problem).counted_anew()
    first = draws.draw()
    validate(own, x, y, first)
    if is_held(own):
        if first is not None or optimizer is not None:
            raise MethodError("refit: with constraints of the lower level there are no batches= and no optimizer=")
        found, holds = held_minimum(own, x, tree.clone(y), steps) or (y, False)
        if not holds:
            warn(f"refit: {NOT_HELD}")
    else:
        found = descended(own, x, tree.clone(y), first, draws.draw, steps, optimizer)
    F, f = mean_values(own, x, [found], first, draws.draw, LOOKS)[0]
    return Refit(found, F, f)


def descended(
    problem: Problem,
    x: Tree,
    y: Tree,
    first: Any,
    draw: Callable[[], Any],
    steps: int,
    optimizer: OptimizerFactory | None = None,
) -> Tree:
    """The end of a descent of f(x, .) from y."""
    at = problem.at(x, first)
    exact = lower_minimum(at, y, steps) if first is None and optimizer is None else None
    if exact is not None:
        return exact[0]

    def adam(parameters: list[Tensor]) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=adam_step(at, y))

    moved = Moved(y, optimizer or adam, cosine(steps))
    for k in range(steps):
        at = problem.at(x, first if k == 0 else draw())
        moved.put(problem.project_y(moved.step(at.lower_grad(moved.variable)[1])))
        moved.scheduler.step()
    return moved.variable


def is_held(problem: Problem) -> bool:
    """Whether the lower level has constraints."""
    return any(name in LOWER for name in problem.stated)


def mean_values(
    problem: Problem, x: Tree, ys: list[Tree], first: Any, draw: Callable[[], Any], looks: int
) -> list[list[float]]:
    """F and f at each y, all on the same draws."""
    totals = torch.zeros(len(ys), 2, dtype=torch.float64)
    count = looks if first is not None else 1
    for i in range(count):
        at = problem.at(x, first if i == 0 else draw())
        noise = at.random_state()
        for j, y in enumerate(ys):
            at.restore_random_state(noise)
            totals[j] += torch.stack(at.values(y)).double().cpu()
    found: list[list[float]] = (totals / count).tolist()
    return found


def judged(run: Run, solution: Solution) -> Solution:
    """The solution with its lower gap and F after a refit, for at most a tenth of the cost of the run."""
    gradients = gradients_of(solution)
    looks = max(1, min(LOOKS, int(SHARE * gradients / (2 * VALUES * VALUE)))) if run.draws.given else 1
    test = RANGE_TEST if run.draws.given else 0
    steps = min(int(SHARE * gradients - VALUES * VALUE * looks - test), LONGEST)
    if steps < 1 or not run.rows or solution.status in BROKEN:
        return solution
    own = run.problem.counted_anew()

    def draw() -> Any:
        return run.world.attempt(run.draw, run.drawn)

    first, x = draw(), run.world.local(solution.x)
    if is_held(own):
        found, holds = (None if first is not None else held_minimum(own, x, solution.y, steps)) or (None, False)
        if not holds:
            return replace(solution, doubts=(NOT_HELD if first is None else ON_BATCHES,))
        y = found
    else:
        y = descended(own, x, solution.y, first, draw, steps)
    ys = [solution.y, y, solution.z]
    at_y, refit, (F_z, _) = mean_values(own, x, ys, first, draw, looks)
    return worth(solution, at_y, refit, F_z, alone=isinstance(run.method, StochasticBVFIM))


def gradients_of(solution: Solution) -> float:
    """What a run cost, in gradients."""
    return in_gradients(solution.evaluations)


def in_gradients(spent: Mapping[str, int]) -> float:
    """What evaluations cost, in gradients: a product counts as two, a value as a third of one.

    Example:
        >>> from bvfim.core.refit import in_gradients
        >>> in_gradients({"upper": 1, "lower": 2, "hvp": 1, "jvp": 0, "forward": 3})
        6.0
    """
    return spent["upper"] + spent["lower"] + 2 * (spent["hvp"] + spent["jvp"]) + VALUE * spent["forward"]


def worth(solution: Solution, at_y: list[float], refit: list[float], at_z: float, alone: bool = False) -> Solution:
    """The solution with what its y is worth, where that can be told.

    Args:
        solution: the solution.
        at_y, refit: F and f at y and after a refit; at_z: F at z.
        alone: as for :func:`doubted`.
    """
    (F_y, f_y), (F, f) = at_y, refit
    if not all(map(math.isfinite, (f_y, F, f))):
        return solution
    fallen = abs(solution.rows[0].get("upper", F_y) - F_y)  # a method of a user may report nothing
    doubts = doubted(F_y, F, at_z, fallen, alone)
    slack = F_y < F and apart(F_y, F, fallen)
    return replace(solution, lower_gap=f_y - f, upper_refit=F, uses_slack=slack, upper_z=at_z, doubts=doubts)


def apart(at_y: float, refit: float, fallen: float = 0.0) -> bool:
    """Whether F at y and after a refit differ by more than the tolerance.

    Example:
        >>> from bvfim.core.refit import apart
        >>> apart(1.0, 1.001), apart(1.0, 1.1)
        (False, True)
    """
    return abs(refit - at_y) > max(SLACK * max(abs(refit), abs(at_y)), TRIFLE * fallen)


def doubted(at_y: float, refit: float, at_z: float, fallen: float, alone: bool) -> tuple[str, ...]:
    """What stands against a result, from F at y, after a refit, and at z; in sentences.

    Args:
        at_y, refit, at_z: the three values; z that is y, as where a method has none of its own, tells nothing.
        fallen: how far F has come down in the run.
        alone: whether the method leaves y and z where they are: then nobody looked for other lower-level minimisers.
    """
    found = []
    if apart(at_y, refit, fallen):
        slack = ", and F uses the slack of the lower level" if refit > at_y else ""
        found.append(
            f"y is not a lower-level solution{slack}: F is {at_y:.3g} there and {refit:.3g} after a refit, so x may be "
            "as far from the optimum"
        )
    if at_z != at_y and at_z - refit > max(APART * max(abs(at_z), abs(refit)), TRIFLE * fallen):
        found.append(
            f"the lower level has several solutions, and F is {at_z:.3g} at z, which saw f alone: a y trained anew may "
            "be as bad; if that is what counts, use bvfim.RHG(start='restart')"
        )
    if alone:
        found.append("no other lower-level minimisers were looked for, as bvfim.AdaptiveBVFIM does on small problems")
    return tuple(found)
