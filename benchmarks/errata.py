"""Published optima of bilevel problems that are not optima: each held against brute force, without any bilevel solver.

At every x of a grid that zooms in, the lower level is minimised by SLSQP from the best points of a grid over y, and F
over what is as low; the stated point is judged by the distance from its constraints and by its lower-level gap.

python benchmarks/errata.py --out benchmarks/results/errata.json
"""

from __future__ import annotations

import argparse
import json
import math
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import bvfim
from bvfim.core.constraints import layout, values
from bvfim.reports.report import machine
from bvfim.sets import Box
from bvfim.testproblems import TestProblem, constrained, coupled, judged
from bvfim.testproblems.base import vector
from bvfim.testproblems.feasible import Region, bounds
from bvfim.testproblems.judge import constrained_minima

AMONG = 1e-9
"""A y is among the lower-level solutions if f is above the lowest by this share of 1 + |f|."""
HELD = 1e-9
"""Upper constraints hold at a y that follows if they are violated by no more."""
SAME = 1e-4
"""Points are the same if they differ by no more, relative to their size."""
GRID_Y, GRID_X, ZOOMED, ZOOMS, NEARER = {1: 201, 2: 41, 3: 17}, {1: 41, 2: 13}, 7, 6, 3.0
"""Points along each axis of y, of x at first, and of x around the best so far; how often, and how much nearer."""
BEST = 3
"""How many of the feasible points of the grid over y start SLSQP, and how many of the others."""


@dataclass(frozen=True)
class Erratum:
    """What was published of a problem: F, or f where the optimum is right and f is a misprint; where to look."""

    name: str
    published: float
    low: tuple[float, ...]
    high: tuple[float, ...]
    why: str
    reach: float = 10.0
    of: str = "F"


ERRATA = [
    Erratum("Dempe1992b", 31.25, (-1.0,), (9.0,), "phi rises on (0, 9): (1, 1) is an inflection, the optimum x = 0"),
    Erratum("DempeLohse2011Ex31a", -5.5, (-2.0, -2.0), (2.0, 2.0), "called unique; y = (2, 0) follows at (0, 1/2) too"),
    Erratum("HuHuangZhang2009", -76 / 9, (0.0,), (4.0,), "x = 2 and y = (7/9, 0) are feasible and better"),
    Erratum(
        "DempeDutta2012Ex31",
        -1.0,
        (0.0, 0.0),
        (2.0, 2.0),
        "at x = (1, 1) two discs touch, in the one point that is left",
    ),
    Erratum("AiyoshiShimizu1984Ex2", 5.0, (0.0, 0.0), (60.0, 60.0), "called global; it is local", reach=20.0),
    Erratum("DempeDutta2012Ex24", 1.0, (-3.0,), (3.0,), "the KKT system, which 1 solves, needs Slater's condition"),
    Erratum("Outrata1990Ex2d", 0.92, (0.0,), (10.0,), "best known, and not best"),
    Erratum("Outrata1990Ex1e", -3.15, (-3.0, -3.0), (3.0, 3.0), "best known, and not best"),
    Erratum("Outrata1990Ex1b", -7.56, (-3.0, -3.0), (3.0, 3.0), "best known, and not best"),
    Erratum("MuuQuy2003Ex2", 0.6426, (0.0, 0.0), (1.0, 1.0), "best known, and not best"),
    Erratum("AnandalinghamWhite1990", 15.0, (0.0,), (20.0,), "a misprint of f", reach=25.0, of="f"),
    Erratum("MuuQuy2003Ex1", -0.5868, (0.0,), (2.0,), "a misprint of f", of="f"),
]


def two_discs() -> TestProblem:
    """DempeDutta2012Ex31, whose y solves no constraint qualification: the only one that is in no collection."""

    def discs(x: Tensor, y: Tensor) -> Tensor:
        right = (y[0] - x[0]) ** 2 + (y[1] - 1 - x[0]) ** 2
        left = (y[0] + x[1]) ** 2 + (y[1] - 1 - x[1]) ** 2
        return torch.stack([right, left]) - 1

    problem = bvfim.Problem(
        lambda x, y: -y[1],
        lambda x, y: y[0] ** 2 + (y[1] + 1) ** 2,
        x_set=Box(0.0, math.inf),
        lower_constraints=discs,
        upper_equalities=lambda x, y: y[0] * y[1],
    )
    source = "Dempe and Dutta, 2012, as in BOLIB"
    return TestProblem("DempeDutta2012Ex31", source, problem, vector(1.0, 1.0), vector(0.0, 2.0), -2.0, 9.0)


def named(name: str) -> TestProblem:
    return next(test for test in [*constrained(), *coupled(), two_discs()] if test.name == name)


