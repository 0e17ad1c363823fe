"""BOME: its step against the equations written out, and an error that goes to zero with its steps."""

from __future__ import annotations

import pytest
import torch

import bvfim
from bvfim import tree
from tests.problems import nested, quadratic

D = torch.float64
Q = quadratic(4, 6, seed=4, spectrum="identity")  # one step of 1 solves the lower level
START = torch.linspace(-1, 1, 4, dtype=D), torch.zeros(6, dtype=D)


@pytest.mark.parametrize("barrier", ["gradient", "value"])
@pytest.mark.parametrize("eta", [0.5, 40.0])
def test_a_step_is_the_one_of_the_paper(barrier, eta):
    problem, x, y = nested()
    method = bvfim.BOME(x_lr=0.05, y_lr=0.05, lr=0.03, eta=eta, steps=4, barrier=barrier)
    new_x, state, info = method.step(problem, x, method.init(problem, x, y), 0, None)
    assert problem.evaluations.as_dict() == {"upper": 1, "lower": 6, "forward": 0, "hvp": 0, "jvp": 0}

    z = y
    for _ in range(4):
        z = tree.variable(z)
        z = tree.detach(tree.axpy(-0.03, tree.grad(problem.lower(x, z), z), z))
    both = tree.variable((x, y))
    q = problem.lower(*both) - problem.lower(both[0], z)
    dF, dq = tree.grad(problem.upper(*both), both), tree.grad(q, both)
    phi = eta * (tree.dot(dq, dq) if barrier == "gradient" else q.detach())
    weight = max(float((phi - tree.dot(dF, dq)) / tree.dot(dq, dq)), 0.0)
    expected = tree.detach(tree.axpy(-0.05, tree.axpy(weight, dq, dF), both))
    torch.testing.assert_close((new_x, state.y), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(state.z, z, rtol=1e-13, atol=1e-13)
    assert float(info["weight"]) == pytest.approx(weight, abs=1e-12)


def test_where_the_gap_has_no_gradient_only_f_is_followed():
    at_rest = Q.response(START[0])
    method = bvfim.BOME(x_lr=0.1, y_lr=0.1, lr=1.0, steps=1)
    solved = bvfim.Problem(Q.problem.upper, lambda x, y: 0.5 * ((y - at_rest) ** 2).sum())
    x, state, info = method.step(solved, START[0], method.init(solved, START[0], at_rest), 0, None)
    assert float(info["weight"]) == 0.0
    torch.testing.assert_close(x, START[0] - 0.1 * Q.D * START[0])
    torch.testing.assert_close(state.y, at_rest - 0.1 * (at_rest - Q.t))


@pytest.mark.parametrize("barrier", ["gradient", "value"])
def test_its_error_is_as_large_as_its_step(barrier):
    errors = []
    for step, steps in ((0.02, 1000), (0.01, 2000)):
        method = bvfim.BOME(x_lr=step, y_lr=step, lr=1.0, steps=1, barrier=barrier)
        found = bvfim.solve(Q.problem, *START, method, steps=steps, refit=False)
        errors.append(float((found.x - Q.optimum).norm()))
    assert errors[1] == pytest.approx(errors[0] / 2, rel=0.1)


def test_its_error_goes_to_zero_where_the_steps_do():
    errors, step = [], bvfim.schedules.power(0.1, -0.5)
    for steps in (500, 2000):
        method = bvfim.BOME(x_lr=step, y_lr=step, lr=1.0, steps=1)
        found = bvfim.solve(Q.problem, *START, method, steps=steps, refit=False)
        errors.append(float((found.x - Q.optimum).norm()))
    assert errors[1] < errors[0] / 2
    assert errors[1] < 0.01 * float(Q.optimum.norm())
