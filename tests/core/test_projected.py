"""Descents into convex sets end where steps along the gradient are undone by the projection, and nowhere else."""

from __future__ import annotations

import math

import pytest
import torch

import bvfim
from bvfim import sets
from bvfim.core.curvature_step import CurvatureStep
from bvfim.core.one_scale import OneScale
from bvfim.core.projected import spectral_descent
from bvfim.core.range_test import adam_step
from bvfim.core.refit_many import judged_together

D = torch.float64
SIZE = 5
SETS = {
    "ball": sets.Ball(1.0),
    "simplex": sets.Simplex(),
    "half-space": sets.Projected(lambda v: v - ((v.sum() - 1) / len(v)).clamp_min(0)),
    "product": sets.Product([2, 3], [sets.Ball(0.5, 0.1), sets.Simplex()]),
}


def quadratic(seed: int, condition: float = 100.0):
    """f = y'Hy / 2 - b'y with eigenvalues from 1 to the condition number, and a minimiser outside of most sets."""
    g = torch.Generator().manual_seed(seed)
    Q = torch.linalg.qr(torch.randn(SIZE, SIZE, generator=g, dtype=D)).Q
    H = Q @ torch.diag(torch.logspace(0, math.log10(condition), SIZE, dtype=D)) @ Q.T
    b = H @ (1 + torch.randn(SIZE, generator=g, dtype=D))
    return (lambda y: (float(y @ H @ y / 2 - b @ y), H @ y - b)), condition


def off(own, gradient, y, t):
    """How far y is from where projected gradients stop."""
    return float((y - own.project(y - t * gradient)).norm()) / t


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("seed", range(4))
def test_spectral_descent_ends_at_stationary_points_of_the_set(name, seed):
    own, (function, condition) = SETS[name], quadratic(seed)
    w, value = spectral_descent(function, own.project, torch.zeros(SIZE, dtype=D), 2000, 2e-16)
    assert torch.allclose(own.project(w), w, atol=1e-12)
    assert value == function(w)[0]
    assert off(own, function(w)[1], w, 1 / condition) < 1e-5
    for member in torch.randn(50, SIZE, dtype=D, generator=torch.Generator().manual_seed(seed)):
        assert function(own.project(member))[0] >= value - 1e-9  # f is convex: it is the minimum


def test_it_stops_at_a_limit_at_a_target_and_never_above_the_start():
    function, _ = quadratic(0)
    calls = []

    def counted(y):
        calls.append(function(y)[0])
        return function(y)

    start = torch.zeros(SIZE, dtype=D)
    for limit in (1, 2, 7):
        calls.clear()
        _, value = spectral_descent(counted, SETS["ball"].project, start, limit, 0.0)
        assert len(calls) <= limit
        assert value == min(calls)
    lowest = spectral_descent(function, SETS["ball"].project, start, 2000, 2e-16)[1]
    calls.clear()
    assert spectral_descent(counted, SETS["ball"].project, start, 2000, 2e-16, target=lowest / 2)[1] <= lowest / 2
    assert all(value > lowest / 2 for value in calls[:-1])


def test_an_undefined_value_shortens_the_step_and_a_linear_function_ends_at_the_rim():
    def barrier(y):
        return float(y.sum() - torch.log(0.2 - y[0])), torch.ones(2, dtype=D) + torch.stack(
            [1 / (0.2 - y[0]), 0 * y[0]]
        )

    w, value = spectral_descent(barrier, sets.Ball(1.0).project, torch.zeros(2, dtype=D), 200, 1e-16)
    assert math.isfinite(value)
    assert off(sets.Ball(1.0), barrier(w)[1], w, 0.1) < 1e-6
    slope = torch.tensor([3.0, -4.0], dtype=D)
    w, value = spectral_descent(lambda y: (float(slope @ y), slope), sets.Ball(2.0).project, 0 * slope, 100, 1e-16)
    assert torch.allclose(w, -2 * slope / 5, atol=1e-9)
    assert value == pytest.approx(-10)


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("kind", [CurvatureStep, OneScale])
def test_the_steps_rest_at_stationary_points_and_only_there(name, kind):
    """Stationary for one t > 0 is stationary for all: the step stays there, and leaves any other point."""
    own, (function, _) = SETS[name], quadratic(1)
    there, _ = spectral_descent(function, own.project, torch.zeros(SIZE, dtype=D), 2000, 2e-16)
    elsewhere = own.project(torch.linspace(-1, 1, SIZE, dtype=D))
    for start, rests in ((there, True), (elsewhere, False)):
        y = start.clone().requires_grad_()
        optimizer = kind([y], lr=0.01)
        y.grad = function(y.detach())[1]
        optimizer.step()
        assert ((own.project(y.detach()) - start).norm() < 1e-6) == rests


