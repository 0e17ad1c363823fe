"""StochasticBVFIM with a given multiplier: the stationary point of the penalty, under noise, however heavy it is."""

from __future__ import annotations

import math

import pytest
import torch

import bvfim
from bvfim.core.shared_adam import SharedAdam
from bvfim.methods.stochastic import Tracking

DOUBLE = torch.float64
START = torch.zeros(10, dtype=DOUBLE)


def problem():
    """F = |x - 2|^2 + |y - 2|^2, y = x - 1, so x = 2.5. Rows differ in F's minimum and in f's curvature and slope."""
    return bvfim.Problem(
        upper=lambda x, y, e: ((x - 2) ** 2 + (y - 2 - e[0]) ** 2).sum(),
        lower=lambda x, y, e: ((1 + e[1]) * (y - x + 1) ** 2 + e[2] * y).sum(),
    )


def penalised(weight):
    """The minimiser of min over y of F + l (f - f*): (x - 2)^2 + q (x - 3)^2 with q = l / (1 + l)."""
    q = weight / (1 + weight)
    return (2 + 3 * q) / (1 + q)


def draws(steps, seed=0):
    return torch.rand(steps, 3, 10, dtype=DOUBLE, generator=torch.Generator().manual_seed(seed)) - 0.5


def found(weight, batches):
    method = bvfim.StochasticBVFIM(multiplier=weight)
    return bvfim.solve(problem(), START, START, method, batches=list(batches), steps=len(batches), refit=False).x


def error(weight, steps, seed=0):
    return (found(weight, draws(steps, seed)) - penalised(weight)).square().mean().sqrt().item()


@pytest.mark.parametrize("weight", [1.0, 10.0])
def test_without_noise_it_ends_at_the_stationary_point_of_the_penalty(weight):
    x = found(weight, torch.zeros(1000, 3, 10, dtype=DOUBLE))
    torch.testing.assert_close(x, torch.full_like(START, penalised(weight)), rtol=0, atol=1e-6)


def test_a_heavy_multiplier_costs_no_noise():
    light, heavy = error(10.0, 400), error(1000.0, 400)
    assert heavy < 2 * light
    assert light < 0.1  # 0.4 where y and z have scales of their own


@pytest.mark.long
@pytest.mark.parametrize("weight", [10.0, 1000.0])
def test_the_error_falls_with_the_square_root_of_the_steps(weight):
    errors = [math.hypot(*(error(weight, steps, seed) for seed in range(3))) for steps in (500, 2000, 8000)]
    for longer, shorter in zip(errors[1:], errors, strict=False):
        assert longer / shorter < 0.75
    assert errors[-1] / errors[0] < 0.4


def test_x_never_waits_and_no_share_of_the_gap_is_forgiven():
    """Where the noise makes the gap negative, too."""
    method, own, gaps = bvfim.StochasticBVFIM(multiplier=1000.0), problem(), []
    stepper = bvfim.Stepper(own, START, START, method, lambda p: torch.optim.SGD(p, 0.01), steps=100)
    for draw in draws(100):
        x, (y, z, *_) = stepper.x, stepper.state
        info = stepper.step(draw)
        assert not torch.equal(stepper.x, x)
        penalty = own.upper(x, y, draw) + 1000 * (own.lower(x, y, draw) - own.lower(x, z, draw))
        assert info["value"] == pytest.approx(penalty.item(), rel=1e-9)
        gaps.append(info["gap"])
    assert min(gaps) < 0


@pytest.mark.parametrize("weight", [1e-3, 1e3])
def test_a_light_multiplier_has_a_share_of_the_gap_and_scales_of_its_own(weight):
    """F rules y then, and f z: they have no noise to share."""
    method = bvfim.StochasticBVFIM(multiplier=weight)
    stepper = bvfim.Stepper(problem(), START, START, method, steps=200)
    shares = []
    for draw in draws(100):
        stepper.step(draw)
        shares.append(stepper.mover.weights["rho"])
    heavy = method.heavy(Tracking(*stepper.state.tracking.tolist()))
    assert heavy == (weight > 1)
    assert (max(shares) == 0) == heavy
    assert (type(stepper.mover.lower[0].optimizer) is SharedAdam) == heavy
