"""Hypergradients against closed forms on quadratics, and against each other on anything."""

from __future__ import annotations

import itertools

import pytest
import torch

import bvfim
from bvfim import tree
from tests.problems import nested, quadratic, relative, sine_1d

SIZES = [(1, 1), (3, 7), (7, 3), (50, 50)]


@pytest.mark.parametrize("spectrum", ["random", "identity", "scaled", "wide"])
@pytest.mark.parametrize(("m", "n"), SIZES)
def test_cg_with_n_steps_is_the_closed_form(m, n, spectrum):
    q = quadratic(m, n, seed=m + n, spectrum=spectrum)
    x = torch.randn(m, dtype=torch.float64)
    lr = 0.5 / float(torch.linalg.eigvalsh(q.H)[-1])
    found = bvfim.hypergradient(q.problem, x, q.response(x), bvfim.CG(steps=1, lr=lr, cg_steps=n))
    assert relative(found, q.gradient(x)) < 1e-8


@pytest.mark.parametrize("spectrum", ["identity", "scaled"])
def test_cg_stays_exact_when_one_step_is_enough(spectrum):
    q = quadratic(4, 6, spectrum=spectrum)
    x = torch.randn(4, dtype=torch.float64)
    for steps in (1, 2, 20):
        found = bvfim.hypergradient(q.problem, x, q.response(x), bvfim.CG(steps=1, lr=0.01, cg_steps=steps))
        assert relative(found, q.gradient(x)) < 1e-12


def test_cg_from_any_start_once_the_lower_level_is_solved():
    q = quadratic(5, 8)
    x = torch.randn(5, dtype=torch.float64)
    found = bvfim.hypergradient(q.problem, x, torch.zeros(8, dtype=torch.float64), bvfim.CG(400, 0.3, cg_steps=8))
    assert relative(found, q.gradient(x)) < 1e-8


def test_neumann_converges_at_the_rate_of_its_contraction():
    q = quadratic(5, 8)
    x, eta = torch.randn(5, dtype=torch.float64), 0.3
    rate = float((1 - eta * torch.linalg.eigvalsh(q.H)).abs().max())
    errors = []
    for terms in (20, 40, 60):
        method = bvfim.Neumann(steps=1, lr=0.3, terms=terms, eta=eta)
        errors.append(float((bvfim.hypergradient(q.problem, x, q.response(x), method) - q.gradient(x)).norm()))
    for before, after in itertools.pairwise(errors):
        assert after / before == pytest.approx(rate**20, rel=0.15)


def test_rhg_is_the_derivative_of_the_unrolled_steps_and_converges_at_their_rate():
    q = quadratic(5, 8)
    x, y, lr = torch.randn(5, dtype=torch.float64), torch.zeros(8, dtype=torch.float64), 0.3
    rate = float((1 - lr * torch.linalg.eigvalsh(q.H)).abs().max())
    errors = []
    for steps in (40, 60, 80):
        found = bvfim.hypergradient(q.problem, x, y, bvfim.RHG(steps, lr))
        assert relative(found, q.unrolled(x, y, steps, lr)) < 1e-12
        errors.append(float((found - q.gradient(x)).norm()))
    for before, after in itertools.pairwise(errors):
        # The error is T rate^T up to constants: once for y_T, once for its derivative.
        assert rate**20 * 0.8 < after / before < rate**20 * 2.0


DYNAMICS = [None, bvfim.dynamics.Momentum(0.02, 0.8), bvfim.dynamics.Adam(0.02)]
PROBLEMS = {
    "nested": nested,
    "sine": lambda: (sine_1d(2.0), torch.full((1,), 3.0, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)),
    "quadratic": lambda: (
        quadratic(4, 6).problem,
        torch.linspace(-1, 1, 4, dtype=torch.float64),
        torch.ones(6, dtype=torch.float64),
    ),
    "boxed": lambda: (
        bvfim.Problem(quadratic(4, 6).problem.upper, quadratic(4, 6).problem.lower, y_set=bvfim.Box(-0.3, 0.4)),
        torch.linspace(-1, 1, 4, dtype=torch.float64),
        torch.zeros(6, dtype=torch.float64),
    ),
    "context": lambda: (
        bvfim.Problem(
            upper=lambda x, y, c: ((y - c["t"]) ** 2).sum() + c["t"].sum() * x.sum(),
            lower=lambda x, y, c: (torch.cosh(y - c["t"]) * c["w"]).sum() + (x * x).sum() * y.sum(),
            context=lambda x, batch: {"t": torch.sin(x), "w": 1 + x**2, "rows": torch.arange(3)},
        ),
        torch.linspace(-1, 1, 3, dtype=torch.float64),
        torch.zeros(3, dtype=torch.float64),
    ),
}


@pytest.mark.parametrize("dynamics", DYNAMICS, ids=lambda d: type(d).__name__)
@pytest.mark.parametrize("name", PROBLEMS)
def test_fhg_equals_rhg_on_any_problem(name, dynamics):
    problem, x, y = PROBLEMS[name]()
    forward, backward = (
        tree.flatten(bvfim.hypergradient(problem, x, y, kind(steps=15, lr=0.05, dynamics=dynamics)))
        for kind in (bvfim.FHG, bvfim.RHG)
    )
    assert relative(forward, backward) < 1e-10