def followed(test: TestProblem, x: Tensor, grid: Tensor) -> tuple[float, float]:
    """The lowest F of the lower-level solutions at x where the upper constraints hold, and f there."""
    problem, given = test.problem, layout(test.problem, x, test.y, None)
    f = torch.func.vmap(lambda y: problem.lower(x, y))(grid)
    g = torch.func.vmap(lambda y: values(problem, x, y, None)[: given.lower])(grid)
    violated = torch.where(given.equal[: given.lower], g.abs(), g.clamp_min(0)).amax(1)
    order = torch.where(violated <= 0, f, math.inf).argsort()[:BEST], violated.argsort()[:BEST]
    found = constrained_minima(problem, x, list(grid[torch.cat(order)]))
    lowest = min((value for _, value in found), default=math.inf)
    if not math.isfinite(lowest):
        return math.inf, math.nan
    slack = AMONG * (1 + abs(lowest))

    def all_of(y: Tensor) -> Tensor:
        return torch.cat([values(problem, x, y, None), problem.lower(x, y).reshape(1) - lowest - slack])

    equal = torch.cat([given.equal, torch.tensor([False])])
    region = Region(all_of, equal, *bounds(problem.y_set, test.y), found[0][0])
    starts = apart([y for y, value in found if value <= lowest + slack])
    ends = [end for y in starts if (end := region.lowest(lambda y: problem.upper(x, y), y)) is not None]
    upper = given.equal[given.lower :]
    above = (torch.where(upper, t.abs(), t) for t in (values(problem, x, y, None)[given.lower :] for y in starts))
    ends += [y for y, t in zip(starts, above, strict=True) if bool((t <= HELD).all())]
    pairs = [(float(problem.upper(x, y)), float(problem.lower(x, y))) for y in ends]
    return min(pairs, default=(math.inf, math.nan))


def apart(points: list[Tensor]) -> list[Tensor]:
    """Those that are not at one that comes before."""
    kept: list[Tensor] = []
    for point in points:
        if all((point - other).abs().max() > SAME * (1 + other.abs().max()) for other in kept):
            kept.append(point)
    return kept


def mesh(low: Tensor, high: Tensor, count: int) -> Tensor:
    """All points of a grid, a row each."""
    axes = [torch.linspace(float(a), float(b), count, dtype=torch.float64) for a, b in zip(low, high, strict=True)]
    return torch.stack([axis.flatten() for axis in torch.meshgrid(*axes, indexing="ij")], 1)


def brute_force(test: TestProblem, erratum: Erratum) -> tuple[float, float, Tensor]:
    """The lowest F that was found, f there, and x."""
    low, high = (b.clamp(-erratum.reach, erratum.reach) for b in bounds(test.problem.y_set, test.y))
    grid = mesh(low, high, GRID_Y[len(test.y)])
    low, high = vector(*erratum.low), vector(*erratum.high)
    best, width, count = (math.inf, math.nan, (low + high) / 2), (high - low) / 2, GRID_X[len(low)]
    for _ in range(1 + ZOOMS):
        xs = test.problem.project_x(mesh(best[2] - width, best[2] + width, count))
        tried = [(*followed(test, x, grid), x) for x in xs.unique(dim=0)]
        best = min([best, *tried], key=lambda one: one[0])
        width, count = width / NEARER, ZOOMED
    return best


def checked(erratum: Erratum) -> dict[str, Any]:
    """One published optimum beside what is stated here and what brute force finds."""
    torch.set_num_threads(1)
    test = named(erratum.name)
    F, f, x = brute_force(test, erratum)
    here = judged(test, test.x, test.y)
    return {
        "problem": erratum.name, "of": erratum.of, "published": erratum.published,
        "stated here": test.upper if erratum.of == "F" else test.lower,
        "brute force": F if erratum.of == "F" else f, "x": x.tolist(),
        "violation": here.violation, "lower gap": here.gap, "why": erratum.why,
    }  # fmt: skip


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", action="append", choices=[e.name for e in ERRATA], help="may be given several times")
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    plan = [erratum for erratum in ERRATA if not chosen.only or erratum.name in chosen.only]
    rows = []
    with ProcessPoolExecutor(chosen.workers, get_context("spawn")) as pool:
        for row in pool.map(checked, plan):
            rows.append(row)
            numbers = " ".join(f"{row[k]:11.6g}" for k in ("published", "stated here", "brute force"))
            x = [round(v, 4) + 0.0 for v in row["x"]]
            print(
                f"{row['problem']:24s} {row['of']} {numbers} at x = {x}, stated point: "
                f"violation {row['violation']:.1e}, lower gap {row['lower gap']:.1e}; {row['why']}",
                flush=True,
            )
    if chosen.out:
        about = {"command": "python benchmarks/errata.py", "machine": machine(), "runs": rows}
        chosen.out.write_text(json.dumps(about, indent=2) + "\n")


if __name__ == "__main__":
    main()
