from __future__ import annotations

import torch

import bvfim
from bvfim.core.lower_minimum import lower_minimum
from tests.problems import nested, quadratic


def test_it_finds_the_closed_form_and_never_rises():
    q = quadratic(3, 4)
    x = torch.ones(3).double()
    y, f = lower_minimum(q.problem.at(x), torch.zeros(4).double())
    assert (y - q.response(x)).abs().max() < 1e-6
    again, f_again = lower_minimum(q.problem.at(x), q.response(x))
    assert f_again <= f + 1e-12
    assert torch.allclose(again, q.response(x))


def test_it_stops_at_a_target():
    problem = bvfim.Problem(lambda x, y: y.sum(), lambda x, y: (torch.logspace(0, 4, 20).double() * (y - x) ** 2).sum())
    x = torch.ones(20).double()
    count = {}
    for target in (1.0, -float("inf")):
        own = problem.counted_anew()
        _, f = lower_minimum(own.at(x), 0 * x, target=target)
        assert f <= max(target, 1e-12)
        count[target] = own.evaluations.lower
    assert count[1.0] < count[-float("inf")]
    assert f < 1e-12


def test_it_keeps_to_a_box_and_to_other_sets():
    q = quadratic(3, 4)
    x = torch.ones(3).double()
    box, ball = bvfim.Box(-0.1, torch.full((4,), 0.1, dtype=torch.float64)), bvfim.Ball(0.2)
    for own in (box, ball, bvfim.Simplex(), bvfim.Product([2, 2], [bvfim.Box(-0.1, 0.1), ball])):
        kept = bvfim.Problem(q.problem.upper, q.problem.lower, y_set=own)
        y, f = lower_minimum(kept.at(x), torch.zeros(4).double())
        assert torch.allclose(own.project(y), y, atol=1e-15)
        slow = torch.zeros(4).double()
        for _ in range(2000):
            slow = kept.project_y(slow - 0.3 * (q.H @ slow - q.B @ x - q.c))
        assert abs(f - float(kept.lower(x, slow))) < 1e-10


def test_it_on_trees():
    problem, x, y = nested()
    found, f = lower_minimum(problem.at(x), y)
    assert f < float(problem.lower(x, y))
    assert set(found) == {"a", "b"}
