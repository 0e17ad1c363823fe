"""Constrained and pessimistic problems of 3 to 1000 entries of x: result over time and over gradients.

The constrained ones (bvfim.testproblems.lv_hba and bic_gaffa: 2 n entries of y, one equality that couples everything)
by AdaptiveBVFIM; by BiCGAFFA with its defaults, and with the steps that the script of its paper takes for n variables,
with and without its limit of c_k; and by SciPy's SLSQP on the conditions of Karush, Kuhn and Tucker, with second
derivatives of f. These state one condition n times, which SLSQP refuses; so it also gets those alone that are
independent at the start. The pessimistic ones (sipba and sto_sipba) by AdaptiveBVFIM and SiPBA. All start where the
scripts of the papers do, and have the same time.

Every point is judged by closed forms: "error" is |x - x*| / |x*|, "regret" F at x with the y that follows less F*,
"gap" the lower gap of y, and "violation" its distance to where the equality holds. A run is close once its error stays
below 0.01. A gradient is one of F or f; a Jacobian for SLSQP counts as many as it has rows.

    python benchmarks/scalable.py --out benchmarks/results/scalable-cpu.json
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.linalg import qr
from scipy.optimize import minimize
from torch import Tensor

import bvfim
from bvfim.reports.report import machine
from bvfim.testproblems import TestProblem, bic_gaffa, lv_hba, sipba, sto_sipba

CONSTRAINED = {"LV-HBA": lv_hba, "BiC-GAFFA": bic_gaffa}
PESSIMISTIC = {"SiPBA": sipba, "Sto-SiPBA": sto_sipba}
PROBLEMS = {**CONSTRAINED, **PESSIMISTIC}
METHODS = ("AdaptiveBVFIM", "rivals", "SLSQP")
CLOSE = 1e-2
"""The error of x at which the script of BiC-GAFFA stops."""
DENSE, SPARSE = 30, 1.1
"""So many steps of a run are written down, and then one of those that are later by this factor."""
DEPENDENT = 1e-9
"""Rows of a Jacobian are combinations of others if QR leaves less than this share of the largest."""


class Point(NamedTuple):
    """Where a run is, and what it has cost."""

    seconds: float
    gradients: int
    x: Tensor
    y: Tensor


def start(name: str, test: TestProblem) -> tuple[Tensor, Tensor]:
    """Where the scripts of the papers start; what these draw, drawn with seed 0."""
    if name in CONSTRAINED:
        first, second = {"BiC-GAFFA": (0.0, 0.0), "LV-HBA": (-20.0, 10.0)}[name]
        return torch.full_like(test.x, first), torch.full_like(test.y, second)
    sets, reach = (test.problem.x_set, test.problem.y_set), 10.0
    generator = torch.Generator().manual_seed(0)
    drawn = (torch.rand(len(test.x), generator=generator, dtype=torch.float64) for _ in sets)
    x, y = (s.lower + (min(s.upper, reach) - s.lower) * t for s, t in zip(sets, drawn, strict=True))
    return x, y


def judged(name: str, test: TestProblem, x: Tensor, y: Tensor) -> dict[str, float]:
    """What x and y are worth, in closed form."""
    n, F = len(x), test.problem.upper
    row = {"error": float((x - test.x).norm() / test.x.norm()), "F": float(F(x, y))}
    if name in CONSTRAINED:
        u, wanted = x + 1, x if name == "LV-HBA" else torch.full_like(x, -3.0)
        v = wanted - (x + u + wanted).mean()  # the best v for F with the sum that the equality demands
        follows, gap = torch.cat([u, v]), float((y[:n] - u).square().sum()) / 2
        row["violation"] = abs(float(test.problem.lower_equalities(x, y))) / (3 * n) ** 0.5
    else:
        total = x.square().sum() if name == "Sto-SiPBA" else x.norm().clamp_min(n**0.5 / 2)
        follows = (total / n).expand(n)
        gap = float(test.problem.lower(x, y) - test.problem.lower(x, follows))
    return {**row, "regret": float(F(x, follows)) - test.upper, "gap": gap}


def ours(test: TestProblem, x: Tensor, y: Tensor, method: bvfim.methods.Method[Any], limit: float) -> dict[str, Any]:
    """A run of a method of the library, with some of its points."""
    points: list[Point] = []

    def note(run: bvfim.Run) -> None:
        if run.k <= DENSE or run.k >= SPARSE * due[0]:
            due[0] = run.k
            spent = run.problem.evaluations
            points.append(Point(run.seconds, spent.upper + spent.lower, run.x, run.y))

    due = [0]
    began = time.perf_counter()
    found = bvfim.solve(
        test.problem, x, y, method, steps=10**7, callbacks=[note], time_limit=limit, refit=False, progress=False
    )
    seconds, spent = time.perf_counter() - began, found.evaluations
    points.append(Point(seconds, spent["upper"] + spent["lower"], found.x, found.y))
    cost = {kind: spent[kind] for kind in ("upper", "lower", "forward")}
    return {"status": found.status.name, "steps": found.steps, "seconds": seconds, **cost, "points": points}


def conditions(test: TestProblem, n: int) -> Callable[[Tensor], Tensor]:
    """The slope of the lower Lagrangian in y, and the equality, as a function of w = (x, y, multiplier)."""

    def value(w: Tensor) -> Tensor:
        x = w[:n]

        def lagrangian(y: Tensor) -> Tensor:
            return test.problem.lower(x, y) + w[-1] * test.problem.lower_equalities(x, y)

        y = w[n:-1]
        return torch.cat([torch.func.grad(lagrangian)(y), test.problem.lower_equalities(x, y)[None]])

    return value


def kkt(told: Connection, name: str, n: int, independent: bool) -> None:
    """SLSQP in a process of its own, which tells of its iterates: one of them can take longer than there is time."""
    torch.set_num_threads(1)
    test = PROBLEMS[name](n)
    x, y = start(name, test)
    own = conditions(test, n)
    jacobian = torch.func.jacrev(own)
    first = torch.cat([x, y, x.new_zeros(1)])
    rows = np.arange(2 * n + 1)
    jacobian(first)  # the first one of a process loads much
    began, gradients = time.perf_counter(), 0

    def note(w: np.ndarray) -> None:
        told.send((time.perf_counter() - began, gradients, w.copy()))

    note(first.numpy())
    if independent:
        _, R, order = qr(jacobian(first).numpy().T, mode="economic", pivoting=True)
        sizes = np.abs(np.diag(R))
        rows = np.sort(order[: int((sizes > DEPENDENT * sizes[0]).sum())])
        gradients += 2 * n + 1

    def upper(w: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal gradients
        gradients += 1
        gradient, F = torch.func.grad_and_value(lambda w: test.problem.upper(w[:n], w[n:-1]))(torch.from_numpy(w))
        return float(F), gradient.numpy()

    def left(w: np.ndarray) -> np.ndarray:
        nonlocal gradients
        gradients += 1
        return own(torch.from_numpy(w)).numpy()[rows]

    def slopes(w: np.ndarray) -> np.ndarray:
        nonlocal gradients
        gradients += 2 * n + 1
        return jacobian(torch.from_numpy(w)).numpy()[rows]

    found = minimize(
        upper,
        first.numpy(),
        jac=True,
        constraints={"type": "eq", "fun": left, "jac": slopes},
        method="SLSQP",
        callback=note,
        options={"ftol": 1e-10, "maxiter": 1000},
    )
    note(found.x)
    told.send(f"{found.message} ({found.nit} iterations, {len(rows)} of {2 * n + 1} conditions)")


def slsqp(name: str, n: int, independent: bool, limit: float) -> dict[str, Any]:
    """A run of SLSQP, with its iterates."""
    spawn = get_context("spawn")
    heard, told = spawn.Pipe(duplex=False)
    process = spawn.Process(target=kkt, args=(told, name, n, independent))
    process.start()
    points, status, began = [], "", None
    while not status:
        if began is not None and not heard.poll(max(limit - (time.perf_counter() - began), 0.0)):
            status = "time limit"
            break
        said = heard.recv()
        began = began or time.perf_counter()  # once it has loaded what it needs
        if isinstance(said, str):
            status = said
        else:
            w = torch.from_numpy(said[2])
            points.append(Point(said[0], said[1], w[:n], w[n:-1]))
    process.kill()
    process.join()
    return {"status": status, "seconds": points[-1].seconds if status != "time limit" else limit, "points": points}


def gaffa(n: int, c_max: float | None) -> bvfim.BiCGAFFA:
    """With the steps of the paper's script for n variables, of which it has 100 and more."""
    eta = 20 / max(n, 100)
    return bvfim.BiCGAFFA(alpha=eta / 10, beta=5e-4, eta=eta, gamma1=1.0, gamma2=0.1, c_max=c_max)


