"""Bad input: one clear sentence each."""

from __future__ import annotations

import math

import pytest
import torch

import bvfim
from tests.problems import nested, sine_1d

X = torch.ones(2, dtype=torch.float64)


def good(x, y):
    return ((x - y) ** 2).sum()


def solve(upper=good, lower=good, x=X, y=X, method=None, **options):
    return bvfim.solve(bvfim.Problem(upper, lower), x, y, method or bvfim.RHG(steps=2), steps=2, **options)


BAD_OBJECTIVES = {
    "upper must return a scalar, but its result has shape (2,): sum or average it": {"upper": lambda x, y: x + y},
    "lower must return a scalar, but its result has shape (2,): sum or average it": {"lower": lambda x, y: x + y},
    "lower must return a scalar, but its result has shape (1,)": {"lower": lambda x, y: (x + y).sum(0, keepdim=True)},
    "upper must return a scalar tensor, not a float": {"upper": lambda x, y: (x + y).sum().item()},
    "lower must return a scalar tensor, not a NoneType": {"lower": lambda x, y: None},
    "lower does not depend on y": {"lower": lambda x, y: (x**2).sum()},
    "upper is not differentiable": {"upper": lambda x, y: (x + y).sum().detach()},
    "lower is not differentiable": {"lower": lambda x, y: (x + y).argmax().double()},
    "lower takes (x, y, data), but there is no data": {"lower": lambda x, y, data: (x * y).sum()},
    "lower gives different values at the same point": {
        "lower": lambda x, y: torch.nn.functional.dropout((x - y) ** 2, 0.5).sum() + torch.rand(()).double()
    },
}


@pytest.mark.parametrize("message", BAD_OBJECTIVES)
def test_bad_objectives(message):
    with pytest.raises(bvfim.ProblemError) as error:
        solve(**BAD_OBJECTIVES[message])
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    with pytest.raises(bvfim.ProblemError):
        bvfim.hypergradient(
            bvfim.Problem(**{"upper": good, "lower": good, **BAD_OBJECTIVES[message]}), X, X, bvfim.RHG()
        )


BAD_VARIABLES = {
    "y must hold floating-point tensors, not torch.int64": {"y": torch.ones(2, dtype=torch.long)},
    "x must hold floating-point tensors, not torch.int32": {"x": {"a": X, "b": torch.ones(2, dtype=torch.int32)}},
    "x and y must share one dtype, but hold torch.float64 and torch.float32": {"y": torch.ones(2)},
    "x and y must be on one device, but are on cpu and meta": {"y": torch.ones(2, dtype=torch.float64, device="meta")},
    "x must be a tree of tensors, but holds a float": {"x": 1.0},
    "y holds no tensor": {"y": []},
    "x holds an empty tensor": {"x": torch.ones(0, dtype=torch.float64)},
}


@pytest.mark.parametrize("message", BAD_VARIABLES)
def test_bad_variables(message):
    with pytest.raises(bvfim.ProblemError) as error:
        solve(**BAD_VARIABLES[message])
    assert message in str(error.value)


BAD_METHODS = {
    "RHG: steps must be a whole number of at least 1, not -3": lambda: bvfim.RHG(steps=-3),
    "RHG: steps must be a whole number of at least 1, not 0": lambda: bvfim.RHG(steps=0),
    "RHG: lr must be a finite number above 0, not -0.1": lambda: bvfim.RHG(lr=-0.1),
    "CG: lr must be a finite number above 0, not nan": lambda: bvfim.CG(lr=math.nan),
    "CG: cg_steps must be a whole number of at least 1, not 2.5": lambda: bvfim.CG(cg_steps=2.5),
    "CG: damping must be a finite number of at least 0, not -1": lambda: bvfim.CG(damping=-1),
    "TRHG: keep must be at most steps (10), not 50": lambda: bvfim.TRHG(steps=10),
    "BVFIM: y_lr must be a finite number above 0, not 0": lambda: bvfim.BVFIM(y_lr=0),
    "BVFIM: mu2 must be a finite number above 0, not 0.0": lambda: bvfim.BVFIM(mu2=0.0),
    "BVFIM: tau must be a finite number of at least 0, not -1": lambda: bvfim.BVFIM(tau=-1),
    "BVFIM: start must be one of warm, restart, z, not 'cold'": lambda: bvfim.BVFIM(start="cold"),
    "RHG: start must be one of warm, restart, not 'z'": lambda: bvfim.RHG(start="z"),
    "Neumann: with a dynamics instead of lr, eta must be given": lambda: bvfim.Neumann(dynamics=bvfim.dynamics.Adam()),
    "no method is called 'nueman'; did you mean 'neumann'?": lambda: bvfim.methods.by_name("nueman"),
    "no method is called 'xyz'; choose from fhg, rhg, trhg, bda, cg, neumann, bvfim, adaptivebvfim": lambda: (
        bvfim.methods.by_name("xyz")
    ),
    "the schedule of tau returned 0.0 at step 1": lambda: solve(method=bvfim.BVFIM(tau=lambda k: 1.0 - k)),
    "the schedule of mu1 returned nan at step 0": lambda: solve(method=bvfim.BVFIM(mu1=lambda k: math.nan)),
    "the schedule of lr returned -1.0 at step 0": lambda: solve(method=bvfim.RHG(lr=lambda k: -1.0)),
    "BDA: alpha must stay below 1, not 1 (at step 0)": lambda: solve(method=bvfim.BDA(alpha=1.0)),
    "steps must be a whole number of at least 0, not -1": lambda: bvfim.solve(sine_1d(), X, X, steps=-1),
    "a method must be a bvfim.Estimator, with init and estimate, not a str": lambda: solve(method="rhg"),
    "LBFGS evaluates the objective several times": lambda: solve(optimizer=torch.optim.LBFGS),
    "optimizer must be a function from tensors to a torch optimiser, but returned a float": lambda: solve(
        optimizer=lambda p: 0.1
    ),
    "optimizer must optimise exactly the tensors": lambda: solve(optimizer=lambda p: torch.optim.SGD([X.clone()], 0.1)),
}


