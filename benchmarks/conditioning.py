"""AdaptiveBVFIM where curvatures differ much: quadratics of 200 entries, and a penalty for each feature in any units.

Quadratics: F = |y - t|^2 / 2 + |x - s|^2 / 2 and f = (y - M x)^T H (y - M x) / 2, where s and t are normal, M is the
identity or a random rotation, and the eigenvalues of H lie evenly on a logarithmic scale from 1 down to 1 / condition.
x* = (M^T t + s) / 2 is known. Both start at zero.

Penalties: the breast cancer problem of benchmarks/per_feature.py from x = -3, as it is, with all features multiplied by
1e5, and with each multiplied by a random number between 1e-3 and 1e3. "true F" is F at the exact minimiser of f(x, .).

    python benchmarks/conditioning.py --out benchmarks/results/conditioning-cpu.json
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import per_feature
import torch
from torch import Tensor

import bvfim
from bvfim.reports.report import machine

CONDITIONS = [10.0**k for k in range(9)]


def solved(problem: bvfim.Problem, x: Tensor, y: Tensor) -> tuple[bvfim.Solution, dict[str, Any]]:
    """A run, and what it cost."""
    began = time.process_time()
    found = bvfim.solve(problem, x, y, bvfim.AdaptiveBVFIM(), refit=False, progress=False)
    cost = {kind: found.evaluations[kind] for kind in ("upper", "lower", "forward")}
    return found, {"status": found.status.name, **cost, "seconds of CPU": time.process_time() - began}


def quadratic(n: int, condition: float, turned: bool) -> dict[str, Any]:
    """One problem of the sweep."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    Q, M = (torch.linalg.qr(normal(n, n)).Q for _ in range(2))
    M = M if turned else torch.eye(n, dtype=torch.float64)
    H = (Q * torch.logspace(0, -math.log10(condition), n, dtype=torch.float64)) @ Q.T
    s, t = normal(n), normal(n)
    problem = bvfim.Problem(
        upper=lambda x, y: ((y - t).square().sum() + (x - s).square().sum()) / 2,
        lower=lambda x, y: (y - M @ x) @ H @ (y - M @ x) / 2,
    )
    best = (M.T @ t + s) / 2
    zero = torch.zeros(n, dtype=torch.float64)
    found, row = solved(problem, zero, zero)
    optimum = float(problem.upper(best, M @ best))
    errors = {
        "F / optimum - 1": found.upper / optimum - 1,
        "error of x": float((found.x - best).norm() / best.norm()),
    }
    return {"n": n, "condition": condition, "M": "rotation" if turned else "identity", **row, **errors}


def penalties(task: per_feature.Task, units: str, factors: Tensor) -> dict[str, Any]:
    """A penalty for each feature, where the features are multiplied by factors: the weights are divided by them."""
    each = torch.cat([factors, factors.new_ones(1)])
    problem = bvfim.Problem(
        upper=lambda x, y: task.upper(x, y * each),
        lower=lambda x, y: task.lower(x, y * each),
        x_set=bvfim.Box(per_feature.LOWEST, per_feature.HIGHEST),
    )
    x = torch.full((task.features,), per_feature.START, dtype=torch.float64)
    found, row = solved(problem, x, x.new_zeros(task.features + 1))
    F, _, _ = per_feature.value(task, found.x, x.new_zeros(task.features + 1))
    return {"units": units, **row, "F": found.upper, "true F": F}


def main() -> None:
    """Measure and write."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--n", type=int, default=200)
    options.add_argument("--conditions", type=int, default=len(CONDITIONS), help="how many, from 1 upwards")
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    torch.set_num_threads(1)
    sweep, features = [], []
    for turned in (False, True):
        for condition in CONDITIONS[: chosen.conditions]:
            sweep.append(quadratic(chosen.n, condition, turned))
            print(json.dumps(sweep[-1]), flush=True)
    task = per_feature.load("breast cancer")
    ones = torch.ones(task.features, dtype=torch.float64)
    drawn = torch.rand(task.features, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for units, factors in (("as they are", ones), ("1e5", 1e5 * ones), ("1e-3 to 1e3", 10 ** (6 * drawn - 3))):
        features.append(penalties(task, units, factors))
        print(json.dumps(features[-1]), flush=True)
    if chosen.out:
        command = " ".join(["python benchmarks/conditioning.py", *sys.argv[1:]])
        about = {"command": command, "machine": machine(), "quadratics": sweep, "penalties": features}
        chosen.out.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
