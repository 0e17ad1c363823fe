"""F2SA: finite differences of minima, with errors of first and of second order."""

from __future__ import annotations

import itertools

import pytest
import torch

import bvfim
from bvfim import tree
from tests.problems import nested, quadratic

D = torch.float64
Q = quadratic(3, 4, seed=6)
X, Y = torch.linspace(-1, 1, 3, dtype=D), torch.zeros(4, dtype=D)


def exact_difference(order, nu):
    """The difference of gradients of minima that linear algebra finds."""
    b, eye = Q.B @ X + Q.c, torch.eye(4, dtype=D)
    y = {j: torch.linalg.solve(Q.H + j * nu * eye, b + j * nu * Q.t) for j in (-1, 0, 1)}
    low, width = (0, nu) if order == 1 else (-1, 2 * nu)
    return Q.D * X - Q.B.T @ (y[1] - y[low]) / width


@pytest.mark.parametrize("order", [1, 2])
def test_it_is_the_difference_of_minima(order):
    found = bvfim.hypergradient(Q.problem, X, Y, bvfim.F2SA(order, nu=0.1, steps=200, lr=0.4))
    torch.testing.assert_close(found, exact_difference(order, 0.1), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("order", [1, 2])
def test_its_bias_has_its_order(order):
    errors = []
    for nu in (0.04, 0.02, 0.01):
        found = bvfim.hypergradient(Q.problem, X, Y, bvfim.F2SA(order, nu=nu, steps=200, lr=0.4))
        errors.append(float((found - Q.gradient(X)).norm()))
    for before, after in itertools.pairwise(errors):
        assert before / after == pytest.approx(2**order, rel=0.05)


@pytest.mark.parametrize("order", [1, 2])
def test_its_price_and_its_points(order):
    problem, x, y = nested()
    method = bvfim.F2SA(order, nu=0.3, steps=4, lr=0.05)
    _, state, info = method.estimate(problem, x, method.init(problem, x, y), 0, None)
    expected = {1: {"upper": 4 + 1, "lower": 8 + 2}, 2: {"upper": 8 + 2, "lower": 8 + 2}}[order]
    assert problem.evaluations.as_dict() == {**expected, "forward": 0, "hvp": 0, "jvp": 0}
    points = []
    for weight in (0.3, 0.0 if order == 1 else -0.3):
        point = y
        for _ in range(4):
            v = tree.variable(point)
            in_y = tree.grad(problem.lower(x, v) + weight * problem.upper(x, v), v)
            point = tree.axpy(-0.05, in_y, point)
        points.append(point)
    torch.testing.assert_close((state.y, state.other), tuple(points), rtol=1e-12, atol=1e-12)
    assert float(info["upper"]) == pytest.approx(float(problem.upper(x, state.y)), rel=1e-14)


def test_its_minimiser_is_near_the_lower_level_by_the_square_of_nu():
    errors = {}
    for order, nu in itertools.product((1, 2), (0.1, 0.05)):
        method = bvfim.F2SA(order, nu=nu, steps=200, lr=0.4)
        _, state, _ = method.estimate(Q.problem, X, method.init(Q.problem, X, Y), 0, None)
        errors[order, nu] = float((method.minimiser(state) - Q.response(X)).norm())
    assert errors[1, 0.1] < 1e-10  # y_0 itself
    assert errors[2, 0.1] / errors[2, 0.05] == pytest.approx(4, rel=0.1)


@pytest.mark.parametrize("start", ["warm", "restart"])
def test_it_goes_on_from_its_last_points_or_from_the_first(start):
    method = bvfim.F2SA(2, steps=5, lr=0.1, start=start)
    first = method.init(Q.problem, X, Y)
    _, second, _ = method.estimate(Q.problem, X, first, 0, None)
    _, third, _ = method.estimate(Q.problem, X, second, 1, None)
    assert torch.equal(third.y, second.y) == (start == "restart")


def test_other_dynamics_end_at_the_same_points():
    by_momentum = bvfim.F2SA(2, nu=0.1, steps=400, dynamics=bvfim.dynamics.Momentum(0.1, 0.5))
    found = bvfim.hypergradient(Q.problem, X, Y, by_momentum)
    torch.testing.assert_close(found, exact_difference(2, 0.1), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("order", "off"), [(1, 0.05), (2, 0.01)])
def test_a_run_ends_near_the_optimum(order, off):
    method = bvfim.F2SA(order, nu=0.1, steps=10, lr=0.4)
    found = bvfim.solve(Q.problem, X, Y, method, optimizer=lambda p: torch.optim.SGD(p, 0.3), steps=300, refit=False)
    assert 1e-6 < (found.x - Q.optimum).norm() < off * Q.optimum.norm()
