"""benchopt's bilevel suite: its own solvers beside bvfim's, on one machine, with one clock; value against time.

    python benchmarks/benchopt/compare.py --suite benchmark_bilevel --kept runs --out benchopt.json

`--suite` is a checkout of github.com/benchopt/benchmark_bilevel. Two files go into it: `solver.py` and `problems.py`.
Each run is a file in the folder `--kept`, and isn't taken again: a comparison that was broken off goes on, and two
processes, each with `--data` of its own, can share one.
MNIST comes from the folder that BVFIM_DATA names, or from the web, and is left there as the suite's own `mnist.pkl`.

The suite reads its clock before the arrays that a solver of JAX hands over have been computed, which happens in the
pause that follows: its times are those of handing out the work. Here JAX computes before it returns. And the clock
counts the seconds that the process spends on a core, one thread for everybody, because other people use the machine.
With `--wall`, seconds pass as they do. Solvers take turns: a repetition is one run of each.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import pickle
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import jax
import numpy as np
import pandas as pd
from benchopt import run_benchmark
from matplotlib import pyplot as plt

from bvfim import data
from bvfim.reports.report import machine

HERE = Path(__file__).parent
RUNS = {
    "simulated": [
        "SABA[step_size=0.3]",
        "bvfim[method=SABA,step_size=0.3]",
        "SOBA[step_size=2,outer_ratio=3]",
        "bvfim[method=StochasticBVFIM,steps=15000,multiplier=1000,x_step=0.3]",
        "bvfim[method=StochasticBVFIM,steps=15000]",
    ],
    "mnist[ratio=0.5]": [
        "SABA[step_size=0.1,outer_ratio=0.001,eval_freq=512]",
        "bvfim[method=StochasticBVFIM,batch_size=256,steps=2000,eval_freq=128]",
        "bvfim[method=StochasticBVFIM,batch_size=256,steps=2000,answer=z,eval_freq=128]",
    ],
    "mnist[ratio=0.7]": [
        "SABA[step_size=0.01,outer_ratio=0.0001,eval_freq=512]",
        "bvfim[method=StochasticBVFIM,batch_size=256,steps=2000,eval_freq=128]",
        "bvfim[method=StochasticBVFIM,batch_size=256,steps=2000,answer=z,eval_freq=128]",
    ],
    "mnist[ratio=0.9]": [
        "SABA[step_size=0.1,outer_ratio=0.001,eval_freq=512]",
        "bvfim[method=StochasticBVFIM,batch_size=256,steps=2000,eval_freq=128]",
        "bvfim[method=StochasticBVFIM,batch_size=256,steps=2000,answer=z,eval_freq=128]",
    ],
}
"""The suite's solvers at its own best parameters on mnist. On simulated it has none: SOBA and StochasticBVFIM are at
the best of nine settings each, after ten seconds (the README has the command), the latter at its defaults too."""
COMMAND = "python benchmarks/benchopt/compare.py"
POINTS = 60
MARGIN = 1.2
"""The suite's limit counts its evaluations and the warm-up too, which are not timed."""
ACROSS = 2
QUANTILES = 0.25, 0.5, 0.75


def judged(dataset: str) -> str:
    """Squared norm of the gradient of the value function; for mnist the test error, which the suite calls accuracy."""
    return "objective_value" if dataset == "simulated" else "objective_test_accuracy"


def installed(suite: Path) -> None:
    """Our two files and MNIST, where the suite looks for them."""
    shutil.copy(HERE / "solver.py", suite / "solvers" / "bvfim_methods.py")
    shutil.copy(HERE / "problems.py", suite / "benchmark_utils" / "bvfim_problems.py")
    kept = suite / "mnist.pkl"
    if not kept.exists():
        mnist = data.load("mnist")
        parts = {"training": mnist.train, "test": mnist.test}
        pixels = {f"{name}_images": np.rint(255 * part.inputs).astype(np.uint8) for name, part in parts.items()}
        labels = {f"{name}_labels": part.labels.astype(np.uint8) for name, part in parts.items()}
        kept.write_bytes(pickle.dumps(pixels | labels))


