"""The minima of the batched L-BFGS against what is known, row by row."""

from __future__ import annotations

import math

import pytest
import torch

from bvfim.interior.lbfgs import ATTEMPTS, Memory, Points, minimise, unit
from bvfim.interior.space import Space
from bvfim.sets import Ball, Box, Simplex
from tests.interior.matrices import D, spd, tensor


class Each:
    """``function(rows, w)`` with its gradient by autograd, and a record of what was asked for."""

    def __init__(self, function, tol=1e-14):
        self.function, self.tol = function, tol
        self.trials, self.entered = 0, []

    def trial(self, rows, w, attempt, ceiling):
        self.trials += 1
        return self.function(rows, w).detach()

    def gradient(self, rows, w):
        self.entered.append(w)
        w = w.detach().requires_grad_()
        return torch.autograd.grad(self.function(rows, w).sum(), w)[0]

    def scale(self, reduced):
        return unit(reduced)

    def enough(self, rows, reduced, decrease):
        return decrease <= self.tol


def run(function, w, own=None, max_steps=100, tol=1e-14):
    each = Each(function, tol)
    rows = torch.arange(len(w))
    points = Points(w, function(rows, w), each.gradient(rows, w))
    points, settled = minimise(each, points, Space(w[0], [own]), Memory.empty(w), max_steps)
    return points, settled, each


def quadratics(H, b):
    return lambda rows, w: (w[:, None] @ H[rows] @ w[..., None])[:, 0, 0] / 2 - (b[rows] * w).sum(-1)


def rosenbrock(a, b):
    return lambda rows, w: (a[rows] - w[:, 0]) ** 2 + b[rows] * (w[:, 1] - w[:, 0] ** 2) ** 2


@pytest.mark.parametrize("n", [1, 4, 12])
def test_strictly_convex_quadratics_are_solved(n):
    H, b = spd(5, n, condition=50.0), torch.randn(5, n, dtype=D)
    points, settled, _ = run(quadratics(H, b), 5 * torch.randn(5, n, dtype=D))
    assert settled.all()
    torch.testing.assert_close(points.w, torch.linalg.solve(H, b), rtol=0, atol=1e-5)
    torch.testing.assert_close(points.value, -(b * torch.linalg.solve(H, b)).sum(-1) / 2, rtol=0, atol=1e-10)
    torch.testing.assert_close(points.gradient, (H @ points.w[..., None])[..., 0] - b, rtol=0, atol=1e-10)


BOUNDS = [Box(-0.5, 0.5), Box(lower=0), Box(tensor(-math.inf, 0, -1, 0.5), tensor(0, math.inf, 1, 0.5))]


@pytest.mark.parametrize("own", [*BOUNDS, Ball(0.7), Simplex()], ids=["box", "half", "tensor", "ball", "simplex"])
def test_quadratics_in_a_set_end_at_a_point_of_kkt(own):
    n = 4
    H, b = spd(6, n), 2 * torch.randn(6, n, dtype=D)
    space = Space(torch.zeros(n, dtype=D), [own])
    points, settled, each = run(quadratics(H, b), space.project(torch.randn(6, n, dtype=D)), own, 300)
    gradient = (H @ points.w[..., None])[..., 0] - b
    off = (space.project(points.w - gradient) - points.w).abs().amax(-1)
    assert (off < 1e-5).all()
    assert (settled | (off < 1e-15)).all()  # at a vertex, where a last bit is left, there is nowhere to go
    for w in each.entered:
        torch.testing.assert_close(space.project(w), w, rtol=0, atol=1e-12)


def test_an_entry_at_a_bound_that_it_should_leave_is_let_go():
    H, b = torch.eye(2, dtype=D)[None], tensor(0.5, -3)[None]
    points, settled, _ = run(quadratics(H, b), tensor(0, 0)[None], Box(0, 1))
    assert settled.all()
    torch.testing.assert_close(points.w, tensor(0.5, 0)[None], rtol=0, atol=1e-6)


def valleys():
    starts = torch.stack([tensor(-1.2, 1), tensor(0, 0), tensor(3, -4), tensor(1, 1)])
    return tensor(1, 1, 2, 1), tensor(100, 10, 50, 1), starts


def test_the_valley_of_rosenbrock_is_followed_to_its_end():
    a, b, starts = valleys()
    points, settled, _ = run(rosenbrock(a, b), starts, max_steps=200)
    assert settled.all()
    torch.testing.assert_close(points.w, torch.stack([a, a**2], 1), rtol=0, atol=1e-4)