@pytest.mark.parametrize("dynamics", DYNAMICS, ids=lambda d: type(d).__name__)
@pytest.mark.parametrize("name", PROBLEMS)
def test_every_segment_length_gives_the_same_gradient(name, dynamics):
    problem, x, y = PROBLEMS[name]()
    found = [
        tree.flatten(bvfim.hypergradient(problem, x, y, bvfim.RHG(7, 0.05, dynamics=dynamics, segment=segment)))
        for segment in (1, 3, 7, 100)
    ]
    for other in found[1:]:
        assert relative(other, found[0]) < 1e-12


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_limits_of_trhg_and_bda_are_rhg(name):
    problem, x, y = PROBLEMS[name]()
    expected = tree.flatten(bvfim.hypergradient(problem, x, y, bvfim.RHG(12, 0.05)))
    for method in (bvfim.TRHG(12, keep=12, lr=0.05), bvfim.BDA(12, 0.05, alpha=0.0)):
        assert relative(tree.flatten(bvfim.hypergradient(problem, x, y, method)), expected) < 1e-12


def test_truncation_leaves_out_exactly_the_first_steps():
    q = quadratic(5, 8)
    x, y, lr = torch.randn(5, dtype=torch.float64), torch.zeros(8, dtype=torch.float64), 0.1
    halfway = y
    for _ in range(6):
        halfway = halfway - lr * (q.H @ halfway - q.B @ x - q.c)
    expected = q.unrolled(x, halfway, 4, lr)
    for segment in (1, 3, 10):
        found = bvfim.hypergradient(q.problem, x, y, bvfim.TRHG(10, keep=4, lr=lr, segment=segment))
        assert relative(found, expected) < 1e-12


def test_bda_matches_finite_differences_and_follows_its_schedule():
    problem, x, y = nested()
    method = bvfim.BDA(steps=8, lr=0.1, alpha=bvfim.schedules.geometric(0.5, 0.5))
    for k in (0, 3):
        assert bvfim.check_hypergradient(problem, x, y, method, step=k).relative_error < 1e-8
    assert relative(
        bvfim.hypergradient(problem, x, y, method, step=1)["w"][0],
        bvfim.hypergradient(problem, x, y, bvfim.BDA(steps=8, lr=0.1, alpha=0.25))["w"][0],
    ) < 1e-12  # fmt: skip


@pytest.mark.parametrize("kind", ["box", "ball", "simplex"])
def test_implicit_methods_on_a_set_match_differences_of_the_constrained_solution(kind):
    """On an active face the implicit gradient is that of the face."""
    q = quadratic(3, 5, seed=2)
    y_set = {"box": bvfim.Box(-0.5, 0.3), "ball": bvfim.Ball(0.7), "simplex": bvfim.Simplex()}[kind]
    problem = bvfim.Problem(q.problem.upper, q.problem.lower, y_set=y_set)
    x = torch.tensor([0.3, -0.8, 1.1], dtype=torch.float64)

    def solved(x):
        y = problem.project_y(torch.full((5,), 0.2, dtype=torch.float64))
        for _ in range(3000):
            y = y_set.project(y - 0.3 * (q.H @ y - q.B @ x - q.c))
        return y

    h = 1e-6
    slopes = [
        problem.upper(x + h * e, solved(x + h * e)) - problem.upper(x - h * e, solved(x - h * e)) for e in torch.eye(3)
    ]
    expected = torch.stack(slopes) / (2 * h)
    for method in (
        bvfim.CG(1, 0.3, cg_steps=10),
        bvfim.Neumann(1, 0.3, terms=400),
        bvfim.RHG(300, 0.3),
        bvfim.FHG(300, 0.3),
    ):
        assert relative(bvfim.hypergradient(problem, x, solved(x), method), expected) < 1e-6


def test_warm_starts_go_on_and_restarts_do_not():
    problem, x, y = nested()
    for kind in (bvfim.RHG, bvfim.TRHG, bvfim.FHG, bvfim.BDA, bvfim.CG, bvfim.Neumann):
        for start in ("warm", "restart"):
            options = {"keep": 3} if kind is bvfim.TRHG else {}
            method = kind(steps=3, lr=0.05, start=start, **options)
            state = method.init(problem, x, y)
            first, state = bvfim.hypergradient(problem, x, y, method, state=state)
            second, state = bvfim.hypergradient(problem, x, y, method, state=state)
            same = torch.equal(tree.flatten(first), tree.flatten(second))
            assert same == (start == "restart")


def test_lr_may_be_a_schedule_of_the_upper_step():
    problem, x, y = nested()
    method = bvfim.RHG(3, lr=bvfim.schedules.geometric(0.1, 0.5))
    at_two = bvfim.hypergradient(problem, x, y, method, step=2)
    assert torch.equal(tree.flatten(at_two), tree.flatten(bvfim.hypergradient(problem, x, y, bvfim.RHG(3, lr=0.025))))
