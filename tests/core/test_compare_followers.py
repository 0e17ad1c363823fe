from __future__ import annotations

import pytest
import torch

import bvfim
from bvfim.testproblems import pessimistic

EX324 = pessimistic()[3]
START = torch.full((1,), 0.5, dtype=torch.float64)


def test_what_a_friendly_follower_is_worth():
    """At x = 0 the answers are 1 -+ sqrt(1/2); the optimist has the upper one, at x = 0.21 or so."""
    both = bvfim.compare_followers(EX324.problem, START, START, bvfim.AdaptiveBVFIM(starts=2))
    assert both.optimistic.upper == pytest.approx(-1.7549, abs=1e-3)
    assert both.pessimistic.upper == pytest.approx(EX324.upper, abs=1e-3)
    assert both.worth == both.pessimistic.upper - both.optimistic.upper
    assert str(both).startswith("A friendly follower is worth 1.46")


def test_where_the_lower_level_has_one_solution_friendliness_is_worth_nothing():
    problem = bvfim.Problem(lambda x, y: ((x - 1) ** 2 + y**2).sum(), lambda x, y: ((y - x) ** 2).sum())
    both = bvfim.compare_followers(problem, START, START)
    assert both.worth == pytest.approx(0, abs=5e-3)
    assert both.pessimistic.x.item() == pytest.approx(0.5, abs=1e-2)


def test_a_method_for_one_of_them_is_refused():
    with pytest.raises(bvfim.MethodError, match="RHG does not solve for a pessimistic follower"):
        bvfim.compare_followers(EX324.problem, START, START, bvfim.RHG(), steps=1)