@pytest.mark.parametrize("own", [None, Box(-1.5, 1.25), Ball(1.3)], ids=["free", "box", "ball"])
def test_a_row_alone_goes_the_way_that_it_goes_in_the_batch(own):
    a, b, starts = valleys()
    space = Space(starts[0], [own])
    starts = space.project(starts)
    together, settled, _ = run(rosenbrock(a, b), starts, own, 25)
    for i in range(len(starts)):
        alone, own_settled, _ = run(rosenbrock(a[[i]], b[[i]]), starts[[i]], own, 25)
        torch.testing.assert_close(alone.w[0], together.w[i], rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(alone.value[0], together.value[i], rtol=1e-9, atol=1e-12)
        assert own_settled[0] == settled[i]


def test_the_order_of_the_rows_does_not_matter():
    a, b, starts = valleys()
    order = torch.tensor([2, 0, 3, 1])
    one, _, _ = run(rosenbrock(a, b), starts, max_steps=25)
    other, _, _ = run(rosenbrock(a[order], b[order]), starts[order], max_steps=25)
    torch.testing.assert_close(other.w, one.w[order], rtol=1e-9, atol=1e-9)


def test_values_fall_and_where_they_are_infinite_is_never_entered():
    centre = torch.stack([tensor(5, 0.1), tensor(-1, -1), tensor(0.5, 30)])

    def function(rows, w):
        inside = (w > 0).all(-1)
        value = ((w - centre[rows]) ** 2).sum(-1) - 0.1 * w.clamp_min(1e-300).log().sum(-1)
        return torch.where(inside, value, torch.inf)

    points, settled, each = run(function, torch.ones(3, 2, dtype=D))
    assert settled.all()
    assert all((w > 0).all() for w in each.entered)
    # 2 (w - c) = 0.1 / w
    torch.testing.assert_close(points.w, (centre + (centre**2 + 0.2).sqrt()) / 2, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("hole", [torch.nan, torch.inf, -torch.inf])
def test_a_value_that_is_no_number_is_never_taken(hole):
    def function(rows, w):
        return torch.where(w[:, 0] > 1, (w**2).sum(-1), hole)

    points, _, each = run(function, torch.full((1, 1), 3.0, dtype=D))
    assert points.value.isfinite().all()
    assert all((w > 1).all() for w in each.entered)
    assert points.w.item() == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("slope", [1.0, 1e-6, 1e6])
def test_an_unbounded_linear_function_falls_as_the_steps_grow(slope):
    g = slope * torch.stack([tensor(1, -2), tensor(0, 3)])
    points, settled, _ = run(lambda rows, w: (g[rows] * w).sum(-1), torch.zeros(2, 2, dtype=D), max_steps=40)
    assert (points.value < -1e20 * slope).all()
    assert not settled.any()


def test_a_linear_function_in_a_box_ends_at_its_vertex():
    g = torch.stack([tensor(1, -2), tensor(1e-3, 3)])
    points, settled, _ = run(lambda rows, w: (g[rows] * w).sum(-1), torch.zeros(2, 2, dtype=D), Box(-100, 100), 40)
    assert torch.equal(points.w, -100 * g.sign())
    assert settled.all()


def test_long_steps_end_where_the_function_curves_up():
    # Space and falling as far as 1000, then a bowl: the growth of the steps must not last.
    def function(rows, w):
        return -w[:, 0] + (w[:, 0] - 1000).clamp_min(0) ** 2 / 2

    points, settled, _ = run(function, torch.zeros(1, 1, dtype=D))
    assert settled.all()
    assert points.w.item() == pytest.approx(1001, abs=1e-4)


def test_a_stationary_start_is_settled_without_a_trial():
    points, settled, each = run(lambda rows, w: (w**2).sum(-1), torch.zeros(2, 3, dtype=D))
    assert settled.all()
    assert each.trials == 0
    assert not points.w.any()


def test_a_dead_end_is_left_as_it_is_and_not_settled():
    class Uphill(Each):
        def gradient(self, rows, w):
            return -super().gradient(rows, w)

    each, w = Uphill(lambda rows, w: (w**2).sum(-1)), torch.ones(1, 2, dtype=D)
    points = Points(w, each.function(None, w), -2 * w)
    points, settled = minimise(each, points, Space(w[0], [None]), Memory.empty(w), 10)
    assert not settled.any()
    assert torch.equal(points.w, w)
    assert each.trials == ATTEMPTS


def test_rows_that_are_done_wait_while_others_go_on():
    H = torch.stack([torch.eye(6, dtype=D), spd(1, 6, condition=1e3)[0]])
    asked = []

    def function(rows, w):
        asked.append(rows.tolist())
        return quadratics(H, torch.ones(2, 6, dtype=D))(rows, w)

    _, settled, _ = run(function, torch.zeros(2, 6, dtype=D))
    assert settled.all()
    assert asked[-1] == [1]


def test_no_steps_move_nothing():
    w = torch.ones(2, 2, dtype=D)
    points, settled, each = run(lambda rows, w: (w**2).sum(-1), w, max_steps=0)
    assert torch.equal(points.w, w)
    assert not settled.any()
    assert each.trials == 0


@pytest.mark.parametrize("size", [1e-100, 1e-12, 1e12, 1e100])
def test_the_size_of_a_function_does_not_matter(size):
    a, b, starts = valleys()
    function = rosenbrock(a, b)
    expected, _, _ = run(function, starts, max_steps=25, tol=0.0)
    found, _, _ = run(lambda rows, w: size * function(rows, w), starts, max_steps=25, tol=0.0)
    torch.testing.assert_close(found.w, expected.w, rtol=1e-6, atol=1e-6)
