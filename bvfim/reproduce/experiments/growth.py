"""How the time and memory of an upper step grow: with the lower variables, the samples, and the lower steps.

The problem is hyper-cleaning with the paper's network on random rows, which cost what real ones do.
"""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

import bvfim
from bvfim import tree
from bvfim.core.accelerate import estimate_of, tf32
from bvfim.core.memory import PeakMemory
from bvfim.reports.describe import slug
from bvfim.reports.plots import COLOURS, legend, panels
from bvfim.reports.report import Results, Section
from bvfim.reproduce.experiments import cleaning
from bvfim.reproduce.experiments.complexity import slope
from bvfim.reproduce.experiments.resumable import How, Part, measured

CLASSES = 10
VARIED = ("n", "samples", "T")
FITTED = 3
"""A slope is fitted over so many of the largest sizes that fit: the smaller ones measure launches."""
HALVINGS = 3
"""How often the gap between the largest n that fits and the smallest that does not is halved, on a logarithm."""


@dataclass(frozen=True)
class Config:
    """Where the sweeps are, and what stays as it is meanwhile.

    Args:
        n: the sizes of y, about; the network gets the width that comes next to them.
        samples: the training rows.
        T: lower gradients in an upper step.
        fixed: the n, samples and T that a sweep over another of them keeps.
        validation: the validation rows, in all sweeps.
        inputs: the length of a row: 784 for MNIST's shape, 3072 for CIFAR-10's.
        J: steps of CG, terms of the Neumann series.
        repeats: how many timed steps of each; the median counts.
        tf32: whether float32 products may round their inputs to TF32.
        seed: of the rows.
        device: where the tensors are.
    """

    n: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    samples: tuple[int, ...] = (1000, 3000, 10_000)
    T: tuple[int, ...] = (10, 20, 40)
    fixed: tuple[int, int, int] = (100_000, 1000, 20)
    validation: int = 1000
    inputs: int = 784
    J: int = 20
    repeats: int = 3
    tf32: bool = False
    seed: int = 0
    device: str = "cpu"

    def sized(self, quick: bool) -> Config:
        """With the sizes for its device: those of a GPU, or smaller ones."""
        return self.quick() if quick else self if self.device == "cpu" else self.whole()

    def quick(self) -> Config:
        """Smaller, to see that it runs."""
        return replace(
            self, n=(10_000, 30_000, 100_000), samples=(300, 1000), T=(4, 8), fixed=(10_000, 300, 4), repeats=1
        )

    def whole(self) -> Config:
        """Up to what one large GPU holds."""
        sizes = tuple(round(10 ** (e / 2)) for e in range(8, 17))
        many = tuple(round(10 ** (e / 2)) for e in range(6, 13))
        return replace(
            self, n=sizes, samples=many, T=(25, 50, 100, 200, 400), fixed=(238_210, 5000, 100), validation=5000
        )


