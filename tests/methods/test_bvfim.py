"""BVFIM: its gradient, its slack, its invariance, and the published numbers."""

from __future__ import annotations

import pytest
import torch

import bvfim
from bvfim import tree
from bvfim.schedules import constant
from tests.problems import nested, quadratic, relative, sine_1d


def tight(**changes):
    settings = {
        "z_steps": 600,
        "y_steps": 800,
        "z_lr": 0.1,
        "y_lr": 0.1,
        "mu1": 0.1,
        "mu2": 0.5,
        "theta": 0.1,
        "tau": 0.5,
    }
    return bvfim.BVFIM(**{**settings, **changes})


def convex_dicts():
    q = quadratic(4, 6, seed=1)
    problem = bvfim.Problem(
        upper=lambda x, y: q.problem.upper(x["x"]["a"], y["y"]["b"]),
        lower=lambda x, y: q.problem.lower(x["x"]["a"], y["y"]["b"]),
    )
    return problem, {"x": {"a": torch.linspace(-1, 1, 4).double()}}, {"y": {"b": torch.zeros(6).double()}}


CASES = {
    "convex, nested dicts": convex_dicts,
    "non-convex, nested": nested,
    "sine": lambda: (sine_1d(2.0), torch.full((1,), 2.0).double(), torch.full((1,), 2.5).double()),
}


def differences(problem, x, y, method, h=1e-5):
    """Central differences of phi, its inner problems solved from the same start each time."""
    flat = tree.flatten(x)

    def phi(point):
        state = method.init(problem, x, y)
        return method.estimate(problem, tree.unravel(point, x), state, 0, None)[2]["value"]

    eye = torch.eye(len(flat), dtype=flat.dtype)
    return torch.stack([(phi(flat + h * e) - phi(flat - h * e)) / (2 * h) for e in eye])


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_gradient_matches_differences_of_phi(name):
    problem, x, y = CASES[name]()
    expected = differences(problem, x, y, tight())
    found = tree.flatten(bvfim.hypergradient(problem, x, y, tight()))
    assert relative(found, expected) < 1e-5
    single = tree.map(torch.Tensor.float, (x, y))
    if name != "convex, nested dicts":  # its matrices are float64
        in_float32 = tree.flatten(bvfim.hypergradient(problem, *single, tight())).double()
        assert relative(in_float32, expected) < 1e-2


def test_gradient_in_float32_on_a_convex_problem():
    q = quadratic(4, 6, seed=1)
    x, y = torch.linspace(-1, 1, 4).double(), torch.zeros(6).double()
    expected = differences(q.problem, x, y, tight())
    rounded = type(q)(**{name: t.float() for name, t in vars(q).items()})
    found = bvfim.hypergradient(rounded.problem, x.float(), y.float(), tight()).double()
    assert relative(found, expected) < 1e-2


@pytest.mark.long
@pytest.mark.parametrize(
    ("a", "start", "x", "y"),
    [(0, 0.0, -0.477, -0.482), (2, 3.0, 2.075, 2.071), (0, 3.0, 0.139, -0.048), (2, 0.0, 2.031, 2.039)],
)
def test_the_printed_recipe_ends_where_an_independent_program_did(a, start, x, y):
    begin = torch.full((1,), start, dtype=torch.float64)
    solution = bvfim.solve(sine_1d(a), begin, begin, bvfim.BVFIM.printed(), steps=500)
    assert solution.x.item() == pytest.approx(x, abs=0.005)
    assert solution.y.item() == pytest.approx(y, abs=0.005)


@pytest.mark.long
def test_the_true_barrier_ends_nearer_to_the_optimum_than_the_printed_recipe():
    toy = bvfim.testproblems.sine(2)
    begin = torch.full((1,), 3.0, dtype=torch.float64)
    g = bvfim.schedules.geometric
    barrier = bvfim.BVFIM(mu1=g(0.01, 0.99), mu2=g(4.0, 0.98), theta=g(0.01, 0.99), tau=g(1.0, 0.985))
    solution = bvfim.solve(toy.problem, begin, begin, barrier, steps=500)
    assert abs(solution.x - toy.x).item() < 0.03  # the printed recipe: 0.28
    assert (solution.history["slack"] > 0).all()


@pytest.mark.parametrize("shift", [1e3, -1e3, 0.7])
def test_a_constant_in_the_lower_objective_changes_no_iterate(shift):
    problem, x, y = nested()
    shifted = bvfim.Problem(problem.upper, lambda x, y: problem.lower(x, y) + shift)
    one, other = (bvfim.solve(p, x, y, bvfim.BVFIM(z_lr=0.05, y_lr=0.05), steps=30) for p in (problem, shifted))
    for a, b in ((one.x, other.x), (one.y, other.y), (one.z, other.z)):
        assert (tree.flatten(a) - tree.flatten(b)).abs().max() < 1e-8
    assert other.lower - one.lower == pytest.approx(shift, abs=1e-6)


