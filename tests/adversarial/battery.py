"""The whole battery of hostile problems: every problem, in units from 1e-6 to 1e6, from five starts.

python -m tests.adversarial.battery --out benchmarks/results/hostile-cpu.json
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from rich.progress import track

import bvfim
from bvfim.reports.report import machine
from tests.adversarial.hostile import ALL, D, Truth, start, truth, wrong

UNITS = [(1, 1, 1, 1), (1e-6, 1, 1, 1), (1, 1e6, 1, 1), (1e6, 1e-6, 1e3, 1e-3), (1e-3, 1e3, 1e-6, 1e6)]
"""Of x, y, F and f."""


@cache
def truth_of(number: int) -> Truth:
    """Brute force, once a process."""
    return truth(ALL[number])


def solved(number: int, seed: int, units: tuple[float, float, float, float]) -> dict[str, Any]:
    """One run, judged."""
    torch.set_num_threads(1)
    hostile, (a, b, c, _) = ALL[number], units
    x, y = start(hostile, seed)
    found = bvfim.solve(hostile.problem(*units), x * a, y * b, bvfim.AdaptiveBVFIM(seed=seed), refit=False)
    answer, known = (found.x.item() / a, found.y.item() / b), truth_of(number)
    F, best = found.upper / c, known.best
    first = float(hostile.F(*(torch.tensor(v.item(), dtype=D) for v in (x, y))))
    fault = wrong(known, *answer)
    return {
        "problem": hostile.name, "seed": seed, "units": units, "status": found.status.name, "x": answer[0],
        "y": answer[1], "F": F, "best": best, "fault": fault,
        "global": not fault and F - best <= 1e-2 * (1 + abs(best)),
        "worse than the start": known.gap(x.item(), y.item()) <= 1e-6 and first + 1e-2 * (1 + abs(F)) < F,
        "F gradients": found.evaluations["upper"], "f gradients": found.evaluations["lower"],
        "values": found.evaluations["forward"],
    }  # fmt: skip


def main() -> None:
    """Run, count and write."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--starts", type=int, default=5)
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    jobs = list(zip(*itertools.product(range(len(ALL)), range(chosen.starts), UNITS), strict=True))
    with ProcessPoolExecutor(chosen.workers, mp_context=get_context("spawn")) as pool:
        rows = list(track(pool.map(solved, *jobs, chunksize=5), total=len(jobs[0])))
    converged = [row for row in rows if row["status"] == "CONVERGED"]
    counts = {
        "problems": len(ALL),
        "runs": len(rows),
        "converged": len(converged),
        "converged, and wrong": sum(bool(row["fault"]) for row in converged),
        "global": sum(row["global"] for row in rows),
        "worse than the start": sum(row["worse than the start"] for row in rows),
        **{
            f"mean {kind}": sum(row[kind] for row in rows) / len(rows)
            for kind in ("F gradients", "f gradients", "values")
        },
    }
    print(json.dumps(counts, indent=1))
    for row in rows:
        if row["status"] != "CONVERGED" or row["fault"]:
            print({k: row[k] for k in ("problem", "seed", "units", "status", "x", "y", "F", "best", "fault")})
    if chosen.out:
        command = " ".join(["python -m tests.adversarial.battery", *sys.argv[1:]])
        about = {"command": command, "machine": machine(), "counts": counts, "runs": rows}
        chosen.out.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
