"""Training y anew at a fixed x, and what a Solution says about its y."""

from __future__ import annotations

import math

import pytest
import torch

import bvfim
from bvfim.core.refit import doubted
from tests.problems import quadratic

DOUBLE = torch.float64


def test_without_batches_it_is_the_minimiser():
    q = quadratic(3, 4)
    x = torch.ones(3, dtype=DOUBLE)
    found = bvfim.refit(q.problem, x, torch.zeros(4, dtype=DOUBLE))
    assert (found.y - q.response(x)).abs().max() < 1e-6
    assert found.upper == pytest.approx(float(q.problem.upper(x, found.y)))
    assert found.lower == pytest.approx(float(q.problem.lower(x, found.y)))


def test_with_batches_it_finds_the_minimiser_of_their_mean():
    problem = bvfim.Problem(lambda x, y: (y**2).sum(), lambda x, y, e: ((y - x - e) ** 2).sum())
    x = torch.ones(2, dtype=DOUBLE)
    found = bvfim.refit(problem, x, 0 * x, batches=[-0.2, 0.2], steps=400)
    assert (found.y - 1).abs().max() < 0.02
    assert found.lower == pytest.approx(0.08, abs=0.01)


def test_an_optimiser_of_ones_own_and_sets():
    problem = bvfim.Problem(lambda x, y: (y**2).sum(), lambda x, y: ((y - x) ** 2).sum(), y_set=bvfim.Ball(1.0))
    x = torch.full((2,), 3.0, dtype=DOUBLE)
    found = bvfim.refit(problem, x, 0 * x, optimizer=lambda p: torch.optim.SGD(p, 0.1), steps=200)
    assert found.y.norm().item() == pytest.approx(1.0, abs=1e-9)


def test_the_inputs_stay_as_they_are():
    problem = bvfim.Problem(lambda x, y: (y**2).sum(), lambda x, y: ((y - x) ** 2).sum())
    x, y = torch.ones(1), torch.zeros(1)
    bvfim.refit(problem, x, y)
    assert y.item() == 0
    with pytest.raises(bvfim.MethodError, match="steps"):
        bvfim.refit(problem, x, y, steps=-1)


def test_a_solution_tells_how_far_its_y_is_from_the_lower_level():
    """A plain penalty of weight 1 leaves y between the two levels: F of the run lies below what x can attain."""
    problem = bvfim.Problem(lambda x, y: ((x - 2) ** 2 + (y - 2) ** 2).sum(), lambda x, y: ((y - x + 1) ** 2).sum())
    start = torch.zeros(1, dtype=DOUBLE)
    method = bvfim.BVFIM(mu1=0.0, theta=0.0, mu2=bvfim.LowerValue(weight=1.0), z_lr=0.1, y_lr=0.1)
    found = bvfim.solve(problem, start, start, method, steps=200)
    gap = (found.y - found.x + 1).item() ** 2
    assert found.lower_gap == pytest.approx(gap, rel=1e-6)
    assert gap > 0.05
    assert found.upper_refit == pytest.approx((found.x.item() - 2) ** 2 + (found.x.item() - 3) ** 2, rel=1e-6)
    assert found.upper < found.upper_refit
    assert "refit" in str(found)


def test_it_costs_at_most_a_tenth_and_is_not_counted():
    calls = []

    def lower(x, y):
        calls.append(1)
        return ((y - x) ** 4).sum() + ((y - x) ** 2).sum()

    problem = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum(), lower)
    start = torch.zeros(20, dtype=DOUBLE)
    runs = {}
    for refit in (False, True):
        calls.clear()
        found = bvfim.solve(problem, start, start, bvfim.RHG(steps=20, lr=0.1), steps=20, refit=refit)
        runs[refit] = len(calls), found
    assert runs[True][0] <= 1.1 * runs[False][0]
    assert runs[True][1].evaluations == runs[False][1].evaluations
    assert torch.equal(runs[True][1].x, runs[False][1].x)
    assert math.isnan(runs[False][1].lower_gap)
    assert not math.isnan(runs[True][1].lower_gap)


def test_with_batches_both_values_are_of_the_same_draws():
    torch.manual_seed(0)
    problem = bvfim.Problem(lambda x, y, e: ((y - 1 - e) ** 2).sum(), lambda x, y, e: ((y - x - e) ** 2).sum())
    start = torch.zeros(1, dtype=DOUBLE)
    found = bvfim.solve(problem, start, start, steps=600, batches=list(0.1 * torch.randn(100, dtype=DOUBLE)))
    assert abs(found.upper_refit) < 0.2
    assert abs(found.lower_gap) < 0.2


def test_doubts_name_what_stands_against_a_result():
    assert doubted(1.0, 1.001, 1.1, 2.0, alone=False) == ()
    slack, several, wells = doubted(0.5, 1.0, 3.0, 2.0, alone=True)
    assert "0.5 there and 1 after a refit" in slack
    assert "RHG(start='restart')" in several
    assert "AdaptiveBVFIM" in wells
    (own,) = doubted(3.0, 1.0, 3.0, 2.0, alone=False)
    assert "several solutions" not in own, "where z is y it tells nothing"
    assert doubted(4e-17, 3.5e-17, 4e-17, 1.0, alone=False) == (), "rounding is not worth a word"


def test_random_objectives_draw_the_same_for_each_y():
    problem = bvfim.Problem(lambda x, y: (y**2).sum(), lambda x, y, _: ((y - x) ** 2).sum() + torch.randn(()))
    x = torch.ones(1, dtype=DOUBLE)
    found = bvfim.solve(problem, x, 0 * x, batches=[0.0], steps=400)
    assert abs(found.lower_gap) < 0.2


def test_a_run_on_a_lower_level_with_wells_says_that_it_is_not_there():
    toy = bvfim.testproblems.sine(2)
    noise = list(0.1 * torch.randn(300, dtype=DOUBLE, generator=torch.Generator().manual_seed(0)))
    noisy = bvfim.Problem(toy.problem.upper, lambda x, y, e: toy.problem.lower(x, y) + e * y.sum())
    for x, y in ((-6.0, -3.0), (3.0, 6.0)):
        found = bvfim.solve(noisy, torch.tensor([x], dtype=DOUBLE), torch.tensor([y], dtype=DOUBLE), batches=noise)
        assert abs(found.x.item() - toy.x.item()) < 0.05 or len(found.doubts) > 1
        assert all(doubt in str(found) for doubt in found.doubts)
