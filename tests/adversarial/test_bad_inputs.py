"""Bad inputs get one sentence that names them, before any work is done."""

from __future__ import annotations

import math

import pytest
import torch

import bvfim
from tests.adversarial.small import PLAIN, ZERO, D, lower, refused, solve, upper


def detached_lower():
    return bvfim.Problem(upper, lambda x, y: ((y - x.detach() + 1) ** 2).sum())


def detached_upper():
    return bvfim.Problem(lambda x, y: ((x.detach() - 2) ** 2 + (y - 2) ** 2).sum(), lower)


REFUSED = {
    "time_limit must be a number of seconds, at least 0, not nan": lambda: solve(time_limit=math.nan),
    "time_limit must be a number of seconds, at least 0, not -1": lambda: solve(time_limit=-1),
    "time_limit must be a number of seconds, at least 0, not '10'": lambda: solve(time_limit="10"),
    "tol must be a number of at least 0, not 'a'": lambda: solve(tol="a"),
    "tol must be a number of at least 0, not nan": lambda: solve(tol=math.nan),
    "callbacks must be a list of functions of the run, not a function": lambda: solve(callbacks=lambda run: None),
    "callbacks must be a list of functions of the run, not a str": lambda: solve(callbacks="abc"),
    "callbacks must be functions of the run, but one is a int": lambda: solve(callbacks=[3]),
    "scheduler must be a function from an optimiser to its scheduler, not a str": lambda: solve(scheduler="cosine"),
    "scheduler must return a learning-rate scheduler, not a NoneType": lambda: solve(scheduler=lambda o: None),
    "holdout must be a function of x and y, not a str": lambda: solve(holdout="rows"),
    "progress must be True, False or None, not 'yes'": lambda: solve(progress="yes"),
    "x must hold dense tensors with values, not sparse ones": lambda: solve(x=torch.zeros(2, dtype=D).to_sparse()),
    "x must hold dense tensors with values, not meta ones": lambda: solve(
        x=torch.zeros(1, dtype=D, device="meta"), y=torch.zeros(1, dtype=D, device="meta")
    ),
    "x must hold floating-point tensors, not torch.complex128": lambda: solve(x=torch.zeros(1, dtype=torch.complex128)),
    "upper must be a function of (x, y), or of (x, y, data)": lambda: bvfim.Problem(lambda x: (x**2).sum(), lower),
    "lower must be a function of (x, y), or of (x, y, data)": lambda: bvfim.Problem(upper, lambda a, b, c, d: a),
    "there are batches, but neither objective takes them": lambda: solve(batches=[1.0, 2.0]),
    "lower changes with x, but its gradient in x is zero": lambda: solve(detached_lower()),
    "upper changes with x, but its gradient in x is zero": lambda: solve(detached_upper(), method=None),
    "alpha must stay below 1, not 2": lambda: solve(method=bvfim.BDA(alpha=2.0)),
    "Box: bounds must be numbers or dense tensors, not 'a' and 1": lambda: bvfim.Box("a", 1),
    "check_hypergradient needs float64, or float32": lambda: bvfim.check_hypergradient(
        PLAIN, ZERO.half(), ZERO.half(), bvfim.RHG
    ),
    "y_scheduler must be a function": lambda: bvfim.StochasticBVFIM(y_scheduler="cosine"),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_a_bad_input_gets_its_sentence(sentence):
    refused(REFUSED[sentence], sentence)


@pytest.mark.parametrize(
    "problem",
    [
        bvfim.Problem(lambda x, y: (x**2 + y**2).sum(), lambda x, y: ((y - x) ** 2).sum()),
        bvfim.Problem(lambda x, y: (x**3 + y**2).sum(), lambda x, y: (y**2 + x**4 * y).sum()),
        bvfim.Problem(lambda x, y: (y**2).sum(), lambda x, y: (y**2).sum() + 0 * x.sum()),
        bvfim.Problem(lambda x, y: (y**2).sum(), lambda x, y: ((y - 1e8 * x) ** 2).sum() + 1e8),
    ],
    ids=["even", "odd", "constant", "large"],
)
def test_an_objective_that_is_level_at_the_start_is_not_suspected(problem):
    assert solve(problem).steps == 2


def test_a_bound_is_not_crossed_to_look_for_a_dependence():
    def root(x, y):
        return (y**2).sum() + x.detach().sqrt().sum()

    problem = bvfim.Problem(lambda x, y: (x**2 + y**2).sum(), root, x_set=bvfim.Box(lower=0))
    assert solve(problem).steps == 2


def test_a_diverged_run_returns_its_best_iterate():
    problem = bvfim.Problem(lambda x, y: ((x - 1) ** 2 + y**2).sum(), lambda x, y: ((y - x) ** 2).sum())
    found = bvfim.solve(problem, ZERO + 3, ZERO, bvfim.CG(lr=0.1), lambda p: torch.optim.SGD(p, 3.0), steps=2000)
    assert found.status is bvfim.Status.NON_FINITE
    assert found.upper <= min(found.history["upper"][:-1]) + 1e-9


def test_a_breakdown_of_cg_at_its_first_direction_is_no_convergence():
    """The lower level is concave at the start, and F has no gradient of its own in x."""
    problem = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: (0.01 * y**4 - (y - x) ** 2 / 2).sum())
    found = bvfim.solve(problem, ZERO, ZERO, bvfim.CG(steps=1, lr=1e-3), tol=1e-6, steps=1)
    assert found.history["breakdown"].iloc[0] == 1
    assert found.history["grad_norm"].iloc[0] > 0
    assert found.status is not bvfim.Status.CONVERGED


def test_every_callback_is_finished_even_if_one_fails():
    ended = []

    class Ends:
        def __init__(self, name, fails=False):
            self.name, self.fails = name, fails

        def __call__(self, run):
            return None

        def finish(self, run):
            ended.append(self.name)
            if self.fails:
                raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        solve(callbacks=[Ends("first", fails=True), Ends("second")])
    assert ended == ["first", "second"]
