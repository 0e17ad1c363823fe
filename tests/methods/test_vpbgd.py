"""V-PBGD: its step against the equations written out, and the stationary points of its penalty."""

from __future__ import annotations

import pytest
import torch

import bvfim
from bvfim import tree
from tests.problems import nested, quadratic, root_of_affine

D = torch.float64
Q = quadratic(3, 4, seed=6)


@pytest.mark.parametrize("gamma", [0.0, 0.4, 5.0])
def test_a_step_is_the_one_of_the_paper(gamma):
    problem, x, y = nested()
    z = tree.map(lambda t: t + 0.3, y)
    method = bvfim.VPBGD(x_lr=0.05, y_lr=0.04, z_lr=0.03, gamma=gamma, z_steps=1)
    new_x, state, info = method.step(problem, x, method.init(problem, x, y)._replace(z=z), 0, None)
    assert problem.evaluations.as_dict() == {"upper": 1, "lower": 3, "forward": 0, "hvp": 0, "jvp": 0}

    x, y, z = tree.variable(x), tree.variable(y), tree.variable(z)
    moved = tree.detach(tree.axpy(-0.03, tree.grad(problem.lower(x, z), z), z))
    c = min(1 / gamma, 1.0) if gamma else 1.0
    penalty = c * (problem.upper(x, y) + gamma * (problem.lower(x, y) - problem.lower(x, moved)))
    in_x, in_y = tree.grad(penalty, (x, y))
    torch.testing.assert_close(new_x, tree.detach(tree.axpy(-0.05, in_x, x)), rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(state.y, tree.detach(tree.axpy(-0.04, in_y, y)), rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(state.z, moved, rtol=1e-13, atol=1e-13)
    assert float(info["upper"]) == float(problem.upper(*tree.detach((x, y))))


def stationary(gamma):
    """Of F + gamma (f - f*), by linear algebra: y from the penalty, z from f, then the root in x."""
    eye = torch.eye(4, dtype=D)

    def in_x(x):
        b = Q.B @ x + Q.c
        y = torch.linalg.solve(eye + gamma * Q.H, Q.t + gamma * b)
        return Q.D * x - gamma * Q.B.T @ (y - torch.linalg.solve(Q.H, b))

    return root_of_affine(in_x, 3)


@pytest.mark.parametrize("gamma", [3.0, 10.0])
def test_it_ends_at_the_stationary_point_of_its_penalty(gamma):
    method = bvfim.VPBGD(x_lr=0.3, y_lr=0.3, z_lr=0.4, gamma=gamma)
    zero = torch.zeros(3, dtype=D), torch.zeros(4, dtype=D)
    found = bvfim.solve(Q.problem, *zero, method, steps=1000, refit=False)
    assert (found.x - stationary(gamma)).norm() < 1e-8
    assert (found.z - Q.response(found.x)).norm() < 1e-8


def test_which_is_off_by_one_over_the_weight():
    errors = [float((stationary(gamma) - Q.optimum).norm()) for gamma in (20.0, 40.0, 80.0)]
    assert errors[1] == pytest.approx(errors[0] / 2, rel=0.05)
    assert errors[2] == pytest.approx(errors[1] / 2, rel=0.05)
