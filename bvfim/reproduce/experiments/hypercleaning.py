"""Data hyper-cleaning, Table 3 and Figures 5 and A2: every method on the same splits, noise, start and budget.

The lower step of each method is chosen on the first seed from one grid, and the upper step of each run at which it is
judged, by the accuracy on validation rows that are kept out of F, smoothed over the steps. Test data choose nothing.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch

import bvfim
from bvfim.core.accelerate import tf32
from bvfim.reports.describe import slug
from bvfim.reports.report import Results
from bvfim.reproduce.experiments import cleaning_report
from bvfim.reproduce.experiments.cleaning import Task, on_batches
from bvfim.reproduce.experiments.cleaning_baselines import baselines, ranking
from bvfim.reproduce.experiments.cleaning_settings import (
    DATA,
    SINGLE,
    Config,
    cost,
    grid,
    method,
    methods,
    task,
    updates,
)
from bvfim.reproduce.experiments.resumable import How, Part, finished, measured
from bvfim.status import SOUND

__all__ = ["Config", "best", "run", "trace"]

LOOK_SELDOM = 8
"""The single loop's steps are so short that it is looked at after more of them."""


class Watch:
    """Looks at a run every so many steps; its own time is not counted."""

    def __init__(self, task: Task, every: int) -> None:
        self.task, self.every = task, every
        self.rows: list[dict[str, float]] = []
        self.steps: list[float] = []
        self.resumed = time.perf_counter()

    def __call__(self, run: bvfim.Run) -> None:
        """A row, where one is due."""
        self.steps.append(time.perf_counter() - self.resumed)
        if run.k % self.every == 0:
            self._look(run)
        self.resumed = time.perf_counter()

    def finish(self, run: bvfim.Run) -> None:
        """The end of the run, if it was not seen."""
        if run.rows and (not self.rows or self.rows[-1]["step"] != run.k):
            self._look(run)

    def _look(self, run: bvfim.Run) -> None:
        self.rows.append(
            {
                "step": run.k,
                "seconds": sum(self.steps),
                "F": run.row["upper"],
                "f": run.row["lower"],
                "held": self.task.accuracy(run.state.y, self.task.held),
                "accuracy": self.task.accuracy(run.state.y),
                "accuracy of z": self.task.accuracy(getattr(run.state, "z", run.state.y)),
                "F1": self.task.f1(run.x),
                **ranking(self.task, run.x),
            }
        )


def trace(problem: str, activation: str, label: str, lr: float, seed: int, config: Config) -> pd.DataFrame:
    """One run: what was seen of it, its status, and the time of an upper step."""
    own = task(problem, activation, seed, config)
    watch = Watch(own, config.every if label != SINGLE else config.every * LOOK_SELDOM)
    chosen = method(label, lr, config)
    adam = partial(torch.optim.Adam, lr=config.x_lr) if isinstance(chosen, bvfim.Estimator) else None
    solved, batches = own.problem, None
    if label == SINGLE:
        solved, batches = on_batches(own, DATA[problem][1].batch)
    with tf32(config.tf32):
        steps = updates(problem, config, label)
        found = bvfim.solve(solved, own.x, own.y, chosen, adam, steps=steps, batches=batches, callbacks=[watch])
    finished(found)
    rows = watch.rows or [{"step": 0, "held": 0.0}]
    ms = 1e3 * float(np.median(watch.steps[3:] or watch.steps or [np.nan]))  # a recorded step is set up by then
    about: dict[str, Any] = {"problem": problem, "activation": activation, "method": label, "lr": lr, "seed": seed}
    used = found.evaluations
    count = max(found.steps, 1)
    about |= {"gradients": (used["upper"] + used["lower"]) / count, "products": (used["hvp"] + used["jvp"]) / count}
    return pd.DataFrame(rows).assign(**about, ms=ms, status=found.status.value)


def reference(problem: str, activation: str, seed: int, config: Config) -> pd.DataFrame:
    """The baselines of one seed."""
    own = task(problem, activation, seed, config)
    about: dict[str, Any] = {"problem": problem, "activation": activation, "seed": seed, "note": own.note}
    return pd.DataFrame(baselines(own)).assign(**about)


def best(traces: pd.DataFrame) -> tuple[float, int]:
    """The lower step whose run has the highest smoothed accuracy on the held-out rows, and the last step that has it.

    A run that broke off is chosen only if all did.
    """
    sound = traces[traces["status"].isin(SOUND)]
    among = sound if len(sound) else traces
    row = cleaning_report.by_held(among).iloc[-1]
    return float(row["lr"]), int(row["step"])


def _cells(config: Config) -> list[tuple[str, str, str]]:
    return [(p, a, m) for p in dict.fromkeys(config.data) for a in config.activations for m in methods(p, config)]


def _name(problem: str, activation: str, label: str, lr: float, seed: int) -> str:
    return slug(f"{problem} {activation} {label} {lr:g} {seed}")


def run(config: Config, how: How = How()) -> Results:
    """Tune on the first seed, run the others, and report.

    Args:
        config: the settings.
        how: where the parts are saved, and how many processes share them.
    """
    cells, seeds = _cells(config), range(1, config.seeds)
    grids = {cell: grid(cell[0], cell[2], config) for cell in cells}
    tuning: dict[str, Part] = {
        _name(*cell, lr, 0): partial(trace, *cell, lr, 0, config) for cell in cells for lr in grids[cell]
    }
    amount = {cell: cost(cell[0], cell[2], config) for cell in cells}
    work = {_name(*c, lr, seed): amount[c] for c in cells for lr in grids[c] for seed in (0, *seeds)}
    baselines = sum(cost(p, "baselines", config) for p, _ in dict.fromkeys(cell[:2] for cell in cells))
    ahead = len(seeds) * sum(amount.values()) + config.seeds * baselines
    tuned = measured(config, tuning, how, work, ahead)
    chosen = {cell: best(pd.concat([tuned[_name(*cell, lr, 0)] for lr in grids[cell]]))[0] for cell in cells}
    later: dict[str, Part] = {}
    for p, a in dict.fromkeys(cell[:2] for cell in cells):
        for seed in range(config.seeds):  # the methods of one seed after another, which share its data
            name = slug(f"{p} {a} baselines {seed}")
            later[name], work[name] = partial(reference, p, a, seed, config), cost(p, "baselines", config)
            for cell in [cell for cell in cells if seed and cell[:2] == (p, a)]:
                later[_name(*cell, chosen[cell], seed)] = partial(trace, *cell, chosen[cell], seed, config)
    rest = measured(config, later, how, work, first=False)
    traces = pd.concat(
        [(tuned | rest)[_name(*cell, chosen[cell], seed)] for cell in cells for seed in range(config.seeds)],
        ignore_index=True,
    )
    others = pd.concat([rest[name] for name in rest if "-baselines-" in name], ignore_index=True)
    tried = pd.concat(tuned.values(), ignore_index=True)
    return cleaning_report.results(config, traces, others, tried)
