"""What every method says of its result: the gap of its lower level, F after a refit, and whether F uses the slack."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

import bvfim
from bvfim.app.problem_file import Stated
from bvfim.app.problem_file_report import results
from bvfim.status import Status

ZERO = torch.zeros(1, dtype=torch.float64)
PULLED = bvfim.Problem(lambda x, y: ((x - 2) ** 2 + (y - 2) ** 2).sum(), lambda x, y: ((y - x + 1) ** 2).sum())


@pytest.mark.parametrize(
    "method", [m for m in bvfim.methods.ALL if "optimistic" in m.followers], ids=lambda m: m.__name__
)
def test_every_method_prints_its_gap_and_its_refit(method):
    found = bvfim.solve(PULLED, ZERO, ZERO, method, steps=20)
    assert found.lower_gap >= 0
    assert found.upper_refit == pytest.approx(float(PULLED.upper(found.x, found.x - 1)), rel=1e-3)
    refit = f"({found.lower_gap:.2g} above a refit, where F = {found.upper_refit:.6g})"
    assert f"f = {found.lower:.6g} {refit}" in str(found)


def slack():
    """Three short lower steps from a y that F likes: f is far from its minimum, and F lower than it may be."""
    return bvfim.solve(PULLED, ZERO, ZERO + 2, bvfim.RHG(3, 1e-3, start="restart"), steps=30)


def test_a_result_that_uses_the_slack_of_the_lower_level_says_so():
    found = slack()
    assert found.uses_slack
    assert found.upper < found.upper_refit
    assert "F uses the slack of the lower level: F is" in str(found)
    solved = bvfim.solve(PULLED, ZERO, ZERO, bvfim.CG(100, 0.2), steps=20)
    assert not solved.uses_slack
    assert "slack" not in str(solved)


def test_the_table_of_compare_has_the_three():
    methods = {"short": bvfim.RHG(3, 1e-3, start="restart"), "long": bvfim.CG(100, 0.2)}
    table = bvfim.compare(PULLED, methods, ZERO, ZERO + 2, steps=30)
    assert table["uses_slack"].to_dict() == {"short": True, "long": False}
    assert table["upper_refit"]["short"] == pytest.approx(slack().upper_refit, rel=1e-6)
    assert table["lower_gap"]["short"] == pytest.approx(slack().lower_gap, rel=1e-6)


def test_the_table_of_compare_has_them_with_batches():
    noisy = bvfim.Problem(PULLED.upper, lambda x, y, e: ((y - x + e) ** 2).sum())
    table = bvfim.compare(noisy, [bvfim.StochasticBVFIM()], ZERO, ZERO, steps=600, batches=[0.9, 1.1])
    assert table[["lower_gap", "upper_refit"]].map(math.isfinite).all(axis=None)


def test_the_page_of_a_solve_has_the_three():
    stated = Stated(Path("a.py"), PULLED, ZERO, ZERO)
    found = slack()
    page = results(stated, found)
    rows = page.tables["solution"]["value"]
    assert rows["lower-level gap"] == f"{found.lower_gap:.3g}"
    assert rows["F after a refit"] == f"{found.upper_refit:.6g}"
    assert rows["F uses the slack of the lower level"] == "yes"
    assert page.summary["uses_slack"] is True


def test_a_run_that_was_not_refitted_says_so():
    found = bvfim.solve(PULLED, ZERO, ZERO, bvfim.RHG(), steps=2, refit=False)
    assert "(its gap not measured)" in str(found)
    page = results(Stated(Path("a.py"), PULLED, ZERO, ZERO), found)
    assert page.tables["solution"]["value"]["F after a refit"] == "not measured"
    assert found.status is Status.MAX_STEPS
