"""AdaptiveBVFIM on problems with constraints and a known optimum, each end judged independently of what it says.

A problem is solved from one call with several starts, whose choice is judged; then every start is judged by itself.
With ``--units``, the same from constraints multiplied by 1e-4 and by 1e4, which should change nothing but the rounding;
with powers of two not even that.

python benchmarks/constrained.py --seeds 11 12 13 --out benchmarks/results/constrained-cpu.json
python benchmarks/constrained.py --units 1e-4 1e4 --seeds 11 --out benchmarks/results/constrained-units-cpu.json
python benchmarks/constrained.py --units 1.220703125e-4 8192 --seeds 11
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from rich.progress import track
from torch import Tensor

import bvfim
from bvfim.core.run import Run
from bvfim.reports.report import machine
from bvfim.testproblems import TestProblem, constrained, coupled, judged, starts

TESTS = {"constrained": constrained, "coupled": coupled}
LOST = 1e30
"""What is not finite is written as this, so that the file is JSON."""


class Ended:
    """Keeps the run, whose state holds every start."""

    run: Run

    def __call__(self, run: Run) -> None:
        """Nothing to do after a step."""

    def finish(self, run: Run) -> None:
        """The run at its end."""
        self.run = run


def solve(test: TestProblem, seed: int, count: int) -> tuple[bvfim.Solution, Run, float]:
    [(x, y)] = starts(test, 1, seed)
    method, ended, began = bvfim.AdaptiveBVFIM(starts=count, seed=100 * seed), Ended(), time.perf_counter()
    solution = bvfim.solve(test.problem, x, y, method, callbacks=[ended], progress=False)
    return solution, ended.run, time.perf_counter() - began


def verdict(test: TestProblem, x: Tensor, y: Tensor, status: bvfim.Status | None) -> dict[str, Any]:
    """What (x, y) is worth, and whether its status says so: a wrong claim is worse than a failure that says so."""
    found = judged(test, x, y)
    good = found.is_feasible() and not found.is_too_low(test.upper)
    numbers = {
        "F": found.upper, "f": found.lower, "violation": found.violation, "gap": found.gap,
        "x": x.tolist(), "y": y.tolist(),
    }  # fmt: skip
    return {
        "status": status.value if status else "under way",
        "solved": found.is_solution(test.upper),
        "wrong": status is bvfim.Status.CONVERGED and not good,
        "elsewhere": status is bvfim.Status.CONVERGED and good and not found.is_solution(test.upper),
        **numbers,
    }


def alone(run: Run, test: TestProblem, i: int) -> dict[str, Any]:
    """Start i by itself."""
    x, state = run.method.only(run.problem, run.x, run.state, i)
    gradients_F, gradients_f, values = state.starts.counts[0].tolist()
    found = verdict(test, x, state.y, run.method.end_of(state.starts.ended[0]))
    return {**found, "F grads": gradients_F, "f grads": gradients_f, "values": values}


def measure(collection: str, name: str, seed: int, count: int) -> dict[str, Any]:
    """One problem from one seed: the choice, and every start."""
    test = named(collection, name)
    solution, run, seconds = solve(test, seed, count)
    singles = [alone(run, test, i) for i in range(count)]
    chosen = verdict(test, solution.x, solution.y, solution.status)
    of = {"collection": collection, "problem": name, "seed": seed, "F*": test.upper}
    return {**of, **chosen, "seconds": round(seconds, 1), "steps": solution.steps, "starts": singles}


def measure_units(factors: list[float], collection: str, name: str, seed: int, count: int) -> dict[str, Any]:
    """One problem with its constraints in other units: how far the results are from those in its own."""
    test = named(collection, name)
    own, run, _ = solve(test, seed, count)
    row: dict[str, Any] = {"collection": collection, "problem": name, "seed": seed, "units": {}}
    for factor in factors:
        other, other_run, _ = solve(dataclasses.replace(test, problem=scaled(test.problem, factor)), seed, count)
        row["units"][f"{factor:g}"] = {
            "same": other.status is own.status and other.evaluations == own.evaluations,
            "status": f"{own.status.value}, {other.status.value}",
            "evaluations": [own.evaluations, other.evaluations],
            "far": far(torch.cat([own.x, own.y]), torch.cat([other.x, other.y])),
            "far over all starts": far(run.state.starts.w, other_run.state.starts.w),
            "first step that differs": first_difference(own.rows, other.rows),
        }
    return row


def scaled(problem: bvfim.Problem, factor: float) -> bvfim.Problem:
    """The problem with every constraint multiplied by a factor."""

    def times(function: Callable[..., Tensor], x: Tensor, y: Tensor) -> Tensor:
        return factor * function(x, y)

    return dataclasses.replace(problem, **{kind: partial(times, getattr(problem, kind)) for kind in problem.stated})


def far(a: Tensor, b: Tensor) -> float:
    """The largest difference of two points, relative to their size."""
    return float((a - b).abs().max() / (1 + a.abs().max()))


def first_difference(rows: list[dict[str, float]], others: list[dict[str, float]]) -> int | None:
    """The first step whose F differs by more than the rounding of a factor that is no power of two."""
    for row, other in zip(rows, others, strict=False):
        if not math.isclose(row["upper"], other["upper"], rel_tol=1e-9, abs_tol=1e-9):
            return int(row["step"])
    return None if len(rows) == len(others) else min(len(rows), len(others))


def named(collection: str, name: str) -> TestProblem:
    return next(test for test in TESTS[collection]() if test.name == name)


def totals(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each collection: problems solved at each seed, single starts, medians of their gradients, wrong claims."""
    found = []
    for collection in dict.fromkeys(row["collection"] for row in rows):
        own = [row for row in rows if row["collection"] == collection]
        singles = [{**single, "row": row} for row in own for single in row["starts"]]
        seeds = sorted({row["seed"] for row in own})
        of_seed = {seed: [row["solved"] for row in own if row["seed"] == seed] for seed in seeds}
        found.append(
            {
                "collection": collection,
                "solved at each seed": {seed: f"{sum(one)} of {len(one)}" for seed, one in of_seed.items()},
                "unsolved": [f"{row['problem']}/{row['seed']}" for row in own if not row["solved"]],
                "single starts": f"{sum(s['solved'] for s in singles)} of {len(singles)}",
                "share of single starts": round(statistics.mean(s["solved"] for s in singles), 3),
                **{f"median {k}": statistics.median(s[k] for s in singles) for k in ("F grads", "f grads", "values")},
                "wrong claims, chosen": [f"{row['problem']}/{row['seed']}" for row in own if row["wrong"]],
                "wrong claims, single": [f"{s['row']['problem']}/{s['row']['seed']}" for s in singles if s["wrong"]],
                "converged at a higher F": sum(s["elsewhere"] for s in singles),
                "seconds": round(sum(row["seconds"] for row in own), 1),
            }
        )
    return found