@pytest.mark.parametrize("name", SETS)
def test_steps_that_follow_the_curvature_converge(name):
    own, (function, condition) = SETS[name], quadratic(2)
    y = torch.zeros(SIZE, dtype=D, requires_grad=True)
    optimizer = CurvatureStep([y], lr=0.1)
    for _ in range(1500):
        y.data = own.project(y.data)
        y.grad = function(y.detach())[1]
        optimizer.step()
    found = own.project(y.detach())
    assert off(own, function(found)[1], found, 1 / condition) < 1e-6


def test_their_step_survives_a_pinned_point_and_a_zero_gradient_and_a_checkpoint():
    y = torch.zeros(2, requires_grad=True)
    optimizer = CurvatureStep([y], lr=0.5)
    y.grad = torch.zeros(2)
    optimizer.step()
    assert not y.any()
    y.grad = torch.tensor([3.0, 4.0])
    optimizer.step()
    assert y.norm().item() == pytest.approx(0.5 * math.sqrt(2))
    for pull in (1.0, 5.0, 2.0):  # gradients that change at a point that does not, or with another variable
        y.data = torch.zeros(2)
        optimizer.forget()
        y.grad = torch.tensor([pull, 0.0])
        optimizer.step()
        assert y[0].item() == pytest.approx(-pull * 0.5 * math.sqrt(2) / 5, rel=1e-6)
    again = CurvatureStep([y.detach().clone().requires_grad_()], lr=0.5)
    again.load_state_dict(optimizer.state_dict())
    (memory,) = again.state.values()
    assert memory["size"].dtype is torch.float64
    with pytest.raises(bvfim.MethodError, match="closure"):
        optimizer.step(lambda: 0.0)


@pytest.mark.parametrize("name", SETS)
def test_the_range_test_measures_how_far_y_moves_in_the_set(name):
    """A set of size one ends steps of any length; a simplex undoes signs that are all the same."""
    problem = bvfim.Problem(lambda x, y: y.sum(), lambda x, y: ((y - x) ** 2).sum(), y_set=SETS[name])
    x = torch.tensor([5.0, 3.0, 2.0, 1.0, 1.0], dtype=D)
    assert 1e-3 < adam_step(problem.at(x), SETS[name].project(0 * x)) < 5


@pytest.mark.parametrize("name", ["ball", "simplex", "half-space"])
def test_refits_in_a_batch_end_where_single_ones_do(name):
    """From a point whose first step is normal to the sphere, L-BFGS once took rounding for a curvature."""
    H = torch.diag(torch.logspace(0, 2, SIZE, dtype=D))
    problem = bvfim.Problem(lambda x, y: (y**2).sum(), lambda x, y: (y - x) @ H @ (y - x), y_set=SETS[name])
    xs = 1 + torch.randn(3, SIZE, dtype=D, generator=torch.Generator().manual_seed(0))
    ys = torch.stack([SETS[name].project(0 * x) for x in xs])
    many = bvfim.solve_many(problem, xs, ys, bvfim.RHG(40, 1e-3), steps=20, refit=False)
    for found in judged_together(problem, many):
        exact = bvfim.refit(problem, found.x, found.y)
        assert found.lower - found.lower_gap == pytest.approx(exact.lower, rel=1e-5)
