"""How the single loop's multiplier follows the gap, and what x can and can't gain."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import bvfim
from bvfim.methods.stochastic import HALVED, HEAVIEST, LIGHTEST, LOOSE, SHORTEN, SHORTEST, TIGHTEST, Tracking, pace

DOUBLE = torch.float64
ZERO = torch.zeros(1, dtype=DOUBLE)

numbers = st.floats(-1e6, 1e6, allow_nan=False)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=40), st.booleans())
def test_the_weight_stays_within_its_bounds_and_finite(values, noisy):
    tracking = Tracking()
    for seen in values:
        tracking = tracking.followed(*seen, 100, noisy)
        assert all(math.isfinite(number) for number in tracking)
        assert math.log(LIGHTEST) <= tracking.weight <= math.log(HEAVIEST)
        assert 0 <= tracking.weights(relative=True)["rho"] <= tracking.allowed <= LOOSE


def test_the_allowed_gap_goes_down_like_1_over_k_with_batches_and_geometrically_without():
    noisy = exact = Tracking()
    for _ in range(2 * HALVED):
        noisy = noisy.followed(0.0, 0.0, 1.0, 1000, noisy=True)
        exact = exact.followed(0.0, 0.0, 1.0, 1000, noisy=False)
    assert noisy.allowed == pytest.approx(LOOSE / 3)
    assert exact.allowed == pytest.approx(LOOSE * TIGHTEST ** (2 * HALVED / 1000))


def test_x_waits_while_z_lags_and_the_weight_stays():
    lagging = Tracking().followed(1.0, 2.0, 3.0, 10, noisy=True)
    assert lagging.gap < 0
    assert lagging.weights(relative=True)["moves"] == 0
    assert lagging._replace(step=9.0).followed(1.0, 2.0, 3.0, 10, noisy=True).weight == lagging.weight


def test_the_steps_shorten_while_x_waits_and_z_is_above_its_start():
    """y is above z, z above the start: what trains on f alone makes f larger."""
    seen = (3.0, 2.0, 1.0)
    assert Tracking().followed(*seen, 1000, noisy=True).calm == SHORTEN
    assert Tracking().followed(*seen, 1000, noisy=False).calm == 1
    assert Tracking(step=50.0).followed(*seen, 1000, noisy=True).calm == 1, "x moves: z may lag"
    assert Tracking().followed(1.9, 2.0, 1.0, 1000, noisy=True).calm == 1
    tracking = Tracking()
    for _ in range(50):
        tracking = tracking.followed(*seen, 1000, noisy=True)
    assert tracking.calm == SHORTEST


@pytest.mark.parametrize("own", [None, lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda k: 1.0)])
def test_only_the_default_scheduler_shortens_steps(own):
    """Steps of 3 where y has to go 1: f rises far above its start."""
    made = []

    def adam(parameters):
        made.append(torch.optim.Adam(parameters, 3.0))
        return made[-1]

    problem = bvfim.Problem(lambda x, y, e: ((y + 9 - e) ** 2).sum(), lambda x, y, e: ((y - 1 - x - e) ** 2).sum())
    stepper = bvfim.Stepper(problem, ZERO, ZERO, bvfim.StochasticBVFIM(adam, own), steps=400)
    for k in range(30):
        stepper.step(0.1 * (-1) ** k)
    calm = Tracking(*stepper.state.tracking.tolist()).calm
    assert calm < 1
    for optimizer in made:
        assert optimizer.param_groups[0]["lr"] == pytest.approx(3 * (calm * pace(30, 400) if own is None else 1))


def test_x_does_not_walk_on_what_is_left_of_its_gradient():
    """Steps are of one size until the gradients are 0.003 of the largest, and then go down with them."""
    x = torch.zeros(2, dtype=DOUBLE, requires_grad=True)
    optimizer = bvfim.OneScale([x], lr=0.1)

    def step(size):
        before = x.detach().clone()
        for _ in range(300):  # until the running mean has forgotten
            x.grad = torch.full_like(x, size)
            before = x.detach().clone()
            optimizer.step()
        return (before - x.detach())[0].item()

    assert [step(size) for size in (1.0, 0.02, 3e-5)] == pytest.approx([0.1, 0.1, 1e-3], rel=0.01)


@pytest.mark.parametrize("batches", [[0.1, -0.1], None])
def test_an_entry_of_x_that_nothing_depends_on_stays_near(batches):
    """It ran away: raising f at the start made room for the gap."""
    problem = bvfim.Problem(
        lambda x, y, e=0.0: (y[0] - 1 - e) ** 2, lambda x, y, e=0.0: (y[0] - x[0] - e) ** 2 + (y[1] - x[1]) ** 2
    )
    x = torch.tensor([0.0, 0.1], dtype=DOUBLE)
    found = bvfim.solve(problem, x, 0 * x, bvfim.StochasticBVFIM(), steps=500, batches=batches, refit=False)
    assert abs(found.x[0].item() - 1) < 0.1
    assert abs(found.x[1].item()) < 0.5


def test_every_inner_draw_is_used():
    seen = []

    def lower(x, y, e):
        seen.append(e)
        return ((y - x - e) ** 2).sum()

    problem = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum(), lower)
    batches = bvfim.Batches([0.0], [0.1, -0.2], every="inner")
    bvfim.solve(problem, ZERO, ZERO, steps=40, batches=batches, refit=False)
    assert 0.8 < seen[-60:].count(0.1) / seen[-60:].count(-0.2) < 1.25


def test_x_and_z_do_not_chase_each_other():
    """They did: steps of x of one size, and a z that lags, went round in a circle until the cosine stopped them."""
    problem = bvfim.Problem(lambda x, y, t: ((y - t) ** 2).sum(), lambda x, y, _: ((y - x) ** 2).sum())
    found = bvfim.solve(problem, ZERO, ZERO, batches=[0.9, 1.1], steps=1000, refit=False)
    assert abs(found.x.item() - 1) < 0.15
    assert abs(found.z.item() - found.x.item()) < 0.1


def test_a_factor_of_f_that_depends_on_x_is_no_gain():
    """e^x f(y) has the same minimisers for all x, so x has nothing to gain where the gap is what is allowed.

    An absolute gap pulls such an x down.
    """
    problem = bvfim.Problem(lambda x, y: (y**2).sum(), lambda x, y: (x.exp() * (y - 1) ** 2).sum())
    x, (y, z, start) = ZERO, (torch.tensor([v], dtype=DOUBLE) for v in (0.4, 0.9, -2.0))
    f, f_z, f_0 = (problem.lower(x, v) for v in (y, z, start))
    one, rho = torch.ones((), dtype=DOUBLE), (f - f_z) / (f_0 - f_z)
    at = problem.at(x)
    assert at.saddle_grad(y, z, start, one, one, rho).in_x.item() == pytest.approx(0, abs=1e-12)
    assert at.saddle_grad(y, z, start, one, one, 0 * one).in_x.item() == pytest.approx(0.35)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_one_scale_goes_on_from_a_saved_state_bit_for_bit(dtype):
    def moved(x, steps, saved=None):
        optimizer = bvfim.OneScale([x], lr=0.1)
        if saved is not None:
            optimizer.load_state_dict(saved)
        for k in steps:
            x.grad = torch.sin(100 * x.detach() + k)
            optimizer.step()
        return x, optimizer.state_dict()

    start = torch.linspace(-1, 1, 7, dtype=dtype)
    whole, _ = moved(start.clone(), range(40))
    half, saved = moved(start.clone(), range(20))
    assert saved["state"][0]["mean"].dtype is torch.float64
    assert torch.equal(moved(half, range(20, 40), saved)[0], whole)
