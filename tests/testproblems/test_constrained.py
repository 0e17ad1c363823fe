"""The known optima under constraints are feasible, have their values, and no random search finds a better point."""

from __future__ import annotations

import math

import pytest
import torch

from bvfim.testproblems import constrained, coupled, judged, pessimistic, solved, starts, unattained
from bvfim.testproblems.judge import constrained_minima, worst_upper

CONSTRAINED = {test.name: test for test in [*constrained(), *coupled()]}
PESSIMISTIC = {test.name: test for test in pessimistic()}
UNATTAINED = {test.name: test for test in unattained()}
NAMES = [*CONSTRAINED, *PESSIMISTIC, *UNATTAINED]
ALL = {**CONSTRAINED, **PESSIMISTIC, **UNATTAINED}


def test_there_are_as_many_as_published():
    assert [len(of()) for of in (constrained, coupled, pessimistic, unattained)] == [32, 5, 5, 5]
    assert len(ALL) == 47
    assert sum(test.problem.upper_constraints is not None for test in constrained()) == 3
    assert all(test.problem.follower == "pessimistic" for test in [*pessimistic(), *unattained()])


@pytest.mark.parametrize("name", NAMES)
def test_the_optimum_has_its_values(name):
    test = ALL[name]
    F, f = test.problem.at(test.x).values(test.y)
    assert float(F) == pytest.approx(test.upper, abs=1e-9)
    assert float(f) == pytest.approx(test.lower, abs=1e-9)
    assert torch.equal(test.problem.project_x(test.x), test.x)
    assert torch.equal(test.problem.project_y(test.y), test.y)


@pytest.mark.parametrize("name", CONSTRAINED)
def test_the_optimum_is_feasible(name):
    test = CONSTRAINED[name]
    found = judged(test, test.x, test.y)
    assert found.violation < 1e-8
    # A constraint without an interior, y^2 <= 0, holds to rounding where y is a millionth.
    assert found.gap < 1e-5
    assert found.is_solution(test.upper, tol=1e-5)
    assert not found.is_too_low(test.upper, tol=1e-5)


@pytest.mark.parametrize("name", PESSIMISTIC)
def test_the_optimum_of_a_pessimist_is_the_worst_of_its_x(name):
    test = PESSIMISTIC[name]
    assert worst_upper(test, test.x, test.y) == pytest.approx(test.upper, abs=3e-3)
    assert solved(test, test.x, test.y)


SIDE = {  # from which x approaches its limit
    "MorganPatrone2006a": -1.0,
    "MitsosBarton2006Ex314": 1.0,
    "KleniatiAdjiman2014Ex3": 1.0,
    "Yezza1996Ex31": 1.0,
    "PaulaviciusAdjiman2017a": 1.0,
}


@pytest.mark.parametrize("name", UNATTAINED)
def test_an_infimum_is_approached(name):
    test = UNATTAINED[name]
    far, near = (worst_upper(test, test.x + SIDE[name] * step, test.y) - test.upper for step in (1e-1, 1e-2))
    assert 0 <= near < far < 0.5
    assert near < 0.06


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("MorganPatrone2006a", 1.0),
        ("MitsosBarton2006Ex314", 1.0),
        ("KleniatiAdjiman2014Ex3", 1.0),
        ("Yezza1996Ex31", 3.5),
        ("PaulaviciusAdjiman2017a", 1.25),
    ],
)
def test_an_infimum_is_not_attained_at_the_limit(name, there):
    test = UNATTAINED[name]
    assert worst_upper(test, test.x, test.y) == pytest.approx(there, abs=1e-4)
    assert not solved(test, test.x, test.y)


def followed(test, x, starts):
    """The lowest F of the lower-level solutions found at x where the upper constraints hold; infinite without one."""
    if test.problem.lower_constraints is None and test.problem.lower_equalities is None:
        return worst_upper(test, x, starts[0])
    found = constrained_minima(test.problem, x, starts)
    lowest = min((f for _, f in found), default=math.inf)
    held = [y for y, f in found if f <= lowest + 1e-6 and float(upper_violation(test.problem, x, y)) <= 1e-6]
    return min((float(test.problem.upper(x, y)) for y in held), default=math.inf)


def upper_violation(problem, x, y):
    given = problem.upper_constraints
    return torch.zeros(1) if given is None else given(x, y).max()


@pytest.mark.long
@pytest.mark.parametrize("name", [*CONSTRAINED, *PESSIMISTIC])
def test_no_random_x_is_better(name):
    test = ALL[name]
    torch.manual_seed(0)
    for x, y in starts(test, 8, seed=5):
        near = test.problem.project_x(test.x + 0.1 * (1 + test.x.abs()) * torch.randn_like(test.x))
        for point in (x, near):
            assert followed(test, point, [test.y, y]) >= test.upper - 1e-3 * (1 + abs(test.upper))
