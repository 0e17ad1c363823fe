"""The known optima are optima: tested by a grid where y is a scalar, and by their own values everywhere."""

from __future__ import annotations

import math

import pytest
import torch

import bvfim
from bvfim.testproblems import collection, lower_gap, solved, starts

PROBLEMS = {test.name: test for test in collection()}


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_optimum_is_feasible_and_has_its_values(name):
    test = PROBLEMS[name]
    F, f = test.problem.at(test.x).values(test.y)
    assert float(F) == pytest.approx(test.upper, abs=1e-9)
    assert float(f) == pytest.approx(test.lower, abs=1e-9)
    assert torch.allclose(test.problem.project_x(test.x), test.x)
    assert torch.allclose(test.problem.project_y(test.y), test.y)
    assert lower_gap(test, test.x, test.y, samples=16) < 1e-8
    assert solved(test, test.x, test.y)


SCALAR = [name for name, test in PROBLEMS.items() if test.x.numel() == test.y.numel() == 1]


@pytest.mark.parametrize("name", SCALAR)
def test_no_point_of_a_grid_is_better(name):
    """phi(x) = min { F(x, y) : f(x, y) <= min f(x, .) + slack } on a fine grid of y, for each x of a grid."""
    test = PROBLEMS[name]
    (x_low, x_high), (y_low, y_high) = (
        (-12.0, 12.0) if box is None else (float(box.lower), float(box.upper))
        for box in (test.problem.x_set, test.problem.y_set)
    )
    xs = torch.linspace(x_low, x_high, 481, dtype=torch.float64)
    reach = 620.0 if name == "MacalHurter1997" else 1.0  # y* = 50 x - 500 leaves every smaller grid
    ys = torch.linspace(y_low * reach, y_high * reach, 40001, dtype=torch.float64)
    best = math.inf
    for x in xs:
        f = torch.func.vmap(lambda y, x=x: test.problem.lower(x[None], y[None]))(ys)
        F = torch.func.vmap(lambda y, x=x: test.problem.upper(x[None], y[None]))(ys)
        near = f <= f.min() + 1e-7 * (1 + f.abs().max())
        best = min(best, float(F[near].min()))
    # A grid in x misses the optimum by at most its own width, and can't be better than it.
    assert best >= test.upper - 2e-2 * (1 + abs(test.upper))
    assert best <= test.upper + 0.3 * (1 + abs(test.upper))


def test_starts_lie_in_the_boxes_and_follow_the_seed():
    for test in PROBLEMS.values():
        drawn = starts(test, 6, seed=3)
        assert len(drawn) == 6
        for (x, y), (again, _) in zip(drawn, starts(test, 6, seed=3), strict=True):
            assert torch.equal(x, again)
            assert torch.equal(test.problem.project_x(x), x)
            assert torch.equal(test.problem.project_y(y), y)
            assert x.abs().max() <= 10
        assert not torch.equal(drawn[0][0], starts(test, 6, seed=4)[0][0])


def test_a_wrong_answer_is_not_solved():
    toy = bvfim.testproblems.sine(2)
    assert not solved(toy, toy.x + 0.2, toy.y)
    # F is right by accident, but y is no lower solution there.
    offset = math.sqrt(toy.upper / 2)
    assert not solved(toy, torch.tensor([2 - offset]).double(), torch.tensor([2 - offset]).double())
