r"""Table 1, shown: for each assumption of an explicit or implicit method, a problem that breaks it alone.

Every problem has one x. Its true value :math:`\varphi(x) = \min_y F(x, y)` over the lower solutions is known in closed
form, so that a picture shows where each method ends and where it should.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor

import bvfim
from bvfim.reports.plots import COLOURS, panels
from bvfim.reports.report import Results, Section
from bvfim.reproduce.experiments.paper import ASSUMPTIONS
from bvfim.reproduce.experiments.resumable import How, Part, finished, measured

SOLVED = 1e-2
"""How near to x* a run must end, with a lower level solved as well."""


@dataclass(frozen=True)
class Case:
    """A problem that breaks one assumption.

    Attributes:
        broken: the assumption.
        formulas: the problem in words.
        why: what the methods that need it run into.
        problem: F and f; start: of x and y.
        phi: the true value at x; best: its minimiser x*; lower: the true minimum of f at x.
    """

    broken: str
    formulas: str
    why: str
    problem: bvfim.Problem
    start: tuple[tuple[float, ...], tuple[float, ...]]
    phi: Callable[[np.ndarray], np.ndarray]
    best: float
    lower: Callable[[float], float]


def _well() -> float:
    """The lower minimiser of (t² - 1)² + t/2, near -1.06."""
    roots = np.roots([4.0, 0.0, -4.0, 0.5])
    return float(min(roots.real))


def cases() -> dict[str, Case]:
    """The three problems.

    The flat one is the counter-example of Liu et al. (ICML 2020), with which BDA was introduced.
    """
    t = _well()

    def tilted(x: Tensor, y: Tensor) -> Tensor:
        d = y - x
        return ((d**2 - 1) ** 2 + d / 2).sum()

    return {
        "convexity": Case(
            broken="a convex lower level",
            formulas="F = x² + (y - 1)², f = ((y - x)² - 1)² + (y - x)/2, from x = 0, y = 1",
            why="f has one solution for each x with an invertible Hessian, but also a second, higher well. A lower "
            "level that descends from y = 1 stays in that well.",
            problem=bvfim.Problem(lambda x, y: (x**2 + (y - 1) ** 2).sum(), tilted),
            start=((0.0,), (1.0,)),
            phi=lambda x: x**2 + (x + t - 1) ** 2,
            best=(1 - t) / 2,
            lower=lambda x: (t**2 - 1) ** 2 + t / 2,
        ),
        "singleton": Case(
            broken="a single lower solution",
            formulas="F = (x - y2)²/2 + (y1 - 1)²/2, f = (y1 - x)²/2, from x = 0, y = (0, 0)",
            why="f is convex but does not depend on y2, so F is free to choose it. A lower level that only descends f "
            "leaves y2 where it started. BDA, whose lower level also descends F, does not need a single solution.",
            problem=bvfim.Problem(
                lambda x, y: ((x[0] - y[1]) ** 2 + (y[0] - 1) ** 2) / 2,
                lambda x, y: ((y[0] - x[0]) ** 2) / 2,
            ),
            start=((0.0,), (0.0, 0.0)),
            phi=lambda x: (x - 1) ** 2 / 2,
            best=1.0,
            lower=lambda x: 0.0,
        ),
        "hessian": Case(
            broken="an invertible lower Hessian",
            formulas="F = (y2 - 1)²/2, f = (y1 - x)²/2 + (y2 - y1)⁴/4, from x = 0, y = (0, 0)",
            why="f is convex with one solution, y1 = y2 = x, where the Hessian is singular. The derivative dy2/dx "
            "is 1, but every second-order product at the solution is 0, so no gradient moves x.",
            problem=bvfim.Problem(
                lambda x, y: ((y[1] - 1) ** 2) / 2,
                lambda x, y: (y[0] - x[0]) ** 2 / 2 + (y[1] - y[0]) ** 4 / 4,
            ),
            start=((0.0,), (0.0, 0.0)),
            phi=lambda x: (x - 1) ** 2 / 2,
            best=1.0,
            lower=lambda x: 0.0,
        ),
    }


@dataclass(frozen=True)
class Config:
    """The runs.

    Args:
        steps: updates of x, by Adam.
        lr: its step.
        T: lower steps, of size lower_lr; J = 20.
        lower_lr: the step of the lower level.
        seed: of AdaptiveBVFIM's scouts.
        device: where the tensors are.
    """

    steps: int = 300
    lr: float = 0.02
    T: int = 50
    lower_lr: float = 0.1
    seed: int = 0
    device: str = "cpu"

    def quick(self) -> Config:
        """Smaller, to see that it runs."""
        return replace(self, steps=30, lr=0.1, T=10)


def methods(config: Config) -> dict[str, Any]:
    """The methods of Table 1, BVFIM in the form that converges."""
    lower: dict[str, Any] = {"steps": config.T, "lr": config.lower_lr}
    return {
        "FHG": bvfim.FHG(**lower),
        "RHG": bvfim.RHG(**lower, segment=config.T),
        "TRHG": bvfim.TRHG(**lower, keep=config.T // 2),
        "BDA": bvfim.BDA(**lower),
        "CG": bvfim.CG(**lower),
        "Neumann": bvfim.Neumann(**lower),
        "AdaptiveBVFIM": bvfim.AdaptiveBVFIM(seed=config.seed),
    }


def end(case: str, label: str, config: Config) -> pd.DataFrame:
    """Where a method ends on a problem."""
    stated, method = cases()[case], methods(config)[label]
    x, y = (torch.tensor(side, dtype=torch.float64, device=config.device) for side in stated.start)
    if label == "AdaptiveBVFIM":
        found = bvfim.solve(stated.problem, x, y, method)
    else:
        adam = partial(torch.optim.Adam, lr=config.lr)
        found = bvfim.solve(stated.problem, x, y, method, adam, config.steps)
    finished(found)
    at = float(found.x)
    row = {
        "x": at,
        "F": found.upper,
        "|x - x*|": abs(at - stated.best),
        "lower gap": found.lower - stated.lower(at),
        "status": found.status.value,
    }
    return pd.DataFrame([row])


def parts(config: Config) -> dict[str, Part]:
    """Every method on every problem."""
    pairs = [(case, label) for case in cases() for label in methods(config)]
    return {f"{case}-{label}".lower(): partial(end, case, label, config) for case, label in pairs}


def run(config: Config, how: How = How()) -> Results:
    """Measure and report.

    Args:
        config: the settings.
        how: where the parts are saved, and how many processes share them.
    """
    tables = measured(config, parts(config), how)
    rows = [
        {"case": case, "method": label, **tables[f"{case}-{label}".lower()].iloc[0]}
        for case in cases()
        for label in methods(config)
    ]
    frame = pd.DataFrame(rows)
    frame["solved"] = (frame["|x - x*|"] <= SOLVED) & (frame["lower gap"] <= SOLVED)
    frame["needs it, by Table 1"] = [_needs(row["case"], row["method"]) for _, row in frame.iterrows()]
    table = frame.pivot_table(index="method", columns="case", values="solved", aggfunc="first", sort=False)
    table.columns.name = None
    table.attrs["title"] = "solved without a convex lower level, a single lower solution, an invertible Hessian?"
    frames = {"assumptions": table, **{case: _own(frame, case) for case in cases()}}
    figures = {case: _figure(stated, frame[frame["case"] == case]) for case, stated in cases().items()}
    summary = {"solved": {str(label): int(own.sum()) for label, own in frame.groupby("method", sort=False)["solved"]}}
    return Results(frames, figures, summary, _sections(frame))


def _needs(case: str, label: str) -> bool:
    return ASSUMPTIONS[label.removeprefix("Adaptive")][list(cases()).index(case)]


def _own(frame: pd.DataFrame, case: str) -> pd.DataFrame:
    kept = ["method", "x", "F", "|x - x*|", "lower gap", "solved", "needs it, by Table 1"]
    return frame.loc[frame["case"] == case, kept].set_index("method")


def _sections(frame: pd.DataFrame) -> tuple[Section, ...]:
    opening = Section(
        "Table 1: what each method assumes",
        "Three small problems, each violating one assumption and satisfying the others. Solved means: x within "
        f"{SOLVED:g} of the optimum and the lower level minimised to {SOLVED:g}.",
        "FHG, RHG, TRHG, CG and Neumann need a convex lower level with a single solution, BDA a convex one; CG and "
        "Neumann also need an invertible Hessian; BVFIM needs none of these (Table 1).",
        "Problems solved, out of three: "
        + ", ".join(f"{label} {int(own.sum())}" for label, own in frame.groupby("method", sort=False)["solved"])
        + ".",
        tables=("assumptions",),
    )
    return (opening, *(_section(case, stated, frame) for case, stated in cases().items()))


def _section(case: str, stated: Case, frame: pd.DataFrame) -> Section:
    own = frame[frame["case"] == case]
    failed = own.loc[~own["solved"], "method"].tolist()
    solved = own.loc[own["solved"], "method"].tolist()
    return Section(
        f"Without {stated.broken}",
        f"{stated.formulas}.\n\n{stated.why}",
        "Needed by " + (", ".join(own.loc[own["needs it, by Table 1"], "method"]) or "none") + ".",
        f"Solved by {', '.join(solved) or 'none'}; not by {', '.join(failed) or 'none'}.",
        (case,),
        (case,),
    )


def _figure(stated: Case, own: pd.DataFrame) -> Figure:
    """The true value over x, and where each method ends: on the curve where its y is a best lower solution."""
    figure, axes = panels(1, 1, width=8.0, height=3.4)
    one = axes[0, 0]
    span = [*own["x"], stated.best, stated.start[0][0]]
    grid = np.linspace(min(span) - 0.5, max(span) + 0.5, 400)
    one.plot(grid, stated.phi(grid), color="#808a94", linewidth=2, label="the true value φ(x)")
    one.axvline(stated.best, color="#808a94", linestyle=":", linewidth=1)
    for marker, (_, row) in zip("osD^v<*", own.iterrows(), strict=True):
        size = 15 if marker == "*" else 8
        label = row["method"] + (" (solved)" if row["solved"] else "")
        one.plot(row["x"], row["F"], marker, color=COLOURS[row["method"]], markersize=size, label=label, alpha=0.85)
    one.set(xlabel="x", ylabel="F at the end", title=f"without {stated.broken}; the optimum is x = {stated.best:.3f}")
    figure.legend(loc="outside right center", frameon=False)
    return figure
