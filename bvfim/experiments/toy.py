"""The paper's toy, from one start, with RHG, CG and BVFIM: what each finds, and how it gets there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from matplotlib.figure import Figure

import bvfim
from bvfim.report import Results
from bvfim.schedules import geometric
from bvfim.solve import Solution
from bvfim.testproblems import TestProblem, sine


@dataclass(frozen=True)
class Config:
    """The settings of the paper's Figure 1.

    Args:
        a: the toy's parameter.
        start: x and y both start here.
        steps: K, the upper steps.
    """

    a: float = 2.0
    start: float = 3.0
    steps: int = 500


def methods() -> dict[str, Any]:
    """RHG, CG and BVFIM with the paper's settings, and BVFIM with the true barrier.

    The barrier starts with mu2 = 4, above the whole range of the sine, so that its feasible set is connected.
    """
    return {
        "RHG": bvfim.RHG(steps=100, lr=0.01),
        "CG": bvfim.CG(steps=100, lr=0.01, cg_steps=20),
        "BVFIM, printed": bvfim.BVFIM.printed(),
        "BVFIM, barrier": bvfim.BVFIM(
            mu1=geometric(0.01, 0.99), mu2=geometric(4.0, 0.98), theta=geometric(0.01, 0.99), tau=geometric(1.0, 0.985)
        ),
    }


def run(config: Config, progress: Callable[[str], Any] = lambda label: ()) -> Results:
    """Solve the toy with each method.

    Args:
        config: the settings.
        progress: gives the callbacks for a solve from its label.
    """
    toy = sine(config.a)
    start = torch.full((1,), config.start, dtype=torch.float64)
    solutions: dict[str, Solution] = {}
    for label, method in methods().items():
        callbacks = [_record, *progress(label)]
        solutions[label] = bvfim.solve(toy.problem, start, start, method, steps=config.steps, callbacks=callbacks)
    table = pd.DataFrame.from_dict({label: _row(toy, s) for label, s in solutions.items()}, orient="index")
    table.index.name = "method"
    figure = _figure(config, toy, {label: s.history for label, s in solutions.items()})
    return Results({"toy": table}, {"toy": figure}, {"optimum": {"x": float(toy.x), "F": toy.upper}})


def _record(run: bvfim.Run) -> None:
    run.row["x"], run.row["y"] = float(run.x), float(run.state.y)


def _row(toy: TestProblem, solution: Solution) -> dict[str, Any]:
    count = solution.evaluations
    return {
        "x": float(solution.x),
        "y": float(solution.y),
        "F": solution.upper,
        "|x-x*|": abs(float(solution.x - toy.x)),
        "f-f*": solution.lower - toy.lower,
        "grads": count["upper"] + count["lower"],
        "hvp+jvp": count["hvp"] + count["jvp"],
        "s": round(solution.seconds, 1),
    }


def _figure(config: Config, toy: TestProblem, histories: dict[str, pd.DataFrame]) -> Figure:
    figure = Figure(figsize=(10, 4), layout="constrained")
    distances = {
        "|x - x*|": lambda h: (h["x"] - float(toy.x)).abs(),
        "|y - y*|": lambda h: (h["y"] - float(toy.y)).abs(),
    }
    for axes, (title, distance) in zip(figure.subplots(1, 2), distances.items(), strict=True):
        for label, history in histories.items():
            axes.semilogy(history["step"] + 1, distance(history).clip(lower=1e-12), label=label, linewidth=1.8)
        axes.set(title=f"distance {title}", xlabel="upper step")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].legend(frameon=False)
    figure.suptitle(
        f"min (x-a)² + (y-a)²  s.t.  y ∈ argmin sin(x+y),   a = {config.a:g}, from x = y = {config.start:g}"
    )
    return figure
