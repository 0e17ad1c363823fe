"""Seconds of one solve of the paper's toy by AdaptiveBVFIM, and of 16 starts, on one core: medians of several starts.

python benchmarks/toy.py --out benchmarks/results/toy-cpu.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch

import bvfim
from bvfim.reports.report import machine


def seconds(starts: int, seed: int, a: float) -> float:
    x, y = 20 * torch.rand(2, 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 10
    problem = bvfim.testproblems.sine(a).problem
    began = time.perf_counter()
    solution = bvfim.solve(problem, x, y, bvfim.AdaptiveBVFIM(starts=starts))
    assert solution.status is bvfim.Status.CONVERGED
    return time.perf_counter() - began


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out", type=Path)
    options.add_argument("--repeats", type=int, default=5)
    chosen = options.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for starts in (1, 16):
        for a in (0.0, 2.0):
            times = [seconds(starts, seed, a) for seed in range(chosen.repeats)]
            rows.append({"starts": starts, "a": a, "median s": statistics.median(times), "worst s": max(times)})
            print(json.dumps(rows[-1]), flush=True)
    if chosen.out:
        about = {"command": "python benchmarks/toy.py", "machine": machine(), "runs": rows}
        chosen.out.write_text(json.dumps(about, indent=2) + "\n")


if __name__ == "__main__":
    main()
