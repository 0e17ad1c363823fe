"""Whole runs over sets that are no boxes, against closed forms; and the same bits as ever on boxes."""

from __future__ import annotations

import warnings

import pytest
import torch

import bvfim
from bvfim import sets
from bvfim.core.refit import worth

D = torch.float64


def tensor(*values):
    return torch.tensor(values, dtype=D)


def in_half_space(v):
    """Of { v : 3 v_0 + 4 v_1 <= 5 }."""
    normal = torch.tensor([3.0, 4.0], dtype=v.dtype) / 5
    return v - normal * (normal @ v - 1).clamp_min(0)


def on_simplex(weights, target):
    """argmin over the simplex of sum w (v - target)^2, from its multiplier by bisection."""
    low, high = -100.0, 100.0
    for _ in range(200):
        middle = (low + high) / 2
        v = (target - middle / (2 * weights)).clamp_min(0)
        low, high = (middle, high) if v.sum() > 1 else (low, middle)
    return v


ONES, WEIGHTS, TARGET = torch.ones(2, dtype=D), tensor(1, 4, 0.5), tensor(0.2, 0.9, 0.6)
PLACES = {
    "ball": (sets.Ball(1.0), ONES, tensor(3, 1), tensor(3, 1) / 10**0.5),
    "half-space": (sets.Projected(in_half_space), ONES, tensor(2, 2), in_half_space(tensor(2, 2))),
    "simplex": (sets.Simplex(), WEIGHTS, TARGET, on_simplex(WEIGHTS, TARGET)),
    "product": (
        sets.Product([2, 3], [sets.Ball(1.0), sets.Simplex()]),
        torch.cat([ONES, WEIGHTS]),
        torch.cat([tensor(3, 1), TARGET]),
        torch.cat([tensor(3, 1) / 10**0.5, on_simplex(WEIGHTS, TARGET)]),
    ),
}
"""A set, the weights and the target of a distance to be made small, and the nearest point."""


def leading(name):
    """F = sum w (y - target)^2, f = |y - x|^2 with x in the set, a start and the optimum."""
    own, weights, target, best = PLACES[name]
    problem = bvfim.Problem(
        lambda x, y: (weights * (y - target) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum(), x_set=own
    )
    return problem, own.project(0 * target), best


def following(name, **options):
    """f = sum w (y - x)^2 with y in the set, x that stays near the target, and the minimiser of f there."""
    own, weights, target, best = PLACES[name]
    problem = bvfim.Problem(
        lambda x, y: ((x - target) ** 2).sum() + 0 * y.sum(),
        lambda x, y: (weights * (y - x) ** 2).sum(),
        y_set=own,
        **options,
    )
    return problem, target, own.project(0 * target), best


def noisy(problem):
    """The same with batches, whose noise has mean zero."""
    return bvfim.Problem(
        lambda x, y, e: problem.upper(x, y), lambda x, y, e: problem.lower(x, y) + e * y.sum(), problem.x_set,
        problem.y_set,
    )  # fmt: skip


BATCHES = [0.1, -0.1]


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize(
    "method", [bvfim.CG(10, 0.4, cg_steps=3), bvfim.RHG(10, 0.4), bvfim.F2SA(nu=0.01, steps=10, lr=0.3)]
)
def test_the_default_optimiser_of_x_ends_at_the_optimum(name, method):
    problem, start, best = leading(name)
    found = bvfim.solve(problem, start, start, method, steps=400, refit=False)
    assert (found.x - best).norm() < 1e-3


def test_its_steps_go_to_zero_where_the_optimum_lies_inside():
    problem = bvfim.Problem(
        lambda x, y: ((y - 0.3) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum(), x_set=sets.Ball(1.0)
    )
    found = bvfim.solve(problem, 0 * ONES, 0 * ONES, bvfim.CG(10, 0.4, cg_steps=3), steps=300)
    assert (found.x - 0.3).norm() < 1e-6
    assert found.upper < 1e-10


@pytest.mark.parametrize("name", PLACES)
def test_the_single_loop_ends_at_the_optimum_of_x(name):
    problem, start, best = leading(name)
    found = bvfim.solve(problem, start, start, bvfim.StochasticBVFIM(), steps=1000)
    assert (found.x - best).norm() < 0.03
    found = bvfim.solve(noisy(problem), start, start, steps=1000, batches=BATCHES)
    assert (found.x - best).norm() < 0.3  # with batches y has slack, which comes down like one over the steps


@pytest.mark.parametrize("name", PLACES)
def test_the_single_loop_ends_at_the_lower_level_solution(name):
    problem, x, start, _ = following(name)
    for own, batches, near in ((problem, None, 1e-5), (noisy(problem), BATCHES, 0.01)):
        for method in (bvfim.StochasticBVFIM(), bvfim.StochasticBVFIM(multiplier=100.0)):
            found = bvfim.solve(own, x, start, method, steps=600, batches=batches)
            there = bvfim.refit(problem, found.x, start).y
            assert (found.y - there).norm() < near
            assert (found.z - there).norm() < near
            assert 0 <= found.lower_gap < near**2 * 100


@pytest.mark.parametrize("name", PLACES)
def test_a_refit_ends_at_the_lower_level_solution(name):
    problem, x, start, best = following(name)
    found = bvfim.refit(problem, x, start)
    assert (found.y - best).norm() < 1e-6
    assert found.lower == pytest.approx(float(problem.lower(x, best)), abs=1e-10)
    assert (bvfim.refit(noisy(problem), x, start, batches=BATCHES, steps=300).y - best).norm() < 0.01


def test_compare_refits_in_any_set():
    problem, x, start, best = following("ball")
    table = bvfim.compare(problem, [bvfim.RHG(1, 0.01)], x, start, steps=2)
    gap = float(table["lower"].iloc[0] - problem.lower(x, best))
    assert table["lower_gap"].iloc[0] == pytest.approx(gap, rel=1e-3)


def test_constraints_and_a_set_that_is_no_box_go_together():
    """min |y - x|^2 over the unit ball with y_1 <= 0.2: the closed form has both active."""
    problem, x, start, _ = following("ball", lower_constraints=lambda x, y: y[1:] - 0.2)
    found = bvfim.refit(problem, x, start)
    assert torch.allclose(found.y, tensor(0.96**0.5, 0.2), atol=1e-4)


def told(run):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        run()
    return [str(w.message) for w in seen if issubclass(w.category, bvfim.BvfimWarning)]


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.01)


def test_an_optimiser_that_scales_each_entry_gets_a_warning_where_the_set_is_no_box():
    problem, start, _ = leading("ball")
    boxed = bvfim.Problem(problem.upper, problem.lower, x_set=sets.Product([1, 1], [sets.Box(0, 1), None]))
    quick, single = bvfim.CG(2, 0.4, cg_steps=1), bvfim.StochasticBVFIM()
    for factory in (adam, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.Rprop, torch.optim.Adagrad):
        (message,) = told(lambda f=factory: bvfim.solve(problem, start, start, quick, f, steps=2))
        assert message.startswith("x_set: ")
        assert "bvfim.OneScale" in message
        assert not told(lambda f=factory: bvfim.solve(boxed, start, start, quick, f, steps=2))
    for factory in (None, bvfim.OneScale, lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)):
        assert not told(lambda f=factory: bvfim.solve(problem, start, start, quick, f, steps=2))
    assert len(told(lambda: bvfim.solve(problem, start, start, single, adam, steps=2))) == 1
    assert len(told(lambda: bvfim.solve_many(problem, start[None], start[None], quick, 2, optimizer=adam))) == 1
    assert not told(lambda: bvfim.solve_many(problem, start[None], start[None], quick, 2))


