"""AdaptiveBVFIM at the size of networks: full-batch hyper-cleaning at equal gradient evaluations.

Every method gets the same number of gradients (of F and f, and products with second derivatives, which cost at least as
much). Then the lower level is solved at its x by L-BFGS-B, from the method's own y and from the start that all share,
until f is within 1e-3 of the lowest f found there. A bilevel problem asks for the lowest F among the lower solutions at
x: the lower of the two is compared. Exit code 1 unless AdaptiveBVFIM is at or below fixed-step BVFIM and RHG. What a
network trained anew at x reaches, in F and in accuracy, stands beside it.

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
from bvfim.core.lower_minimum import lower_minimum
from bvfim.reports.report import machine
from bvfim.reproduce.bench.problems import adam
from bvfim.reproduce.experiments import cleaning

SIZES = {
    "digits": {"train": 600, "validation": 600, "test": 500, "hidden": 50},
    "mnist": {"train": 5000, "validation": 5000, "test": 10000, "hidden": 300},
}


GAP = 1e-3


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


def refitted(task: cleaning.Task, x: torch.Tensor, ys: list[Any], iterations: int) -> tuple[list[Any], float]:
    """From each y a point where f(x, .) is within the gap of the lowest f that is found from any, and that f."""
    at = task.problem.counted_anew().at(x)

    def descended(y: Any, target: float) -> Any:
        return lower_minimum(at, y, iterations, 1e-12, target)[0]

    lowest = min(float(at.lower(descended(y, -float("inf")))) for y in ys)
    target = lowest + GAP
    return [y if float(at.lower(y)) <= target else descended(y, target) for y in ys], lowest


def measure(task: cleaning.Task, name: str, budget: int, iterations: int) -> dict[str, Any]:
    method, options = METHODS[name]
    s = bvfim.solve(task.problem, task.x, task.y, method, steps=10**6, callbacks=[Budget(budget)], **options)
    (own, anew), lowest = refitted(task, s.x, [s.y, task.y], iterations)
    at = task.problem.counted_anew().at(s.x)
    used = s.evaluations
    return {
        "method": name,
        "F": min(float(at.upper(own)), float(at.upper(anew))),
        "F from its own y": float(at.upper(own)),
        "gap of its own y": float(at.lower(own)) - lowest,
        "F trained anew": float(at.upper(anew)),
        "gap trained anew": float(at.lower(anew)) - lowest,
        "lowest f": lowest,
        "accuracy of its own y": task.accuracy(own),
        "accuracy trained anew": task.accuracy(anew),
        "F1": task.f1(s.x),
        "gradients": used["upper"] + used["lower"] + used["hvp"] + used["jvp"],
        "values": used["forward"],
        "upper steps": s.steps,
        "status": s.status.value,
        "seconds": round(s.seconds, 1),
    }


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", choices=SIZES, default="digits")
    options.add_argument("--budget", type=int, default=4000, help="gradients for each method")
    options.add_argument("--iterations", type=int, default=1500, help="of L-BFGS-B while refitting")
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
    best = min(row["F"] for row in rows[1:])
    ratio = rows[0]["F"] / best
    print(f"F of AdaptiveBVFIM against the best of the others: {ratio:.3f}")
    if chosen.out:
        config = {key: value for key, value in vars(chosen).items() if key != "out"}
        given = " ".join(f"--{key} {value}" for key, value in config.items())
        about = {"config": config, "machine": machine(), "command": f"python benchmarks/networks.py {given}"}
        chosen.out.write_text(json.dumps({**about, "ratio": ratio, "runs": rows}, indent=2) + "\n")
    return 0 if ratio <= 1 else 1


if __name__ == "__main__":
    sys.exit(main())
