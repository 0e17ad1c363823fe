"""The path of the barrier's minimisers in 1 / lambda, and the estimate of the optimum at its end."""

from __future__ import annotations

import pytest
import torch

import bvfim
from bvfim.interior.path import APART, FARTHEST, Path

D = torch.float64


def vector(*values):
    return torch.tensor([values], dtype=D)


def path(eps, last_eps, w=lambda e: (1 + 2 * e, 3 - e), z=lambda e: (4 * e,)):
    ends = (vector(*w(eps)), vector(*z(eps)), torch.tensor([eps], dtype=D))
    return Path(*ends, vector(*w(last_eps)), vector(*z(last_eps)), torch.tensor([last_eps], dtype=D))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5])
def test_it_is_exact_where_it_is_straight(share):
    w, z = path(0.1, 0.2).at(share)
    eps = 0.1 * share
    assert torch.allclose(w, vector(1 + 2 * eps, 3 - eps))
    assert torch.allclose(z, vector(4 * eps))


def test_it_is_of_second_order_where_it_bends():
    errors = []
    for eps in (0.1, 0.05):
        w, _ = path(eps, 2 * eps, w=lambda e: (1 + e + e**2, 0.0)).at(0.0)
        errors.append(abs(w[0, 0].item() - 1))
    assert errors[0] / errors[1] == pytest.approx(4)


@pytest.mark.parametrize("last", [float("inf"), 0.1, 0.1 * APART * 0.999, 0.05])
def test_without_a_direction_it_stays_where_it_is(last):
    found = path(0.1, 0.2)._replace(last_eps=torch.tensor([last], dtype=D))
    assert not found.known.any()
    w, z = found.at(0.0)
    assert torch.equal(w, found.w)
    assert torch.equal(z, found.z)


def test_a_step_is_at_most_a_few_times_the_last_one():
    found = path(0.1, 0.1 * APART * 1.01)
    w, _ = found.at(0.0)
    assert torch.allclose(w - found.w, FARTHEST * (found.w - found.last_w))


def test_the_answer_is_better_than_the_last_point_of_the_barrier():
    # Without the end of the path, x would be off by about sqrt(tol).
    toy = bvfim.testproblems.sine(a=3.5)
    start = torch.full((1,), -2.0, dtype=D)
    found = bvfim.solve(toy.problem, start, start)
    assert found.status is bvfim.Status.CONVERGED
    assert abs(found.x - toy.x).item() < 1e-4


def test_the_bracket_of_a_converged_run_is_neither_inverted_nor_wide():
    for a in (0, 2, 3.5):
        toy = bvfim.testproblems.sine(a=a)
        start = torch.zeros(1, dtype=D)
        shown = bvfim.solve(toy.problem, start, start).certificate
        assert shown.relaxed <= toy.upper <= shown.polished + 1e-9
        assert shown.polished - shown.relaxed <= 0.02 * (1 + abs(toy.upper))
