"""The tables, pictures and page of :mod:`bvfim.reproduce.experiments.theorem`."""

from __future__ import annotations

import math
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from bvfim.methods import BVFIM
from bvfim.reports.plots import CYCLE, legend, panels
from bvfim.reports.report import Results, Section
from bvfim.schedules import value

Curves = dict[str, pd.DataFrame]
FREE = {"sine": (0.14, 0.5, 0.42, 0.46), "double well": (0.66, 0.12, 0.32, 0.42)}
"""Where a panel has room for a close-up of the minima, in parts of its width and height."""
SCALE = {"falling": "log", "broken": "linear"}


def report(found: dict[str, Curves], schedules: dict[str, BVFIM]) -> Results:
    """A table, a figure and a section for each set of schedules.

    Args:
        found: phi and phi_k on the grid of x, by schedule and problem.
        schedules: the schedules themselves.
    """
    tables = {
        f"theorem-{name}": pd.concat([_stages(problem, own, schedules[name]) for problem, own in curves.items()])
        for name, curves in found.items()
    }
    for name, table in tables.items():
        table.attrs["title"] = f"{name.removeprefix('theorem-')} schedules: distances from phi, stage by stage"
    figures = {
        f"theorem-{name}": _figure(curves, tables[f"theorem-{name}"], SCALE[name]) for name, curves in found.items()
    }
    warned = {name: bool(method.cautions(100)) for name, method in schedules.items()}
    sections = (_falling(tables["theorem-falling"]), _broken(tables["theorem-broken"], warned))
    return Results(tables, figures, {"warned": warned}, sections)


def _stages(problem: str, curves: pd.DataFrame, schedules: BVFIM) -> pd.DataFrame:
    rows = []
    for k in curves["k"].unique().tolist():
        own = curves[curves["k"] == k]
        mu2, tau = (value(getattr(schedules, name), k - 1, name) for name in ("mu2", "tau"))
        x, phi, phi_k = (own[name].to_numpy() for name in ("x", "phi", "phi_k"))
        rows.append(
            {
                "problem": problem,
                "k": k,
                "mu2": mu2,
                "tau": tau,
                "-tau ln(mu2)": -tau * math.log(mu2),
                "median phi_k - phi": np.median(phi_k - phi),
                "argmin phi_k": x[phi_k.argmin()],
                "min phi_k": phi_k.min(),
                "|argmin - x*|": abs(x[phi_k.argmin()] - x[phi.argmin()]),
                "|min - phi*|": abs(phi_k.min() - phi.min()),
                "liminf half": excess(x, phi, phi_k),
                "limsup half": max((phi_k - phi).max(), 0.0),
                "sup |phi_k - phi|": np.abs(phi_k - phi).max(),
            }
        )
    return pd.DataFrame(rows).set_index(["problem", "k"])


def _of(problem: str, table: pd.DataFrame) -> pd.DataFrame:
    return table[table.index.get_level_values("problem") == problem].droplevel("problem")


def excess(x: np.ndarray, low: np.ndarray, high: np.ndarray) -> float:
    """The least e such that high(x) >= min { low(x') : |x' - x| <= e } - e for every x.

    So much must the epigraph of ``low`` grow, in x and in value alike, to cover that of ``high``. It tends to zero
    from phi to phi_k, on a bounded set, just when the liminf half of epi-convergence holds.
    """
    far = np.abs(x[:, None] - x)

    def missing(e: float) -> float:
        return float((np.where(far <= e, low, np.inf).min(1) - high).max())

    enough, short = max(missing(0.0), 0.0), 0.0
    for _ in range(50):
        middle = (enough + short) / 2
        enough, short = (middle, short) if missing(middle) <= middle else (enough, middle)
    return enough


