"""Constraints as a problem states them: one vector, and what is refused in one sentence."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

import bvfim
from bvfim.core.constraints import layout, values

ONE = torch.ones(2, dtype=torch.float64)


def problem(**given):
    return bvfim.Problem(lambda x, y: (x + y).sum(), lambda x, y: ((y - x) ** 2).sum(), **given)


def test_values_are_one_vector_with_the_lower_level_first():
    given = problem(
        upper_constraints=lambda x, y: x - 3,
        lower_equalities=lambda x, y: (x + y).sum(),
        lower_constraints=lambda x, y: torch.stack([y, -y]),
    )
    y = 2 * ONE
    assert torch.equal(values(given, ONE, y, None), torch.tensor([2.0, 2, -2, -2, 6, -2, -2], dtype=torch.float64))
    found = layout(given, ONE, y, None)
    assert found.lower == 5
    assert found.equal.tolist() == [False] * 4 + [True] + [False] * 2
    assert found.names[4:6] == ("lower_equalities[0]", "upper_constraints[0]")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"lower_constraints": lambda x, y: None}, "lower_constraints must return a tensor, not a NoneType"),
        ({"upper_constraints": lambda x, y: 1.0}, "upper_constraints must return a tensor, not a float"),
        ({"lower_constraints": lambda x, y: [y]}, "lower_constraints must return a tensor, not a list"),
        ({"lower_constraints": lambda x, y: y > 0}, "must return floating-point numbers, not torch.bool"),
        ({"lower_constraints": lambda x, y: y[:0]}, "lower_constraints returns an empty tensor"),
        ({"lower_constraints": lambda x, y: (y - 2).log()}, r"lower_constraints\[0\] is not a finite number"),
        ({"lower_constraints": lambda x, y: y.detach()}, "lower_constraints is not differentiable"),
        ({"lower_constraints": lambda x, y: x - 1}, "lower_constraints does not depend on y"),
        ({"lower_equalities": lambda x, y: x - 1}, "lower_equalities does not depend on y"),
        (
            {"lower_equalities": lambda x, y: y - x, "upper_equalities": lambda x, y: y - x},
            r"upper_equalities\[1\] states lower_equalities\[1\] again: state an equality once, at one level",
        ),
        (
            {"lower_equalities": lambda x, y: torch.stack([y[0], x[0] - y[0], -y[0]])},
            r"lower_equalities\[2\] states lower_equalities\[0\] again",
        ),
        ({"lower_constraints": 3}, "lower_constraints must be a function, not a int"),
        ({"lower_constraints": lambda x: x}, r"lower_constraints must be a function of \(x, y\)"),
        ({"follower": "friendly"}, "follower must be one of optimistic, pessimistic, not 'friendly'"),
    ],
)
def test_what_is_refused(given, says):
    with pytest.raises(bvfim.ProblemError, match=says):
        bvfim.solve(problem(**given), ONE, ONE, bvfim.AdaptiveBVFIM())


@pytest.mark.parametrize("method", [m for m in bvfim.methods.ALL if not m.constrained])
def test_methods_that_take_no_constraints_say_so(method):
    with pytest.raises(bvfim.MethodError, match=f"{method.__name__} takes sets, but no lower_constraints: these do"):
        bvfim.solve(problem(lower_constraints=lambda x, y: y), ONE, ONE, method())


@pytest.mark.parametrize("method", [m for m in bvfim.methods.ALL if "pessimistic" not in m.followers])
def test_methods_that_know_no_pessimist_say_so(method):
    with pytest.raises(bvfim.MethodError, match=f"{method.__name__} does not solve for a pessimistic follower"):
        bvfim.solve(problem(follower="pessimistic"), ONE, ONE, method())


@pytest.mark.parametrize("method", [m for m in bvfim.methods.ALL if m.constrained])
def test_constraints_on_several_processes_are_refused(method):
    among_two = problem(lower_constraints=lambda x, y: y).among(SimpleNamespace(size=2))
    with pytest.raises(bvfim.MethodError, match="mesh: constraints can't be summed over processes yet"):
        bvfim.methods.require_able(method(), among_two)


def test_inequalities_may_repeat_and_a_zero_gradient_at_the_start_is_no_independence():
    given = problem(lower_constraints=lambda x, y: torch.cat([y**2 - 1, y**2 - 1]))
    assert bvfim.solve(given, ONE, 0 * ONE, bvfim.AdaptiveBVFIM(), steps=1).x.shape == (2,)
