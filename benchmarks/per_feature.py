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
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy.optimize import minimize
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.model_selection import train_test_split
from torch import Tensor
from torch.nn import functional

import bvfim
from bvfim.reports.report import machine

LOWEST, HIGHEST, START, RANDOM = -10.0, 5.0, -3.0, 10
TOL = 1e-12
"""The largest component of the gradient of f at its minimiser."""


class Rows(NamedTuple):
    """Inputs with a last column of ones, and targets."""

    inputs: Tensor
    targets: Tensor


class Task(NamedTuple):
    """A data set in three parts."""

    classes: bool
    train: Rows
    validation: Rows
    test: Rows

    @property
    def features(self) -> int:
        """The length of x."""
        return self.train.inputs.shape[1] - 1

    def loss(self, y: Tensor, rows: Rows) -> Tensor:
        """The mean loss."""
        p, t = rows.inputs @ y, rows.targets
        return (functional.softplus(p) - t * p if self.classes else (p - t).square()).mean()

    def slopes(self, y: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        """The first two derivatives of the loss of each row in its prediction, divided by the number of rows."""
        p, t = rows.inputs @ y, rows.targets
        s = torch.sigmoid(p)
        first, second = (s - t, s * (1 - s)) if self.classes else (2 * (p - t), torch.full_like(p, 2.0))
        return first / len(t), second / len(t)

    def upper(self, x: Tensor, y: Tensor) -> Tensor:
        """F."""
        return self.loss(y, self.validation)

    def lower(self, x: Tensor, y: Tensor) -> Tensor:
        """f."""
        return self.loss(y, self.train) + (x.exp() * y[:-1].square()).sum()


def load(name: str, seed: int = 0) -> Task:
    """One of the two data sets, split."""
    classes = name == "breast cancer"
    inputs, targets = (load_breast_cancer if classes else load_diabetes)(return_X_y=True)

    def halved(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        strata = targets[rows] if classes else None
        first, second = train_test_split(rows, test_size=0.5, random_state=seed, stratify=strata)
        return first, second

    train, rest = halved(np.arange(len(targets)))
    inputs = (inputs - inputs[train].mean(0)) / inputs[train].std(0)
    if not classes:
        targets = (targets - targets[train].mean()) / targets[train].std()
    inputs = np.concatenate([inputs, np.ones((len(inputs), 1))], 1)
    parts = [Rows(*(torch.from_numpy(a[rows]).double() for a in (inputs, targets))) for rows in (train, *halved(rest))]
    return Task(classes, *parts)


def minimiser(task: Task, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The minimiser of f(x, .) by damped Newton steps from y, and the Hessian there."""
    twice = torch.cat([2 * x.exp(), x.new_zeros(1)])
    rows = task.train.inputs
    for _ in range(200):
        first, second = task.slopes(y, task.train)
        gradient = rows.T @ first + twice * y
        hessian = rows.T @ (second[:, None] * rows) + twice.diag()
        if gradient.abs().max() <= TOL:
            return y, hessian
        step = torch.linalg.solve(hessian, gradient)
        decrease, now, size = gradient @ step, task.lower(x, y), 1.0
        while decrease > 1e-12 and task.lower(x, y - size * step) > now - 1e-4 * size * decrease:
            size /= 2
        y = y - size * step
    raise ArithmeticError("Newton's method did not converge")


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
