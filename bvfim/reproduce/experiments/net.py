"""The figure "net": time and memory of an upper step against the number of lower parameters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from bvfim.reports.describe import slug
from bvfim.reports.plots import COLOURS, legend, panels
from bvfim.reports.report import Results, Section
from bvfim.reproduce.experiments import growth
from bvfim.reproduce.experiments.resumable import How, Part, measured

METHODS = ("RHG", "CG", "Neumann", "BVFIM")
SHAPES = {"Fashion-MNIST": 784, "CIFAR-10": 3072}


@dataclass(frozen=True)
class Config:
    """The sweep.

    Args:
        short: whether only small sizes are measured.
        seed: of the rows, which are random.
        device: where the tensors are; a GPU gets up to 1e8 parameters.
    """

    short: bool = False
    seed: int = 0
    device: str = "cpu"

    def quick(self) -> Config:
        """Smaller, to see that it runs."""
        return Config(True, self.seed, self.device)

    def sizes(self, inputs: int) -> growth.Config:
        """The sweep of the growth benchmark for rows of this length."""
        own = growth.Config(inputs=inputs, tf32=self.device != "cpu", seed=self.seed, device=self.device)
        return own.sized(self.short)


def run(config: Config, how: How = How()) -> Results:
    """Measure and report.

    Args:
        config: the settings.
        how: where the parts are saved. Timings share no machine: one process runs them all.
    """
    parts: dict[str, Part] = {
        slug(f"{shape} {label}"): partial(growth.sweep, label, "n", config.sizes(inputs))
        for shape, inputs in SHAPES.items()
        for label in METHODS
    }
    tables = measured(config, parts, replace(how, workers=1))
    raw = pd.concat(
        [tables[slug(f"{shape} {label}")].assign(shape=shape) for shape in SHAPES for label in METHODS],
        ignore_index=True,
    )
    table = pd.DataFrame([_row(shape, label, raw) for shape in SHAPES for label in METHODS])
    table = table.set_index(["shape", "method"])
    section = Section(
        "Figure “net”: growth with the network",
        "Time and peak memory of one upper step of hyper-cleaning by number of lower parameters, on inputs with "
        f"the shapes of two data sets. The slopes are exponents of n over the {growth.FITTED} largest sizes that fit.",
        "BVFIM takes less time than CG and Neumann at every size, and the gap grows with the network.",
        _largest(table) + ".",
        ("net",),
        ("net",),
    )
    return Results({"net": table, "measurements": raw}, {"net": _figure(raw)}, {}, (section,))


def _largest(table: pd.DataFrame) -> str:
    own: list[Any] = table.xs("BVFIM", level="method").reset_index().to_dict("records")
    return "; ".join(
        f"{row['shape']}: BVFIM's largest network, {row['largest n']:.3g} parameters, takes {row['its ms']:.4g} ms and "
        f"{row['its MiB']:.4g} MiB"
        for row in own
    )


def _row(shape: str, label: str, raw: pd.DataFrame) -> dict[str, object]:
    own = raw[(raw["shape"] == shape) & (raw["method"] == label)]
    return {"shape": shape, "method": label, **growth.slopes(own, "n"), **growth.largest(own)}


def _figure(raw: pd.DataFrame) -> Figure:
    figure, axes = panels(2, len(SHAPES), width=4.4, height=2.7)
    for column, shape in enumerate(SHAPES):
        own = raw[(raw["shape"] == shape) & raw["fits"]].sort_values("n")
        for row, what in enumerate(("ms", "MiB")):
            for label in METHODS:
                part = own[own["method"] == label]
                axes[row, column].loglog(part["n"], part[what], "o-", ms=3, color=COLOURS[label], label=label)
            axes[row, column].set(xlabel=f"lower parameters, {shape}", ylabel=f"{what} per upper step")
    legend(figure)
    return figure
