"""The distance from where constraints hold, against closed forms, and the lower level under constraints."""

from __future__ import annotations

import math

import pytest
import torch

import bvfim
from bvfim.testproblems import collection, constrained, coupled, judged, lower_gap, pessimistic, starts
from bvfim.testproblems.base import TestProblem, vector
from bvfim.testproblems.feasible import distance, nearest
from bvfim.testproblems.judge import apart, best_upper, constrained_minima, worst_upper

BY_NAME = {test.name: test for test in constrained()}


def problem(g=None, h=None, **given):
    def F(x, y):
        return (x**2).sum() + (y**2).sum()

    return bvfim.Problem(F, F, lower_constraints=g, lower_equalities=h, **given)


DISC = problem(lambda x, y: x**2 + y**2 - 1)
CORNER = problem(lambda x, y: torch.cat([x - 1, y - 1]))
LINE = problem(h=lambda x, y: x + y)


@pytest.mark.parametrize(
    ("given", "x", "y", "expected"),
    [
        (DISC, 3.0, 4.0, 4.0),
        (DISC, 0.6, 0.8 + 1e-7, 0.8e-7),
        (DISC, 0.1, 0.2, 0.0),
        (CORNER, 4.0, 5.0, 5.0),  # the largest violation is 4: both have to hold at once
        (CORNER, 0.0, 1.5, 0.5),
        (LINE, 1.0, 1.0, math.sqrt(2)),
        (LINE, -1.0, 1.0 - 1e-5, 1e-5 / math.sqrt(2)),
        (problem(lambda x, y: x + y, x_set=bvfim.Box(0.0, 1.0)), 0.0, 2.0, 2.0),  # x can't give way
        (problem(lambda x, y: y**2), 5.0, 1e-2, 1e-2),
        (problem(lambda x, y: y**4), 5.0, 1e-2, 1e-2),
        (problem(h=lambda x, y: x * y), 1e-3, 2e-3, 1e-3),  # a cross, whose gradient vanishes at its centre
    ],
)
@pytest.mark.parametrize("units", [1e-4, 1.0, 1e4])
def test_a_violation_is_a_distance(given, x, y, expected, units):
    kind = given.stated[0]
    function = getattr(given, kind)
    scaled = bvfim.Problem(given.upper, given.lower, x_set=given.x_set, **{kind: lambda x, y: units * function(x, y)})
    found = distance(scaled, vector(x), vector(y))
    # y^2 and y^4 hold to rounding where y is a millionth, and a thousandth.
    assert found == pytest.approx(expected, rel=1e-4, abs=1.2e-3 if expected == 1e-2 else 2e-9)


@pytest.mark.parametrize(
    ("angle", "low", "high"),
    [
        (0.3, 0.0, 0.0),
        (0.8, math.sin(0.8 - math.pi / 4), math.sin(0.8 - math.pi / 4)),
        (1.2, math.sin(1.2 - math.pi / 4), math.sin(1.2 - math.pi / 4)),
        (math.pi / 2, math.sqrt(0.5), math.sqrt(0.5)),
        (2.0, math.sin(2.0 - math.pi / 4), 1.0),  # the cusp is almost as near as the wedge's side
        (2.5, 1.0, 1.0),
    ],
)
def test_at_a_cusp_the_distance_is_that_of_its_wedge(angle, low, high):
    test, r = BY_NAME["NieWangYe2017Ex34"], 1e-3  # near zero its lobe is the wedge |y2| <= y1
    found = distance(test.problem, test.x, r * vector(math.cos(angle), math.sin(angle))) / r
    assert low - 5e-3 <= found <= high + 5e-3


def test_where_nothing_holds_the_distance_is_infinite():
    never = problem(lambda x, y: torch.cat([1 - y, y + 1]))
    assert nearest(never, vector(0.0), vector(0.0)) is None
    assert distance(never, vector(0.0), vector(0.0)) == math.inf
    assert distance(problem(lambda x, y: (y - 2).log()), vector(0.0), vector(0.0)) == math.inf


def test_without_constraints_there_is_no_violation():
    assert distance(problem(), vector(1.0), vector(2.0)) == 0.0


def test_the_distance_is_never_above_the_way_to_an_optimum():
    torch.manual_seed(0)
    for test in list(BY_NAME.values())[::4]:
        for size in (1e-4, 1e-1):
            x = test.problem.project_x(test.x + size * torch.randn_like(test.x))
            y = test.problem.project_y(test.y + size * torch.randn_like(test.y))
            way = float(torch.cat([x - test.x, y - test.y]).norm())
            assert distance(test.problem, x, y) <= way * (1 + 1e-6) + 1e-8


