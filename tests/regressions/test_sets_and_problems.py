"""Bugs of sets, and of what a problem may be made of. Each test failed before its fix."""

from __future__ import annotations

import pytest
import torch

import bvfim
from tests.regressions.plain import PLAIN, D, vector


def test_a_default_third_argument_keeps_its_default():
    def lower(x, y, strong=True):
        return ((y - x) ** 2).sum() + (5 * (y**2).sum() if strong else 0)

    problem = bvfim.Problem(PLAIN.upper, lower)
    found = bvfim.hypergradient(problem, vector(2.0), vector(2.0), bvfim.CG(200, 0.05))
    assert found.item() == pytest.approx(-2 / 9, abs=1e-6)


def test_modules_and_builtins_are_objectives():
    problem = bvfim.Problem(torch.nn.MSELoss(), torch.nn.MSELoss())
    assert bvfim.solve(problem, vector(1.0, 2.0), vector(0.0, 0.0), bvfim.RHG(2), steps=1).status.ok
    problem = bvfim.Problem(torch.nn.MSELoss(), lambda x, y: torch.dot(y, y) + torch.dot(x, y))
    assert bvfim.solve(problem, vector(1.0, 2.0), vector(0.0, 0.0), bvfim.RHG(2), steps=1).status.ok


def test_joint_must_carry_gradients():
    bad = {
        "detached": lambda x, y: (PLAIN.upper(x, y).detach(), PLAIN.lower(x, y).detach()),
        "single": lambda x, y: PLAIN.upper(x, y),
        "shaped": lambda x, y: (PLAIN.upper(x, y)[None], PLAIN.lower(x, y)[None]),
    }
    for joint in bad.values():
        with pytest.raises(bvfim.ProblemError, match="joint must return the pair"):
            bvfim.solve(bvfim.Problem(PLAIN.upper, PLAIN.lower, joint=joint), vector(0.0), vector(0.0), steps=1)
    for name in ("joint", "context"):
        with pytest.raises(bvfim.ProblemError, match=f"{name} must be a function, not a int"):
            bvfim.Problem(PLAIN.upper, PLAIN.lower, **{name: 3})


def test_an_objective_that_writes_into_y_does_not_reach_the_caller():
    def lower(x, y):
        with torch.no_grad():
            y.clamp_(0)
        return ((y - x) ** 2).sum()

    y = vector(-1.0)
    bvfim.solve(bvfim.Problem(PLAIN.upper, lower), vector(1.0), y, bvfim.RHG(1), steps=1)
    assert y.item() == -1.0


def test_a_complex_objective_is_refused():
    with pytest.raises(bvfim.ProblemError, match="must return a real number"):
        bvfim.solve(bvfim.Problem(lambda x, y: (x + 1j * y).sum(), PLAIN.lower), vector(0.0), vector(0.0))


def test_a_scalar_y_keeps_its_dtype():
    data = torch.ones((), dtype=D)
    problem = bvfim.Problem(lambda x, y: (y - data) ** 2, lambda x, y: (y - x * data) ** 2)
    y = torch.tensor(0.3)
    assert bvfim.solve(problem, torch.tensor(0.1), y, bvfim.BVFIM(3, 3), steps=2).y.dtype == torch.float32


@pytest.mark.parametrize("x", [0.0, 0.1])
def test_an_entry_pinned_by_its_box_has_no_derivative(x):
    problem = bvfim.Problem(PLAIN.upper, PLAIN.lower, y_set=bvfim.Box(vector(0.0, -9.0), vector(0.0, 9.0)))
    for method in (bvfim.CG(200, 0.1), bvfim.RHG(200, 0.1), bvfim.FHG(200, 0.1), bvfim.Neumann(200, 0.1, 200)):
        found = bvfim.hypergradient(problem, vector(x), vector(0.0, 0.0), method)
        assert found.item() == pytest.approx(2 * (x - 1), abs=1e-6)
    pinned = bvfim.Problem(PLAIN.upper, PLAIN.lower, y_set=bvfim.Box(0.5, 0.5))
    assert bvfim.hypergradient(pinned, vector(0.5), vector(0.5), bvfim.RHG(5)).item() == 0


def test_the_inside_of_a_ball_is_inside_in_float32():
    problem = bvfim.Problem(lambda x, y: ((y - 3) ** 2).sum(), PLAIN.lower, y_set=bvfim.Ball(1.0))
    x = torch.tensor([0.999, 0.0])
    found = bvfim.hypergradient(problem, x, 0 * x, bvfim.CG(60, 0.1))
    assert torch.allclose(found, 2 * (x - 3), atol=1e-3)


@pytest.mark.parametrize(
    "bad", [bvfim.Box(torch.zeros(3), torch.ones(3)), bvfim.Ball(1.0, torch.zeros(3)), bvfim.Box(torch.zeros(2, 2))]
)
def test_a_set_of_another_shape_is_refused(bad):
    with pytest.raises(bvfim.ProblemError, match=r"x_set: a \w+ does not fit a leaf of shape \(1,\)"):
        bvfim.solve(bvfim.Problem(PLAIN.upper, PLAIN.lower, x_set=bad), vector(0.5), vector(0.5), steps=1)


def test_a_simplex_needs_a_dimension_and_none_leaves_are_passed_over():
    with pytest.raises(bvfim.ProblemError, match=r"y_set: a Simplex does not fit a leaf of shape \(\)"):
        bvfim.solve(
            bvfim.Problem(PLAIN.upper, PLAIN.lower, y_set=bvfim.Simplex()), vector(0.5), vector(0.5)[0], steps=1
        )
    problem = bvfim.Problem(
        lambda x, y: PLAIN.upper(x["a"], y),
        lambda x, y: PLAIN.lower(x["a"], y),
        x_set={"a": bvfim.Box(0, 1), "b": None},
    )
    solution = bvfim.solve(problem, {"a": vector(0.5), "b": None}, vector(0.5), bvfim.RHG(2), steps=1)
    assert solution.x["b"] is None
