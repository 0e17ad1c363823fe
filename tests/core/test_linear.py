import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bvfim import tree
from bvfim.core import linear
from bvfim.core.linear import cg, dense, neumann

quick = settings(max_examples=60, deadline=None, derandomize=True)
seeds = st.integers(0, 2**32)


def system(spectrum, seed):
    """A symmetric matrix with the given eigenvalues in random directions, and a random right-hand side."""
    g = torch.Generator().manual_seed(seed)
    spectrum = torch.as_tensor(spectrum, dtype=torch.float64)
    Q = torch.linalg.qr(torch.randn(len(spectrum), len(spectrum), dtype=torch.float64, generator=g)).Q
    A = Q @ torch.diag(spectrum) @ Q.T
    return (A + A.T) / 2, torch.randn(len(spectrum), dtype=torch.float64, generator=g)


def relative(found, expected):
    return ((found - expected).norm() / expected.norm()).item()


def residual(A, q, b):
    return (b - A @ q).norm() / b.norm()


# -- conjugate gradients --


@quick
@given(st.integers(1, 50), st.sampled_from([2, 10, 1e3]), seeds)
def test_cg_solves_positive_definite_systems(n, condition, seed):
    A, b = system(torch.logspace(0, math.log10(condition), n, dtype=torch.float64), seed)
    found = cg(lambda v: A @ v, b, steps=n if condition <= 10 else 2 * n)
    assert relative(found.solution, torch.linalg.solve(A, b)) <= 1e-8
    assert found.breakdown == 0
    assert found.steps <= 2 * n
    assert 1 - 1e-9 <= found.curvature <= condition + 1e-9


@pytest.mark.parametrize("steps", range(1, 7))
def test_cg_reports_the_residual_it_has_reached(steps):
    A, b = system(torch.linspace(1, 9, 6), 3)
    found = cg(lambda v: A @ v, b, steps)
    torch.testing.assert_close(found.residual, residual(A, found.solution, b), rtol=1e-6, atol=1e-13)
    assert found.steps == steps