@pytest.mark.parametrize("x", [1.5, 3.0, 9.0])
def test_the_lower_level_under_a_constraint(x):
    test = BY_NAME["Dempe1992b_boxed"]  # (y - 3)^2 where 1 <= y <= sqrt(x)
    y, f = min(constrained_minima(test.problem, vector(x), [vector(1.0), vector(8.0)]), key=lambda pair: pair[1])
    assert float(y) == pytest.approx(math.sqrt(x), abs=1e-6)
    assert f == pytest.approx((math.sqrt(x) - 3) ** 2, abs=1e-6)


def test_the_lower_minimum_is_found_among_two():
    # y^3 - 3 y on [-2.1, 2]: the end at -2.1 is lower than the minimum at 1.
    two = bvfim.Problem(
        lambda x, y: y.sum(), lambda x, y: (y**3 - 3 * y).sum(),
        lower_constraints=lambda x, y: torch.cat([-2.1 - y + 0 * x, y - 2]),
    )  # fmt: skip
    test = TestProblem("two", "", two, vector(0.0), vector(1.0), 0.0, 0.0)
    assert lower_gap(test, test.x, test.y) == pytest.approx(-2 + 2.1**3 - 6.3, abs=1e-6)


@pytest.mark.long
def test_a_y_out_by_a_hair_has_no_negative_gap_and_no_infinite_one():
    test = BY_NAME["Dempe1992b"]  # at x = 0 one y is left, and none below
    for off in (1e-5, 3e-5):
        found = judged(test, test.x - off, test.y + off)
        assert off < found.violation < 2 * off
        assert 0 <= found.gap < 1e-3
    far = judged(test, test.x - 1, test.y)
    assert far.violation > 0.5
    assert not far.is_feasible()


def test_the_judge_refuses_each_way_to_be_wrong():
    test = BY_NAME["LamparielloSagratella2017Ex31"]  # min x^2 + y^2, y the least that is at least 1 - x, x >= 1
    assert judged(test, test.x, test.y).is_solution(test.upper)
    violated = judged(test, test.x, test.y - 1e-3)
    assert violated.violation == pytest.approx(1e-3 / math.sqrt(2), rel=1e-3)
    assert not violated.is_feasible()
    above = judged(test, test.x, test.y + 0.05)
    assert above.violation == 0
    assert above.gap == pytest.approx(0.05, abs=1e-6)
    assert not above.is_solution(test.upper)
    elsewhere = judged(test, test.x + 0.5, test.y - 0.5)
    assert elsewhere.is_feasible()
    assert not elsewhere.is_solution(test.upper)
    assert not elsewhere.is_too_low(test.upper)


@pytest.mark.long
@pytest.mark.parametrize("name", ["MitsosBarton2006Ex322", "YeZhu2010Ex42", "NieWangYe2017Ex61", "NieWangYe2017Ex34"])
def test_no_point_of_a_grid_is_below_the_lower_minimum(name):
    """The lower levels that are not convex, at x from all over."""
    test = {test.name: test for test in [*constrained(), *coupled()]}[name]
    count = {1: 20001, 2: 201}[len(test.y)]
    axes = [torch.linspace(-2.5, 2.5, count, dtype=torch.float64)] * len(test.y)
    grid = test.problem.project_y(torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).flatten(0, -2))
    for x, y in starts(test, 3, seed=1):
        f = torch.func.vmap(lambda y, x=x: test.problem.lower(x, y))(grid)
        g = torch.func.vmap(lambda y, x=x: test.problem.lower_constraints(x, y).reshape(-1).amax())(grid)
        found = constrained_minima(test.problem, x, [y, *(other for _, other in starts(test, 16, seed=2))])
        least = f[g <= 0].min() if (g <= 0).any() else math.inf
        assert min((value for _, value in found), default=math.inf) <= least + 1e-6


def test_an_optimist_gets_the_best_of_what_a_pessimist_gets_the_worst_of():
    test, one = pessimistic()[0], torch.ones(1, dtype=torch.float64)  # any y of [0, 1] follows at x = 1, and F = y
    assert best_upper(test, one) == pytest.approx(0.0, abs=1e-6)
    assert worst_upper(test, one, 0 * one) == pytest.approx(1.0, abs=1e-6)


def test_an_f_that_no_y_changes_is_what_an_optimist_gets():
    test = next(test for test in collection() if test.name == "DempeEtal2012")  # F = x
    x = torch.tensor([0.25], dtype=torch.float64)
    assert best_upper(test, x) == 0.25


def test_minima_that_are_one_are_searched_from_once():
    points = [torch.tensor([value], dtype=torch.float64) for value in (0.0, 1e-7, 1.0, 1.0 + 1e-7)]
    assert [float(point) for point in apart(points)] == [0.0, 1.0]
