"""The pictures of :mod:`bvfim.reproduce.experiments.toy`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from bvfim.reports.plots import COLOURS, CYCLE, legend, panels
from bvfim.testproblems import sine

FLOOR = 1e-12
"""Where a logarithmic axis ends."""

Distance = Callable[[pd.DataFrame], "pd.Series[float]"]


def distances(a: float) -> dict[str, Distance]:
    """How far a path is from the optimum, in four ways."""
    best = sine(a)
    return {
        "|x - x*|": lambda path: (path["x"] - float(best.x)).abs(),
        "|y - y*|": lambda path: (path["y"] - float(best.y)).abs(),
        "|F - F*|": lambda path: (path["F"] - best.upper).abs(),
        "f - f*": lambda path: path["f"] + 1,
    }


def curves(config: Any, runs: dict[str, list[pd.DataFrame]], over: str) -> Figure:
    """Figure 1: a column for each a, a row for each distance, over the steps or the gradients."""
    figure, axes = panels(4, len(config.a), width=4.6, height=2.3)
    for column, a in enumerate(config.a):
        for row, (name, distance) in enumerate(distances(a).items()):
            for label, own in runs.items():
                draw(axes[row, column], own[column], distance, over, COLOURS[label], label)
            axes[row, column].set(ylabel=name, ylim=(1e-9, None))
            if over == "gradients":
                axes[row, column].set_xscale("symlog", linthresh=100)
                axes[row, column].set_xlim(left=0)
        axes[0, column].set_title(f"a = {a:g}")
        axes[-1, column].set_xlabel(
            {"step": "updates of x", "gradients": "evaluations of gradients and products"}[over]
        )
    legend(figure)
    return figure


def draw(axes: Any, table: pd.DataFrame, distance: Distance, over: str, colour: str, label: str) -> None:
    """The paths of a table: the first start solid, the others dashed, a dot where each ends."""
    for i, (_, path) in enumerate(table.groupby("start")):
        far = distance(path).clip(lower=FLOOR)
        named = label if i == 0 else None
        axes.semilogy(path[over], far, color=colour, linestyle="--" if i else "-", linewidth=1.6, label=named)
        axes.plot(path[over].iloc[-1], far.iloc[-1], ".", color=colour, markersize=7)


def lower(paths: pd.DataFrame) -> Figure:
    """Figure 2: distances of the lower iterates to S(x) and y*, at the first and the last x."""
    figure, axes = panels(2, 2, width=4.6, height=2.5)
    for column, (when, title) in enumerate({"first": "at the first x", "last": "at the last x"}.items()):
        for row, distance in enumerate(("to S(x)", "to y*")):
            for label, own in paths[paths["x"] == when].groupby("method", sort=False):
                far, colour = own[distance].clip(lower=FLOOR), COLOURS[str(label)]
                if len(own) == 1:
                    axes[row, column].axhline(far.iloc[0], color=colour, linestyle=":", label=label)
                else:
                    axes[row, column].semilogy(own["t"], far, color=colour, linewidth=1.6, label=label)
            axes[row, column].set(yscale="log", ylabel=f"distance {distance}")
        axes[0, column].set_title(title)
        axes[-1, column].set_xlabel("lower step t")
    legend(figure)
    return figure


def settings(compared: dict[str, pd.DataFrame]) -> Figure:
    """Figures 3, 4 and A1: distances of x and y for several settings, a = 0."""
    figure, axes = panels(1, 2, width=4.6, height=3.0)
    for one, name in zip(axes[0], ("|x - x*|", "|y - y*|"), strict=True):
        for colour, (label, table) in zip(CYCLE, compared.items(), strict=False):
            draw(one, table, distances(0.0)[name], "step", colour, label)
        one.set(ylabel=name, xlabel="updates of x")
    legend(figure)
    return figure
