"""The toy in n dimensions: what each method finds, and at what cost, as y grows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import pandas as pd
import torch
from matplotlib.figure import Figure

import bvfim
from bvfim.methods import Chosen
from bvfim.reports.plots import COLOURS, legend, panels
from bvfim.reports.report import Results, Section
from bvfim.reproduce.experiments.resumable import How, Part, finished, measured
from bvfim.reproduce.experiments.toy_settings import FAR, methods, name, updates
from bvfim.testproblems import sine


@dataclass(frozen=True)
class Config:
    """The sizes and the runs.

    Args:
        sizes: n, the length of y.
        steps: updates of x of the methods that estimate a hypergradient, by Adam with 0.01.
        a: the toy's parameter.
        start: of x and every entry of y.
        seed: of AdaptiveBVFIM's scouts.
        device: where the tensors are.
    """

    sizes: tuple[int, ...] = (1, 10, 100, 1000)
    steps: int = 500
    a: float = 2.0
    start: float = FAR
    seed: int = 0
    device: str = "cpu"

    def quick(self) -> Config:
        """Smaller, to see that it runs."""
        return replace(self, sizes=(1, 1000), steps=20)


def end(method: Chosen, n: int, config: Config) -> pd.DataFrame:
    """Where a method ends for y of length n, and what it cost."""
    toy = sine(config.a, n)
    x, y = (torch.full((k,), config.start, dtype=torch.float64, device=config.device) for k in (1, n))
    found = bvfim.solve(toy.problem, x, y, method, steps=updates(method, config.steps))
    finished(found)
    row = {
        "n": n,
        "|x - x*|": abs(float(found.x) - float(toy.x)),
        "|y - y*|, largest": float((found.y.cpu() - toy.y).abs().max()),
        "|F - F*| / (1 + F*)": abs(found.upper - toy.upper) / (1 + toy.upper),
        "(f - f*) / n": (found.lower - toy.lower) / n,
        "status": found.status.value,
        **{kind: found.evaluations[kind] for kind in ("upper", "lower", "forward", "hvp", "jvp")},
    }
    return pd.DataFrame([row])


def parts(config: Config) -> dict[str, Part]:
    """Every method at every size."""
    return {
        name("sizes", f"{label} {n}"): partial(end, method, n, config)
        for label, method in methods(config.seed).items()
        for n in config.sizes
    }


def run(config: Config, how: How = How()) -> Results:
    """Measure and report.

    Args:
        config: the settings.
        how: where the parts are saved, and how many processes share them.
    """
    tables = measured(config, parts(config), how)
    named = [(label, tables[name("sizes", f"{label} {n}")]) for label in methods() for n in config.sizes]
    frame = pd.concat([table.assign(method=label) for label, table in named], ignore_index=True)
    frame["gradients"] = frame[["upper", "lower", "hvp", "jvp"]].sum(axis=1)
    own = frame[frame["method"] == "AdaptiveBVFIM"].set_index("n")
    growth = float(own["gradients"].iloc[-1] / own["gradients"].iloc[0])
    lost = frame.loc[frame["status"] == "slack_lost", "n"].tolist()
    section = Section(
        "The toy problem in n dimensions",
        "F = (x - a)² + Σ (y_i - a)², f = Σ sin(x + y_i): n lower variables with the same wells, one x; "
        f"a = {config.a:g}, all started at {config.start:g}.",
        "",
        f"AdaptiveBVFIM: x is at most {own['|x - x*|'].max():.1e} from x*. From n = {own.index[0]} to n = "
        f"{own.index[-1]} its gradient count grows {growth:.2f} times."
        + (f" BVFIM as printed runs out of slack at n = {', '.join(map(str, lost))}." if lost else ""),
        ("sizes",),
        ("sizes",),
    )
    kept = ["|x - x*|", "|y - y*|, largest", "|F - F*| / (1 + F*)", "(f - f*) / n", "status", "gradients", "forward"]
    shown = frame.set_index(["method", "n"])[kept]
    return Results({"sizes": shown}, {"sizes": _figure(frame)}, {"growth of the gradients": growth}, (section,))


def _figure(frame: pd.DataFrame) -> Figure:
    figure, axes = panels(1, 2, width=4.6, height=3.0)
    for one, column in zip(axes[0], ("|x - x*|", "gradients"), strict=True):
        for label, own in frame.groupby("method", sort=False):
            one.loglog(own["n"], own[column], "o-", color=COLOURS[str(label)], label=label)
        one.set(xlabel="n", ylabel=column if column != "gradients" else "gradients and products")
    legend(figure)
    return figure
