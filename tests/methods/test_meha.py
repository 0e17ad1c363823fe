"""MEHA: its step against the equations written out, the bias of its weight, and a lower level that is not smooth."""

from __future__ import annotations

import pytest
import torch

import bvfim
from bvfim import tree
from tests.problems import nested, quadratic, root_of_affine

D = torch.float64
Q = quadratic(3, 4, seed=6)
METHOD = bvfim.MEHA(alpha=0.05, beta=0.04, eta=0.03, gamma=2.0, c=1.5, p=0.3)


def l1(x, y):
    return (x.abs().sum() + 0.2) * (y["a"].abs().sum() + y["b"][0].abs().sum())


def shrink(x, v, s):
    return tree.map(lambda t: t.sign() * (t.abs() - s * (x.abs().sum() + 0.2)).clamp_min(0), v)


def by_hand(m, k, x, y, z, smooth, r, prox, upper):
    """One step, as the paper writes it, with f = smooth + r."""
    weight = m.c * (k + 1) ** m.p

    def f(x, y):
        return smooth(x, y) + r(x, y)

    v = tree.variable(z)
    in_z = tree.axpy(1 / m.gamma, tree.sub(z, y), tree.grad(smooth(x, v), v))
    z = prox(x, tree.axpy(-m.eta, in_z, z), m.eta)
    w = tree.variable(x)
    x = tree.detach(tree.axpy(-m.alpha, tree.grad(upper(w, y) / weight + f(w, y) - f(w, z), w), x))
    v = tree.variable(y)
    in_y = tree.axpy(1 / m.gamma, tree.sub(z, y), tree.grad(upper(x, v) / weight + smooth(x, v), v))
    return x, prox(x, tree.axpy(-m.beta, in_y, y), m.beta), z


@pytest.mark.parametrize("k", [0, 7])
@pytest.mark.parametrize("rough", [False, True])
def test_a_step_is_the_one_of_the_paper(k, rough):
    problem, x, y = nested()

    def r(x, y):
        return l1(x["w"][0], y) if rough else 0.0

    def prox(x, v, s):
        return shrink(x["w"][0], v, s) if rough else v

    whole = bvfim.Problem(problem.upper, lambda x, y: problem.lower(x, y) + r(x, y))
    given = {"nonsmooth": r, "prox": prox} if rough else {}
    method = bvfim.MEHA(alpha=0.05, beta=0.04, eta=0.03, gamma=2.0, c=1.5, p=0.3, **given)
    z = tree.map(lambda t: t + 0.3, y)
    new_x, state, info = method.step(whole, x, method.init(whole, x, y)._replace(z=z), k, None)
    expected = by_hand(method, k, x, y, z, problem.lower, r, prox, problem.upper)
    torch.testing.assert_close((new_x, state.y, state.z), expected, rtol=1e-12, atol=1e-12)
    assert info["weight"] == pytest.approx(1.5 * (k + 1) ** 0.3)
    assert whole.evaluations.as_dict() == {"upper": 2, "lower": 4, "forward": 0, "hvp": 0, "jvp": 0}


def stationary(c, gamma):
    """Of F / c + f - v_gamma, by linear algebra: x alone, with the best y and z for it."""
    eye, zero = torch.eye(4, dtype=D), torch.zeros(4, 4, dtype=D)
    # (H + 1/gamma) z - y / gamma = b, and (1/c + H - 1/gamma) y + z / gamma = b + t / c
    system = torch.cat([
        torch.cat([-eye / gamma, Q.H + eye / gamma], 1),
        torch.cat([Q.H + eye / c - eye / gamma, zero + eye / gamma], 1),
    ])  # fmt: skip

    def in_x(x):
        b = Q.B @ x + Q.c
        y, z = torch.linalg.solve(system, torch.cat([b, b + Q.t / c])).split(4)
        return Q.D * x / c - Q.B.T @ (y - z)

    return root_of_affine(in_x, 3)


def test_it_ends_at_the_stationary_point_of_its_merit():
    method = bvfim.MEHA(alpha=0.3, beta=0.2, eta=0.2, gamma=1.0, c=10.0, p=0.0)
    start = torch.zeros(3, dtype=D), torch.zeros(4, dtype=D)
    found = bvfim.solve(Q.problem, *start, method, steps=2000, refit=False)
    assert (found.x - stationary(10.0, 1.0)).norm() < 1e-8


def test_which_is_off_by_one_over_the_weight():
    errors = [float((stationary(c, 1.0) - Q.optimum).norm()) for c in (50.0, 100.0, 200.0)]
    assert errors[1] == pytest.approx(errors[0] / 2, rel=0.05)
    assert errors[2] == pytest.approx(errors[1] / 2, rel=0.05)


def test_it_solves_a_lower_level_with_a_kink():
    """f = |y - x|^2 / 2 + |y|_1 / 2, so that y shrinks x by 1/2: y = a is best, for x beyond it by 1/2."""
    a = torch.tensor([2.0, 0.3, -1.5], dtype=D)
    problem = bvfim.Problem(
        upper=lambda x, y: ((y - a) ** 2).sum(),
        lower=lambda x, y: ((y - x) ** 2).sum() / 2 + y.abs().sum() / 2,
    )
    method = bvfim.MEHA(
        alpha=0.3, beta=0.3, eta=0.3, gamma=1.0, c=20.0, p=0.0,
        nonsmooth=lambda x, y: y.abs().sum() / 2,
        prox=lambda x, v, s: v.sign() * (v.abs() - s / 2).clamp_min(0),
    )  # fmt: skip
    start = a.sign()
    found = bvfim.solve(problem, start, start, method, steps=2000, refit=False)
    torch.testing.assert_close(found.x, a + a.sign() / 2, rtol=0, atol=1e-3)
    torch.testing.assert_close(found.y, a, rtol=0, atol=1e-3)
    assert found.lower == pytest.approx(float(problem.lower(found.x, found.y)))


def test_an_entry_below_the_threshold_is_zero_and_not_only_small():
    problem = bvfim.Problem(
        lambda x, y: ((x - 0.3) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum() / 2 + y.abs().sum() / 2
    )
    method = bvfim.MEHA(
        nonsmooth=lambda x, y: y.abs().sum() / 2, prox=lambda x, v, s: v.sign() * (v.abs() - s / 2).clamp_min(0)
    )
    start = torch.ones(2, dtype=D)
    found = bvfim.solve(problem, start, start, method, steps=600, refit=False)
    assert found.y.tolist() == found.z.tolist() == [0.0, 0.0]
