"""AdaptiveBVFIM at the size of networks: full-batch hyper-cleaning at equal gradient evaluations.

Every method gets the same number of gradients (of F and f, and products with second derivatives, which cost at least as
much). Then the lower level is solved at its x by L-BFGS-B, until f falls by less than 1e-3 in as many iterations
again, and F is compared there. Exit code 1 unless AdaptiveBVFIM is at or below fixed-step BVFIM and RHG.

    python benchmarks/networks.py --data digits --budget 4000
    python benchmarks/networks.py --data mnist --budget 4000 --device cuda
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

import bvfim
from bvfim.bench.problems import adam
from bvfim.experiments import cleaning
from bvfim.refit import refit
from bvfim.report import machine

SIZES = {
    "digits": {"train": 600, "validation": 600, "test": 500, "hidden": 50},
    "mnist": {"train": 5000, "validation": 5000, "test": 10000, "hidden": 300},
}


class Budget:
    """Stops a run once it has used its gradients."""

    def __init__(self, gradients: int) -> None:
        self.gradients = gradients

    def __call__(self, run: bvfim.Run) -> bool:
        """Whether the gradients are used up."""
        count = run.problem.evaluations
        return count.upper + count.lower + count.hvp + count.jvp >= self.gradients


METHODS: dict[str, tuple[Any, dict[str, Any]]] = {
    "AdaptiveBVFIM": (bvfim.AdaptiveBVFIM(scouts=2), {}),
    "BVFIM, s = 0.1, Adam 0.01": (bvfim.BVFIM(z_lr=0.1, y_lr=0.1), {"optimizer": adam(0.01)}),
    "BVFIM, s = 0.1, Adam 0.1": (bvfim.BVFIM(z_lr=0.1, y_lr=0.1), {"optimizer": adam(0.1)}),
    "RHG, T = 100, s = 0.1, Adam 0.01": (bvfim.RHG(lr=0.1), {"optimizer": adam(0.01)}),
    "RHG, T = 100, s = 0.1, Adam 0.1": (bvfim.RHG(lr=0.1), {"optimizer": adam(0.1)}),
    "RHG, T = 100, s = 0.3, Adam 0.1": (bvfim.RHG(lr=0.3), {"optimizer": adam(0.1)}),
}


def refitted(task: cleaning.Task, x: torch.Tensor, iterations: int) -> tuple[Any, float, float]:
    """y at the bottom of f(x, .), f there, and by how much f fell in the last round of iterations."""
    at = task.problem.counted_anew().at(x)
    y, before, gap = task.y, float("inf"), float("inf")
    for _ in range(20):
        found = refit(at, y, iterations, 1e-12)
        assert found is not None
        y, f = found
        gap, before = before - f, f
        if gap <= 1e-3:
            break
    return y, before, gap


def measure(task: cleaning.Task, name: str, budget: int, iterations: int) -> dict[str, Any]:
    method, options = METHODS[name]
    s = bvfim.solve(task.problem, task.x, task.y, method, steps=10**6, callbacks=[Budget(budget)], **options)
    y, f, gap = refitted(task, s.x, iterations)
    used = s.evaluations
    return {
        "method": name,
        "F after refitting": float(task.problem.at(s.x).upper(y)),
        "f": f,
        "gap": gap,
        "accuracy": task.accuracy(y),
        "F1": task.f1(s.x),
        "gradients": used["upper"] + used["lower"] + used["hvp"] + used["jvp"],
        "values": used["forward"],
        "upper steps": s.steps,
        "seconds": round(s.seconds, 1),
    }


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", choices=SIZES, default="digits")
    options.add_argument("--budget", type=int, default=4000, help="gradients for each method")
    options.add_argument("--iterations", type=int, default=300, help="of L-BFGS-B in a round of refitting")
    options.add_argument("--dtype", choices=("float32", "float64"), default="float64")
    options.add_argument("--device", default="cpu")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    dtype = getattr(torch, chosen.dtype)
    task = cleaning.problem(chosen.data, seed=chosen.seed, device=chosen.device, dtype=dtype, **SIZES[chosen.data])
    rows = []
    for name in METHODS:
        rows.append(measure(task, name, chosen.budget, chosen.iterations))
        print(json.dumps(rows[-1]), flush=True)
    best = min(row["F after refitting"] for row in rows[1:])
    ratio = rows[0]["F after refitting"] / best
    print(f"F of AdaptiveBVFIM against the best of the others: {ratio:.3f}")
    if chosen.out:
        about = {
            "config": {**vars(chosen), "out": None},
            "machine": machine(),
            "command": f"python {' '.join(sys.argv)}",
        }
        chosen.out.write_text(json.dumps({**about, "ratio": ratio, "runs": rows}, indent=2) + "\n")
    return 0 if ratio <= 1 else 1


if __name__ == "__main__":
    sys.exit(main())
