"""Table 2, measured: how time and memory of one hypergradient grow with n, m and T.

Time is counted in evaluations (gradients of F and f, Hessian- and Jacobian-vector products), memory in
bytes of live tensors, so that the numbers are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor

import bvfim
from bvfim.core.memory import PeakMemory
from bvfim.reports.report import Results, Section
from bvfim.reproduce.experiments.paper import COMPLEXITY
from bvfim.reproduce.experiments.resumable import How, measured


@dataclass(frozen=True)
class Config:
    """Where the sweeps start, and by how much each size grows.

    Args:
        n: the length of y.
        m: the length of x.
        T: the lower steps; J = T for CG and Neumann, Tz = T and Ty = T/2 for BVFIM.
        doublings: how often each size is doubled, one size at a time.
        seed: nothing here is random; every experiment has one.
        device: where the tensors are.
    """

    n: int = 2048
    m: int = 16
    T: int = 64
    doublings: int = 3
    seed: int = 0
    device: str = "cpu"

    def quick(self) -> Config:
        """Smaller, to see that it runs."""
        return replace(self, n=512, m=8, T=64, doublings=2)


def methods(T: int) -> dict[str, Any]:
    """The methods of Table 2 at T lower steps."""
    return {
        "FHG": bvfim.FHG(steps=T),
        "RHG": bvfim.RHG(steps=T),
        "TRHG": bvfim.TRHG(steps=T, keep=T // 2),
        "BDA": bvfim.BDA(steps=T),
        "CG": bvfim.CG(steps=T, cg_steps=T),
        "Neumann": bvfim.Neumann(steps=T, terms=T),
        "BVFIM": bvfim.BVFIM(z_steps=T, y_steps=T // 2),
    }


def problem(n: int, m: int, device: str = "cpu") -> tuple[bvfim.Problem, Tensor, Tensor]:
    """A cheap non-quadratic problem of any size: y_i is drawn to x_(i mod m)."""
    index = torch.arange(n, device=device) % m
    number: dict[str, Any] = {"dtype": torch.float64, "device": device}
    stated = bvfim.Problem(
        upper=lambda x, y: ((y - 1) ** 2).sum() / 2 + (x**2).sum() / 2,
        lower=lambda x, y: ((y - x[index]) ** 2).sum() / 2 + torch.cosh(0.5 * y).sum(),
    )
    return stated, torch.linspace(-1, 1, m, **number), torch.zeros(n, **number)


def measure(label: str, n: int, m: int, T: int, device: str = "cpu") -> dict[str, Any]:
    """Evaluations and peak memory of one hypergradient."""
    stated, x, y = problem(n, m, device)
    method = methods(T)[label]
    state = method.init(stated, x, y)
    with PeakMemory() as memory:
        method.estimate(stated, x, state, 0, None)
    count = stated.evaluations.as_dict()
    work = sum(count[kind] for kind in ("upper", "lower", "hvp", "jvp"))
    return {"method": label, "n": n, "m": m, "T": T, **count, "time": work, "memory": memory.peak}


def sweep(label: str, config: Config) -> pd.DataFrame:
    """One method, each size doubled alone."""
    sizes = {"n": config.n, "m": config.m, "T": config.T}
    plan = [(varied, i) for varied in sizes for i in range(config.doublings + 1)]
    at = [(varied, {**sizes, varied: sizes[varied] * 2**i}) for varied, i in plan]
    return pd.DataFrame([{"varied": varied, **measure(label, **size, device=config.device)} for varied, size in at])


def run(config: Config, how: How = How()) -> Results:
    """Sweep each size alone, fit the exponents, and set them beside the paper's orders.

    Args:
        config: the sizes.
        how: where the parts are saved, and how many processes share them.
    """
    tables = measured(config, {label.lower(): partial(sweep, label, config) for label in COMPLEXITY}, how)
    raw = pd.concat(tables.values(), ignore_index=True)
    table = pd.DataFrame([_exponents(label, raw[raw["method"] == label]) for label in COMPLEXITY]).set_index("method")
    agrees = {str(label): bool(ok) for label, ok in table["agrees"].items()}
    section = Section(
        "Table 2: time and memory of one hypergradient",
        "Time is measured in evaluations, memory in bytes of live tensors, as n, m and T are doubled one at a time. "
        "The columns are the exponents e of growth like n^e, fitted in log-log space.",
        "The orders in the first two columns; TRHG and BDA, which the paper omits, go through T steps like RHG.",
        f"{sum(agrees.values())} of {len(agrees)} methods grow as their orders predict, within 0.2 in the exponent.",
        ("complexity",),
        ("complexity",),
    )
    frames = {"complexity": table, "measurements": raw}
    return Results(frames, {"complexity": _figure(raw)}, {"agrees": agrees}, (section,))


def _exponents(label: str, rows: pd.DataFrame) -> dict[str, Any]:
    order = COMPLEXITY[label]
    fitted = {
        f"{what} ~ {size}": slope(own[size].to_numpy(), own[what].to_numpy())
        for what in ("time", "memory")
        for size in ("n", "m", "T")
        for own in [rows[rows["varied"] == size]]
    }
    expected = {
        **{f"time ~ {s}": e for s, e in order.time.items()},
        **{f"memory ~ {s}": e for s, e in order.memory.items()},
    }
    agrees = all(abs(fitted[key] - expected[key]) <= 0.2 for key in expected)
    return {
        "method": label,
        "order of time": order.time_text,
        "order of memory": order.memory_text,
        **fitted,
        "agrees": agrees,
    }


def slope(sizes: np.ndarray, measured: np.ndarray) -> float:
    """The exponent e in measured ~ size^e, by least squares on logarithms; NaN from fewer than two sizes.

    Example:
        >>> import numpy as np
        >>> from bvfim.reproduce.experiments.complexity import slope
        >>> slope(np.array([1, 10, 100]), np.array([2, 20, 200]))
        1.0
    """
    if len(sizes) < 2:
        return float("nan")
    return round(float(np.polyfit(np.log(sizes), np.log(measured), 1)[0]), 2) + 0.0  # no minus zero


def _figure(raw: pd.DataFrame) -> Figure:
    figure = Figure(figsize=(12, 6.5), layout="constrained")
    grid: Iterable[Any] = figure.subplots(2, 3)
    names = {"time": "evaluations", "memory": "peak MiB"}
    for row, what in zip(grid, names, strict=True):
        for axes, size in zip(row, ("n", "m", "T"), strict=True):
            for label, style in zip(COMPLEXITY, ("o-", "s-", "^--", "D:", "v-", "x--", "P-"), strict=True):
                part = raw[(raw["method"] == label) & (raw["varied"] == size)]
                axes.loglog(part[size], part[what] / (2**20 if what == "memory" else 1), style, label=label, base=2)
            axes.set(xlabel=size, ylabel=names[what])
            axes.grid(alpha=0.3)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside right center", frameon=False)
    figure.suptitle("One hypergradient: evaluations and peak memory by size")
    return figure