def run(suite: Path, dataset: str, solver: str, seconds: float, seed: int, kept: Path) -> pd.DataFrame:
    """One run of a solver, which draws its batches from the seed: kept, or new."""
    path = kept / f"{dataset} {solver} {seconds:g} s {seed}.parquet"
    if not path.exists():
        options: dict[str, Any] = {"max_runs": 10**6, "timeout": MARGIN * seconds, "no_cache": True}
        options |= {"plot_result": False, "show_progress": False, "output_file": str(kept / f"{os.getpid()}.parquet")}
        name = solver[:-1] + f",random_state={seed}]"
        found = run_benchmark(str(suite), solver_names=[name], dataset_names=[dataset], **options)
        curves = pd.read_parquet(found)
        Path(found).unlink()
        if not len(curves):
            raise RuntimeError(f"{name} has failed: see above")
        about = {"solver": solver, "seed": seed, "load": os.getloadavg()[0]}
        curves[["time", judged(dataset)]].assign(**about).to_parquet(path)
    return pd.read_parquet(path)


def summary(curves: pd.DataFrame, column: str, seconds: float) -> list[dict[str, Any]]:
    """For each solver the quantiles over seeds of its last value at every time of a grid."""
    grid, rows = np.linspace(seconds / POINTS, seconds, POINTS), []
    for solver, own in curves.groupby("solver", sort=False):
        runs = [one.sort_values("time") for _, one in own.groupby("seed")]
        values = np.stack([one[column].to_numpy()[one["time"].searchsorted(grid, "right") - 1] for one in runs])
        low, middle, high = np.quantile(values, QUANTILES, axis=0)
        curve = {"seconds": grid, "low": low, "median": middle, "high": high}
        rows.append(
            {
                "solver": solver,
                "last": rounded(values[:, -1]),
                "evaluations": [len(one) for one in runs],
                "load": rounded(one["load"].iloc[0] for one in runs),
                "curve": {name: rounded(numbers) for name, numbers in curve.items()},
            }
        )
    return rows


def rounded(numbers: Iterable[float]) -> list[float]:
    """To the digits that a page shows, and two more."""
    return [float(f"{number:.5g}") for number in numbers]


def drawn(found: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Value against time, the median with the quartiles around it."""
    down = -(-len(found) // ACROSS)
    figure, axes = plt.subplots(down, ACROSS, figsize=(6 * ACROSS, 5 * down), squeeze=False, layout="constrained")
    for ax, (dataset, rows) in zip(axes.flat, found.items(), strict=False):
        for row in rows:
            curve = row["curve"]
            ax.plot(curve["seconds"], curve["median"], label=row["solver"])
            ax.fill_between(curve["seconds"], curve["low"], curve["high"], alpha=0.2)
        ax.set(title=dataset, xlabel="seconds", yscale="log")
        ax.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.12))
    figure.savefig(path)


def main() -> None:
    """Measure and write."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--suite", type=Path, required=True)
    options.add_argument("--kept", type=Path, required=True)
    options.add_argument("--data", nargs="+", choices=RUNS, default=list(RUNS))
    options.add_argument("--solvers", nargs="+", help="others than those in the script")
    options.add_argument("--seconds", type=float, default=60)
    options.add_argument("--repetitions", type=int, default=5)
    options.add_argument("--wall", action="store_true")
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    for path in ("suite", "kept", "out"):
        setattr(chosen, path, getattr(chosen, path) and getattr(chosen, path).resolve())
    chosen.kept.mkdir(exist_ok=True)
    installed(chosen.suite)
    os.chdir(chosen.suite)  # where the suite looks for MNIST
    clock = time if chosen.wall else SimpleNamespace(perf_counter=time.process_time, time=time.process_time)
    curves: dict[str, list[pd.DataFrame]] = {dataset: [] for dataset in chosen.data}
    with patch("benchopt.callback.time", clock), patch("benchopt.stopping_criterion.time", clock):
        for repetition, dataset in itertools.product(range(chosen.repetitions), chosen.data):
            for solver in chosen.solvers or RUNS[dataset]:
                curve = run(chosen.suite, dataset, solver, chosen.seconds, 1 + repetition, chosen.kept)
                curves[dataset].append(curve)
                print(dataset, solver, repetition, curve[judged(dataset)].iloc[-1], flush=True)
    if chosen.out:
        found = {name: summary(pd.concat(own), judged(name), chosen.seconds) for name, own in curves.items()}
        given = {key: value for key, value in vars(chosen).items() if key not in ("out", "suite", "kept")}
        about = {"command": COMMAND, "settings": given, "machine": machine(), "data": found}
        chosen.out.write_text(json.dumps(about, indent=1) + "\n")
        drawn(found, chosen.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
