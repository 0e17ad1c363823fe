"""Hyper-cleaning with as many trials for every method: what tuning, and BVFIM's regularisers, are worth.

The problem is that of `bvfim reproduce cleaning` with ReLU; on digits 400 noisy rows, 400 trusted ones, 32 hidden
units, 16 upper steps; at full size on the other data sets. Each row gets nine trials on the first split, three lower
steps by three steps of Adam on x; the best on held-out validation rows is then run on every split. BVFIM appears with
other regularisers mu1 = theta at first, too. The paper's are 1, fall by 1.01 a step, and so get 300 upper steps; they
are also run exactly as printed, with nothing to choose.

    python benchmarks/cleaning_trials.py --out benchmarks/results/cleaning-trials-cpu.json
    python benchmarks/cleaning_trials.py --data mnist --device cuda
"""

from __future__ import annotations

import argparse
import json
import shlex
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from bvfim.reports.report import machine
from bvfim.reproduce.experiments.cleaning_report import by_held
from bvfim.reproduce.experiments.cleaning_settings import DATA, TABLE, Config
from bvfim.reproduce.experiments.hypercleaning import reference, trace

ACTIVATION = "relu"
X_STEPS = (0.01, 0.03, 0.1)
PRINTED, LONG = (0.01,), 300
"""The paper's step on x and on the lower level; upper steps in which its regularisers fall from 1 to 0.05."""
SCORES = ("accuracy", "accuracy of z", "F1", "AUROC")


@dataclass(frozen=True)
class Row:
    """A method and what is tried of it; the upper and the lower steps of the data set where they are None."""

    name: str
    method: str
    upper: int | None = None
    regulariser: float = Config.regulariser
    lower_steps: tuple[float, ...] | None = None
    x_steps: tuple[float, ...] = X_STEPS

    def run(self, problem: str, device: str, lr: float, x_lr: float, seed: int) -> pd.Series:
        """One run, at the step that is best on the held-out rows."""
        config = Config(
            (problem,), (self.method,), steps=self.upper, x_lr=x_lr, regulariser=self.regulariser, device=device
        )
        return by_held(trace(problem, ACTIVATION, self.method, lr, seed, config)).iloc[-1]

    def measured(self, problem: str, device: str, seeds: int) -> dict[str, Any]:
        """The best trial of the first split, on all splits; among equals the first."""
        size = DATA[problem][1]
        pairs = product(self.lower_steps or size.grid, self.x_steps)
        tried = {pair: self.run(problem, device, *pair, 0) for pair in pairs}
        best = max(tried, key=lambda pair: tried[pair]["smooth"])
        runs = pd.DataFrame([tried[best], *(self.run(problem, device, *best, seed) for seed in range(1, seeds))])
        about = {"method": self.name, "trials": len(tried), "upper steps": self.upper or size.steps}
        return {**about, "lower step": best[0], "x step": best[1], **summary(runs)}


def summary(runs: pd.DataFrame) -> dict[str, Any]:
    """Means over the splits, and standard deviations of accuracy and F1, in per cent."""
    means = {score: round(100 * float(runs[score].mean()), 2) for score in SCORES if score in runs}
    return means | {f"± {s}": round(100 * float(runs[s].std()), 2) for s in ("accuracy", "F1") if s in runs}


ROWS = [
    *(Row(name, name) for name in TABLE),
    *(Row(f"BVFIM, regularisers from {value:g}", "BVFIM", regulariser=value) for value in (0.01, 0.1)),
    Row("BVFIM, regularisers from 1", "BVFIM", LONG, 1.0),
    Row("BVFIM, as printed", "BVFIM", LONG, 1.0, PRINTED, PRINTED),
]


def main() -> None:
    """Measure and write."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", default="digits", choices=DATA)
    options.add_argument("--device", default="cpu")
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--upper", type=int, help="upper steps of every run, to see that it runs")
    options.add_argument("--only", nargs="*", help="names of rows; all where there are none")
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    torch.set_num_threads(1)
    rows = []
    for row in [row for row in ROWS if not chosen.only or row.name in chosen.only]:
        rows.append(replace(row, upper=chosen.upper or row.upper).measured(chosen.data, chosen.device, chosen.seeds))
        print(json.dumps(rows[-1], ensure_ascii=False), flush=True)
    config = Config((chosen.data,), device=chosen.device)
    others = pd.concat([reference(chosen.data, ACTIVATION, seed, config) for seed in range(chosen.seeds)])
    baselines = [{"method": name, **summary(own.dropna(axis=1))} for name, own in others.groupby("method", sort=False)]
    print(pd.DataFrame([*rows, *baselines]).to_string())
    if chosen.out:
        given = "".join(
            f" --{name} {value}"
            for name, value in vars(chosen).items()
            if name not in ("out", "only") and value != options.get_default(name)
        )
        only = " --only " + shlex.join(chosen.only) if chosen.only else ""
        command = f"python benchmarks/cleaning_trials.py{given}{only}"
        about = {"command": command, "machine": machine(), "runs": rows, "baselines": baselines}
        chosen.out.write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