def test_so_does_one_for_y():
    problem, x, start, _ = following("ball")
    single = bvfim.StochasticBVFIM(y_optimizer=adam)
    dynamic = bvfim.RHG(2, dynamics=bvfim.dynamics.Adam())
    for run in (
        lambda: bvfim.solve(problem, x, start, single, steps=2),
        lambda: bvfim.solve(problem, x, start, dynamic, steps=2),
        lambda: bvfim.refit(problem, x, start, optimizer=adam, steps=2),
    ):
        (message,) = told(run)
        assert message.startswith("y_set: ")


@pytest.mark.parametrize("method", [bvfim.CG(2, 0.4, cg_steps=1), bvfim.StochasticBVFIM()])
def test_a_run_goes_on_bit_for_bit_from_a_saved_state(method):
    problem = bvfim.Problem(
        lambda x, y: ((y - 2) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum(), sets.Ball(1.0), sets.Ball(0.9)
    )
    whole, again = (bvfim.Stepper(problem, 0 * ONES.float(), 0 * ONES.float(), method, steps=20) for _ in range(2))
    for _ in range(10):
        whole.step()
    again.load_state_dict(whole.state_dict())
    for stepper in (whole, again):
        for _ in range(10):
            stepper.step()
    assert torch.equal(whole.x, again.x)
    assert torch.equal(whole.y, again.y)


def test_boxes_have_the_steps_of_adam():
    problem = bvfim.Problem(
        lambda x, y: ((y - 2) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum(), {"a": sets.Box(0, 1), "b": None}
    )
    problem = bvfim.Problem(
        lambda x, y: ((y - 2) ** 2).sum(), lambda x, y: ((y - x["a"] - x["b"]) ** 2).sum(), problem.x_set
    )
    x, quick = {"a": 0 * ONES, "b": 0 * ONES}, bvfim.CG(5, 0.4, cg_steps=2)
    by_default, by_hand = (bvfim.solve(problem, x, 0 * ONES, quick, factory, steps=20) for factory in (None, adam))
    assert torch.equal(by_default.x["a"], by_hand.x["a"])
    assert torch.equal(by_default.x["b"], by_hand.x["b"])


def test_a_refit_that_ends_above_y_tells_nothing():
    problem, x, start, _ = following("ball")
    found = bvfim.solve(problem, x, start, bvfim.RHG(5, 0.1), steps=5, refit=False)
    judged = worth(found, [2.0, 1.0], [3.0, 1.3], 2.0)
    assert (judged.lower_gap, judged.upper_refit, judged.uses_slack, judged.doubts) == (0.0, 2.0, False, ())
    assert worth(found, [2.0, 1.0], [3.0, 0.7], 3.0).lower_gap == pytest.approx(0.3)


def test_which_sets_move_entries_one_by_one():
    box, ball = sets.Box(0, 1), sets.Ball(1.0)
    for own in (None, box, {"a": box, "b": [None, box]}, sets.Product([1, 2], [box, None])):
        assert sets.entrywise(own)
    for own in (ball, sets.Simplex(), {"a": box, "b": [None, ball]}, sets.Product([1, 2], [box, ball])):
        assert not sets.entrywise(own)