def runs(name: str, n: int, methods: list[str], limit: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each method on a problem."""
    test = PROBLEMS[name](n)
    rivals: dict[str, bvfim.methods.Method[Any]] = {"BiCGAFFA": bvfim.BiCGAFFA()}
    rivals |= {"BiCGAFFA, steps for n": gaffa(n, 10.0), "BiCGAFFA, steps for n, no limit of c": gaffa(n, None)}
    rivals = rivals if name in CONSTRAINED else {"SiPBA": bvfim.SiPBA()}
    chosen = {"AdaptiveBVFIM": bvfim.AdaptiveBVFIM()} if "AdaptiveBVFIM" in methods else {}
    for label, method in {**chosen, **(rivals if "rivals" in methods else {})}.items():
        yield label, ours(test, *start(name, test), method, limit)
    if name in CONSTRAINED and "SLSQP" in methods:
        yield "SLSQP", slsqp(name, n, False, limit)
        yield "SLSQP, independent conditions", slsqp(name, n, True, limit)


def written(name: str, n: int, label: str, found: dict[str, Any]) -> dict[str, Any]:
    """A run with its points judged, and when it came close to stay."""
    test = PROBLEMS[name](n)
    path = [{"seconds": p.seconds, "gradients": p.gradients, **judged(name, test, p.x, p.y)} for p in found["points"]]
    away = max((i for i, row in enumerate(path) if not row["error"] <= CLOSE), default=-1)
    close = path[away + 1] if away + 1 < len(path) else {"seconds": math.inf, "gradients": math.inf}
    reached = {
        f"{key} until close": close[key] if math.isfinite(close[key]) else None for key in ("seconds", "gradients")
    }
    rest = {key: value for key, value in found.items() if key != "points"}
    end = {key: value for key, value in (path[-1] if path else {}).items() if key != "seconds"}
    return {"problem": name, "n": n, "method": label, **rest, "end": end, **reached, "path": path}


def growth(rows: list[dict[str, Any]]) -> dict[str, float]:
    """By how much the gradients of AdaptiveBVFIM grow from the smallest to the largest n, where its runs converged."""
    ours = [row for row in rows if row["method"] == "AdaptiveBVFIM" and row["status"] == "CONVERGED"]
    own = {(row["problem"], row["n"]): row["upper"] + row["lower"] for row in ours}
    sizes = sorted({n for _, n in own})
    problems = {name for name, _ in own if len(sizes) > 1 and {(name, sizes[0]), (name, sizes[-1])} <= own.keys()}
    return {name: own[name, sizes[-1]] / own[name, sizes[0]] for name in sorted(problems)}


def main() -> None:
    """Measure and write."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--n", type=int, nargs="+", default=[3, 30, 100, 1000])
    options.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    options.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    options.add_argument("--limit", type=float, default=120.0, help="seconds for each run")
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name in chosen.problems:
        for n in chosen.n:
            for label, found in runs(name, n, chosen.methods, chosen.limit):
                rows.append(written(name, n, label, found))
                print(json.dumps({key: value for key, value in rows[-1].items() if key != "path"}), flush=True)
    print(json.dumps({"growth of the gradients of AdaptiveBVFIM": growth(rows)}))
    if chosen.out:
        command = " ".join(["python benchmarks/scalable.py", *sys.argv[1:]])
        about = {"command": command, "machine": machine(), "growth": growth(rows), "runs": rows}
        chosen.out.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
