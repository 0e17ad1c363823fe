"""The planted optimum is the optimum: below everything that a grid, samples and descents find."""

from __future__ import annotations

import pytest
import torch

import bvfim
from bvfim.core.lower_minimum import lower_minimum
from bvfim.testproblems import planted, planted_family, solved

ARGUMENTS = [(1, 1, 1.0, 0), (3, 1, 3.0, 5), (2, 3, 0.5, 1), (1, 5, 2.0, 2), (5, 2, 0.0, 3)]
every = pytest.mark.parametrize("arguments", ARGUMENTS, ids=lambda a: planted(*a).name)


def lower_solution(arguments, x):
    """phi(x): without wells f(x, .) is a convex quadratic, and the wells do not move its minimum."""
    x_size, y_size, _, seed = arguments
    smooth = planted(x_size, y_size, 0.0, seed)
    return lower_minimum(smooth.problem.at(x), smooth.y)[0]


def samples(size, count, reach=5.0):
    return reach * (2 * torch.rand(count, size, dtype=torch.float64) - 1)


@every
def test_the_optimum_has_its_values_and_is_solved(arguments):
    test = planted(*arguments)
    F, f = test.problem.at(test.x).values(test.y)
    assert float(F) == pytest.approx(test.upper, abs=1e-12)
    assert float(f) == pytest.approx(test.lower, abs=1e-12)
    assert test.x.abs().max() <= 2
    assert solved(test, test.x, test.y)
    assert not solved(test, test.x + 0.5, test.y)


@pytest.mark.parametrize("arguments", [a for a in ARGUMENTS if a[1] == 1])
def test_no_point_of_a_grid_is_lower(arguments):
    test = planted(*arguments)
    ys = torch.linspace(-30, 30, 60001, dtype=torch.float64)[:, None]
    for x in (test.x, *samples(test.x.numel(), 3)):
        y = lower_solution(arguments, x)
        f = test.problem.lower(x, y)
        values = torch.func.vmap(lambda y, x=x: test.problem.lower(x, y))(ys)
        assert values.min() >= f - 1e-12
        assert (ys[values.argmin()] - y).abs() < 2e-3
        far = (ys - y).abs()[:, 0] > 0.5
        assert values[far].min() > f + 0.02, "the lower solution is the only one"


@every
def test_no_sample_and_no_descent_is_lower(arguments):
    test = planted(*arguments)
    for x in (test.x, *samples(test.x.numel(), 2)):
        at = test.problem.at(x)
        points = samples(test.y.numel(), 500, reach=10.0)
        found = at.lower_many(list(points))
        ends = [lower_minimum(at, y, 100)[1] for y in points[found.argsort()[:5]]]
        assert min(ends) >= at.lower(lower_solution(arguments, x)) - 1e-9


@every
def test_no_x_is_better_with_its_lower_solution(arguments):
    test = planted(*arguments)
    near = test.x + samples(test.x.numel(), 20, reach=0.5)
    for x in (*samples(test.x.numel(), 20), *near):
        assert test.problem.upper(x, lower_solution(arguments, x)) > test.upper


@every
def test_leaving_the_lower_solution_would_pay(arguments):
    test = planted(*arguments)
    _, _, in_y = test.problem.at(test.x).upper_grads(test.y)
    assert in_y.norm() > 0.3
    assert test.problem.upper(test.x, test.y - 0.1 * in_y) < test.upper - 0.01


def test_wells_dig_false_minima():
    def minima(wells):
        test = planted(wells=wells, seed=3)
        ys = torch.linspace(-8, 8, 4001, dtype=torch.float64)[:, None]
        f = torch.func.vmap(lambda y: test.problem.lower(test.x, y))(ys)
        return int(((f[1:-1] < f[:-2]) & (f[1:-1] < f[2:])).sum())

    assert minima(0.0) == 1
    assert minima(2.0) > 3


def test_the_seed_says_everything():
    one, other = planted(2, 3, seed=4), planted(2, 3, seed=4)
    point = torch.ones(2).double(), torch.ones(3).double()
    assert torch.equal(one.x, other.x)
    assert one.problem.lower(*point) == other.problem.lower(*point)
    assert one.problem.upper(*point) == other.problem.upper(*point)
    assert not torch.equal(one.x, planted(2, 3, seed=5).x)


def test_a_family_varies():
    family = planted_family(60)
    assert {t.x.numel() for t in family} == {t.y.numel() for t in family} == {1, 2, 3, 4, 5}
    assert len({t.name for t in family}) == 60
    assert [t.name for t in planted_family(7)] == [t.name for t in family[:7]]


def test_a_batch_solves_it():
    test = planted(2, 2, wells=0.5, seed=1)
    xs, ys = (torch.stack(side) for side in zip(*bvfim.testproblems.starts(test, 3, seed=0), strict=True))
    assert any(solved(test, s.x, s.y) for s in bvfim.solve_many(test.problem, xs, ys))
