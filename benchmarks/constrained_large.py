r"""StochasticBVFIM and BVFIM with constraints of the lower level: quadratics, a support vector machine, and tolls.

Quadratic: F = |y - t|^2 / 2 + |x - s|^2 / 2, and f = |y - A x|^2 / 2 where A is a random rotation of n entries; each
block of four entries of y obeys a'y <= d + e'x. y(x) is a projection in closed form: so the reference is L-BFGS on the
exact F(x, y(x)), and the lower gap is exact. (F(x, y(x)) has several local minima: any of them may be found.)

SVM: a penalty for each feature, x in [-6, 6]^30, by cross-validation in three folds of the breast cancer data of
scikit-learn. y holds the machines of all folds: each minimises sum_j exp(x_j) w_j^2 / 2 + sum_i xi_i where
1 - xi_i <= l_i (w'a_i + b) and xi >= 0: 945 variables, 852 constraints. F is the logistic loss on the rows that a fold
has not seen, and 0.01 times the mean square of x. The rivals are random searches that solve the exact machines by
scikit-learn's SVC, for as long as the slower method: over x entry by entry, and over one number for all with
entries around it. All are judged by exact machines: by F, and by the loss on rows that nobody has seen.

Tolls: a network of 20 arcs; the flow y from one node to another pays y'(c + x) + rho |y|^2 / 2, between zero and the
capacities, and is conserved in each node; the leader chooses the tolls x of six arcs for the largest income. The
references are AdaptiveBVFIM, and SciPy's SLSQP on the conditions of Karush, Kuhn and Tucker from several starts; all
are judged by the exact flow at their x.

    python benchmarks/constrained_large.py --out benchmarks/results/constrained-large-cpu.json
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from constrained_svm import Machine
from constrained_tolls import ARCS, TOLLED, Tolls
from scipy.optimize import minimize
from torch import Tensor

import bvfim
from bvfim.reports.report import machine
from bvfim.schedules import geometric

SHORTER, INNER = 4, 20
"""BVFIM takes a quarter of the steps of StochasticBVFIM, with so many inner ones each."""


def methods(
    steps: int, lr: float, step: float, of_f: float, of_F: float
) -> list[tuple[bvfim.methods.Chosen, int, dict[str, Any]]]:
    """Both methods, their steps and options; BVFIM needs schedules, step sizes and an optimiser, and fewer steps.

    Args:
        steps: of StochasticBVFIM.
        lr, step: those of BVFIM on y and z, and of Adam on x.
        of_f, of_F: the first mu2 and tau of BVFIM, about as large as f and F; both end at 1e-4 of it.
    """
    count = steps // SHORTER
    small, mu2, tau = (geometric(first, 1e-4 ** (1 / count)) for first in (1e-2, of_f, of_F))
    ours = bvfim.BVFIM(INNER, INNER, lr, lr, mu1=small, theta=small, mu2=mu2, tau=tau)
    moved = {
        "optimizer": lambda p: torch.optim.Adam(p, step),
        "scheduler": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, count),
    }
    return [(bvfim.StochasticBVFIM(), steps, {}), (ours, count, moved)]


def run(
    problem: bvfim.Problem, x: Tensor, y: Any, method: bvfim.methods.Chosen, steps: int, options: dict[str, Any]
) -> tuple[bvfim.Solution, dict[str, Any]]:
    """A run, and what it cost."""
    began = time.process_time()
    found = bvfim.solve(problem, x, y, method, steps=steps, refit=False, progress=False, **options)
    row: dict[str, Any] = {"method": type(method).__name__, "steps": found.steps, "status": found.status.name}
    row["F"] = found.upper
    row["violation"] = found.rows[-1].get("violation")
    cost = {kind: found.evaluations[kind] for kind in ("upper", "lower", "forward")}
    return found, {**row, **cost, "seconds of CPU": time.process_time() - began}


# -- a quadratic --


class Quadratic:
    """The problem, and y(x)."""

    def __init__(self, n: int, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        self.n, self.A = n, torch.linalg.qr(normal(n, n)).Q
        self.a, self.e = normal(n // 4, 4), 0.3 * normal(n // 4, 4)
        self.d = 0.5 * torch.rand(n // 4, generator=generator, dtype=torch.float64)
        self.s, self.t = normal(n), normal(n)

    def upper(self, x: Tensor, y: Tensor) -> Tensor:
        """F."""
        return ((y - self.t).square().sum() + (x - self.s).square().sum()) / 2

    def lower(self, x: Tensor, y: Tensor) -> Tensor:
        """f."""
        return (y - self.A @ x).square().sum() / 2

    def constraints(self, x: Tensor, y: Tensor) -> Tensor:
        """g."""
        return (self.a * y.view(-1, 4)).sum(1) - self.d - (self.e * x.view(-1, 4)).sum(1)

    def exact(self, x: Tensor) -> Tensor:
        """y(x)."""
        free = self.A @ x
        outside = self.constraints(x, free).clamp_min(0) / self.a.square().sum(1)
        return free - (self.a * outside[:, None]).reshape(-1)

    def reference(self) -> dict[str, Any]:
        """L-BFGS on F(x, y(x)) from zero."""

        def value(x: np.ndarray) -> tuple[float, np.ndarray]:
            at = torch.tensor(x, requires_grad=True)
            found = self.upper(at, self.exact(at))
            return found.item(), torch.autograd.grad(found, at)[0].numpy()

        settings = {"maxiter": 20_000, "maxfun": 50_000, "ftol": 1e-15, "gtol": 1e-10, "maxcor": 30}
        began = time.process_time()
        found = minimize(value, np.zeros(self.n), jac=True, method="L-BFGS-B", options=settings)
        return {"method": "L-BFGS on F(x, y(x))", "F": found.fun, "seconds of CPU": time.process_time() - began}


def quadratic(n: int, steps: int) -> list[dict[str, Any]]:
    """Both methods on the quadratic, beside the reference."""
    task = Quadratic(n)
    problem = bvfim.Problem(task.upper, task.lower, lower_constraints=task.constraints)
    rows, zero = [task.reference()], torch.zeros(n, dtype=torch.float64)
    for method, count, options in methods(steps, 0.05, 0.05, n / 2, n / 2):
        found, row = run(problem, zero, zero, method, count, options)
        y = task.exact(found.x)
        gap = task.lower(found.x, found.y) - task.lower(found.x, y)
        rows.append({**row, "lower gap": float(gap), "F at the exact y": float(task.upper(found.x, y))})
    return [{"n": n, "constraints": n // 4, **row} for row in rows]


# -- a support vector machine --


def support_vectors(seed: int, steps: int) -> list[dict[str, Any]]:
    """Both methods on one split, and searches for as long as the slower one."""
    task = Machine(seed)
    rows: list[dict[str, Any]] = [{"method": "as it starts", **task.judged(task.start()[0])}]
    for method, count, options in methods(steps, 0.005, 0.1, 20.0, 0.1):
        found, row = run(task.problem(), *task.start(), method, count, options)
        gap = task.lower(found.x, found.y) - task.lower(found.x, task.exact(found.x))
        rows.append({**row, "lower gap": float(gap), **task.judged(found.x)})
    longest = max(row.get("seconds of CPU", 0.0) for row in rows)
    rows += [task.searched(longest, around, seed) for around in (True, False)]
    return [{"split": seed, **row} for row in rows]


def medians(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Over the splits, by method."""
    table = []
    for method in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == method]
        keys = [key for key in ("F", "F at the exact y", "test", "violation", "seconds of CPU") if key in own[0]]
        middle: dict[str, Any] = {key: median(row[key] for row in own) for key in keys}
        table.append({"method": method, **middle})
    return table