@pytest.mark.parametrize("steps", range(1, 6))
def test_cg_minimises_the_energy_over_the_krylov_space(steps):
    A, b = system(torch.linspace(1, 9, 6), 4)
    K = torch.linalg.qr(torch.stack([torch.linalg.matrix_power(A, j) @ b for j in range(steps)], 1)).Q
    expected = K @ torch.linalg.solve(K.T @ A @ K, K.T @ b)
    torch.testing.assert_close(cg(lambda v: A @ v, b, steps).solution, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("factor", [1.0, 1e-6, 3.0, 1e8])
@pytest.mark.parametrize("steps", [1, 2, 5, 50])
def test_cg_is_exact_for_a_scaled_identity_after_one_step_and_stays_so(factor, steps):
    b = torch.randn(7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = cg(lambda v: factor * v, b, steps)
    assert relative(found.solution, b / factor) <= 1e-15
    assert found.residual <= 1e-15
    assert math.isclose(found.curvature, factor, rel_tol=1e-9)
    assert found.breakdown == 0


@pytest.mark.parametrize("distinct", [1, 2, 3, 4])
def test_cg_ends_in_as_many_steps_as_a_rotated_hessian_has_distinct_eigenvalues(distinct):
    A, b = system([1.0 + 2 * (i % distinct) for i in range(20)], 5)
    for steps in (distinct, 40):
        found = cg(lambda v: A @ v, b, steps)
        assert relative(found.solution, torch.linalg.solve(A, b)) <= 1e-12
        assert found.breakdown == 0


def test_cg_works_on_nested_trees_as_on_their_flat_vector():
    like = {
        "w": torch.zeros(2, 3, dtype=torch.float64),
        "rest": [torch.zeros((), dtype=torch.float64), torch.zeros(4).double()],
    }
    A, b = system(torch.linspace(1, 5, tree.size(like)), 6)
    for solver in (lambda m, r: cg(m, r, 8), lambda m, r: neumann(m, r, 8, 0.2)):
        nested = solver(lambda v: tree.unravel(A @ tree.flatten(v), like), tree.unravel(b, like))
        flat = solver(lambda v: A @ v, b)
        assert tree.same_structure(nested.solution, like)
        torch.testing.assert_close(tree.flatten(nested.solution), flat.solution)
        for name in ("residual", "curvature", "steps", "breakdown"):
            torch.testing.assert_close(getattr(nested, name), getattr(flat, name))


@pytest.mark.parametrize("solver", [lambda m, b: cg(m, b, 5), lambda m, b: neumann(m, b, 5, 0.1)])
def test_a_zero_right_hand_side_has_the_solution_zero(solver):
    A, b = system([1.0, 2.0, 3.0], 0)
    found = solver(lambda v: A @ v, torch.zeros_like(b))
    assert torch.equal(found.solution, torch.zeros_like(b))
    assert found.residual == 0
    assert found.breakdown == 0


def textbook_cg(A, b):
    """Hestenes and Stiefel with host branches, stopped before the first direction of non-positive curvature."""
    q, r, p, ratios = np.zeros_like(b), b.copy(), b.copy(), []
    while True:
        ratios.append(p @ A @ p / (p @ p))
        if ratios[-1] <= 0:
            return q, len(ratios) - 1, ratios
        alpha = (r @ r) / (p @ A @ p)
        q, new = q + alpha * p, r - alpha * A @ p
        p, r = new + (new @ new) / (r @ r) * p, new


@quick
@given(st.integers(2, 12), st.integers(1, 3), seeds)
def test_cg_returns_the_last_good_iterate_of_an_indefinite_system(n, bad, seed):
    bad = min(bad, n - 1)
    A, b = system([*torch.linspace(1, 4, n - bad).tolist(), *[-0.7 - 0.1 * i for i in range(bad)]], seed)
    expected, taken, ratios = textbook_cg(A.numpy(), b.numpy())
    if taken == 0:  # nothing good yet: the size of the curvature stands in
        expected = (b * (b @ b) / (b @ A @ b).abs()).numpy()
    for steps in (taken + 1, taken + 30):
        found = cg(lambda v: A @ v, b, steps)
        assert found.breakdown == 1
        assert found.steps == taken
        assert found.curvature < 0
        assert math.isclose(found.curvature, min(ratios), rel_tol=1e-6)
        assert found.solution.isfinite().all()
        torch.testing.assert_close(found.solution, torch.from_numpy(expected), rtol=1e-6, atol=1e-9)
        if taken:
            torch.testing.assert_close(found.residual, residual(A, found.solution, b), rtol=1e-6, atol=1e-9)


def test_cg_does_not_report_a_breakdown_before_it_meets_one():
    A, b = system([4.0, 3.0, 2.0, 1.0, -1e-3], 1)
    _, taken, _ = textbook_cg(A.numpy(), b.numpy())
    assert taken > 0
    assert cg(lambda v: A @ v, b, taken).breakdown == 0


@pytest.mark.parametrize("factor", [0.0, -2.0, math.nan, math.inf])
def test_cg_stops_at_once_at_a_matrix_without_positive_curvature_or_finite_products(factor):
    b = torch.tensor([1.0, -2.0], dtype=torch.float64)
    found = cg(lambda v: factor * v, b, 4)
    assert torch.equal(found.solution, b / 2 if factor == -2.0 else torch.zeros_like(b))
    assert found.breakdown == 1
    assert found.residual == 1
    assert found.steps == 0


# -- the Neumann series --


@quick
@given(st.integers(1, 10), st.integers(0, 12), seeds)
def test_neumann_is_the_sum_of_matrix_powers(n, terms, seed):
    A, b = system(torch.linspace(0.5, 4, n), seed)
    eta = 0.3
    T = torch.eye(n, dtype=torch.float64) - eta * A
    expected = eta * sum(torch.linalg.matrix_power(T, j) @ b for j in range(terms + 1))
    found = neumann(lambda v: A @ v, b, terms, eta)
    torch.testing.assert_close(found.solution, expected)
    assert found.breakdown == 0
    assert found.steps == terms + 1


@pytest.mark.parametrize("spectrum", [[0.5, 1.0, 4.0], [0.2, 1.0, 8.0]], ids=["converging", "growing"])
@pytest.mark.parametrize("terms", [0, 1, 2, 7])
def test_neumann_reports_the_residual_before_its_last_term(terms, spectrum):
    A, b = system(spectrum, 1)
    products = []
    found = neumann(lambda v: products.append(v) or A @ v, b, terms, 0.3)
    assert len(products) == terms
    shorter = neumann(lambda v: A @ v, b, max(terms - 1, 0), 0.3)
    whole = found if found.breakdown else shorter
    expected = residual(A, whole.solution, b) if terms else torch.ones((), dtype=torch.float64)
    torch.testing.assert_close(found.residual, expected, rtol=1e-9, atol=0)


@pytest.mark.parametrize("eta", [0.1, 0.3, 0.47])
def test_neumann_converges_at_the_rate_of_the_largest_factor(eta):
    spectrum = torch.tensor([0.5, 1.0, 2.0, 4.0], dtype=torch.float64)
    A, b = system(spectrum, 2)
    exact, rate = torch.linalg.solve(A, b), (1 - eta * spectrum).abs().max().item()
    errors = [(neumann(lambda v: A @ v, b, terms, eta).solution - exact).norm().item() for terms in (100, 110)]
    assert math.isclose((errors[1] / errors[0]) ** 0.1, rate, rel_tol=1e-3)
    found = neumann(lambda v: A @ v, b, 100, eta)
    assert math.isclose(found.curvature, rate, rel_tol=1e-3)
    long = neumann(lambda v: A @ v, b, 800, eta)
    assert relative(long.solution, exact) <= 1e-13
    assert long.breakdown == 0


@pytest.mark.parametrize("terms", [0, 1, 5])
def test_neumann_is_exact_at_once_where_eta_inverts_the_matrix(terms):
    b = torch.tensor([1.0, -2.0], dtype=torch.float64)
    found = neumann(lambda v: 4 * v, b, terms, 0.25)
    assert torch.equal(found.solution, b / 4)
    assert found.residual == (0 if terms else 1), "no product has shown it yet"
    assert found.breakdown == 0


@quick
@given(st.sampled_from([[0.2, 1.0, 8.0], [1.0, 2.0, -0.3], [-1.0, -2.0, -3.0]]), seeds)
def test_neumann_stops_before_the_first_term_that_grows(spectrum, seed):
    A, b = system(spectrum, seed)
    eta, terms = 0.3, [b]
    while len(terms) < 2 or terms[-1].norm() <= terms[-2].norm():
        terms.append(terms[-1] - eta * A @ terms[-1])
    expected = eta * sum(terms[:-1])
    for more in (0, 1, 40):
        found = neumann(lambda v: A @ v, b, len(terms) - 1 + more, eta)
        assert found.breakdown == 1
        assert found.curvature > 1
        torch.testing.assert_close(found.solution, expected)
    if len(terms) > 2:
        assert neumann(lambda v: A @ v, b, len(terms) - 2, eta).breakdown == 0


@pytest.mark.parametrize("factor", [math.nan, math.inf])
def test_neumann_breaks_down_at_a_product_that_is_not_finite(factor):
    b = torch.tensor([1.0, -2.0], dtype=torch.float64)
    found = neumann(lambda v: factor * v, b, 4, 0.5)
    assert found.breakdown == 1
    assert torch.equal(found.solution, 0.5 * b)


# -- the whole matrix --


@pytest.mark.parametrize("spectrum", [[1.0, 2.0, 5.0], [1.0, 2.0, 0.0, 0.0], [3.0, -1.0, 2.0]])
def test_dense_gives_the_least_norm_solution_and_the_lowest_eigenvalue(spectrum):
    A, b = system(spectrum, 0)
    expected = torch.linalg.pinv(A, rtol=1e-10) @ b
    found = dense(lambda v: A @ v, b)
    torch.testing.assert_close(found.solution, expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found.residual, residual(A, expected, b), rtol=1e-6, atol=1e-12)
    assert math.isclose(found.curvature, min(spectrum), abs_tol=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_dense_reports_a_breakdown_for_negative_curvature_and_not_for_rounding(seed):
    A, b = system([1.0, 2.0, 0.0, 0.0, 3.0], seed)
    assert dense(lambda v: A @ v, b).breakdown == 0
    A, b = system([1.0, 2.0, -1e-3], seed)
    assert dense(lambda v: A @ v, b).breakdown == 1


@pytest.mark.parametrize("solver", [cg, lambda m, b, steps: neumann(m, b, steps, 0.1)])
def test_each_step_costs_one_product(solver):
    A, b = system([1.0, 2.0, 3.0], 0)
    calls = []
    solver(lambda v: (calls.append(1), A @ v)[1], b, 4)
    assert len(calls) in (4, 5)


def test_report_names_the_numbers_of_the_history():
    found = cg(lambda v: 2 * v, torch.ones(2, dtype=torch.float64), 3)
    assert set(linear.report(found)) == {"residual", "curvature", "linear_steps", "breakdown"}
    assert linear.report(found)["linear_steps"] == found.steps == 1
