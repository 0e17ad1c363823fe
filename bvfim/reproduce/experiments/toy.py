r"""The paper's toy, Figures 1 to 4 and A1: what each method finds, and how it gets there.

.. math:: \min_{x, y} (x - a)^2 + (y - a)^2 \quad\text{s.t.}\quad y \in \arg\min_y \sin(x + y)

(Liu et al., 2021, Section 6.1 and the appendix.)
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd
import torch

import bvfim
from bvfim.methods import BVFIMState, LowerState
from bvfim.reports.report import Results
from bvfim.reproduce.experiments import toy_report
from bvfim.reproduce.experiments.resumable import How, Part, finished, measured
from bvfim.reproduce.experiments.toy_settings import FAR, Config, methods, name, regularisers, updates
from bvfim.schedules import geometric
from bvfim.testproblems import sine

__all__ = ["Config", "lower_paths", "methods", "parts", "run", "trace"]


def trace(method: Any, a: float, starts: tuple[float, ...], config: Config) -> pd.DataFrame:
    """The path of (x, y) from each start: a row a step, and the evaluations so far."""
    return pd.concat([_trace(method, a, start, config) for start in starts], ignore_index=True)


def _trace(method: Any, a: float, start: float, config: Config) -> pd.DataFrame:
    at = torch.full((1,), start, dtype=torch.float64, device=config.device)
    points = [(start, start, start)]

    def record(run: bvfim.Run) -> None:
        points.append((float(run.x), float(run.state.y), float(getattr(run.state, "z", run.state.y))))

    toy = sine(a)
    solution = bvfim.solve(toy.problem, at, at, method, steps=updates(method, config.steps), callbacks=[record])
    finished(solution)
    history = solution.history
    work = history[["upper_evaluations", "lower_evaluations", "hvp_evaluations", "jvp_evaluations"]].sum(axis=1)
    found = pd.DataFrame(points, columns=["x", "y", "z"])
    found["F"] = (found["x"] - a) ** 2 + (found["y"] - a) ** 2
    found["f"] = (found["x"] + found["y"]).map(math.sin)
    found.insert(0, "gradients", [0, *work[: len(found) - 1]])
    found.insert(0, "step", range(len(found)))
    found.insert(0, "start", start)
    found.insert(0, "a", a)
    return found


def parts(config: Config) -> dict[str, Part]:
    """Every run of the figures."""
    chosen, printed = methods(config.seed), bvfim.BVFIM.printed()
    runs: dict[str, Part] = {
        name("figure1", label, a): partial(trace, method, a, config.starts, config)
        for label, method in chosen.items()
        for a in config.a
    }
    for label, method in regularisers().items():
        runs[name("figure3", label)] = partial(trace, method, 0.0, (FAR,), config)
    for L in config.lengths:
        runs[name("figure4", L)] = partial(trace, replace(printed, repeats=L), 0.0, (FAR,), config)
    for tau in config.taus:
        method = replace(printed, tau=geometric(tau, 1 / 1.01))
        runs[name("figureA1", f"{tau:g}")] = partial(trace, method, 0.0, config.starts, config)
    return runs


def lower_paths(config: Config, tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Figure 2: the lower iterates of each method at x_0 and at the last x, a = 0 from the far start."""
    problem, rows = sine(0.0).problem, []
    for label, method in methods(config.seed).items():
        path = tables[name("figure1", label, 0.0)].query("start == @FAR").reset_index(drop=True)
        for when, k in (("first", 0), ("last", len(path) - 1)):
            x, y, z = (torch.tensor([path.loc[k, name]], dtype=torch.float64) for name in ("x", "y", "z"))
            for t, y_t in enumerate(_lower(method, problem, x, y, z, k)):
                rows.append({"method": label, "x": when, "t": t, "y": y_t, "to S(x)": _to_solutions(float(x), y_t)})
    paths = pd.DataFrame(rows)
    paths["to y*"] = (paths["y"] - float(sine(0.0).y)).abs()
    return paths


def _lower(method: Any, problem: bvfim.Problem, x: Any, y: Any, z: Any, k: int) -> list[float]:
    """y_0, y_1, ... at a fixed x; AdaptiveBVFIM moves x and y together, so that only where it stands is told."""
    if isinstance(method, bvfim.BVFIM):
        state = BVFIMState(y, z, y)
        steps = [replace(method, y_steps=t) for t in range(1, method.y_steps + 1)]
        return [float(y), *(float(one.estimate(problem, x, state, k, None)[1].y) for one in steps)]
    if isinstance(method, bvfim.AdaptiveBVFIM):
        return [float(y)]
    single, path = replace(method, steps=1), [y]
    for _ in range(method.steps):
        path.append(single.solve_lower(problem.at(x), LowerState(y, path[-1]), k))
    return [float(y) for y in path]


def _to_solutions(x: float, y: float) -> float:
    """The distance from y to S(x) = { -pi/2 - x + 2 k pi }."""
    return abs((x + y + math.pi / 2 + math.pi) % (2 * math.pi) - math.pi)


def run(config: Config, how: How = How()) -> Results:
    """Measure and report.

    Args:
        config: the settings.
        how: where the parts are saved, and how many processes share them.
    """
    tables = measured(config, parts(config), how)
    return toy_report.report(config, tables, lower_paths(config, tables))
