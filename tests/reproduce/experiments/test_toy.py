from __future__ import annotations

import math
from dataclasses import replace

import pandas as pd
import pytest
import torch

import bvfim
from bvfim.reproduce.experiments import toy
from bvfim.reproduce.experiments.paper import TOY_UPPER
from bvfim.reproduce.experiments.resumable import How
from bvfim.testproblems import sine

pytestmark = pytest.mark.long

TINY = replace(toy.Config().quick(), steps=3)


@pytest.fixture(scope="module")
def results():
    return toy.run(TINY)


def test_every_figure_of_the_paper_is_there(results):
    names = {"figure1", "figure1-gradients", "figure2", "figure3", "figure4", "figureA1"}
    assert set(results.figures) == names
    shown = [figure for section in results.sections for figure in section.figures]
    assert sorted(shown) == sorted(names), "each is shown once"
    assert {table for section in results.sections for table in section.tables} == set(results.tables)


def test_every_method_runs_for_both_a_from_both_starts(results):
    ends = results.tables["toy"]
    assert list(ends.index.get_level_values("method").unique()) == list(toy.methods())
    assert len(ends) == 4 * 2 * 2
    adaptive = ends.xs("AdaptiveBVFIM", level="method")
    assert (adaptive["|x - x*|"] < 1e-3).all()
    assert (adaptive["|F - F*|"] < 1e-5).all()
    rhg = ends.xs("RHG", level="method")
    assert (rhg["gradients"] == 3 * (1 + 100 + 200)).all(), "T lower gradients, hvp and jvp, and one of F, a step"


def test_the_optimum_is_corrected():
    assert sine(2.0).upper == pytest.approx(2 * (3 * math.pi / 4 - 2) ** 2)
    assert sine(2.0).upper == pytest.approx(0.253749, abs=1e-6)
    assert sine(0.0).upper == pytest.approx(TOY_UPPER[0.0])
    assert TOY_UPPER[2.0] < 0, "which a sum of squares can't be"


def test_the_page_states_the_corrected_optimum(results):
    assert "0.253749 for a = 2" in results.sections[0].ours


def test_a_path_begins_at_its_start_and_keeps_its_distances():
    path = toy.trace(bvfim.CG(), 2.0, (0.0, 3.0), TINY)
    first = path.groupby("start").first()
    assert list(first["x"]) == list(first["y"]) == [0.0, 3.0]
    assert path["F"].to_numpy() == pytest.approx((path["x"] - 2) ** 2 + (path["y"] - 2) ** 2)
    assert path["f"].to_numpy() == pytest.approx((path["x"] + path["y"]).map(math.sin))
    assert path.groupby("start")["gradients"].first().eq(0).all()


def test_lower_paths_are_the_iterates_of_the_methods():
    problem, at = sine(0.0).problem, torch.tensor([3.0], dtype=torch.float64)
    paths = toy.lower_paths(TINY, {name: part() for name, part in toy.parts(TINY).items() if "figure1" in name})
    first = paths[paths["x"] == "first"].set_index(["method", "t"])
    one = bvfim.RHG(steps=7)
    expected = one.estimate(problem, at, one.init(problem, at, at), 0, None)[1].y
    assert first.loc[("RHG", 7), "y"] == pytest.approx(float(expected), abs=1e-14)
    assert len(first.loc["RHG"]) == len(first.loc["CG"]) == 101
    assert len(first.loc["BVFIM, printed"]) == 26
    assert first.loc[("CG", 0), "to S(x)"] == pytest.approx(abs(6 + math.pi / 2 - 2 * math.pi), abs=1e-12)
    assert first.loc[("CG", 0), "to y*"] == pytest.approx(3 + math.pi / 4)


def test_twice_the_same_numbers_and_resumed_the_same(tmp_path):
    once, resumed = toy.run(TINY, How(tmp_path)), toy.run(TINY, How(tmp_path, resume=True))
    for name, table in toy.run(TINY).tables.items():
        pd.testing.assert_frame_equal(table, once.tables[name], check_exact=True)
        pd.testing.assert_frame_equal(table, resumed.tables[name], check_exact=True)


@pytest.mark.parametrize("a", [0.0, 2.0, -1.0, 3.5])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_the_known_optimum_is_the_best_point_of_a_grid(a, n):
    problem = sine(a, n, c=0.3)
    x, y = problem.x, problem.y
    assert float(problem.problem.upper(x, y)) == pytest.approx(problem.upper, abs=1e-12)
    assert float(problem.problem.lower(x, y)) == pytest.approx(problem.lower)
    # Lower solutions at a grid x have every x + y_i - c in the wells -pi/2 + 2 k pi; by symmetry one well for all.
    grid = torch.linspace(-12, 12, 24001).double()
    for k in range(-6, 7):
        well = -math.pi / 2 + 2 * math.pi * k
        F = (grid - a) ** 2 + n * (well + 0.3 - grid - a - 0.3) ** 2
        assert float(F.min()) >= problem.upper - 1e-6
