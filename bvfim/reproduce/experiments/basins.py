"""The toy from a grid of starts: a map of where each method ends.

What the paper shows for two starts, for 400: each method with the paper's steps of 0.01, on x and on the lower level,
and with steps ten times larger, so that the distance it has to go is no excuse.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pandas as pd
import torch
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

import bvfim
from bvfim.reports.plots import panels
from bvfim.reports.report import Results, Section
from bvfim.reproduce.experiments.resumable import How, Part, finished, measured
from bvfim.reproduce.experiments.toy_settings import methods, name, updates
from bvfim.testproblems import sine

ENDS = {
    "within 1e-3 of the optimum": "#2e9e62",
    "within 0.1": "#9fd6b3",
    "at another lower solution": "#d9822b",
    "not at a lower solution": "#8a939c",
    "broke off": "#c0392b",
}
"""Where a run may end, and its colour on the map."""


@dataclass(frozen=True)
class Config:
    """The grid and the runs.

    Args:
        side: starts along each of x and y.
        reach: the grid covers [-reach, reach] squared.
        steps: updates of x of the methods that estimate a hypergradient.
        rates: the steps: of Adam, which moves x for them, and of their lower levels.
        a: the toy's parameter.
        seed: of AdaptiveBVFIM's scouts.
        device: where the tensors are.
    """

    side: int = 20
    reach: float = 10.0
    steps: int = 500
    rates: tuple[float, ...] = (0.01, 0.1)
    a: tuple[float, ...] = (0.0, 2.0)
    seed: int = 0
    device: str = "cpu"

    def quick(self) -> Config:
        """Smaller, to see that it runs."""
        return replace(self, side=6, steps=30, rates=(0.1,))


def ends(method: Any, a: float, rate: float, config: Config) -> pd.DataFrame:
    """Where a method ends from each start of the grid."""
    line = torch.linspace(-config.reach, config.reach, config.side, dtype=torch.float64, device=config.device)
    xs, ys = (side.reshape(-1, 1) for side in torch.meshgrid(line, line, indexing="ij"))
    options: dict[str, Any] = {}
    if not isinstance(method, bvfim.AdaptiveBVFIM):
        options["optimizer"] = partial(torch.optim.Adam, lr=rate)
        steps = {step: rate for step in ("lr", "z_lr", "y_lr") if hasattr(method, step)}
        method = replace(method, **steps)
    found = bvfim.solve_many(sine(a).problem, xs, ys, method, updates(method, config.steps), refit=False, **options)
    finished(*found)
    rows = [(float(s.x), float(s.y), s.lower + 1, s.status.value) for s in found]
    table = pd.DataFrame(rows, columns=["x", "y", "gap", "status"])
    table.insert(0, "y0", ys.flatten().tolist())
    table.insert(0, "x0", xs.flatten().tolist())
    return table


def parts(config: Config) -> dict[str, Part]:
    """A map for each method, a and step size; AdaptiveBVFIM has no step size."""
    return {
        _name(label, a, rate): partial(ends, method, a, rate, config)
        for label, method in methods(config.seed).items()
        for a in config.a
        for rate in (config.rates if label != "AdaptiveBVFIM" else config.rates[:1])
    }


def _name(label: str, a: float, rate: float) -> str:
    return name("basins", label, a) + f"-{rate:g}"


def judged(table: pd.DataFrame, a: float) -> pd.Series:
    """Which of :data:`ENDS` each start came to."""
    best = sine(a)
    away = pd.concat([(table["x"] - float(best.x)).abs(), (table["y"] - float(best.y)).abs()], axis=1).max(axis=1)
    kinds = list(ENDS)
    found = pd.Series(kinds[3], index=table.index).mask(table["gap"] <= 1e-3, kinds[2])
    found = found.mask(away <= 0.1, kinds[1]).mask(away <= 1e-3, kinds[0])
    return found.mask(table["status"].isin(["non_finite", "slack_lost"]), kinds[4])


def run(config: Config, how: How = How()) -> Results:
    """Measure and report.

    Args:
        config: the settings.
        how: where the parts are saved, and how many processes share them.
    """
    tables = measured(config, parts(config), how)
    rows, figures = [], {}
    for rate in config.rates:
        maps = {
            (label, a): tables[_name(label, a, rate if label != "AdaptiveBVFIM" else config.rates[0])]
            for label in methods()
            for a in config.a
        }
        figures[f"basins-{rate:g}"] = _figure(config, maps)
        for (label, a), table in maps.items():
            if label != "AdaptiveBVFIM" or rate == config.rates[0]:
                shares = judged(table, a).value_counts(normalize=True)
                steps = "its own" if label == "AdaptiveBVFIM" else f"{rate:g}"
                rows.append({"method": label, "steps": steps, "a": a, **{kind: shares.get(kind, 0.0) for kind in ENDS}})
    frame = pd.DataFrame(rows).set_index(["method", "steps", "a"])
    frame.attrs["title"] = f"fraction of {config.side**2} starts by where they end"
    return Results({"basins": frame}, figures, _summary(frame), (_section(config, frame, tuple(figures)),))


def _summary(frame: pd.DataFrame) -> dict[str, Any]:
    best = frame[next(iter(ENDS))].groupby("method", sort=False).agg(["min", "max"])
    shares = {str(label): f"{row['min']:.2%} to {row['max']:.2%}" for label, row in best.iterrows()}
    return {"share within 1e-3 of the optimum, over a and the steps": shares}


def _section(config: Config, frame: pd.DataFrame, figures: tuple[str, ...]) -> Section:
    shares = ", ".join(f"{label} {range_}" for label, range_ in next(iter(_summary(frame).values())).items())
    return Section(
        "Basins: where each method ends, by its start",
        f"Each cell is a start (x, y) in [-{config.reach:g}, {config.reach:g}]², coloured by where the method ends: "
        f"after {config.steps} updates of x, or when AdaptiveBVFIM converges. The cross is the optimum. The step sizes "
        f"for x (Adam) and the lower level are {', then '.join(f'{rate:g}' for rate in config.rates)}; the paper uses "
        "0.01 for BVFIM. AdaptiveBVFIM has no step size to choose, so its maps are the same.",
        "Two starts are shown: RHG and CG depend on the start, BVFIM hardly does.",
        f"Fraction of starts that end within 1e-3 of the global optimum, over a and the step sizes: {shares}.",
        figures,
        ("basins",),
    )


def _figure(config: Config, maps: dict[tuple[str, float], pd.DataFrame]) -> Figure:
    labels = list(dict.fromkeys(label for label, _ in maps))
    figure, axes = panels(len(config.a), len(labels), width=2.5, height=2.6)
    for row, a in enumerate(config.a):
        for column, label in enumerate(labels):
            draw(axes[row, column], maps[label, a], a, f"{label}\na = {a:g}: ")
            axes[row, column].set(xlabel="x" if row == len(config.a) - 1 else "", ylabel="y" if column == 0 else "")
    figure.legend(handles=key(), loc="outside upper center", ncols=3, frameon=False)
    return figure


def draw(axes: Any, table: pd.DataFrame, a: float, title: str) -> None:
    """A map of where each start ends, with the share that finds the optimum behind the title."""
    found, best, kinds = judged(table, a), sine(a), list(ENDS)
    side = round(len(table) ** 0.5)
    edge = table["x0"].max() * (1 + 1 / max(side - 1, 1))
    codes = found.map(kinds.index).to_numpy().reshape(side, side).T
    colours = ListedColormap(list(ENDS.values()))
    axes.grid(visible=False)
    axes.imshow(codes, colours, vmin=0, vmax=len(ENDS) - 1, origin="lower", extent=(-edge, edge, -edge, edge))
    axes.plot(float(best.x), float(best.y), "x", color="#000000", markersize=8, markeredgewidth=2)
    axes.set_title(f"{title}{(found == kinds[0]).mean():.1%}", fontsize=10)


def key() -> list[Patch]:
    """What the colours of a map mean."""
    return [Patch(color=colour, label=kind) for kind, colour in ENDS.items()]
