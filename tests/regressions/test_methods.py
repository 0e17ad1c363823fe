"""Bugs of methods, and of the linear algebra below them. Each test failed before its fix."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import bvfim
from bvfim import tree
from bvfim.core.linear import cg
from tests.problems import quadratic
from tests.regressions.plain import PLAIN, D, vector


@pytest.mark.parametrize("seed", range(20))
def test_cg_flags_a_singular_matrix_instead_of_dividing_by_noise(seed):
    g = torch.Generator().manual_seed(seed)
    A = torch.randn(6, 3, generator=g, dtype=D)
    A, b = A @ A.T, torch.randn(6, generator=g, dtype=D)
    found = cg(lambda v: A @ v, b, steps=6)
    assert found.breakdown == 1
    true = (b - A @ found.solution).norm() / b.norm()
    assert found.residual == pytest.approx(float(true), rel=1e-6)
    inside = cg(lambda v: A @ v, A @ b, steps=6)  # a consistent system is solved before the null space is met
    assert (A @ inside.solution - A @ b).norm() < 1e-8 * (A @ b).norm()


def test_exact_cg_stays_affordable():
    H = torch.diag(torch.linspace(1, 2, 500, dtype=D))
    found = cg(lambda v: H @ v, torch.ones(500, dtype=D), steps=10**4)
    assert found.steps <= 500
    assert found.residual < 1e-12


def test_cg_on_fewer_rows_than_parameters_says_that_it_broke_down():
    q = quadratic(3, 4)
    A = torch.randn(5, 10, dtype=D)
    problem = bvfim.Problem(lambda x, y: (y**2).sum(), lambda x, y: (x.sigmoid() * (A @ y - 1) ** 2).mean())
    solution = bvfim.solve(problem, torch.zeros(5, dtype=D), torch.ones(10, dtype=D), bvfim.CG(200, 0.05), steps=2)
    assert (solution.history["breakdown"] == 1).all()
    good = bvfim.solve(q.problem, torch.zeros(3, dtype=D), torch.zeros(4, dtype=D), bvfim.CG(20, 0.1), steps=2)
    assert (good.history["breakdown"] == 0).all()


def test_norms_in_half_precision_do_not_overflow():
    assert tree.norm(torch.full((1000,), 10.0, dtype=torch.float16)) == pytest.approx(1e5**0.5, rel=1e-3)


@pytest.mark.parametrize("method", [bvfim.CG(2), bvfim.BVFIM(2, 2), bvfim.RHG(2)])
def test_states_never_drag_a_graph_along(method):
    y = vector(1.0).requires_grad_()
    state = method.init(PLAIN, vector(0.0), y)
    for _ in range(2):
        _, state = bvfim.hypergradient(PLAIN, vector(0.0), y, method, state=state)
    assert not any(t.requires_grad for t in tree.leaves(state))


def test_hypergradient_with_a_state_evaluates_nothing_besides():
    calls = []

    def upper(x, y):
        calls.append(1)
        return ((y - 1) ** 2).sum()

    problem, method = bvfim.Problem(upper, PLAIN.lower), bvfim.RHG(1)
    state = method.init(problem, vector(0.0), vector(0.0))
    bvfim.hypergradient(problem, vector(0.0), vector(0.0), method, state=state)
    assert len(calls) == 1


def test_fhg_with_a_context_without_floats():
    problem = bvfim.Problem(
        lambda x, y, c: ((y - 1) ** 2).sum(),
        lambda x, y, c: ((y - x)[c] ** 2).sum(),
        context=lambda x, b: torch.arange(1),
    )
    one, other = (bvfim.hypergradient(problem, vector(0.0), vector(0.5), m(3)) for m in (bvfim.FHG, bvfim.RHG))
    assert torch.allclose(one, other)


def test_a_fixed_weight_needs_no_slack_and_bad_lower_values_are_refused():
    problem = bvfim.Problem(PLAIN.upper, lambda x, y: PLAIN.lower(x, y) - 5)
    method = bvfim.BVFIM(2, 2, mu2=bvfim.LowerValue(weight=1.0))
    assert bvfim.solve(problem, vector(0.0), vector(0.0), method, steps=3).status is bvfim.Status.MAX_STEPS
    for bad in ({"offset": float("nan")}, {"weight": -1.0}):
        with pytest.raises(bvfim.MethodError):
            bvfim.LowerValue(**bad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shift", [0.0, 1.0, 1000.0])
def test_the_slack_outlives_a_mu2_below_rounding(dtype, shift):
    problem = bvfim.Problem(PLAIN.upper, lambda x, y: PLAIN.lower(x, y) + shift)
    x = torch.zeros(2, dtype=dtype)
    solution = bvfim.solve(problem, x, x, bvfim.BVFIM(5, 5, mu2=1e-30, tau=1e-20), steps=20)
    assert solution.status is bvfim.Status.MAX_STEPS
    assert (solution.history["slack"] > 0).all()


def test_in_float32_a_large_constant_in_f_leaves_the_slack_positive():
    problem = bvfim.Problem(PLAIN.upper, lambda x, y: PLAIN.lower(x, y) + 1e5)
    x = torch.zeros(2)
    solution = bvfim.solve(problem, x, x, bvfim.BVFIM(5, 5, mu2=1e-3), steps=20)
    assert solution.status is bvfim.Status.MAX_STEPS
    assert (solution.history["slack"] > 0).all()


def test_schedules_where_they_are_meant():
    alpha = bvfim.schedules.join([bvfim.schedules.constant(0.5), lambda k: 0.0], [1])
    assert bvfim.solve(PLAIN, vector(0.0), vector(0.0), bvfim.BDA(2, alpha=alpha), steps=3).status.ok
    for bad in (lambda: bvfim.CG(damping=lambda k: 1.0), lambda: bvfim.dynamics.GradientDescent(lambda k: 0.1)):
        with pytest.raises(bvfim.MethodError, match="must be a finite number"):
            bad()


def test_classes_are_methods_everywhere_and_strings_nowhere():
    x = vector(0.0)
    assert bvfim.hypergradient(PLAIN, x, x, bvfim.RHG).shape == (1,)
    assert bvfim.check_hypergradient(PLAIN, x, x, bvfim.RHG).verdict is bvfim.Verdict.EXACT
    for ask in (bvfim.hypergradient, bvfim.check_hypergradient):
        with pytest.raises(bvfim.MethodError, match=r"a method must be a bvfim\.Estimator, with init and estimate"):
            ask(PLAIN, x, x, "rhg")
    with pytest.raises(bvfim.MethodError, match="not a SGD"):
        bvfim.solve(PLAIN, x, x, bvfim.RHG, optimizer=torch.optim.SGD([x.clone()], 0.1))


def test_numpy_numbers_are_numbers_and_other_things_are_not():
    assert bvfim.RHG(steps=np.int64(3), lr=np.float32(0.1)).steps == 3
    for bad in (lambda: bvfim.RHG(dynamics=0.1), lambda: bvfim.RHG(steps=True)):
        with pytest.raises(bvfim.MethodError):
            bad()
    with pytest.raises(bvfim.MethodError, match="tol must be"):
        bvfim.solve(PLAIN, vector(0.0), vector(0.0), tol=float("nan"))
