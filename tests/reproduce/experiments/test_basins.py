from __future__ import annotations

import math
from dataclasses import replace

import pandas as pd
import pytest

import bvfim
from bvfim.reproduce.experiments import basins
from bvfim.testproblems import sine

pytestmark = pytest.mark.long

TINY = basins.Config(side=3, steps=2, rates=(0.1,), a=(2.0,))


@pytest.fixture(scope="module")
def results():
    return basins.run(TINY)


def test_the_shares_of_a_map_add_up_and_adaptive_finds_the_optimum(results):
    shares = results.tables["basins"]
    assert shares.sum(axis=1).to_numpy() == pytest.approx([1.0] * 4)
    assert float(shares.xs("AdaptiveBVFIM", level="method")["within 1e-3 of the optimum"].iloc[0]) == 1.0
    assert shares["within 1e-3 of the optimum"].sum() == 1.0, "no other can, in two steps"
    assert set(results.figures) == {"basins-0.1"}
    assert "AdaptiveBVFIM 100.00% to 100.00%" in results.sections[0].ours


def test_ends_are_judged_by_distance_and_gap():
    best = sine(2.0)
    x, y = float(best.x), float(best.y)
    rows = [
        (x + 5e-4, y, 0.0, "max_steps"),
        (x + 5e-4, y + 5e-2, 0.0, "max_steps"),
        (x + 3, y - 3, 0.0, "converged"),
        (x + 3, y, 0.5, "max_steps"),
        (x, y, 0.0, "non_finite"),
        (x, y, 0.0, "slack_lost"),
    ]
    found = basins.judged(pd.DataFrame(rows, columns=["x", "y", "gap", "status"]), 2.0)
    assert list(found) == [*basins.ENDS, "broke off"]


def test_the_steps_reach_x_and_the_lower_level():
    table = basins.ends(bvfim.CG(steps=1), 2.0, 0.1, replace(TINY, steps=1))
    start = table.iloc[0]
    assert (start["x0"], start["y0"]) == (-10.0, -10.0)
    assert abs(start["x"] - start["x0"]) == pytest.approx(0.1, rel=1e-6), "one step of Adam"
    assert start["y"] - start["y0"] == pytest.approx(-0.1 * math.cos(-20)), "one step of the lower level"


def test_the_grid_covers_the_square():
    table = basins.ends(bvfim.AdaptiveBVFIM(), 0.0, 0.1, TINY)
    assert sorted({(x, y) for x, y in zip(table["x0"], table["y0"], strict=True)}) == [
        (x, y) for x in (-10.0, 0.0, 10.0) for y in (-10.0, 0.0, 10.0)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("a", [0.0, 2.0])
def test_adaptive_finds_the_optimum_from_400_starts(a):
    table = basins.ends(bvfim.AdaptiveBVFIM(), a, 0.01, basins.Config())
    assert (basins.judged(table, a) == "within 1e-3 of the optimum").mean() >= 0.99