def _figure(found: Curves, table: pd.DataFrame, scale: str) -> Figure:
    """Above the functions, below their distances; a column for each problem."""
    figure, axes = panels(2, len(found), width=4.6, height=3.4)
    for (above, below), (problem, curves) in zip(axes.T, found.items(), strict=True):
        _functions(above, curves)
        above.set(title=problem, xlabel="x")
        above.grid(False)  # its lines would show through the close-up
        above.locator_params(axis="x", nbins=5)
        _close_up(above.inset_axes(FREE[problem]), curves)
        stages = _of(problem, table)
        _distances(below, stages)
        below.set(xlabel="stage k", yscale=scale, xticks=stages.index)
    legend(figure, columns=7)
    figure.legend(*axes[1, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return figure


def _functions(axes: Any, curves: pd.DataFrame) -> None:
    """phi, and phi_k of each stage with its minimum."""
    stages = list(curves.groupby("k"))
    colours = matplotlib.colormaps["plasma"](np.linspace(0.8, 0.3, len(stages)))
    true = curves.drop_duplicates("x").sort_values("x")
    line = true["phi"].mask(true["phi"].diff().abs() > 0.5)  # a gap where it jumps
    axes.plot(true["x"], line, color="black", linewidth=2, linestyle=(0, (4, 1.5)), label="φ")
    axes.plot(*_least(true, "phi"), "*", color="black", markersize=11)
    for (k, own), colour in zip(stages, colours, strict=True):
        axes.plot(own["x"], own["phi_k"], color=colour, linewidth=1.3, label=f"k = {k}")
        axes.plot(*_least(own, "phi_k"), "o", color=colour, markersize=5)


def _close_up(axes: Any, curves: pd.DataFrame) -> None:
    """The same, around the minima."""
    _functions(axes, curves)
    minima = np.array([_least(curves, "phi"), *(_least(own, "phi_k") for _, own in curves.groupby("k"))])
    low, high = minima.min(0), minima.max(0)
    room = 0.15 * (high - low) + (0.02, 0.03)
    axes.set(xlim=(low[0] - room[0], high[0] + room[0]), ylim=(low[1] - room[1], high[1] + room[1]))
    axes.tick_params(labelsize=7)
    axes.locator_params(nbins=3)
    axes.grid(alpha=0.3)


def _least(curves: pd.DataFrame, column: str) -> tuple[float, float]:
    row = curves.iloc[int(curves[column].to_numpy().argmin())]
    return float(row["x"]), float(row[column])


def _distances(axes: Any, table: pd.DataFrame) -> None:
    shown = {
        "|argmin - x*|": ("o-", "|argmin φₖ - x*|"),
        "|min - phi*|": ("s-", "|min φₖ - min φ|"),
        "liminf half": ("v-", "liminf half: epigraphs"),
        "limsup half": ("^-", "limsup half: max (φₖ - φ)"),
        "sup |phi_k - phi|": ("x:", "sup |φₖ - φ|"),
    }
    for colour, (column, (style, label)) in zip(CYCLE, shown.items(), strict=False):
        axes.plot(table.index, table[column], style, color=colour, markersize=5, label=label)
    axes.plot(table["-tau ln(mu2)"], color=CYCLE[-1], linewidth=6, alpha=0.4, zorder=1, label="-τ ln μ2")


def _falling(table: pd.DataFrame) -> Section:
    def said(problem: str) -> str:
        first, last = (_of(problem, table).iloc[i] for i in (0, -1))
        moved = ", ".join(
            f"{words} from {first[column]:.2g} to {last[column]:.2g}"
            for column, words in {
                "|argmin - x*|": "|argmin φ_k - x*| falls",
                "|min - phi*|": "|min φ_k - min φ|",
                "liminf half": "the liminf half",
                "limsup half": "the limsup half",
            }.items()
        )
        return f"{problem.capitalize()}: {moved}; sup |φ_k - φ| goes from {first.iloc[-1]:.2g} to {last.iloc[-1]:.2g}"

    return Section(
        "Theorem 1, illustrated",
        "φ (dashed) is the smallest F over the global minimisers of f(x, .), φ_k the value of the barrier problem of "
        "stage k, here with (μ1, μ2, θ, τ) all equal to 5^-k. All minima are computed on a dense grid and refined, "
        "without a solver. Dots mark the minima of φ_k, the star that of φ.\n\n"
        "In the double well, F = (x - 1/2)² + (y - 1)²/2 and f = (y² - 1)² + xy/2: the two wells tie at x = 0, where φ "
        "jumps and has its minimum. φ_k extends past the jump while the other well is within μ2, so it is "
        "never uniformly close; yet the epigraphs converge, and so do the minima.\n\n"
        "Both halves of epi-convergence are measured. Liminf: how much the epigraph of φ must grow, in both x and "
        "value, to cover that of φ_k. Limsup: the largest φ_k - φ, since the paper proves this half at every x.",
        "If (μ, θ, τ) → 0 and τ ln μ2 → 0, then φ_k epi-converges to φ: limits of minimisers of φ_k minimise φ, and "
        "the minimal values converge (Theorem 1 and the proposition before it).",
        ". ".join(said(problem) for problem in table.index.unique("problem")) + ".",
        ("theorem-falling",),
        ("theorem-falling",),
    )


def _broken(table: pd.DataFrame, warned: dict[str, bool]) -> Section:
    lasts = table.groupby("problem", sort=False).last()
    offsets = ", ".join(
        f"{row['median phi_k - phi']:.3g} ({problem}; the minima differ by {row['|min - phi*|']:.3g}, the minimisers "
        f"by {row['|argmin - x*|']:.2g})"
        for problem, row in lasts.iterrows()
    )
    speaks = {True: "warns", False: "does not warn"}
    return Section(
        "Schedules that break τ ln μ2 → 0",
        "The same with τ = 1/(3k) and μ1 = μ2 = θ = exp(-1/τ): all of them vanish, but -τ ln μ2 is 1 in every stage. "
        "The slack at a lower minimiser is about μ2 (more if μ1 falls more slowly), so the "
        "barrier adds about -τ ln μ2 to φ at every x. This shifts all values equally: the minimisers may still "
        "converge, but the values do not.",
        "The condition τ ln μ2 → 0 is what bounds φ_k from above: at a lower minimiser, φ_k is at most "
        "φ + θ/2 |y|² - τ ln μ2 (the lemma on the limsup half).",
        f"In the last stage φ_k is above φ by {offsets}; predicted: {lasts['-tau ln(mu2)'].iloc[0]:.3g}. "
        f"bvfim.solve {speaks[warned['broken']]} about these schedules, and "
        f"{speaks[warned['falling']]} about those above.",
        ("theorem-broken",),
        ("theorem-broken",),
    )
