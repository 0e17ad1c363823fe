"""Draws the pictures of docs/adaptive.md, docs/constraints.md, docs/evidence/which-method.md and CONTRIBUTING.md."""

from __future__ import annotations

import json
import math
import runpy
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import bvfim
from bvfim.reproduce.bench.contest_figures import profiles

IMAGES = Path(__file__).parent / "images"
RESULTS = Path(__file__).parent.parent / "benchmarks" / "results"
EXAMPLES = Path(__file__).parent.parent / "examples"
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


LAYERS = [
    ("app", "the command bvfim: commands, problem files, terminal, clean", "#e8d9f3"),
    ("reproduce, data", "the paper's experiments, benchmarks, data sets", "#e8d9f3"),
    ("labels", "LabelCleaner and its mathematics", "#e8d9f3"),
    ("reports", "results as files, pictures and pages", "#e8d9f3"),
    ("check, compare, testproblems", "what judges methods", "#cfe3f5"),
    ("solve, solve_many, Stepper, callbacks", "the one loop, and the run that it drives", "#cfe3f5"),
    ("methods, interior", "one file a method; the interior point, one file an idea", "#cfe3f5"),
    ("descent, unroll, implicit, linear, dynamics", "what methods share", "#cfe3f5"),
    ("distributed", "sums over processes, sharded networks, their checkpoints", "#cfe3f5"),
    ("problem, evaluator, backends", "F, f and their derivatives, counted in one place", "#cfe3f5"),
    ("status, tree, schedules, sets", "words, trees, numbers that vary, projections", "#cfe3f5"),
]
"""The rooms from the top down: their modules, what they are for, and the colour of their product."""


def layers() -> None:
    """The map of the house."""
    figure = Figure(figsize=(9, 5.2), layout="constrained")
    axes = figure.subplots()
    for i, (modules, purpose, colour) in enumerate(LAYERS):
        y = len(LAYERS) - i
        axes.barh(y, 1, height=0.82, color=colour, edgecolor="0.5", linewidth=0.6)
        axes.text(0.02, y, modules, va="center", fontsize=10, family="monospace")
        axes.text(0.98, y, purpose, va="center", ha="right", fontsize=9, color="0.25")
    middle = len(LAYERS) - 3.5
    axes.plot([0, 1], [middle, middle], color="0.3", linewidth=1.4)
    axes.text(1.02, middle + 2, "the products", rotation=270, va="center", fontsize=11)
    axes.text(1.02, middle - 3, "the solver", rotation=270, va="center", fontsize=11)
    axes.annotate("", (-0.03, 0.6), (-0.03, len(LAYERS) + 0.4), arrowprops={"arrowstyle": "->", "color": "0.3"})
    axes.text(-0.06, len(LAYERS) / 2 + 0.5, "imports", rotation=90, va="center", ha="center", fontsize=11)
    axes.set(xlim=(-0.1, 1.06), ylim=(0.4, len(LAYERS) + 0.6))
    axes.axis("off")
    figure.savefig(IMAGES / "layers.png", dpi=110)


OPTIMIST, PESSIMIST = "#2471a3", "#c0392b"
"""The colours of the two leaders."""


def followers() -> None:
    """What two leaders get for each x, by brute force, and where the solver sends them."""
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    road = bvfim.Problem(
        lambda x, y: -(x * y).sum(), lambda x, y: ((x - 4) * y).sum(), bvfim.Box(0, 8), bvfim.Box(0, 1)
    )
    both = bvfim.compare_followers(road, *(torch.tensor([v], dtype=torch.float64) for v in (1.0, 0.5)))
    for colour, apart in ((OPTIMIST, 0.12), (PESSIMIST, -0.12)):  # where both get the same
        left.plot([2, 4], [2 + apart, 4 + apart], color=colour)
        left.plot([4, 6], [apart, apart], color=colour)
        left.plot(4, apart, "o", color=colour, markerfacecolor=colour if apart < 0 else "white", markersize=5)
        solution = both.optimistic if apart > 0 else both.pessimistic
        mark(left, float(solution.x), apart - solution.upper, colour)
    left.text(4.1, 4.05, "gets 4, with the drivers' favour", color=OPTIMIST)
    left.text(4.1, 3.6, "comes as near as he likes", color=PESSIMIST)
    left.text(4.1, -0.6, "gets nothing at 4 itself", color=PESSIMIST)
    left.set(
        xlabel="toll x", ylabel="revenue, -F", ylim=(-0.9, 4.6), title="a toll: the pessimist's best is not attained"
    )
    game = runpy.run_path(str(EXAMPLES / "security_game.py"))
    town = bvfim.Problem(*(game[name] for name in ("upper", "lower", "x_set", "y_set")))
    both = bvfim.compare_followers(town, game["x"], game["y"])
    share = np.linspace(0, 1, 400)
    for values, solution, colour in zip(
        np.transpose([game["losses"](v) for v in share]),
        (both.optimistic, both.pessimistic),
        (OPTIMIST, PESSIMIST),
        strict=True,
    ):
        right.plot(share, values, color=colour)
        mark(right, float(solution.x), solution.upper, colour)
    right.text(0.3, 7.2, "thieves do the worst\nthat suits them", color=PESSIMIST)
    right.text(0.56, 0.9, "they do what suits the town", color=OPTIMIST)
    right.set(xlabel="share x of the guards at the harbour", ylabel="loss F", ylim=(0, 10))
    right.set(title=f"guards: friendliness is worth {both.worth:.2f}")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.3)
    figure.savefig(IMAGES / "constraints-followers.png", dpi=130)


def mark(axes: Axes, x: float, value: float, colour: str) -> None:
    """Where the solver ended."""
    axes.plot(x, value, "*", color=colour, markersize=13, markeredgecolor="black", markeredgewidth=0.6)


def rivals() -> None:
    """How often each method is near the best, from the results as they are kept."""
    kept = json.loads((RESULTS / "rivals-cpu.json").read_text())["runs"]
    ends = pd.DataFrame(kept).fillna({"excess": math.inf})
    profiles(ends.astype({"near from": float})).savefig(IMAGES / "rivals.png", dpi=110)


def main() -> None:
    """Write the pictures into docs/images."""
    layers()
    followers()
    rivals()
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
