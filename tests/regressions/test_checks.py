"""Bugs of checking a hypergradient. Each test failed before its fix."""

from __future__ import annotations

import pytest
import torch

import bvfim
from tests.problems import quadratic
from tests.regressions.plain import PLAIN, D, vector


class UnsolvedCG(bvfim.Estimator):
    """Claims to be exact, by having no reference, and is not."""

    inner = bvfim.CG(3, 0.05)

    def init(self, *args):
        return self.inner.init(*args)

    def estimate(self, *args):
        return self.inner.estimate(*args)


def test_a_method_that_claims_exactness_is_held_to_its_value():
    problem = bvfim.Problem(lambda x, y: (y**2).sum(), lambda x, y: ((y - x**3) ** 2).sum())
    assert bvfim.check_hypergradient(problem, vector(2.0), vector(0.0), UnsolvedCG()).verdict is bvfim.Verdict.WRONG


@pytest.mark.parametrize("n", [3, 300])
def test_the_noise_of_differences_at_an_optimum_is_no_error(n):
    problem = bvfim.Problem(lambda x, y: ((y - 1) ** 2).mean() + 3.3 + (y - 1).pow(3).mean(), PLAIN.lower)
    found = bvfim.check_hypergradient(problem, vector(1.0), torch.ones(n, dtype=D), bvfim.RHG(100, 0.1))
    assert found.verdict is bvfim.Verdict.EXACT


def test_differences_that_leave_the_domain_say_so():
    problem = bvfim.Problem(lambda x, y: x.log().sum() + y.sum(), PLAIN.lower)
    with pytest.raises(bvfim.ProblemError, match="not finite within"):
        bvfim.check_hypergradient(problem, vector(1e-6), vector(0.0), bvfim.RHG(3))


def test_a_method_that_reports_its_breakdown_is_not_called_wrong():
    q = quadratic(4, 6, seed=4)
    method = bvfim.Neumann(200, 0.2, terms=200, eta=2.0)
    found = bvfim.check_hypergradient(q.problem, torch.ones(4, dtype=D), torch.zeros(6, dtype=D), method)
    assert found.verdict is bvfim.Verdict.BIASED
    assert "broke down" in str(found)


def test_a_singular_lower_level_has_no_implicit_gradient_to_compare_with():
    problem = bvfim.Problem(lambda x, y: (y**2).sum(), lambda x, y: (y[0] + y[1] - x.sum()) ** 2)
    found = bvfim.check_hypergradient(problem, vector(1.0), vector(0.0, 0.0), bvfim.RHG(5))
    assert found.implicit_error is None


def test_checking_and_comparing_leave_the_users_counters_alone():
    problem = bvfim.Problem(PLAIN.upper, PLAIN.lower)
    bvfim.check_hypergradient(problem, vector(0.0), vector(0.0), bvfim.RHG(2))
    bvfim.compare(problem, [bvfim.RHG(2)], vector(0.0), vector(0.0), steps=2)
    assert sum(problem.evaluations.as_dict().values()) == 0
