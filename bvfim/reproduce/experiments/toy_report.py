"""The tables and the page of :mod:`bvfim.reproduce.experiments.toy`."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from bvfim.reports.report import Results, Section
from bvfim.reproduce.experiments import toy_figures
from bvfim.reproduce.experiments.paper import TOY, TOY_UPPER
from bvfim.reproduce.experiments.toy_settings import FAR, Config, methods, name, regularisers
from bvfim.testproblems import sine

Tables = dict[str, pd.DataFrame]


def report(config: Config, tables: Tables, lower: pd.DataFrame) -> Results:
    """The figures, and our numbers beside the paper's words.

    Args:
        config: the settings.
        tables: the paths, by the names of the parts.
        lower: the lower iterates of Figure 2.
    """
    runs = {label: [tables[name("figure1", label, a)] for a in config.a] for label in methods()}
    compared = {
        "figure3": {label: tables[name("figure3", label)] for label in regularisers()},
        "figure4": {f"L = {L}": tables[name("figure4", L)] for L in config.lengths},
        "figureA1": {f"tau = {tau:g}/1.01^k": tables[name("figureA1", f"{tau:g}")] for tau in config.taus},
    }
    figures = {
        "figure1": toy_figures.curves(config, runs, over="step"),
        "figure1-gradients": toy_figures.curves(config, runs, over="gradients"),
        "figure2": toy_figures.lower(lower),
        **{figure: toy_figures.settings(own) for figure, own in compared.items()},
    }
    ends = pd.DataFrame([_end(label, last) for label, own in runs.items() for table in own for last in _lasts(table)])
    frames = {
        "toy": ends.set_index(["method", "a", "start"]),
        "optimum": _optima(config).set_index("a"),
        **{figure: _compared(own).set_index(["setting", "start"]) for figure, own in compared.items()},
    }
    frames["toy"].attrs["title"] = f"where each method ends: after {config.steps} updates of x, or when it converges"
    summary = {"F*": {f"a = {a:g}": sine(a).upper for a in config.a}}
    return Results(frames, figures, summary, _sections(config, frames, lower))


def _lasts(table: pd.DataFrame) -> list[Any]:
    return [own.iloc[-1] for _, own in table.groupby("start")]


def _end(label: str, last: Any) -> dict[str, Any]:
    best = sine(last["a"])
    return {
        "method": label,
        "a": last["a"],
        "start": last["start"],
        **{column: last[column] for column in ("x", "y", "F", "f")},
        "|x - x*|": abs(last["x"] - float(best.x)),
        "|y - y*|": abs(last["y"] - float(best.y)),
        "|F - F*|": abs(last["F"] - best.upper),
        "f - f*": last["f"] + 1,
        "steps": int(last["step"]),
        "gradients": int(last["gradients"]),
    }


def _compared(own: Tables) -> pd.DataFrame:
    ends = pd.DataFrame([_end(label, last) for label, table in own.items() for last in _lasts(table)])
    kept = ["method", "start", "x", "y", "|x - x*|", "|y - y*|", "|F - F*|", "f - f*"]
    return ends[kept].rename(columns={"method": "setting"})


def _optima(config: Config) -> pd.DataFrame:
    best = {a: sine(a) for a in config.a}
    rows = [(a, float(toy.x), toy.upper, TOY_UPPER.get(a, math.nan)) for a, toy in best.items()]
    return pd.DataFrame(rows, columns=["a", "x* = y*", "F*", "F* as printed"])


def _sections(config: Config, frames: Tables, lower: pd.DataFrame) -> tuple[Section, ...]:
    worst = frames["toy"].groupby("method", sort=False)["|x - x*|"].max()
    last = lower[lower["x"] == "last"].groupby("method", sort=False)[["to S(x)", "to y*"]].last()

    def distances(figure: str) -> str:
        far = frames[figure].xs(FAR, level="start")["|x - x*|"]
        return f"Final distance of x from x*, started at ({FAR:g}, {FAR:g}): " + ", ".join(
            f"{value:.2g} ({label})" for label, value in far.items()
        )

    return (
        Section(
            "The toy problem and its optimum",
            "Minimise (x - a)² + (y - a)² over x and y, where y minimises sin(x + y): the lower level is not "
            "convex and has infinitely many solutions. The optimum is at x = y = -π/4 for a = 0, at 3π/4 for a = 2.",
            "For a = 2 the paper prints F* = 3π²/16 - 9π/2 + 9 (and calls it a = 3). That is negative, but F is a sum "
            "of squares, so it must be a typo.",
            "F* = " + ", ".join(f"{sine(a).upper:.6f} for a = {a:g}" for a in config.a) + ".",
            tables=("optimum",),
        ),
        Section(
            "Figure 1: from two starts",
            "Distances of x, y, F and f from their optima, by updates of x and by their cost: gradients "
            "of F and f, and products with second derivatives. Solid: from (0, 0); dashed: from (3, 3). As printed, "
            "BVFIM is a penalty with fixed weight, whose minimum is not the optimum; AdaptiveBVFIM is the theorem's "
            "barrier.",
            TOY["figure 1"],
            "Largest distance of x from x*, over a and the starts: "
            + ", ".join(f"{label} {value:.2g}" for label, value in worst.items())
            + ".",
            ("figure1", "figure1-gradients"),
            ("toy",),
        ),
        Section(
            "Figure 2: the lower level at the first and the last x",
            "a = 0 from (3, 3). Top: distance of the lower iterates to the solution set S(x); bottom: to the y* "
            "of the optimum. AdaptiveBVFIM updates x and y jointly: its line marks its current y.",
            TOY["figure 2"],
            "At the last x, distance to S(x) and to y*: "
            + "; ".join(f"{label} {row['to S(x)']:.2g} and {row['to y*']:.2g}" for label, row in last.iterrows())
            + ".",
            ("figure2",),
        ),
        Section(
            "Figure 3: the regularisers",
            "a = 0 from (3, 3): BVFIM as printed, with (μ1, θ, τ) zero, fixed at one, and decreasing as 1/1.01^k; "
            "then the theorem's barrier, whose μ2 shrinks as well, with the same step sizes.",
            TOY["figure 3"],
            distances("figure3") + ".",
            ("figure3",),
            ("figure3",),
        ),
        Section(
            "Figure 4: L updates of x per stage",
            "a = 0 from (3, 3), BVFIM as printed. All runs take the same number of updates of x.",
            TOY["figure 4"],
            distances("figure4") + ".",
            ("figure4",),
            ("figure4",),
        ),
        Section(
            "Figure A1: tau",
            "a = 0, BVFIM as printed with several initial values of τ. Solid: from (0, 0); dashed: from (3, 3).",
            TOY["figure A1"],
            distances("figureA1") + ".",
            ("figureA1",),
            ("figureA1",),
        ),
    )