FIGHTERS = {
    "F pulls y out of the feasible set": (lambda x, y: -100 * y.sum() + (x**2).sum(), lambda x, y: (y**2).sum()),
    "steep lower level": (lambda x, y: ((y - 5) ** 2).sum(), lambda x, y: 1e3 * ((y - x) ** 2).sum()),
    "wells": (lambda x, y: ((y - 4) ** 2).sum(), lambda x, y: torch.sin(5 * y).sum() + 0.01 * (x * y).sum()),
    "negative lower values": (lambda x, y: (y**2).sum(), lambda x, y: (y - x).square().sum() - 1e4),
    "quartic, far start": (lambda x, y: (y - 3).square().sum(), lambda x, y: ((y - x) ** 4).sum()),
}


@pytest.mark.parametrize("name", FIGHTERS)
@pytest.mark.parametrize("mu2", [1.0, 1e-3, 1e-6])
@pytest.mark.parametrize("start", ["warm", "restart", "z"])
def test_the_slack_stays_positive_on_objectives_that_fight_it(name, mu2, start):
    problem = bvfim.Problem(*FIGHTERS[name])
    x, y = torch.zeros(2).double(), torch.full((2,), 1.5).double()
    method = bvfim.BVFIM(z_steps=20, y_steps=20, z_lr=4e-4, y_lr=0.1, mu2=constant(mu2), start=start)
    solution = bvfim.solve(problem, x, y, method, steps=30)
    assert solution.status is bvfim.Status.MAX_STEPS
    assert (solution.history["slack"] > 0).all()
    assert torch.isfinite(solution.x).all()
    assert torch.isfinite(solution.y).all()


def test_the_published_slack_can_be_lost_and_says_so():
    problem = bvfim.Problem(lambda x, y: (x - y).square().sum(), lambda x, y: (y - x).square().sum() - 3.0)
    x = torch.zeros(1).double()
    solution = bvfim.solve(problem, x, x, bvfim.BVFIM.printed(offset=1.0), steps=10)
    assert solution.status is bvfim.Status.SLACK_LOST
    assert solution.steps == 0
    assert torch.equal(solution.x, x)
    assert "offset" in solution.status.advice


class OnlyOnce(torch.autograd.Function):
    """A square whose backward can't be differentiated."""

    @staticmethod
    def forward(ctx, t):
        ctx.save_for_backward(t)
        return t * t

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        (t,) = ctx.saved_tensors
        return 2 * g * t


def test_no_double_backward_anywhere(monkeypatch):
    """Objectives that refuse a second derivative, and an autograd that refuses to build its graph."""
    problem = bvfim.Problem(lambda x, y: OnlyOnce.apply(y - x).sum(), lambda x, y: OnlyOnce.apply(y + x).sum())
    x = torch.ones(2).double()
    plain = torch.autograd.grad

    def grad(*args, create_graph=False, **options):
        assert not create_graph, "BVFIM asked for the graph of a gradient"
        return plain(*args, create_graph=create_graph, **options)

    monkeypatch.setattr(torch.autograd, "grad", grad)
    for method in (
        bvfim.BVFIM(),
        bvfim.BVFIM.printed(offset=10.0),
        bvfim.BVFIM(start="z"),
        bvfim.BVFIM(start="restart"),
    ):
        assert bvfim.solve(problem, x, x, method, steps=3).status is bvfim.Status.MAX_STEPS
    with pytest.raises((RuntimeError, AssertionError)):
        bvfim.solve(problem, x, x, bvfim.RHG(steps=2), steps=1)


def test_evaluations_are_those_of_algorithm_1():
    problem, x, y = nested()
    bvfim.hypergradient(problem, x, y, bvfim.BVFIM(z_steps=7, y_steps=4))
    # Tz gradients of f for z, Ty of each for y, one of F and two of f for x; the values check z and the last trial.
    assert problem.evaluations.as_dict() == {"upper": 5, "lower": 13, "forward": 3, "hvp": 0, "jvp": 0}


def test_repeats_hold_a_stage_for_l_steps():
    seen = []

    def tau(k):
        seen.append(k)
        return 1.0

    problem, x, y = nested()
    bvfim.solve(problem, x, y, bvfim.BVFIM(z_steps=1, y_steps=1, tau=tau, repeats=3), steps=7)
    assert seen == [0, 0, 0, 1, 1, 1, 2]


def test_y_starts_from_z_where_asked():
    problem, x, y = nested()
    method = bvfim.BVFIM(z_steps=50, y_steps=1, y_lr=1e-12, start="z")
    solution = bvfim.solve(problem, x, y, method, steps=1)
    assert (tree.flatten(solution.y) - tree.flatten(solution.z)).abs().max() < 1e-8
    assert not torch.equal(tree.flatten(solution.z), tree.flatten(y))
