"""check_hypergradient: exact, biased by design, or wrong."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest
import torch

import bvfim
from bvfim import tree
from bvfim.core.lower_minimum import lower_minimum
from bvfim.methods import LowerState
from tests.problems import nested, quadratic, relative, sine_1d

Q = quadratic(4, 6, seed=4)
X, Y = torch.linspace(-1, 1, 4).double(), torch.zeros(6).double()
TIGHT = {"z_steps": 600, "y_steps": 600, "z_lr": 0.2, "y_lr": 0.2}

EXACT = {
    "FHG": bvfim.FHG(20, 0.1),
    "RHG": bvfim.RHG(20, 0.1),
    "BDA": bvfim.BDA(20, 0.1),
    "TRHG that keeps all": bvfim.TRHG(20, keep=20, lr=0.1),
    "CG": bvfim.CG(200, 0.2, cg_steps=6),
    "Neumann": bvfim.Neumann(200, 0.2, terms=200),
    "BVFIM": bvfim.BVFIM(**TIGHT),
    "F2SA of order 1": bvfim.F2SA(1, steps=600, lr=0.2),
    "F2SA of order 2": bvfim.F2SA(2, steps=600, lr=0.2),
}
BIASED = {
    "TRHG": (bvfim.TRHG(20, keep=4, lr=0.1), "only the last 4 of 20"),
    "CG short of n steps": (bvfim.CG(200, 0.2, cg_steps=2), "2 CG steps"),
    "CG with damping": (bvfim.CG(200, 0.2, cg_steps=6, damping=0.5), "damping 0.5"),
    "CG on an unsolved lower level": (bvfim.CG(3, 0.05, cg_steps=6), "3 lower steps"),
    "Neumann": (bvfim.Neumann(200, 0.2, terms=3), "3 terms"),
    "BVFIM with short inner loops": (bvfim.BVFIM(z_steps=5, y_steps=5), "5 steps on z and 5 on y"),
    "F2SA with short inner loops": (bvfim.F2SA(2, steps=5), "5 steps on each of two"),
    "SOBA": (bvfim.SOBA(lr=0.2), "one step of y and v"),
    "SABA": (bvfim.SABA(lr=0.2), "one step of y and v, and the memory"),
    "LowerValue": (bvfim.BVFIM(**TIGHT, mu2=bvfim.LowerValue(20.0)), "held constant"),
}


@pytest.mark.long
@pytest.mark.parametrize("name", EXACT)
def test_exact_methods_are_called_exact(name):
    found = bvfim.check_hypergradient(Q.problem, X, Y, EXACT[name])
    assert found.verdict is bvfim.Verdict.EXACT, str(found)
    assert found.cosine == pytest.approx(1.0, abs=1e-6)
    assert "exact" in str(found)


@pytest.mark.long
@pytest.mark.parametrize("name", BIASED)
def test_biased_methods_are_called_biased_by_design(name):
    method, words = BIASED[name]
    found = bvfim.check_hypergradient(Q.problem, X, Y, method)
    assert found.verdict is bvfim.Verdict.BIASED, str(found)
    assert words in str(found)
    assert found.relative_error > 1e-4


@pytest.mark.long
def test_on_a_non_convex_problem_with_trees():
    problem, x, y = nested()
    for method in (bvfim.RHG(10, 0.1), bvfim.FHG(10, 0.1), bvfim.BDA(10, 0.1), bvfim.CG(300, 0.1, cg_steps=5)):
        found = bvfim.check_hypergradient(problem, x, y, method)
        assert found.verdict is bvfim.Verdict.EXACT, str(found)
    assert bvfim.check_hypergradient(problem, x, y, bvfim.TRHG(10, 3, 0.1)).verdict is bvfim.Verdict.BIASED


def test_the_implicit_gradient_beside_it():
    found = bvfim.check_hypergradient(Q.problem, X, Y, bvfim.CG(200, 0.2, cg_steps=6))
    assert found.implicit_error < 1e-6
    exact = bvfim.check_hypergradient(Q.problem, X, Y, bvfim.RHG(5, 0.1))
    expected = relative(exact.estimate, Q.gradient(X))
    assert exact.implicit_error == pytest.approx(expected, rel=1e-4)
    # On the hill of the sine the Hessian at the minimum is fine, but a flat lower level has no implicit gradient.
    flat = bvfim.Problem(lambda x, y: (x + y).sum(), lambda x, y: (y[:1] - x).square().sum() + 0 * y.sum())
    assert bvfim.check_hypergradient(flat, X[:1], Y, bvfim.RHG(3)).implicit_error is None


SQUARES = bvfim.Problem(lambda x, y: ((x - 2) ** 2 + (y - 2) ** 2).sum(), lambda x, y: ((y - x + 1) ** 2).sum())
UNSOLVED = {
    "diverged": (SQUARES, bvfim.RHG(30, 3.0), "8.67e+41 where it ends and 0 further on"),
    "barely started": (SQUARES, bvfim.RHG(2, 1e-6), "f is 1 where it starts, 1 where it ends and 0 further on"),
    "on a maximum": (
        bvfim.Problem(SQUARES.upper, lambda x, y: (x * y - y**2).sum()), bvfim.FHG(5, 0.1), "negative curvature",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNSOLVED)
def test_an_unsolved_lower_level_is_never_exact(name):
    """However well the estimate matches differences of its own value."""
    problem, method, words = UNSOLVED[name]
    found = bvfim.check_hypergradient(problem, X[:1] * 0, Y[:1], method)
    assert found.relative_error < 1e-6
    assert found.verdict is bvfim.Verdict.BIASED
    assert words in str(found)


def test_a_start_at_the_minimum_does_not_make_up_for_a_missing_response():
    """f is as low as it gets, and y hardly follows x."""
    found = bvfim.check_hypergradient(SQUARES, X[:1] * 0, Y[:1] - 1, bvfim.RHG(2, 1e-6))
    assert found.lower_gap == 0
    assert found.verdict is bvfim.Verdict.BIASED
    assert found.implicit_error == pytest.approx(0.6, abs=1e-3)
    assert "most of what y changes with x is missing" in str(found)


def test_an_estimate_that_points_the_other_way_is_wrong():
    """Two steps of 1.2 overshoot: y_2 moves against x, and F with it."""
    steep = bvfim.Problem(lambda x, y: ((y - 2) ** 2).sum(), SQUARES.lower)
    found = bvfim.check_hypergradient(steep, X[:1] * 0, Y[:1], bvfim.RHG(2, 1.2))
    assert found.relative_error < 1e-6
    assert found.implicit_cosine == pytest.approx(-1)
    assert found.verdict is bvfim.Verdict.WRONG
    short = bvfim.check_hypergradient(SQUARES, X[:1] * 0, Y[:1], Backwards(20, keep=1, lr=0.1))
    assert short.cosine == pytest.approx(-1)
    assert short.verdict is bvfim.Verdict.WRONG


@dataclass(frozen=True)
class Backwards(bvfim.TRHG):
    """Right without truncation; with it, of the wrong sign, and it says no more than that it is truncated."""

    def estimate(self, problem, x, state, k, data):
        gradient, state, info = super().estimate(problem, x, state, k, data)
        return (gradient if self.keep == self.steps else tree.scale(-1.0, gradient)), state, info

    def reference(self, problem, x, state, k, data):
        return super().reference(problem, x, state, k, data)._replace(own=None)


def test_float32_gets_a_rough_verdict():
    single = type(Q)(**{name: t.float() for name, t in vars(Q).items()})
    found = bvfim.check_hypergradient(single.problem, X.float(), Y.float(), bvfim.RHG(10, 0.1))
    assert found.verdict is bvfim.Verdict.EXACT
    found = bvfim.check_hypergradient(single.problem, X.float(), Y.float(), bvfim.TRHG(10, 2, 0.1))
    assert found.verdict is bvfim.Verdict.BIASED


def test_a_long_x_is_probed_along_random_directions():
    q = quadratic(40, 6)
    found = bvfim.check_hypergradient(q.problem, torch.ones(40).double(), Y, bvfim.RHG(10, 0.1))
    assert found.verdict is bvfim.Verdict.EXACT


@dataclass(frozen=True)
class Scaled(bvfim.RHG):
    def estimate(self, problem, x, state, k, data):
        gradient, state, info = super().estimate(problem, x, state, k, data)
        return tree.scale(1.01, gradient), state, info


@dataclass(frozen=True)
class Flipped(bvfim.CG):
    """The sign of the indirect term is wrong."""

    def estimate(self, problem, x, state, k, data):
        gradient, state, info = super().estimate(problem, x, state, k, data)
        direct = problem.at(x, data).upper_grads(state.y)[1][0]
        return 2 * direct - gradient, state, info


@dataclass(frozen=True)
class Leaky(bvfim.TRHG):
    """Truncation that also forgets the direct term."""

    def estimate(self, problem, x, state, k, data):
        gradient, state, info = super().estimate(problem, x, state, k, data)
        return gradient - problem.at(x, data).upper_grads(state.y)[1][0], state, info


@dataclass(frozen=True)
class LeakyOnlyWhenTruncated(bvfim.TRHG):
    """Right without truncation; with it, one step more than it says."""

    def estimate(self, problem, x, state, k, data):
        longer = bvfim.TRHG(self.steps, min(self.keep + 1, self.steps), self.lr)
        return longer.estimate(problem, x, state, k, data)


@dataclass(frozen=True)
class StuckSlack(bvfim.BVFIM):
    """A barrier that leaves out f_x(x, z)."""

    def estimate(self, problem, x, state, k, data):
        gradient, state, info = super().estimate(problem, x, state, k, data)
        x = x.detach().requires_grad_()
        (f_x,) = torch.autograd.grad(problem.lower(x, state.z), x)
        return gradient + f_x / info["slack"], state, info


class Bare(bvfim.Estimator):
    """No reference, no value: only the direct gradient."""

    def init(self, problem, x, y):
        return LowerState(y, y)

    def estimate(self, problem, x, state, k, data):
        at = problem.at(x, data)
        y = lower_minimum(at, state.y)[0]
        return at.pull(at.upper_grads(y)[1]), LowerState(state.start, y), {}


PLANTED = [
    Scaled(20, 0.1),
    Flipped(200, 0.2, cg_steps=6),
    Leaky(20, 10, 0.1),
    LeakyOnlyWhenTruncated(20, 10, 0.1),
    StuckSlack(**TIGHT),
    Bare(),
]


@pytest.mark.parametrize("method", PLANTED, ids=lambda m: type(m).__name__)
def test_planted_wrong_methods_are_caught(method):
    found = bvfim.check_hypergradient(Q.problem, X, Y, method)
    assert found.verdict is bvfim.Verdict.WRONG, str(found)


@pytest.mark.parametrize("method", PLANTED[:2], ids=lambda m: type(m).__name__)
def test_planted_wrong_methods_are_caught_with_trees_and_sines(method):
    start = torch.full((1,), 2.0).double()
    assert bvfim.check_hypergradient(sine_1d(2.0), start, start, replace(method, lr=0.1)).verdict is bvfim.Verdict.WRONG


def test_float32_says_what_counts_as_equal():
    x = torch.zeros(1)
    assert "(float32: 3% counts as equal)" in str(bvfim.check_hypergradient(SQUARES, x, x, bvfim.RHG(20, 0.1)))
    exact = bvfim.check_hypergradient(SQUARES, x.double(), x.double(), bvfim.RHG(20, 0.1))
    assert "counts as equal" not in str(exact)


def test_the_cosine_with_a_gradient_of_zero_is_none():
    """F is at its minimum: what is left of the gradient is rounding."""
    x = torch.zeros(2, dtype=torch.float64)
    problem = bvfim.Problem(lambda x, y: (y**2).sum(), lambda x, y: ((y - x) ** 2).sum())
    found = bvfim.check_hypergradient(problem, x, x + 1e-30, bvfim.RHG(20, 0.1))
    assert math.isnan(found.cosine)
    assert str(found).count("cosine -,") == 2


def test_lower_steps_that_go_up_are_named():
    """A step of 1.03 multiplies the distance from the minimum by -1.06."""
    x = torch.full((1,), 0.3, dtype=torch.float64)
    problem = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum())
    found = bvfim.check_hypergradient(problem, x, 0 * x, bvfim.RHG(5, 1.03))
    assert found.bias.startswith("the lower steps go up: the step is too long")
