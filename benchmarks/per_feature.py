"""A penalty for every feature, without batches: StochasticBVFIM at its defaults beside exact implicit gradients.

Breast cancer (logistic regression, log loss) and diabetes (linear regression, squared error, targets standardised):
half of the rows train, a quarter validates, a quarter is left (seeded, stratified where there are classes); columns are
standardised by the training rows. With weights w_j, an intercept b without penalty, and x in [-10, 5]^m,

    f(x, (w, b)) = mean over training rows of loss(u_i w + b, t_i) + sum_j exp(x_j) w_j^2,
    F(x, (w, b)) = mean over validation rows of loss(u_i w + b, t_i),

where loss is log(1 + exp(p)) - t p with t in {0, 1}, or (p - t)^2. The starts are x = -3 and ten that are uniform in
the box; (w, b) starts at zero; everything is in double precision, on one core. The reference is SciPy's L-BFGS-B from
the same starts, with f minimised by Newton's method to 1e-12 and F differentiated by one linear solve. "true F" is F at
the exact minimiser of f(x, .) at the x that came back, for both; the time of finding it is not counted.

    python benchmarks/per_feature.py --out benchmarks/results/per-feature-cpu.json
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.optimize import minimize
from torch import Tensor

import bvfim
from bvfim.reports.report import machine
from bvfim.reproduce.experiments.penalties import HIGHEST, LOWEST, START, Task, load, minimiser

RANDOM = 10


def value(task: Task, x: Tensor, y: Tensor) -> tuple[float, Tensor, Tensor]:
    """F at the minimiser of f(x, .), its gradient in x, and the minimiser, which is looked for from y."""
    y, hessian = minimiser(task, x, y)
    adjoint = torch.linalg.solve(hessian, task.validation.inputs.T @ task.slopes(y, task.validation)[0])
    return float(task.upper(x, y)), -2 * x.exp() * y[:-1] * adjoint[:-1], y


def reference(task: Task, x: Tensor) -> Tensor:
    """The x that L-BFGS-B finds."""
    y = x.new_zeros(task.features + 1)

    def fun(point: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal y
        F, gradient, y = value(task, torch.from_numpy(point), y)
        return F, gradient.numpy()

    limits = {"maxiter": 5000, "maxfun": 10000, "ftol": 1e-13, "gtol": 1e-9}
    box = [(LOWEST, HIGHEST)] * task.features
    return torch.from_numpy(minimize(fun, x.numpy(), jac=True, method="L-BFGS-B", bounds=box, options=limits).x)


def ours(task: Task, x: Tensor, steps: int) -> Tensor:
    """The x that StochasticBVFIM finds."""
    problem = bvfim.Problem(task.upper, task.lower, x_set=bvfim.Box(LOWEST, HIGHEST))
    y = x.new_zeros(task.features + 1)
    return bvfim.solve(problem, x, y, bvfim.StochasticBVFIM(), steps=steps, refit=False, progress=False).x


def measured(task: Task, x: Tensor, steps: int) -> dict[str, float]:
    """Both from one start."""
    row: dict[str, float] = {}
    for name, run in (("ours", lambda: ours(task, x, steps)), ("reference", lambda: reference(task, x))):
        began = time.perf_counter()
        found = run()
        seconds = time.perf_counter() - began
        F, _, y = value(task, found, found.new_zeros(task.features + 1))
        row |= {f"{name} true F": F, f"{name} test": float(task.loss(y, task.test)), f"{name} seconds": seconds}
    return row


def summary(runs: list[dict[str, Any]]) -> dict[str, float]:
    """From x = -3, the medians over the random starts, and our F relative to the best that the reference found."""
    kept = [{key: run[key] for key in run if key not in ("data", "start")} for run in runs]
    best = min(run["reference true F"] for run in kept)
    return {
        **{f"from -3: {key}": number for key, number in kept[0].items()},
        **{f"median: {key}": float(np.median([run[key] for run in kept[1:]])) for key in kept[0] if kept[1:]},
        "best reference": best,
        "from -3: ours / best reference": kept[0]["ours true F"] / best,
        "worst start: ours / best reference": max(run["ours true F"] for run in kept) / best,
    }


def main() -> None:
    """Measure and write."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--steps", type=int, default=2000, help="of StochasticBVFIM")
    options.add_argument("--random", type=int, default=RANDOM, help="random starts")
    options.add_argument("--seed", type=int, default=0, help="of the split and of the starts")
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    torch.set_num_threads(1)
    ours(load("diabetes"), torch.zeros(10, dtype=torch.float64), steps=2)  # what is loaded once is not timed
    rows: list[dict[str, Any]] = []
    summaries: dict[str, dict[str, float]] = {}
    for name in ("breast cancer", "diabetes"):
        task = load(name, chosen.seed)
        generator = torch.Generator().manual_seed(chosen.seed)
        shape = (chosen.random, task.features)
        uniform = LOWEST + (HIGHEST - LOWEST) * torch.rand(shape, generator=generator, dtype=torch.float64)
        starts = [torch.full((task.features,), START, dtype=torch.float64), *uniform]
        for i, x in enumerate(starts):
            rows.append({"data": name, "start": f"random {i}" if i else "-3", **measured(task, x, chosen.steps)})
            print(json.dumps(rows[-1]), flush=True)
        summaries[name] = summary(rows[-len(starts) :])
    print(pd.DataFrame(summaries).to_string(float_format="%.5g"))
    if chosen.out:
        command = (
            f"python benchmarks/per_feature.py --steps {chosen.steps} --random {chosen.random} --seed {chosen.seed}"
        )
        about = {"command": command, "machine": machine(), "summary": summaries, "runs": rows}
        chosen.out.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