def tolls(steps: int, starts: int) -> list[dict[str, Any]]:
    """Both methods from some starts, beside both references."""
    task = Tolls()
    rows = [task.kkt(starts)]
    for method, count, options in [
        (bvfim.AdaptiveBVFIM(starts=starts), 500, {}),
        *methods(steps, 0.005, 0.1, 60.0, 40.0),
    ]:
        for first in (0.5, 2.0, 5.0) if options or count == steps else (2.0,):
            x = torch.full((len(TOLLED),), first, dtype=torch.float64)
            found, row = run(task.problem(), x, torch.zeros(len(ARCS)).double(), method, count, options)
            gap = task.lower(found.x, found.y) - task.lower(found.x, task.exact(found.x))
            rows.append({**row, "from": first, "lower gap": float(gap), "F at the exact y": task.judged(found.x)})
    return rows


def main() -> None:
    """Measure and write."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--n", type=int, default=1000, help="entries of the quadratic")
    options.add_argument("--steps", type=int, default=1000)
    options.add_argument("--splits", type=int, default=5)
    options.add_argument("--starts", type=int, default=6)
    options.add_argument("--only", choices=("quadratic", "svm", "tolls"))
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    torch.set_num_threads(1)
    found: dict[str, list[dict[str, Any]]] = {}
    if chosen.only in (None, "quadratic"):
        found["quadratic"] = told(quadratic(chosen.n, chosen.steps))
    if chosen.only in (None, "tolls"):
        found["tolls"] = told(tolls(chosen.steps, chosen.starts))
    if chosen.only in (None, "svm"):
        found["svm"] = [row for split in range(chosen.splits) for row in told(support_vectors(split, chosen.steps))]
        found["svm, medians"] = told(medians(found["svm"]))
    if chosen.out:
        command = " ".join(["python benchmarks/constrained_large.py", *sys.argv[1:]])
        chosen.out.write_text(json.dumps({"command": command, "machine": machine(), **found}, indent=1) + "\n")


def told(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, printed."""
    for row in rows:
        print(json.dumps(row), flush=True)
    return rows


if __name__ == "__main__":
    main()
