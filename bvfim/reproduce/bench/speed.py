"""An upper step of the paper's hyper-cleaning problem: ours, a bare loop, other libraries, and the hardware's floor."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any

import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor

import bvfim
from bvfim.core.accelerate import tf32
from bvfim.core.memory import PeakMemory
from bvfim.reports.plots import CYCLE, panels
from bvfim.reports.report import Results, Section
from bvfim.reproduce.bench.loops import Bare, Products, Solving
from bvfim.reproduce.bench.peers.base import Budget
from bvfim.reproduce.experiments import cleaning
from bvfim.status import DataError

PEERS = {"higher": "higher_", "torchopt": "torchopt_", "betty": "betty_", "boat_torch": "boat_"}
"""Other libraries by the names they are imported by, and our modules that drive them."""
BARE, FLOOR, LIMIT = "bare loop", "matrix products alone", 1.05

Contestants = dict[str, Callable[[], Any]]


@dataclass(frozen=True)
class Config:
    """The problem, the budget, and how often each contestant is timed.

    Args:
        data: the data set.
        train, validation, hidden: the sizes of the problem.
        T: lower gradients in an upper step: T steps of the others, T/2 on z and T/4 on y of BVFIM.
        J: steps of CG, terms of the Neumann series.
        steps: upper steps in one timing.
        rounds: how many timings of each, interleaved; the median counts.
        seconds: how long each trains for its accuracy and F1; 0 leaves them out.
        peers: whether other libraries take part, where they are installed.
        only: time only those whose names have one of these in them, beside the bare loop; all where it is empty.
        device: where the tensors are.
        tf32: whether float32 products may round their inputs to TF32, for all that is compared.
        seed: of the problem.
    """

    data: str = "mnist"
    train: int = 5000
    validation: int = 5000
    hidden: int = 300
    T: int = 100
    J: int = 20
    steps: int = 1
    rounds: int = 7
    seconds: float = 0.0
    peers: bool = True
    only: tuple[str, ...] = ()
    device: str = "cpu"
    tf32: bool = False
    seed: int = 0

    @property
    def budget(self) -> Budget:
        """What an upper step may take."""
        return Budget(self.T, self.J)


def problem(config: Config, dtype: torch.dtype = torch.float32) -> cleaning.Task:
    """The hyper-cleaning problem of a config."""
    return cleaning.problem(
        config.data,
        train=config.train,
        validation=config.validation,
        hidden=config.hidden,
        seed=config.seed,
        device=config.device,
        dtype=dtype,
    )


def methods(T: int, J: int) -> dict[str, Any]:
    """Ours, at the same number of lower gradients."""
    return {
        "BVFIM, printed": bvfim.BVFIM(T // 2, T // 4, mu2=bvfim.LowerValue()),
        "BVFIM, barrier": bvfim.BVFIM(T // 2, T // 4),
        "RHG": bvfim.RHG(T, segment=T),
        "TRHG": bvfim.TRHG(T, T // 2, segment=T),
        "BDA": bvfim.BDA(T, segment=T),
        "CG": bvfim.CG(T, cg_steps=J),
        "Neumann": bvfim.Neumann(T, terms=J),
    }


def contestants(config: Config, task: cleaning.Task) -> tuple[Contestants, dict[str, str]]:
    """Everything that is timed, by name, and the peers that could not take part, with the reason."""
    budget, cuda = config.budget, config.device != "cpu"
    found: Contestants = {BARE: lambda: Bare(task, budget)}
    for label, method in methods(config.T, config.J).items():
        ways = {"": "none"} if not cuda else {"": "cudagraph"}
        if cuda and label.startswith("BVFIM"):
            ways = {", plain": "none", ", recorded": "cudagraph", ", compiled": "compile"}
        for suffix, way in ways.items():
            found[f"bvfim {label}{suffix}"] = partial(Solving, task, method, budget, way)
    absent = {}
    for library, module in PEERS.items() if config.peers else ():
        try:
            found |= import_module(f"bvfim.reproduce.bench.peers.{module}").loops(task, budget)
        except ImportError as error:
            absent[library] = str(error)
    if config.only:
        found = {name: build for name, build in found.items() if name == BARE or any(s in name for s in config.only)}
        if len(found) == 1:
            raise DataError(f"no loop has {' or '.join(map(repr, config.only))} in its name")
    return found, absent


def run(config: Config, progress: Any = iter) -> Results:
    """Time every contestant in turn, round by round.

    Args:
        config: the settings.
        progress: wraps the list of rounds to show how far they are.
    """
    with tf32(config.tf32):
        return _run(config, progress)


def _run(config: Config, progress: Any) -> Results:
    task = problem(config)
    builders, absent = contestants(config, task)
    watched, calls = _watched(task)
    exact = _exact(config)
    loops, facts = {}, {}
    for name, build in contestants(config, watched)[0].items():
        try:
            facts[name] = _first(build, exact, calls, config.device)
            loops[name] = builders[name]()
            for _ in range(3):  # what is recorded or compiled is so by then
                loops[name].step()
            if isinstance(loops[name], Solving) and not loops[name].accelerated:
                absent[name] = "its step fell back to another mode"
        except Exception as error:  # a peer may fail on this device or version: told, not hidden
            absent[name] = reason(error)
    inputs = torch.randn(config.train, task.test.inputs.shape[1], device=config.device)
    actions = {name: loop.step for name, loop in loops.items()} | {FLOOR: Products(task, config.budget, inputs).step}
    rows: list[dict[str, float]] = []
    for _ in progress(list(range(config.rounds))):
        rows.append({})
        for name in [name for name in actions if name not in absent]:
            try:
                rows[-1][name] = _seconds(actions[name], config)
            except Exception as error:
                absent[name] = reason(error)
    for loop in loops.values():
        _stop(loop)
    rounds = pd.DataFrame(rows).drop(columns=list(absent), errors="ignore")
    table = _table(rounds, facts)
    if config.seconds:
        scores = {name: _trained(builders[name], task, config) for name in loops if name not in absent}
        table = table.join(pd.DataFrame(scores).T)
    own = [name for name in table.index if name.startswith("bvfim BVFIM, printed")]  # the same evaluations
    ratios = table["ratio to the bare loop"]
    summary: dict[str, Any] = {"absent": absent}
    if own:
        summary["ratio to the bare loop"] = {name: round(float(ratios[name]), 4) for name in own}
        summary[f"within {LIMIT} of the bare loop"] = bool((ratios[own] <= LIMIT).all())
    return Results(
        {"speed": table, "rounds": rounds}, {"speed": _figure(table)}, summary, (_section(config, table, absent),)
    )


def reason(error: Exception) -> str:
    """The kind of error and the first line of what it says."""
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"


def _watched(task: cleaning.Task) -> tuple[cleaning.Task, Counter[str]]:
    """The same task, and how often its F and f are called."""
    calls: Counter[str] = Counter()

    def watched(objective: Any, *names: str) -> Any:
        def call(x: Tensor, y: Any) -> Any:
            calls.update(names)
            return objective(x, y)

        return call

    stated = task.problem
    both = watched(stated.joint, "F calls", "f calls")
    own = bvfim.Problem(watched(stated.upper, "F calls"), watched(stated.lower, "f calls"), joint=both)
    return replace(task, problem=own), calls


def _first(build: Callable[[], Any], exact: Tensor, calls: Counter[str], device: str) -> dict[str, float]:
    """What the first step of a loop uses, and how good its gradient is."""
    calls.clear()
    with PeakMemory(torch.device(device)) as memory:
        loop = build()
        gradient = loop.step().detach().double().clone()
        counted = {name: float(calls[name]) for name in ("F calls", "f calls")}
        if device == "cpu":
            getattr(loop, "once", lambda: None)()
    _stop(loop)
    norms = torch.linalg.vector_norm(gradient) * torch.linalg.vector_norm(exact)
    return {
        **counted,
        "peak MiB": memory.peak / 2**20,
        "cosine": float(gradient.flatten() @ exact.flatten() / norms) if float(norms) else float("nan"),
        "relative error": float(torch.linalg.vector_norm(gradient - exact) / torch.linalg.vector_norm(exact)),
    }


def _exact(config: Config) -> Tensor:
    """d F(x, y_T(x)) / d x at the start, in float64: what unrolling means, and implicit methods approach."""
    task = problem(config, torch.float64)
    return bvfim.hypergradient(task.problem, task.x, task.y, bvfim.RHG(config.T))


def _seconds(action: Callable[[], Any], config: Config) -> float:
    wait(config.device)
    begin = time.perf_counter()
    for _ in range(config.steps):
        action()
    wait(config.device)
    return (time.perf_counter() - begin) / config.steps


def _stop(loop: Any) -> None:
    """End what runs in a thread of its own."""
    if isinstance(loop, Solving):
        loop.stop()


def wait(device: str) -> None:
    """Until the device has done what it was asked to, before the clock is read."""
    if device != "cpu":
        torch.cuda.synchronize()


def _trained(build: Callable[[], Any], task: cleaning.Task, config: Config) -> dict[str, float]:
    """Accuracy and F1 after equal seconds, setting up included."""
    loop, steps, begin = build(), 0, time.perf_counter()
    while time.perf_counter() - begin < config.seconds:
        loop.step()
        steps += 1
        wait(config.device)
    found = {f"steps in {config.seconds:g} s": steps, "accuracy": task.accuracy(loop.y), "F1": task.f1(loop.x.detach())}
    _stop(loop)
    return found


def _table(rounds: pd.DataFrame, facts: dict[str, dict[str, float]]) -> pd.DataFrame:
    medians = rounds.median()
    table = pd.DataFrame(
        {
            "ms per upper step": 1e3 * medians,
            "ratio to the bare loop": rounds.div(rounds[BARE], axis=0).median(),
            "ratio to the products": rounds.div(rounds[FLOOR], axis=0).median(),
        }
    )
    table = table.join(pd.DataFrame(facts).T)
    table.index.name = "loop"
    return table.sort_values("ms per upper step")


def _section(config: Config, table: pd.DataFrame, absent: dict[str, str]) -> Section:
    precision = "float32 products with inputs rounded to TF32" if config.tf32 else "plain float32"
    missing = "; ".join(f"{name}: {why}" for name, why in absent.items())
    times = table["ms per upper step"]
    fastest, floor = str(times.drop(FLOOR).idxmin()), float(times[FLOOR])
    return Section(
        "Speed",
        f"Hyper-cleaning on {config.data}: {config.train} training rows, {config.hidden} hidden units, {config.T} "
        f"lower gradients per upper step, on {config.device}, {precision}. Medians over {config.rounds} interleaved "
        "rounds. The cosine and the relative error compare the first hypergradient with dF(x, y_T(x))/dx in "
        "float64. BVFIM does not estimate this; its gradient is that of the barrier problem."
        + (f"\n\nNot timed: {missing}." if missing else ""),
        "",
        f"The fastest is {fastest}; the matrix products alone take {floor:.3g} ms.",
        ("speed",),
        ("speed",),
    )


def _figure(table: pd.DataFrame) -> Figure:
    figure, axes = panels(1, 1, width=8.0, height=0.6 + 0.26 * len(table))
    colours = [CYCLE[0] if n.startswith("bvfim") else CYCLE[5] if n in (BARE, FLOOR) else CYCLE[2] for n in table.index]
    axes[0, 0].barh(list(table.index)[::-1], table["ms per upper step"][::-1], color=colours[::-1])
    axes[0, 0].set(xlabel="ms per upper step")
    return figure
