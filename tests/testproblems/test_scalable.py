"""The stated optima of the problems of any size are optima: below what SciPy finds, by other ways, at small sizes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

import bvfim
from bvfim.testproblems import bic_gaffa, lower_gap, lv_hba, pessimistic, sipba, solved, starts, sto_sipba

D = torch.float64
CONSTRAINED = {"LV-HBA": lv_hba, "BiC-GAFFA": bic_gaffa, "BiC-GAFFA, cubic": lambda n: bic_gaffa(n, power=3)}
PESSIMISTIC = {"SiPBA": sipba, "Sto-SiPBA": sto_sipba}


@pytest.mark.parametrize("name", [*CONSTRAINED, *PESSIMISTIC])
@pytest.mark.parametrize("n", [2, 5, 1000])
def test_the_values_at_the_optimum(name, n):
    test = {**CONSTRAINED, **PESSIMISTIC}[name](n)
    F, f = test.problem.at(test.x).values(test.y)
    assert float(F) == pytest.approx(test.upper, abs=1e-9)
    assert float(f) == pytest.approx(test.lower, abs=1e-9)
    if name in CONSTRAINED:
        assert test.problem.lower_equalities(test.x, test.y).abs() < 1e-9
    else:
        assert torch.equal(test.problem.project_x(test.x), test.x)
        assert torch.equal(test.problem.project_y(test.y), test.y)


@pytest.mark.parametrize("name", CONSTRAINED)
def test_the_optimum_is_solved_and_no_neighbour_is(name):
    test = CONSTRAINED[name](3)
    assert abs(lower_gap(test, test.x, test.y)) < 1e-8
    assert solved(test, test.x, test.y)
    assert not solved(test, test.x + 0.1, test.y)


@pytest.mark.parametrize("name", CONSTRAINED)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_no_minimum_under_the_conditions_of_the_lower_level_is_lower(name, n):
    """The lower level is convex: y is a solution where f and h, with a multiplier, have no slope and h = 0."""
    test = CONSTRAINED[name](n)

    def conditions(w):
        x, y, multiplier = w[:n], w[n : 3 * n], w[3 * n]
        h = test.problem.lower_equalities(x, y)
        (slope,) = torch.autograd.grad(test.problem.lower(x, y) + multiplier * h, y, create_graph=True)
        return torch.cat([slope[: n + 1], h[None]])  # the slopes of v are all the same: SLSQP can't have them twice

    def upper(w):
        return test.problem.upper(w[:n], w[n : 3 * n])

    def of_numbers(fn):
        return lambda w: fn(torch.from_numpy(w).requires_grad_()).detach().numpy()

    def slopes(fn):
        return lambda w: torch.autograd.functional.jacobian(fn, torch.from_numpy(w)).numpy()

    generator = np.random.default_rng(0)
    ends = [
        minimize(
            of_numbers(upper),
            3 * generator.standard_normal(3 * n + 1),
            jac=slopes(upper),
            constraints={"type": "eq", "fun": of_numbers(conditions), "jac": slopes(conditions)},
            method="SLSQP",
            options={"ftol": 1e-12, "maxiter": 300},
        )
        for _ in range(5)
    ]
    found = [end.fun for end in ends if np.abs(of_numbers(conditions)(end.x)).max() < 1e-8]
    assert min(found) == pytest.approx(test.upper, abs=1e-6)


def worst(test, x):
    """The highest F over the lower solutions, by SLSQP from several points: sum y is all that f sees."""
    n, low = len(x), test.problem.y_set.lower
    high = min(test.problem.y_set.upper, 1e3)
    target = float(x.norm() if low > 0 else x.square().sum())
    total = min(max(target, n * low), n * high)
    generator = np.random.default_rng(0)
    found = [
        minimize(
            lambda y: -float(test.problem.upper(x, torch.from_numpy(y))),
            np.clip(total / n + spread * generator.standard_normal(n), low, high),
            bounds=[(low, high)] * n,
            constraints={"type": "eq", "fun": lambda y: y.sum() - total},
            method="SLSQP",
            options={"ftol": 1e-13},
        )
        for spread in (0.1, 0.3, 1.0)
    ]
    return max(-end.fun for end in found if abs(end.x.sum() - total) < 1e-8)


@pytest.mark.parametrize("name", PESSIMISTIC)
@pytest.mark.parametrize("n", [2, 3, 4])
def test_no_x_has_a_lower_worst_value(name, n):
    test = PESSIMISTIC[name](n)
    assert worst(test, test.x) == pytest.approx(test.upper, abs=1e-6)
    near = [test.problem.project_x(test.x + 0.1 * x / 10) for x, _ in starts(test, 4, seed=1)]
    far = [x for x, _ in starts(test, 4, seed=0)]
    shorter = [s * test.x for s in (0.5, 0.9, 1.1, 1.5)]
    for x in (*near, *far, *shorter):
        assert worst(test, x) >= test.upper - 1e-6


def test_the_problem_of_four_is_that_of_the_collection():
    (given,) = [test for test in pessimistic() if "SiPBA" in test.name]
    test = sto_sipba(4)
    for x, y in starts(test, 3, seed=0):
        for name in ("upper", "lower"):
            assert float(test.problem.call(name, x, y, None)) == pytest.approx(
                float(given.problem.call(name, x, y, None)), rel=1e-12
            )
    assert (given.upper, given.x.tolist(), given.y.tolist()) == (test.upper, test.x.tolist(), test.y.tolist())


def test_they_are_public():
    assert {"bic_gaffa", "lv_hba", "sipba", "sto_sipba"} <= set(bvfim.testproblems.__all__)
