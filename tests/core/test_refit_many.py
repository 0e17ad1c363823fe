"""What the y of each of many starts is worth, in one batch as alone."""

from __future__ import annotations

import math

import pytest
import torch

import bvfim
from bvfim.core import refit_many

D = torch.float64
STARTS = torch.linspace(-1, 1, 4, dtype=D)[:, None] + torch.arange(2, dtype=D)


def problem(**options):
    return bvfim.Problem(
        lambda x, y: ((y - 1) ** 2).sum() + (x**2).sum(),
        lambda x, y: (torch.cosh(y - x) + 0.1 * y**2).sum(),
        **options,
    )


def by_hand():
    """Objectives that torch.func.vmap can't map: they ask for a value."""

    def lower(x, y):
        return (torch.cosh(y - x) + 0.1 * y**2).sum() if float(y.sum()) < 1e9 else y.sum()

    return bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum() + (x**2).sum(), lower)


@pytest.mark.parametrize("method", [bvfim.BVFIM(5, 5), bvfim.RHG(5, 0.1), bvfim.CG(5, 0.1)])
@pytest.mark.parametrize("made", [problem, by_hand, lambda: problem(y_set=bvfim.Box(-0.5, 0.4))])
@pytest.mark.filterwarnings("ignore")  # the starts can't run in one batch, or lie outside
def test_the_figures_are_those_of_single_solves(method, made):
    many = bvfim.solve_many(made(), STARTS, STARTS, method, steps=20)
    for start, found in zip(STARTS, many, strict=True):
        alone = bvfim.solve(made(), start, start, method, steps=20)
        assert found.lower_gap == pytest.approx(alone.lower_gap, abs=1e-12)
        assert found.upper_refit == pytest.approx(alone.upper_refit, rel=1e-6)
        assert found.upper_z == pytest.approx(alone.upper_z, rel=1e-9)
        assert (found.uses_slack, found.doubts == ()) == (alone.uses_slack, alone.doubts == ())


def test_the_interior_point_has_them_too():
    for found in bvfim.solve_many(problem(), STARTS, STARTS):
        assert 0 <= found.lower_gap < 1e-6
        assert found.upper_refit == pytest.approx(found.upper, rel=1e-3)


def test_it_can_be_switched_off_and_is_counted_apart():
    without = bvfim.solve_many(problem(), STARTS, STARTS, bvfim.RHG(5, 0.1), steps=5, refit=False)
    judged = bvfim.solve_many(problem(), STARTS, STARTS, bvfim.RHG(5, 0.1), steps=5)
    assert all(math.isnan(found.lower_gap) for found in without)
    assert [found.evaluations for found in without] == [found.evaluations for found in judged]
    with pytest.raises(bvfim.MethodError, match="refit"):
        bvfim.solve_many(problem(), STARTS, STARTS, bvfim.RHG(5, 0.1), steps=5, refit="yes")


def test_starts_that_broke_off_stay_as_they_are():
    runaway = bvfim.Problem(lambda x, y: (y**2).sum(), lambda x, y: (x * y).sum() + torch.exp(y).sum())
    xs, ys = -torch.ones(2, 1, dtype=D), torch.tensor([[0.0], [1e3]], dtype=D)
    calm, broken = bvfim.solve_many(runaway, xs, ys, bvfim.RHG(5, 0.1), steps=20)
    assert broken.status is bvfim.Status.NON_FINITE
    assert math.isnan(broken.lower_gap)
    assert math.isfinite(calm.lower_gap)


def test_refits_cost_at_most_a_tenth():
    own = problem()
    found = bvfim.solve_many(own, STARTS, STARTS, bvfim.RHG(5, 0.1), steps=20, refit=False)
    spent = sum(s.evaluations["upper"] + s.evaluations["lower"] + 2 * s.evaluations["hvp"] for s in found)
    calls = []
    counting = bvfim.Problem(own.upper, lambda x, y: calls.append(len(x)) or own.lower(x, y))
    refit_many.judged_together(counting, found)
    assert 0 < len(calls) * len(STARTS) <= 0.1 * spent + 10 * len(STARTS)  # a mapped call is one for each start
