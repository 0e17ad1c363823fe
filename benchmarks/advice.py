"""What the adviser's picks are worth, on every job of `bvfim bench rivals`, beside the best method in hindsight.

The adviser sees a job as its user would, and is told the seconds of a run. Its pick then runs on the clock that all
methods had in the contest, and is judged as they were: near the best is within five per cent of it, or within a
thousandth of the fall from the start. The best is the lowest end of any method there, with its defaults or with the
best of its grid.

python benchmarks/advice.py --rivals benchmarks/results/rivals-cpu.json --out benchmarks/results/advice-cpu.json
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import torch

import bvfim
from bvfim.adviser import Candidate
from bvfim.reports.report import machine
from bvfim.reproduce.bench.contest_run import loaded, rows, start
from bvfim.reproduce.bench.contest_settings import Setting
from bvfim.reproduce.bench.jobs import Job, excess, is_near, jobs

JUDGED = ("pick", "rules", "second")
"""What is judged: the pick after its trial, that of the rules alone, and the runner-up of the rules."""


def best_of(rivals: dict[str, Any]) -> dict[tuple[str, int], tuple[float, str]]:
    """The lowest end of any method in the contest for each job and seed, and whose it is."""
    found: dict[tuple[str, int], tuple[float, str]] = {}
    for run in rivals["runs"]:
        if run["as"] != "tried" and run["value"] is not None:
            key = run["job"], run["seed"]
            own = (run["value"], f"{run['method']}, {run['setting']}")
            found[key] = min(found.get(key, (math.inf, "")), own)
    return found


def advised(job: Job, seed: int, budget: float) -> tuple[bvfim.Advice, bvfim.Advice, float]:
    """The advice with its trial and without, and the seconds of a core that it took with it."""
    posed, began = job.build(seed), time.process_time()
    found = bvfim.advise(posed.problem, posed.x, posed.y, posed.batches, seconds=budget)
    seconds = time.process_time() - began
    posed = job.build(seed)
    return found, bvfim.advise(posed.problem, posed.x, posed.y, posed.batches, seconds=budget, trial=False), seconds


def measured(job: Job, seed: int, best: tuple[float, str], scale: float) -> dict[str, Any]:
    """One job: what was advised, and what it is worth."""
    budget = scale * job.budget
    advice, rules, seconds = advised(job, seed, budget)
    ends: dict[str, float] = {}
    values = {}
    for name, candidate in zip(JUDGED, (advice.best, rules.best, rules.second), strict=True):
        if str(candidate) not in ends:
            ends[str(candidate)] = end_of(job, candidate, seed, budget)
        values[name] = ends[str(candidate)]
    low, first = min(best[0], *values.values()), start(job.name, seed)
    about = {"job": job.name, "family": job.family, "seed": seed, "best": low, "by": best[1], "start": first}
    about |= {
        "advice": str(advice.best),
        "by the rules": str(rules.best),
        "seconds": seconds,
        "reasons": advice.reasons,
    }
    for name, value in values.items():
        about |= {name: finite(value), f"{name}, excess": finite(excess(value, low, first))}
        about[f"{name}, near"] = is_near(value, low, first)
    return about


def end_of(job: Job, candidate: Candidate, seed: int, budget: float) -> float:
    """What a run of a candidate is worth."""
    setting = Setting("advice", candidate.method, candidate.optimizer)
    return rows(job, setting, seed, budget, looked=False)[-1]["value"]


def finite(value: float) -> float | None:
    """A number as JSON has it."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rivals", type=Path, default=Path("benchmarks/results/rivals-cpu.json"))
    parser.add_argument("--only", default="", help="only jobs whose name has this in it")
    parser.add_argument("--out", type=Path, help="a JSON file")
    args = parser.parse_args()
    torch.set_num_threads(1)
    contest = json.loads(args.rivals.read_text())
    best, scale = best_of(contest), contest["config"]["budget_scale"]
    loaded(list(bvfim.methods.ALL))
    found = []
    for job in jobs():
        for seed in sorted({seed for name, seed in best if name == job.name and args.only in name}):
            found.append(measured(job, seed, best[job.name, seed], scale))
            row = found[-1]
            print(
                f"{job.name:30} {seed} {row['advice']} {row['pick']} near {row['pick, near']} rules {row['rules']} "
                f"second {row['second']} best {row['best']:.6g} by {row['by']}; {row['seconds']:.1f} s",
                flush=True,
            )
    share = {name: sum(row[f"{name}, near"] for row in found) for name in JUDGED}
    totals = {"of": len(found), "problems": len({row["job"] for row in found}), "near": share}
    totals["longest advice in seconds"] = max(row["seconds"] for row in found)
    print(totals)
    if args.out is not None:
        command = f"python benchmarks/advice.py --rivals {args.rivals} --out {args.out}"
        about = {"command": command, "machine": machine(), "totals": totals, "runs": found}
        args.out.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
