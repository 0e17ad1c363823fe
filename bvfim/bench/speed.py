"""What the library costs over a bare hand-written loop with the same gradient evaluations."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor

import bvfim
from bvfim.experiments import cleaning
from bvfim.memory import PeakMemory
from bvfim.report import Results


@dataclass(frozen=True)
class Config:
    """The paper's hyper-cleaning problem and how often it is timed.

    Args:
        data: the data set.
        train, validation, hidden: the sizes of the problem.
        z_steps, y_steps: Tz and Ty.
        steps: upper steps in one timing.
        pairs: how many timings of each kind, interleaved; the median counts.
        seed: of the problem.
    """

    data: str = "mnist"
    train: int = 5000
    validation: int = 5000
    hidden: int = 300
    z_steps: int = 50
    y_steps: int = 25
    steps: int = 1
    pairs: int = 7
    seed: int = 0


def bare_loop(task: cleaning.Task, config: Config) -> Tensor:
    """BVFIM with fixed weights, written out by hand on two lists of tensors, with no library at all."""
    x = task.x.clone().requires_grad_()
    optimizer = torch.optim.Adam([x], lr=0.01)
    keys = list(task.y)
    z = [t.clone().requires_grad_() for t in task.y.values()]
    y = [t.clone().requires_grad_() for t in task.y.values()]
    upper, lower = task.problem.upper, task.problem.lower
    for k in range(config.steps):
        mu1 = theta = tau = 1.01**-k
        fixed = x.detach()
        for _ in range(config.z_steps):
            grads = torch.autograd.grad(lower(fixed, dict(zip(keys, z, strict=True))), z)
            with torch.no_grad():
                for p, g in zip(z, grads, strict=True):
                    p -= 0.01 * (g + mu1 * p)
        with torch.no_grad():
            weight = tau / (lower(fixed, dict(zip(keys, z, strict=True))) + mu1 / 2 * sum((p * p).sum() for p in z))
        for _ in range(config.y_steps):
            named = dict(zip(keys, y, strict=True))
            first = torch.autograd.grad(upper(fixed, named), y)
            second = torch.autograd.grad(lower(fixed, named), y)
            with torch.no_grad():
                for p, a, b in zip(y, first, second, strict=True):
                    p -= 0.01 * (a + theta * p + weight * b)
        ended = [{key: p.detach() for key, p in zip(keys, v, strict=True)} for v in (y, z)]
        value = upper(x, ended[0]) + weight * (lower(x, ended[0]) - lower(x, ended[1]))
        (x.grad,) = torch.autograd.grad(value, x)
        optimizer.step()
    return x.detach()


def run(config: Config, progress: Any = iter) -> Results:
    """Time the bare loop and ``solve`` in turn, and count how memory grows with Tz and Ty.

    Args:
        config: the settings.
        progress: wraps the list of rounds to show how far they are.
    """
    task = cleaning.problem(
        config.data, train=config.train, validation=config.validation, hidden=config.hidden, seed=config.seed
    )

    def solve(mu2: Any) -> Callable[[], Any]:
        method = bvfim.BVFIM(config.z_steps, config.y_steps, mu2=mu2)
        return lambda: bvfim.solve(task.problem, task.x, task.y, method, steps=config.steps)

    kinds: dict[str, Callable[[], Any]] = {
        "bare loop": lambda: bare_loop(task, config),
        "solve, as printed": solve(bvfim.LowerValue()),
        "solve, true barrier": solve(bvfim.schedules.geometric(1.0, 1 / 1.01)),
    }
    rows = []
    for _ in progress(list(range(config.pairs))):
        rows.append({kind: _seconds(action) / config.steps for kind, action in kinds.items()})
    rounds = pd.DataFrame(rows)
    ratios = rounds.div(rounds["bare loop"], axis=0).median()
    table = pd.DataFrame({"seconds per upper step": rounds.median(), "ratio to the bare loop": ratios})
    table.index.name = "loop"
    memory = {steps: _peak_mib(task, *steps) for steps in ((10, 5), (50, 25))}
    summary = {
        "ratio to the bare loop": ratios.round(4).to_dict(),
        "within 1.10 of the bare loop": bool((ratios <= 1.10).all()),
        "peak MiB by (Tz, Ty)": {f"{z}, {y}": round(peak, 2) for (z, y), peak in memory.items()},
    }
    return Results({"speed": table, "rounds": rounds}, {"speed": _figure(rounds)}, summary)


def _seconds(action: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def _peak_mib(task: cleaning.Task, z_steps: int, y_steps: int) -> float:
    with PeakMemory(task.x.device) as memory:
        bvfim.hypergradient(task.problem, task.x, task.y, bvfim.BVFIM(z_steps, y_steps))
    return memory.peak / 2**20


def _figure(rounds: pd.DataFrame) -> Figure:
    figure = Figure(figsize=(7, 3), layout="constrained")
    axes = figure.subplots()
    for height, kind in enumerate(rounds.columns):
        ratios = rounds[kind] / rounds["bare loop"]
        axes.plot(ratios, [height] * len(ratios), "o", alpha=0.5)
        axes.plot(ratios.median(), height, "k|", markersize=24)
    axes.set_yticks(range(len(rounds.columns)), list(rounds.columns))
    axes.axvline(1.1, color="tab:red", linestyle=":", label="1.10")
    axes.set(xlabel="time of an upper step, as a ratio to the bare loop of the same round")
    axes.legend(frameon=False)
    return figure
