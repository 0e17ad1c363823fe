"""Draws the pictures of docs/adaptive.md."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import bvfim

IMAGES = Path(__file__).parent / "images"
START, SHOWN = (-6.0, 7.0), (0, 1, 5, 9)
A = 2.0


def stages() -> tuple[list[tuple[float, float]], bvfim.Solution]:
    """Where (x, y) is after every stage on the paper's toy, and the solution."""
    toy = bvfim.testproblems.sine(A)
    points = [START]
    x, y = (torch.full((1,), v, dtype=torch.float64) for v in START)
    solution = bvfim.solve(
        toy.problem, x, y, callbacks=[lambda run: points.append((float(run.x), float(run.state.y))) or False]
    )
    return points, solution


def feasible(axes: Axes, points: list[tuple[float, float]], mu2: float, stage: int) -> None:
    """The feasible set of a stage, the level sets of F, and the path so far."""
    toy = bvfim.testproblems.sine(A)
    middle, half = (0.0, 10.0) if mu2 > 0.1 else (toy.x.item(), 0.5)
    side = middle + half * torch.linspace(-1, 1, 400, dtype=torch.float64)
    x, y = torch.meshgrid(side, side, indexing="xy")
    slack = mu2 - 1 - torch.sin(x + y)  # f*(x) = -1
    F = (x - A) ** 2 + (y - A) ** 2
    axes.contourf(x, y, slack, levels=[0, 1e3], colors=["#cfe3f5"])
    axes.contour(x, y, F, levels=[0.04, 0.16, 0.36, 1, 9, 36, 100], colors="0.75", linewidths=0.6)
    path = points[: stage + 2]
    axes.plot(*zip(*path, strict=True), "o-", color="#c0392b", markersize=3, linewidth=1.2)
    axes.plot(*path[-1], "o", color="#c0392b", markersize=7)
    axes.plot(toy.x.item(), toy.y.item(), "*", color="black", markersize=11)
    axes.set(title=f"stage {stage + 1}: $\\mu_2$ = {mu2:.2g}", xlabel="x", aspect="equal")
    axes.set(xlim=(middle - half, middle + half), ylim=(middle - half, middle + half))


def main() -> None:
    """Write both pictures into docs/images."""
    points, solution = stages()
    history = solution.history
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    row = figure.subplots(1, len(SHOWN))
    for axes, stage in zip(row, SHOWN, strict=True):
        feasible(axes, points, history["mu2"][stage], stage)
    row[0].set_ylabel("y")
    figure.savefig(IMAGES / "adaptive-stages.png", dpi=130)

    toy = bvfim.testproblems.sine(A)
    steps = range(1, len(history["mu2"]) + 1)
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, label in [("mu2", r"$\mu_2$"), ("slack", "slack s"), ("gap", "lower gap"), ("tau", r"$\tau$")]:
        left.semilogy(steps, history[name], label=label)
    entropy = (history["tau"] * np.log(history["mu2"])).abs()
    left.semilogy(steps, entropy, ":", color="0.4", label=r"$\tau\,|\ln \mu_2|$")
    left.set(xlabel="stage", title="the slack closes, and $\\tau \\ln \\mu_2$ with it")
    left.legend(frameon=False, ncols=2)
    met = history["polished"] != history["upper"]
    right.semilogy(steps, toy.upper - history["upper"], label="F* - F(x, y): the relaxed F is too low")
    right.semilogy(
        [k for k, shown in zip(steps, met, strict=True) if shown],
        (history["polished"] - toy.upper)[met],
        "o-",
        markersize=3,
        label="F(x, y') - F*: the polished F is too high",
    )
    right.set(xlabel="stage", title="the two estimates of F meet")
    right.legend(frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.3)
    figure.savefig(IMAGES / "adaptive-slack.png", dpi=130)


if __name__ == "__main__":
    main()
