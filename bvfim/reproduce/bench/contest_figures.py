"""The pictures of ``bvfim bench rivals``: profiles over all problems, and curves of single ones."""

from __future__ import annotations

import math
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
OWN = ("BVFIM", "AdaptiveBVFIM", "StochasticBVFIM")
"""The library's own methods: thicker lines, since colours and dashes have to tell sixteen apart."""
EARLIEST, LATEST = 0.05, 1.2
"""The shares of a run's time at which the axis of time begins, and ends: beyond one, so that the last rise is seen."""
NEAR_FROM = "near from"
"""The share of its time from which on a run was near the best."""
COLUMNS = 4
"""Panels side by side."""


def profiles(ends: pd.DataFrame) -> Figure:
    """The share of problems on which a method is within a tolerance of the best, and near it by a share of its time.

    Args:
        ends: those of the runs that are compared, with the share of its time from which on each was near the best.
    """
    figure, axes = panels(2, 2, width=5.2, height=3.7)
    for column, kind in enumerate((DEFAULTS, BEST)):
        within, by_time = axes[:, column]
        for name, style in styles(ends).items():
            own = ends[(ends["as"] == kind) & (ends["method"] == name)]
            if own["excess"].eq(math.inf).all():
                continue
            markers = 7 * style.pop("at"), 66
            share = [float((own["excess"] <= t).mean()) for t in TOLERANCES]
            within.plot(TOLERANCES, share, label=name, markevery=markers, **style)
            moments = sorted(own[NEAR_FROM].dropna())
            reached = [i / len(own) for i in range(len(moments) + 1)]
            by_time.step(
                [EARLIEST, *moments, LATEST], [*reached, reached[-1]], where="post", **{**style, "marker": None}
            )
        within.set(title=kind, xscale="log", xlabel="above the best, relative to it", ylim=(0, 1))
        within.axvline(NEAR, color="#808a94", linestyle=":")
        by_time.set(xscale="log", xlabel="share of the CPU seconds", xlim=(EARLIEST, LATEST), ylim=(0, 1))
        by_time.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        for one in (within, by_time):
            one.xaxis.set_major_formatter("{x:g}")
            one.xaxis.set_minor_formatter(NullFormatter())
    axes[0, 0].set_ylabel("share of problems within it")
    axes[1, 0].set_ylabel(f"share of problems within {100 * NEAR:g} %")
    legend(figure, 6, axes[0, 1])
    return figure


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
            "linewidth": 2.6 if name in OWN else 1.3,
            "at": i % 9,
        }
    return found