def methods(T: int, J: int) -> dict[str, Any]:
    """Every method at T lower gradients; RHG also with the graph of all steps at once, as other libraries have it."""
    return {
        "BVFIM": bvfim.BVFIM(T // 2, T // 4),
        "RHG": bvfim.RHG(T),
        "RHG, one graph": bvfim.RHG(T, segment=T),
        "TRHG": bvfim.TRHG(T, T // 2),
        "BDA": bvfim.BDA(T),
        "CG": bvfim.CG(T, cg_steps=J),
        "Neumann": bvfim.Neumann(T, terms=J),
    }


def task(n: int, samples: int, config: Config) -> tuple[bvfim.Problem, Any, Any]:
    """The problem with about n lower variables, and its start."""
    generator = torch.Generator(config.device).manual_seed(config.seed)
    count = config.validation + samples
    rows = torch.rand(count, config.inputs, generator=generator, device=config.device)
    labels = torch.randint(CLASSES, (count,), generator=generator, device=config.device)
    hidden = max(1, round((n - CLASSES) / (config.inputs + CLASSES)))
    y = cleaning.start(config.inputs, hidden, CLASSES, config.seed)
    stated = cleaning.objectives(rows, labels[: config.validation], labels[config.validation :])
    return stated, torch.zeros(samples, device=config.device), tree.map(lambda t: t.to(config.device), y)


def measure(label: str, n: int, samples: int, T: int, config: Config) -> dict[str, Any]:
    """Seconds and bytes of an upper step, or that it does not fit."""
    found = {"method": label, "n": n, "samples": samples, "T": T, "ms": np.nan, "MiB": np.nan, "fits": False}
    try:
        with tf32(config.tf32):
            return {**found, **_step(label, n, samples, T, config), "fits": True}
    except RuntimeError as error:  # the CPU's allocator has no error of its own
        if not isinstance(error, torch.OutOfMemoryError) and "can't allocate memory" not in str(error):
            raise
        return found
    finally:
        gc.collect()
        if config.device != "cpu":
            torch.cuda.empty_cache()


def _step(label: str, n: int, samples: int, T: int, config: Config) -> dict[str, Any]:
    problem, x, y = task(n, samples, config)
    method = methods(T, config.J)[label]
    state = method.init(problem, x, y)
    take = partial(estimate_of(method, "auto", problem, x, y, 10), problem, x, state, 0, None)
    problem.lower(x, y)  # with the first product libraries take their workspace
    with PeakMemory(config.device) as memory:
        take()  # as it is; an accelerated step is recorded at the second call
    take()
    seconds = []
    for _ in range(config.repeats):
        begin = time.perf_counter()
        gradient = take()[0]
        gradient.sum().item()  # waits for the device
        seconds.append(time.perf_counter() - begin)
    return {"n": tree.size(y), "ms": 1e3 * float(np.median(seconds)), "MiB": memory.peak / 2**20}


def sweep(label: str, varied: str, config: Config) -> pd.DataFrame:
    """One method while one size grows, up to the first that does not fit, and between it and the last that does."""
    fixed = dict(zip(VARIED, config.fixed, strict=True))

    def at(size: int) -> dict[str, Any]:
        return {"varied": varied, **measure(label, **{**fixed, varied: size}, config=config)}

    rows = []
    for size in getattr(config, varied):
        rows.append(at(size))
        if not rows[-1]["fits"]:
            break
    if len(rows) > 1 and not rows[-1]["fits"]:
        low, high = rows[-2][varied], rows[-1][varied]
        for _ in range(HALVINGS):
            rows.append(at(round((low * high) ** 0.5)))
            low, high = (rows[-1][varied], high) if rows[-1]["fits"] else (low, rows[-1][varied])
    return pd.DataFrame(rows)


def run(config: Config, how: How = How()) -> Results:
    """Sweep each size for each method, and fit the slopes.

    Args:
        config: the sizes.
        how: where the parts are saved.
    """
    labels = list(methods(4, 1))
    parts: dict[str, Part] = {
        slug(f"{label} {v}"): partial(sweep, label, v, config) for v in VARIED for label in labels
    }
    raw = pd.concat(measured(config, parts, how).values(), ignore_index=True)
    table = pd.DataFrame([_slopes(label, raw[raw["method"] == label]) for label in labels]).set_index("method")
    section = Section(
        "Growth of an upper step",
        f"Hyper-cleaning with the paper's network on inputs of dimension {config.inputs}, on {config.device}, "
        f"{'TF32' if config.tf32 else 'float32'}. One size grows; the others stay at "
        + ", ".join(f"{size} = {number}" for size, number in zip(VARIED, config.fixed, strict=True))
        + f". The columns are the exponents e of growth like n^e over the {FITTED} largest sizes that fit, and the "
        "cost at the largest n.",
        "",
        _conclusion(table),
        ("growth",),
        ("growth",),
    )
    return Results({"growth": table, "measurements": raw}, {"growth": _figure(raw)}, {}, (section,))


def _slopes(label: str, rows: pd.DataFrame) -> dict[str, Any]:
    fitted: dict[str, Any] = {"method": label}
    for size in VARIED:
        own = rows[rows["varied"] == size]
        fitted |= slopes(own, size)
    return fitted | largest(rows[rows["varied"] == "n"])


def slopes(rows: pd.DataFrame, size: str) -> dict[str, float]:
    """The exponents of time and memory over the largest sizes that fit."""
    own = rows[rows["fits"]].sort_values(size).tail(FITTED)
    return {f"{what} ~ {size}": slope(own[size].to_numpy(), own[what].to_numpy()) for what in ("ms", "MiB")}


def largest(rows: pd.DataFrame) -> dict[str, Any]:
    """The largest n that fits, what it took, and the smallest that does not fit."""
    last = rows[rows["fits"]].sort_values("n").tail(1)
    missed = rows.loc[~rows["fits"], "n"]
    return {
        "largest n": int(last["n"].item()) if len(last) else 0,
        "its ms": last["ms"].item() if len(last) else np.nan,
        "its MiB": last["MiB"].item() if len(last) else np.nan,
        "out of memory at n": float(missed.min()) if len(missed) else np.nan,
    }


def _conclusion(table: pd.DataFrame) -> str:
    own = table.loc["BVFIM"]
    missed = table["out of memory at n"].dropna()
    return (
        f"A BVFIM step with n = {own['largest n']:.3g} takes {own['its ms']:.4g} ms and {own['its MiB']:.4g} MiB. "
        + "".join(f"{label} runs out of memory at n = {size:.3g}. " for label, size in missed.items())
    ).strip()


def _figure(raw: pd.DataFrame) -> Figure:
    figure, axes = panels(2, 3, width=3.6, height=2.6)
    for row, what in zip(axes, ("ms", "MiB"), strict=True):
        for one, size in zip(row, VARIED, strict=True):
            for label, own in raw[(raw["varied"] == size) & raw["fits"]].groupby("method", sort=False):
                own = own.sort_values(size)
                one.loglog(own[size], own[what], "o-", ms=3, color=COLOURS[str(label)], label=label)
            one.set(xlabel=size, ylabel=f"{what} per upper step")
            one.xaxis.set_minor_formatter(NullFormatter())
            if size == "T":
                counts = sorted(raw.loc[raw["varied"] == size, size].unique())
                one.set_xticks(counts, [str(count) for count in counts])
    legend(figure)
    return figure
