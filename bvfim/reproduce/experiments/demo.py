"""The demo: the toy from one far start and from a grid of starts, in a minute or two."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from bvfim.reports.plots import COLOURS, legend, tidy
from bvfim.reports.report import Results, Section
from bvfim.reproduce.experiments import basins, toy, toy_figures
from bvfim.reproduce.experiments.resumable import How, Part, measured
from bvfim.reproduce.experiments.toy_settings import methods, name
from bvfim.testproblems import sine


@dataclass(frozen=True)
class Config:
    """The runs of the demo.

    Args:
        a: the toy's parameter.
        start: of x and y, for the curves.
        side: starts along each of x and y, for the maps.
        steps: updates of x of the methods that estimate a hypergradient; half of them, ten times larger, for the maps.
        seed: of AdaptiveBVFIM's scouts.
        device: where the tensors are.
    """

    a: float = 2.0
    start: float = 0.0
    side: int = 20
    steps: int = 500
    seed: int = 0
    device: str = "cpu"

    def quick(self) -> Config:
        """Smaller, to see that it runs."""
        return replace(self, side=6, steps=30)


def parts(config: Config) -> dict[str, Part]:
    """A path and a map for each method."""
    curves = toy.Config(config.steps, (config.a,), (config.start,), seed=config.seed, device=config.device)
    maps = basins.Config(config.side, steps=config.steps // 2, rates=(0.1,), a=(config.a,), device=config.device)
    runs: dict[str, Part] = {}
    for label, method in methods(config.seed).items():
        runs[name("path", label)] = partial(toy.trace, method, config.a, (config.start,), curves)
        runs[name("map", label)] = partial(basins.ends, method, config.a, 0.1, maps)
    return runs


def run(config: Config, how: How = How()) -> Results:
    """Measure and report.

    Args:
        config: the settings.
        how: where the parts are saved, and how many processes share them.
    """
    tables = measured(config, parts(config), how)
    rows = []
    for label in methods():
        last, found = tables[name("path", label)].iloc[-1], basins.judged(tables[name("map", label)], config.a)
        solved = int((found == next(iter(basins.ENDS))).sum())
        rows.append(
            {
                "method": label,
                "x": last["x"],
                "y": last["y"],
                "F": last["F"],
                "|x - x*|": abs(last["x"] - float(sine(config.a).x)),
                "gradients and products": int(last["gradients"]),
                "starts that find the optimum": f"{solved} of {len(found)}",
            }
        )
    frame = pd.DataFrame(rows).set_index("method")
    best = sine(config.a)
    shares = ", ".join(f"{label} {row['starts that find the optimum']}" for label, row in frame.iterrows())
    section = Section(
        "The paper's toy problem",
        f"Minimise (x - {config.a:g})² + (y - {config.a:g})², where y minimises sin(x + y). The lower level is "
        f"not convex and has infinitely many solutions; the optimum is x = y = {float(best.x):.4f}, where "
        f"F = {best.upper:.6f}.\n\nTop: distance from the optimum by number of evaluations, from x = y = "
        f"{config.start:g}. Bottom: each cell is a start in [-10, 10]², coloured by where the method ends (step size "
        "0.1; the curves use the paper's 0.01). The cross is the optimum.",
        "RHG and CG find the optimum only from nearby starts; for BVFIM the start hardly matters.",
        f"Starts that end within 1e-3 of the optimum: {shares}.",
        ("demo",),
        ("demo",),
    )
    summary = {"optimum": {"x": float(best.x), "F": best.upper}}
    return Results({"demo": frame}, {"demo": _figure(config, tables)}, summary, (section,))


def _figure(config: Config, tables: dict[str, pd.DataFrame]) -> Figure:
    figure = Figure(figsize=(10, 6.4), layout="constrained")
    grid = figure.add_gridspec(2, 4)
    distances = toy_figures.distances(config.a)
    for columns, distance in ((slice(0, 2), "|x - x*|"), (slice(2, 4), "|F - F*|")):
        axes = tidy(figure.add_subplot(grid[0, columns]))
        for label in methods():
            path = tables[name("path", label)]
            toy_figures.draw(axes, path, distances[distance], "gradients", COLOURS[label], label)
        axes.set_xscale("symlog", linthresh=100)
        axes.set(xlim=(0, None), xlabel="evaluations of gradients and products", ylabel=distance)
    for column, label in enumerate(methods()):
        axes = tidy(figure.add_subplot(grid[1, column]))
        basins.draw(axes, tables[name("map", label)], config.a, f"{label}: ")
        axes.set(xlabel="x at the start", ylabel="y at the start" if column == 0 else "")
    legend(figure)
    figure.legend(handles=basins.key()[:4], loc="outside lower center", ncols=4, frameon=False)
    return figure
