"""The second derivatives of f by differences of its gradient, and what they are used for."""

from __future__ import annotations

import math

import pytest
import torch

import bvfim
from bvfim.interior.batch import Batch
from bvfim.interior.curvature import EASY, LARGEST, Curvature, convex
from bvfim.interior.lbfgs import Memory
from bvfim.interior.space import Space

D = torch.float64


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=D)


def conditioned(n, condition, seed=0):
    """A symmetric matrix whose eigenvalues lie evenly on a logarithmic scale from 1 down to 1 / condition."""
    Q, _ = torch.linalg.qr(random(n, n, seed=seed))
    return (Q * torch.logspace(0, -math.log10(condition), n, dtype=D)) @ Q.T


def ill_conditioned(n, condition):
    """F = |y - t|^2 / 2 + |x - s|^2 / 2, f = (y - x)^T H (y - x) / 2, and the optimal x: (s + t) / 2."""
    H, s, t = conditioned(n, condition), random(n, seed=1), random(n, seed=2)
    problem = bvfim.Problem(
        upper=lambda x, y: ((y - t).square().sum() + (x - s).square().sum()) / 2,
        lower=lambda x, y: (y - x) @ H @ (y - x) / 2,
    )
    return problem, (s + t) / 2


def measured(problem, x, z):
    batch = Batch(problem, Space(x[0], [None]), Space(z[0], [None]), torch.zeros(len(x), 3, dtype=torch.long))
    blank = Curvature.unknown(x, z, torch.ones(len(x), dtype=D), batch.counts, stated=False)
    return blank.measured(batch.at(x, torch.arange(len(x))), z), batch


def test_it_is_that_of_a_quadratic():
    K, C = conditioned(4, 10.0), random(4, 3, seed=5)
    problem = bvfim.Problem(lambda x, y: y.sum(), lambda x, y: y @ K @ y / 2 + y @ C @ x + x.square().sum())
    found, batch = measured(problem, random(2, 3, seed=6), random(2, 4, seed=7))
    assert torch.allclose(found.K, K.expand(2, 4, 4), atol=1e-8)
    assert torch.allclose(found.C, C.expand(2, 4, 3), atol=1e-8)
    assert batch.counts[:, 1].tolist() == [5, 5]  # one for each entry of y, and one at z
    dx = random(2, 3, seed=8)
    assert torch.allclose(found.shift(dx), -torch.linalg.solve(K, C @ dx.T).T, atol=1e-7)
    w = random(7, seed=9)
    x, y = w[:3], w[3:]
    z = -torch.linalg.solve(K, C @ x)
    gap = (y - z) @ K @ (y - z) / 2  # f(x, y) - min f(x, .)
    assert w @ found.of_gap[0] @ w / 2 == pytest.approx(gap.item(), rel=1e-6)


def test_a_negative_curvature_counts_by_its_size_and_a_flat_one_as_rounding():
    found = convex(torch.diag(torch.tensor([2.0, -3.0, 0.0], dtype=D))[None])[0]
    assert torch.allclose(found.diagonal(), torch.tensor([2.0, 3.0, 3e-12], dtype=D), rtol=1e-6, atol=0)


def test_it_is_due_once_descents_have_cost_more_and_never_where_there_is_no_room():
    x, y = torch.zeros(1, 2, dtype=D), torch.zeros(1, 10, dtype=D)
    counts = torch.zeros(1, 3, dtype=torch.long)
    small = Curvature.unknown(x, y, torch.ones(1), counts, stated=False)
    assert not small.known.any()
    assert not small.due(torch.tensor([[2, 10 + 2 * EASY, 0]])).any()
    assert small.due(torch.tensor([[2, 11 + 2 * EASY, 0]])).all()
    large = Curvature.unknown(x, torch.zeros(1, LARGEST, dtype=D), torch.ones(1), counts, stated=False)
    assert not large.due(torch.tensor([[0, 10**6, 0]])).any()


def test_a_descent_with_the_hessian_takes_newtons_step_on_the_free_entries():
    H, g = conditioned(3, 1e4), random(1, 3, seed=3)
    memory = Memory.empty(g, H[None].clone())
    step = memory.direction(g, lambda v: v, torch.ones_like(g))
    assert torch.allclose(step[0], -torch.linalg.solve(H, g[0]), rtol=1e-8)
    mask = torch.tensor([1.0, 0.0, 1.0], dtype=D)
    held = memory.direction(g, lambda v: v * mask, torch.ones_like(g))[0]
    free = [0, 2]
    assert held[1] == 0
    assert torch.allclose(held[free], -torch.linalg.solve(H[free][:, free], g[0][free]), rtol=1e-8)


@pytest.mark.parametrize("condition", [1.0, 1e4, 1e8])
def test_an_ill_conditioned_lower_level_converges_at_nearly_the_same_cost(condition):
    problem, x = ill_conditioned(12, condition)
    start = torch.zeros(12, dtype=D)
    found = bvfim.solve(problem, start, start, refit=False)
    assert found.status is bvfim.Status.CONVERGED
    assert (found.x - x).norm() <= 5e-3 * x.norm()
    assert found.evaluations["upper"] <= 320


@pytest.mark.long
def test_two_hundred_entries_and_a_condition_of_a_thousand():
    problem, x = ill_conditioned(200, 1e3)
    start = torch.zeros(200, dtype=D)
    found = bvfim.solve(problem, start, start, refit=False)
    assert found.status is bvfim.Status.CONVERGED
    assert (found.x - x).norm() <= 5e-3 * x.norm()
    assert found.evaluations["upper"] <= 200
    assert found.evaluations["lower"] <= 8000


def test_more_entries_than_there_is_room_for_are_solved_all_the_same():
    problem, x = ill_conditioned(LARGEST, 4.0)
    start = torch.zeros(LARGEST, dtype=D)
    found = bvfim.solve(problem, start, start, refit=False)
    assert found.status is bvfim.Status.CONVERGED
    assert (found.x - x).norm() <= 5e-3 * x.norm()