def line(row: dict[str, Any]) -> str:
    """One problem from one seed, in a table."""
    singles = row["starts"]
    gradients = " ".join(f"{statistics.median(s[k] for s in singles):6.0f}" for k in ("F grads", "f grads"))
    mark = "WRONG" if row["wrong"] else ("solved" if row["solved"] else "-")
    return (
        f"{row['problem']:30s} {row['seed']:3d} {mark:7s} {row['status']:11s} F {row['F']:10.5g} F* {row['F*']:9.5g} "
        f"violation {row['violation']:7.1e} gap {row['gap']:8.1e} single {sum(s['solved'] for s in singles)} of "
        f"{len(singles)}, wrong {sum(s['wrong'] for s in singles)} gradients {gradients} {row['seconds']:5.1f} s"
    )


def line_of_units(row: dict[str, Any]) -> str:
    """One problem in other units."""
    parts = [
        f"x {factor}: {'same' if found['same'] else 'not the same'}, {found['status']}, far {found['far']:7.1e}"
        for factor, found in row["units"].items()
    ]
    return f"{row['problem']:30s} {row['seed']:3d} " + "; ".join(parts)


def writable(item: Any) -> Any:
    """The same with numbers that JSON has."""
    if isinstance(item, dict):
        return {key: writable(value) for key, value in item.items()}
    if isinstance(item, list):
        return [writable(value) for value in item]
    return item if not isinstance(item, float) or math.isfinite(item) else (math.copysign(LOST, item))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, nargs="+", default=[11, 12, 13])
    options.add_argument("--starts", type=int, default=6)
    options.add_argument("--collection", nargs="+", choices=TESTS, default=list(TESTS))
    options.add_argument("--problem", nargs="+", help="names; all by default")
    options.add_argument("--units", type=float, nargs="+", help="what constraints are multiplied by")
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    plan = [
        (collection, test.name, seed, chosen.starts)
        for seed in chosen.seeds
        for collection in chosen.collection
        for test in TESTS[collection]()
        if not chosen.problem or test.name in chosen.problem
    ]
    job, shown = (partial(measure_units, chosen.units), line_of_units) if chosen.units else (measure, line)
    rows = []
    with ProcessPoolExecutor(chosen.workers, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        jobs = {pool.submit(job, *given): place for place, given in enumerate(plan)}
        for done in track(as_completed(jobs), "problems", len(jobs)):
            rows.append((jobs[done], done.result()))
            print(shown(rows[-1][1]), flush=True)
    runs = [row for _, row in sorted(rows, key=lambda pair: pair[0])]
    told = [] if chosen.units else totals(runs)
    print(json.dumps(told, indent=1))
    if chosen.out:
        command = " ".join(["python", "benchmarks/constrained.py", *sys.argv[1:]])
        about = {"command": command, "machine": machine(), "totals": told, "runs": runs}
        chosen.out.write_text(json.dumps(writable(about), indent=1) + "\n")


if __name__ == "__main__":
    main()
