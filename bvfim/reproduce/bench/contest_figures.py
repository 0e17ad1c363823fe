"""The pictures of ``bvfim bench rivals``: profiles over all problems, and curves of single ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from bvfim.reports.plots import legend, panels
from bvfim.reproduce.bench.contest_settings import DEFAULTS
from bvfim.reproduce.bench.jobs.base import NEAR
from bvfim.reproduce.bench.time_to_result_report import COLOURS, DASHES, MARKERS

BEST = "best of grid"
TOLERANCES = np.geomspace(1e-3, 10, 200)
LOWEST, HIGHEST = 1e-4, 1e2
"""An excess below or above these is drawn there."""
COLUMNS = 4
"""Panels side by side."""


def profiles(looks: pd.DataFrame, budgets: Mapping[str, float]) -> Figure:
    """The share of problems on which a method is within a tolerance of the best, and near it by a share of its time.

    Args:
        looks: those at the runs that are compared.
        budgets: the seconds of a run, by job.
    """
    figure, axes = panels(2, 2, width=5.2, height=3.7)
    for column, kind in enumerate((DEFAULTS, BEST)):
        compared = looks[looks["as"] == kind]
        for name, style in styles(looks).items():
            own = compared[compared["method"] == name]
            ends = own[own["status"] != ""]
            if ends["excess"].eq(math.inf).all():
                continue
            within = [float((ends["excess"] <= t).mean()) for t in TOLERANCES]
            axes[0, column].plot(TOLERANCES, within, label=name, markevery=(7 * style.pop("at"), 66), **style)
            moments = reached(own, budgets)
            share = [i / len(ends) for i in range(len(moments) + 1)]
            style.pop("marker")
            axes[1, column].step([0.02, *moments, 1.2], [*share, share[-1]], where="post", **style)
        axes[0, column].set(title=f"{kind}", xscale="log", xlabel="above the best, relative to it", ylim=(0, 1))
        axes[0, column].axvline(NEAR, color="#808a94", linestyle=":")
        axes[0, column].xaxis.set_major_formatter("{x:g}")
        axes[1, column].set(xscale="log", xlabel="share of the CPU seconds", xlim=(0.02, 1.2), ylim=(0, 1))
        axes[1, column].xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes[1, column].xaxis.set_major_formatter("{x:g}")
    axes[0, 0].set_ylabel("share of problems within it")
    axes[1, 0].set_ylabel(f"share of problems within {100 * NEAR:g} %")
    legend(figure, 6, axes[0, 1])
    return figure


def reached(looks: pd.DataFrame, budgets: Mapping[str, float]) -> list[float]:
    """The shares of their budgets from which on runs were near the best until they ended, in ascending order.

    Example:
        >>> import pandas as pd
        >>> from bvfim.reproduce.bench.contest_figures import reached
        >>> run = {"job": "a", "seed": 1, "seconds": [1.0, 2.0, 3.0, 4.0], "near": [True, False, True, True]}
        >>> reached(pd.DataFrame(run), {"a": 4.0})
        [0.75]
    """
    found = []
    for (job, _), run in looks.groupby(["job", "seed"], sort=False):
        staying = run["near"].to_numpy()[::-1].cumprod()[::-1].astype(bool)
        if staying.any():
            found.append(min(float(run["seconds"][staying].iloc[0]) / budgets[str(job)], 1.0))
    return sorted(found)


def curves(looks: pd.DataFrame, unit: str) -> Figure:
    """How far above the best each method is, over seconds or gradients: a panel a job, on the first of the seeds."""
    looks = looks[looks["seed"] == looks["seed"].min()]
    names = list(dict.fromkeys(looks["job"]))
    columns = min(COLUMNS, len(names))
    figure, axes = panels(-(-len(names) // columns), columns, width=max(3.4, 9.0 / columns), height=3.0)
    flat: list[Any] = list(axes.flat)
    for one, job in zip(flat, names, strict=False):
        of_job = looks[looks["job"] == job]
        for method, style in styles(looks).items():
            style.pop("at")
            own = of_job[of_job["method"] == method]
            best, default = (own[own["as"] == kind] for kind in (BEST, DEFAULTS))
            _curve(one, best, unit, {**style, "label": method})
            if list(best["setting"]) != list(default["setting"]):
                _curve(one, default, unit, {**style, "linestyle": ":", "linewidth": 1.0, "marker": None})
        one.set(title=job, xscale="log", yscale="log", ylim=(LOWEST / 2, HIGHEST * 2))
        one.axhline(NEAR, color="#808a94", linestyle=":", linewidth=1)
        one.set_xlabel("CPU seconds" if unit == "seconds" else "gradients")
        one.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if unit == "seconds" else (1,)))
        one.xaxis.set_major_formatter("{x:,g}")
        one.xaxis.set_minor_formatter(NullFormatter())
    for one in flat[len(names) :]:
        one.remove()
    for one in axes[:, 0]:
        one.set_ylabel("above the best, relative to it")
    fullest = max(flat[: len(names)], key=lambda one: len(one.get_legend_handles_labels()[0]))
    legend(figure, 5 if columns < COLUMNS else 8, fullest)
    return figure


def _curve(axes: Any, run: pd.DataFrame, unit: str, style: dict[str, Any]) -> None:
    run = run[np.isfinite(run["excess"]) & (run[unit] > 0)]
    if run.empty:
        return
    axes.plot(run[unit], run["excess"].clip(LOWEST, HIGHEST), **style)


def styles(looks: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """How each method is drawn, in every figure alike; ``at`` moves its markers away from those of others."""
    found: dict[str, dict[str, Any]] = {}
    for i, name in enumerate(dict.fromkeys(looks["method"])):
        found[str(name)] = {
            "color": COLOURS[i % len(COLOURS)],
            "linestyle": DASHES[i // len(COLOURS) % len(DASHES)],
            "marker": MARKERS[i % len(MARKERS)],
            "markersize": 4,
            "linewidth": 1.5,
            "at": i % 9,
        }
    return found