@pytest.mark.parametrize("message", BAD_METHODS)
def test_bad_methods(message):
    with pytest.raises(bvfim.MethodError) as error:
        BAD_METHODS[message]()
    assert message in str(error.value)


def test_objectives_must_be_functions():
    with pytest.raises(bvfim.ProblemError, match="lower must be a function, not a float"):
        bvfim.Problem(good, 3.0)


def test_inference_mode_is_refused():
    with torch.inference_mode(), pytest.raises(bvfim.ProblemError, match="inference_mode"):
        solve(x=X.clone(), y=X.clone())


def test_sets_that_do_not_fit_the_variable_are_refused():
    stated, x, y = nested()
    for bad in ({"w": [bvfim.Box(0, 1)]}, 3.0, {"w": [bvfim.Box(0, 1), "no"]}):
        with pytest.raises(bvfim.ProblemError, match="one set for all"):
            bvfim.solve(bvfim.Problem(stated.upper, stated.lower, x_set=bad), x, y, bvfim.RHG(steps=1), steps=1)


def test_a_start_outside_its_set_is_projected_and_said():
    problem = bvfim.Problem(good, good, x_set=bvfim.Box(-0.5, 0.5))
    with pytest.warns(bvfim.BvfimWarning, match="x was outside x_set at the start and was projected onto it"):
        solution = bvfim.solve(problem, X, X, bvfim.RHG(steps=1), steps=0)
    assert torch.equal(solution.x, 0.5 * X)


def test_grad_is_found_even_where_the_caller_switched_it_off():
    with torch.no_grad():
        solution = solve()
    assert solution.status is bvfim.Status.MAX_STEPS
    assert solution.history["grad_norm"].iloc[0] >= 0


@pytest.mark.parametrize("method", [bvfim.RHG(steps=3), bvfim.CG(steps=3), bvfim.BVFIM(), bvfim.BVFIM.printed()])
def test_nan_at_the_start_is_a_status(method):
    solution = solve(upper=lambda x, y: (x * y).sum() * math.nan, method=method)
    assert solution.status is bvfim.Status.NON_FINITE
    assert solution.steps == 0
    assert torch.equal(solution.x, X)
    solution = solve(x=X * math.nan, method=method)
    assert solution.status is bvfim.Status.NON_FINITE


@pytest.mark.parametrize("method", [bvfim.RHG(steps=3), bvfim.CG(steps=3), bvfim.BVFIM(), bvfim.FHG(steps=3)])
def test_nan_at_step_k_keeps_the_last_good_iterate(method):
    def upper(x, y):
        return (torch.sqrt(x - 0.9) + (y - x) ** 2).sum()  # NaN once x falls below 0.9

    solution = bvfim.solve(bvfim.Problem(upper, good), X, X, method, lambda p: torch.optim.SGD(p, 0.02), steps=100)
    assert solution.status is bvfim.Status.NON_FINITE
    assert 0 < solution.steps < 100
    assert torch.isfinite(solution.x).all()
    assert torch.isfinite(torch.as_tensor(solution.history["upper"].iloc[solution.steps - 1]))
    assert "Lower the step sizes" in solution.status.advice


def test_an_optimiser_that_overflows_keeps_the_last_good_iterate():
    solution = solve(optimizer=lambda p: torch.optim.SGD(p, math.inf), y=0 * X)
    assert solution.status is bvfim.Status.NON_FINITE
    assert torch.equal(solution.x, X)
