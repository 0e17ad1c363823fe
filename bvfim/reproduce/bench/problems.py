"""The methods on problems with known optima, from the same starts: what each solves, and for how many gradients."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from typing import Any

import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor

import bvfim
from bvfim.core.solution import Solution
from bvfim.methods import Chosen, require_able
from bvfim.reports.report import Results
from bvfim.reproduce.experiments.resumable import finished
from bvfim.status import MethodError, ProblemError, Status, no_such
from bvfim.testproblems import (
    TestProblem,
    collection,
    constrained,
    coupled,
    judged,
    pessimistic,
    planted_family,
    starts,
    unattained,
)

COUNTS = {"F grads": "upper", "f grads": "lower", "values": "forward", "hvp": "hvp", "jvp": "jvp"}
"""The columns of a run, and what a solution calls them."""
COLLECTIONS = {
    "plain": collection,
    "constrained": constrained,
    "coupled": coupled,
    "pessimistic": pessimistic,
    "unattained": unattained,
}
"""Collections of test problems by name."""


@dataclass(frozen=True)
class Config:
    """Which methods and problems, and how long the estimators may take.

    Args:
        methods: names for :func:`bvfim.methods.by_name`.
        problems: names of test problems, in any case of letters; all where there are none.
        collection: the name of a collection of test problems.
        planted: how many planted problems come after the collection.
        starts: how many for each problem, the same for all methods.
        steps: upper steps of the methods that estimate a hypergradient. AdaptiveBVFIM ends by itself.
        lr: of Adam, which moves x for them. It moves an entry by about lr a step: 100 steps of 0.1 can cross the boxes.
        seed: of the starts, the planted problems and the scouts.
        workers: how many processes share the work, one thread each.
    """

    methods: tuple[str, ...] = ("adaptivebvfim", "rhg", "cg", "bda", "bvfim")
    problems: tuple[str, ...] = ()
    planted: int = 0
    starts: int = 6
    steps: int = 100
    lr: float = 0.1
    seed: int = 0
    workers: int = 2
    collection: str = "plain"


def problems(config: Config) -> list[TestProblem]:
    """The test problems that a config asks for.

    Example:
        >>> from bvfim.reproduce.bench.problems import Config, problems
        >>> len(problems(Config(planted=4))), [test.name for test in problems(Config(problems=("SMD1",)))]
        (25, ['SMD1'])
    """
    if config.collection not in COLLECTIONS:
        raise ProblemError(no_such("collection", config.collection, COLLECTIONS))
    own = [*COLLECTIONS[config.collection](), *planted_family(config.planted, config.seed)]
    known = {test.name.lower(): test for test in own}
    for name in config.problems:
        if name.lower() not in known:
            raise ProblemError(no_such("test problem", name, known))
    return [known[name.lower()] for name in config.problems or known]


def able(names: tuple[str, ...], collection: str) -> tuple[str, ...]:
    """Those of the methods that can take every problem of a collection.

    Example:
        >>> from bvfim.reproduce.bench.problems import able
        >>> able(("adaptivebvfim", "rhg", "cg"), "constrained")
        ('adaptivebvfim',)
    """
    tests = problems(Config(collection=collection))
    return tuple(name for name in names if all(_takes(method(name, 0), test) for test in tests))


def _takes(chosen: Chosen, test: TestProblem) -> bool:
    try:
        require_able(chosen, test.problem)
    except MethodError:
        return False
    return True


def method(name: str, seed: int) -> Any:
    """The method called ``name`` as the bench runs it: T = 100, J = 20, and the paper's own recipe for BVFIM.

    Example:
        >>> from bvfim.reproduce.bench.problems import method
        >>> method("cg", seed=0).cg_steps, method("bvfim", seed=0).mu2
        (20, LowerValue(offset=1.0, weight=None))
    """
    kind = bvfim.methods.by_name(name)
    if kind is bvfim.AdaptiveBVFIM:
        return kind(seed=100 * seed)
    if kind is bvfim.BVFIM:
        return kind.printed()
    made = kind()
    # The same gradient from one graph, which asks for each lower gradient only once.
    return replace(made, segment=made.steps) if hasattr(made, "segment") else made


def adam(lr: float) -> Callable[[list[Tensor]], torch.optim.Optimizer]:
    """What moves x for the estimators."""
    return lambda parameters: torch.optim.Adam(parameters, lr)


def run(config: Config, track: Any = iter) -> Results:
    """Run every method on every problem from the same starts.

    Args:
        config: the settings.
        track: wraps the list of (problem, method) pairs to show how far they are.

    Example:
        >>> from bvfim.reproduce.bench import problems
        >>> config = problems.Config(("adaptivebvfim",), ("DempeEtal2012",), starts=2, workers=1)
        >>> problems.run(config).tables["totals"].loc["AdaptiveBVFIM", "starts solved"]
        '2 of 2'
    """
    plan = [(i, name) for i in range(len(problems(config))) for name in config.methods]
    for name in config.methods:  # an unknown one, or one that can't take a problem, is refused before the work
        chosen = method(name, config.seed)
        for test in problems(config):
            require_able(chosen, test.problem)
    runs = pd.DataFrame([row for rows in _measured(config, plan, track) for row in rows])
    table = pd.DataFrame([_row(*group) for group in runs.groupby(["problem", "method"], sort=False)])
    totals = pd.DataFrame([_total(name, group, table) for name, group in runs.groupby("method", sort=False)])
    totals = totals.set_index("method")
    table = table.set_index(["problem", "method"])
    table.attrs["title"] = (
        f"solved starts, and medians per start (estimators: {config.steps} Adam steps, lr {config.lr:g})"
    )
    summary = {str(name): row.to_dict() for name, row in totals.iterrows()}
    tables = {"problems": table, "totals": totals, "runs": runs.set_index(["problem", "method", "start"])}
    return Results(tables, {"profile": _figure(runs, config)}, summary)


def _measured(config: Config, plan: list[tuple[int, str]], track: Any) -> list[list[dict[str, Any]]]:
    job = partial(_runs, config)
    if config.workers == 1:
        return [job(pair) for pair in track(plan)]
    context = get_context("spawn")
    with ProcessPoolExecutor(config.workers, context, torch.set_num_threads, (1,)) as pool:
        return [rows for _, rows in zip(track(plan), pool.map(job, plan), strict=True)]


def _runs(config: Config, pair: tuple[int, str]) -> list[dict[str, Any]]:
    """One method on one problem: a row for each start."""
    index, name = pair
    test, chosen = problems(config)[index], method(name, config.seed)
    xs, ys = (torch.stack(side) for side in zip(*starts(test, config.starts, config.seed), strict=True))
    began = time.perf_counter()
    found = _solutions(test.problem, xs, ys, chosen, config)
    seconds = time.perf_counter() - began
    finished(*found)
    return [
        {"problem": test.name, "method": type(chosen).__name__, "start": i, **_judged(test, s), "seconds": seconds}
        for i, s in enumerate(found)
    ]


def _solutions(problem: bvfim.Problem, xs: Tensor, ys: Tensor, method: Chosen, config: Config) -> list[Solution]:
    if isinstance(method, bvfim.AdaptiveBVFIM):
        return bvfim.solve_many(problem, xs, ys, method, refit=False)
    return bvfim.solve_many(problem, xs, ys, method, steps=config.steps, optimizer=adam(config.lr), refit=False)


def _judged(test: TestProblem, solution: Solution) -> dict[str, Any]:
    """What a run found, whether it may be chosen by what is known without the optimum, and what it cost."""
    found = judged(test, solution.x, solution.y)
    if solution.certificate is not None:
        trusted = solution.status in (Status.CONVERGED, Status.STUCK)
    else:
        trusted = found.is_feasible()
    counts = {column: solution.evaluations[name] for column, name in COUNTS.items()}
    return {
        "status": solution.status.value,
        "F": found.upper,
        "f": found.lower,
        "violation": found.violation,
        "lower gap": found.gap,
        "trusted": trusted,
        "solved": found.is_solution(test.upper),
        **counts,
        "hvp+jvp": counts["hvp"] + counts["jvp"],
        "gradients": sum(counts.values()) - counts["values"],
    }


def _row(names: Any, runs: pd.DataFrame) -> dict[str, Any]:
    """One method on one problem; the choice is the lowest F among the runs that can be trusted."""
    chosen = runs[runs["trusted"]].sort_values("F").head(1)
    return {
        "problem": names[0],
        "method": names[1],
        "solved": f"{runs['solved'].sum()} of {len(runs)}",
        "after choosing": bool(chosen["solved"].any()),
        **_medians(runs),
        "seconds": round(float(runs["seconds"].iloc[0]), 2),
        "status": ", ".join(f"{count} {status}" for status, count in runs["status"].value_counts().items()),
        "violation": float(runs["violation"].median()),
        "lower gap": float(runs["lower gap"].median()),
    }


def _total(name: Any, runs: pd.DataFrame, table: pd.DataFrame) -> dict[str, Any]:
    """One method on all problems."""
    own = table[table["method"] == name]
    return {
        "method": name,
        "starts solved": f"{runs['solved'].sum()} of {len(runs)}",
        "problems solved after choosing": f"{own['after choosing'].sum()} of {len(own)}",
        **{f"median {kind}": count for kind, count in _medians(runs).items()},
        "seconds": round(float(own["seconds"].sum()), 1),
    }


def _medians(runs: pd.DataFrame) -> dict[str, int]:
    return {
        str(kind): round(count) for kind, count in runs[["F grads", "f grads", "values", "hvp+jvp"]].median().items()
    }


def _figure(runs: pd.DataFrame, config: Config) -> Figure:
    """The share of starts that a method solves within a factor of the least gradients that any method took there."""
    cost = runs["gradients"].where(runs["solved"], math.inf)
    costs = runs.assign(cost=cost).set_index(["problem", "start", "method"])["cost"].unstack()
    ratios = costs.div(costs.min(axis=1).replace(math.inf, 1.0), axis=0)
    end = 2 * max(5.0, float(ratios.replace(math.inf, 1.0).to_numpy().max()))
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.subplots()
    for name in runs["method"].unique():
        factors = sorted(ratio for ratio in ratios[name] if ratio < math.inf)
        shares = [i / len(ratios) for i in range(len(factors) + 1)]
        label = f"{name}: {len(factors)} of {len(ratios)}"
        axes.step([1.0, *factors, end], [*shares, shares[-1]], where="post", linewidth=2, label=label)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set(xlim=(0.97, end), ylim=(-0.02, 1.02), ylabel="fraction of starts solved")
    axes.set_xlabel(
        "gradients of F and f plus second-order products,\nrelative to the cheapest solver of the same start"
    )
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right center", frameon=False, title="starts solved")
    figure.suptitle(f"Performance profile; estimators take {config.steps} Adam steps with lr {config.lr:g}")
    return figure
