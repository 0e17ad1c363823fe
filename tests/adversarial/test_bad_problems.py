"""Problems, variables and sets that are none: a sentence, or the right answer."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import bvfim
from bvfim import Ball, Box, Problem, Simplex, Status
from tests.adversarial.small import PLAIN, WITH_DATA, ZERO, D, lower, refused, shifted, solve, upper

META = torch.zeros(2, device="meta")
THREE = torch.zeros(3, dtype=D)


class Lost:
    """A set whose projection is lost."""

    def project(self, point):
        return None

    def tangent(self, point, gradient):
        return None


def taking(x, y, data):
    return upper(x, y)


OBJECTIVES = {
    "problem must be a bvfim.Problem, not a NoneType": lambda: solve(None),
    "problem must be a bvfim.Problem, not a tuple": lambda: solve((upper, lower), method=None),
    "problem must be a bvfim.Problem, not a function": lambda: bvfim.hypergradient(upper, ZERO, ZERO),
    "problem must be a bvfim.Problem, not a int": lambda: bvfim.check_hypergradient(3, ZERO, ZERO, bvfim.RHG),
    "problem must be a bvfim.Problem, not a str": lambda: bvfim.Stepper("p", ZERO, ZERO),
    "problem must be a bvfim.Problem, not a dict": lambda: bvfim.refit({}, ZERO, ZERO),
    "problem must be a bvfim.Problem, not a list": lambda: bvfim.solve_many([], THREE, THREE),
    "problem must be a bvfim.Problem, not a type": lambda: bvfim.compare(Problem, [bvfim.RHG], ZERO, ZERO),
    "upper must be a function, not a str": lambda: Problem("x + y", lower),
    "upper must be a function, not a NoneType": lambda: Problem(None, lower),
    "lower must be a function, not a Tensor": lambda: Problem(upper, ZERO),
    "upper must be a function of (x, y), or of": lambda: Problem(lambda: 1, lower),
    "lower must be a function of (x, y), or of": lambda: Problem(upper, lambda *, x, y: x),
    "upper must return a scalar tensor, not a tuple": lambda: solve(Problem(lambda x, y: (upper(x, y),), lower)),
    "upper must return a scalar tensor, not a ndarray": lambda: solve(
        Problem(lambda x, y: upper(x, y).detach().numpy(), lower)
    ),
    "upper must return a scalar tensor, not a dict": lambda: solve(Problem(lambda x, y: {"loss": upper(x, y)}, lower)),
    "lower must return a scalar tensor, not a NoneType": lambda: solve(Problem(upper, lambda x, y: None), method=None),
    "lower must return a scalar, but its result has shape (1,)": lambda: solve(
        Problem(upper, lambda x, y: (y - x) ** 2), method=bvfim.StochasticBVFIM
    ),
    "lower must return a real number, not a complex one": lambda: solve(Problem(upper, lambda x, y: lower(x, y) * 1j)),
    "lower is not differentiable": lambda: solve(Problem(upper, lambda x, y: lower(x, y).long())),
    "lower gives different values at the same point (1 and 4)": lambda: solve(
        Problem(upper, lambda x, y: ((y - x.data.add_(1)) ** 2).sum())
    ),
    "context must be a function, not a str": lambda: Problem(taking, shifted, context="features"),
    "context must be a function of (x, batch)": lambda: Problem(taking, shifted, context=lambda x: x),
    "context must return a tree of tensors": lambda: solve(Problem(taking, shifted, context=lambda x, b: None)),
    "joint must be a function, not a int": lambda: Problem(upper, lower, joint=3),
    "joint must take the arguments of upper": lambda: Problem(upper, lower, joint=lambda x: x),
    "joint disagrees with upper at the initial point: 1 versus 8": lambda: solve(
        Problem(upper, lower, joint=lambda x, y: (lower(x, y), upper(x, y)))
    ),
    "joint must return the pair (F, f) of scalar tensors": lambda: solve(Problem(upper, lower, joint=upper)),
    "lower takes (x, y, data), but there is no data": lambda: solve(WITH_DATA),
    "lower takes (x, y, data), but there is no data: pass": lambda: bvfim.hypergradient(WITH_DATA, ZERO, ZERO),
    "parameters takes a torch module, not a int": lambda: bvfim.parameters(3),
}
VARIABLES = {
    "x holds no tensor": lambda: solve(x=None),
    "y holds no tensor": lambda: bvfim.refit(PLAIN, ZERO, {}),
    "y holds an empty tensor": lambda: bvfim.hypergradient(PLAIN, ZERO, ZERO[:0], bvfim.RHG),
    "x must be a tree of tensors, but holds a ndarray": lambda: solve(x=np.zeros(1)),
    "x must be a tree of tensors, but holds a float": lambda: bvfim.Stepper(PLAIN, [0.0], ZERO),
    "x must be a tree of tensors, but holds a str": lambda: solve(x="abc"),
    "x must be a tree of tensors, but holds a Linear": lambda: solve(x=torch.nn.Linear(1, 1), method=None),
    "x must be a tree of tensors, but holds a generator": lambda: solve(x=torch.nn.Linear(1, 1).parameters()),
    "x must be a tree of tensors, but holds a set": lambda: solve(x={ZERO}),
    "x must hold floating-point tensors, not torch.bool": lambda: solve(x=ZERO.bool()),
    "y must hold floating-point tensors, not torch.uint8": lambda: solve(y=ZERO.byte(), method=None),
    "x must hold floating-point tensors, not torch.int64": lambda: bvfim.check_hypergradient(
        PLAIN, ZERO.long(), ZERO, bvfim.RHG
    ),
    "y must hold floating-point tensors, not torch.complex64": lambda: solve(y=ZERO.to(torch.complex64)),
    "x must hold tensors of at least 16 bits, not torch.float8_e4m3fn": lambda: solve(
        x=ZERO.to(torch.float8_e4m3fn), y=ZERO.to(torch.float8_e4m3fn)
    ),
    "x and y must share one dtype, but hold torch.float64 and torch.float32": lambda: solve(y=ZERO.float()),
    "x and y must be on one device, but are on cpu and meta": lambda: solve(y=ZERO.to("meta")),
    "y must hold dense tensors with values, not sparse ones": lambda: solve(y=ZERO.to_sparse(), method=bvfim.BVFIM),
    "AdaptiveBVFIM needs float32 or float64, not torch.float16": lambda: solve(
        x=ZERO.half(), y=ZERO.half(), method=None
    ),
    "AdaptiveBVFIM needs float32 or float64, not torch.bfloat16": lambda: bvfim.solve_many(
        PLAIN, THREE[:, None].bfloat16(), THREE[:, None].bfloat16()
    ),
}
SETS = {
    "Box: every lower bound must be at most its upper bound, not 1 and 0": lambda: Box(1, 0),
    "Box: every lower bound must be at most its upper bound, not nan and 1": lambda: Box(math.nan, 1),
    "Box: every lower bound must be at most its upper bound, not [0.0, nan] and 1": lambda: Box(
        torch.tensor([0.0, math.nan]), 1
    ),
    "Box: every lower bound must be at most its upper bound, not inf and inf": lambda: Box(math.inf, math.inf),
    "not [0.0, 0.0] and [1.0, 1.0, 1.0]": lambda: Box(torch.zeros(2), torch.ones(3)),
    "Box: bounds must be numbers or dense tensors, not None and 1": lambda: Box(None, 1),
    "Box: bounds must be numbers or dense tensors, not 1j and 2": lambda: Box(1j, 2),
    "Box: bounds must be numbers or dense tensors, not [0, 0] and [1, 1]": lambda: Box([0, 0], [1, 1]),
    "Box: bounds must be numbers or dense tensors, not array([0., 0.]) and 1": lambda: Box(np.zeros(2), 1),
    "Box: bounds must be numbers or dense tensors, not a tensor of shape (2,) and 1": lambda: Box(META, 1),
    "Box: bounds must be numbers or dense tensors, not a tensor of shape (3,) and 1": lambda: Box(THREE.to_sparse(), 1),
    "Ball: the radius must be positive and finite, not -1.0": lambda: Ball(-1.0),
    "Ball: the radius must be positive and finite, not inf": lambda: Ball(math.inf),
    "Ball: the radius must be positive and finite, not 'one'": lambda: Ball("one"),
    "Ball: the radius must be positive and finite, not [1.0, 1.0]": lambda: Ball(torch.ones(2)),
    "Ball: the centre must be a finite number or tensor, not nan": lambda: Ball(1, math.nan),
    "Ball: the centre must be a finite number or tensor, not 'origin'": lambda: Ball(1, "origin"),
    "Simplex: the total must be positive and finite, not 0": lambda: Simplex(0),
    "Simplex: the total must be positive and finite, not None": lambda: Simplex(None),
    "x_set: the set must be None, one set for all leaves, or a tree": lambda: solve(Problem(upper, lower, (0, 1))),
    "x_set: the set must be None, one set": lambda: solve(Problem(upper, lower, Box)),
    "y_set: the set must be None, one set": lambda: solve(Problem(upper, lower, y_set={"a": Box(0, 1)})),
    "y_set: a Box does not fit a leaf of shape (1,)": lambda: solve(Problem(upper, lower, y_set=Box(THREE, 1))),
    "x_set: a Ball does not fit a leaf of shape (1,)": lambda: solve(Problem(upper, lower, Ball(1, THREE))),
    "x_set: a Simplex does not fit a leaf of shape ()": lambda: solve(
        Problem(upper, lower, Simplex()), torch.zeros((), dtype=D)
    ),
    "x_set: a Lost does not fit a leaf of shape (1,)": lambda: solve(Problem(upper, lower, Lost())),
}
REFUSED = {**OBJECTIVES, **VARIABLES, **SETS}


@pytest.mark.parametrize("sentence", REFUSED)
def test_a_problem_that_is_none_gets_its_sentence(sentence):
    refused(REFUSED[sentence], sentence)


NOT_FINITE = {
    "x is NaN": {"x": ZERO + math.nan},
    "x is infinite": {"x": ZERO + math.inf},
    "y is NaN": {"y": ZERO + math.nan},
    "x is so large that its square is not": {"x": ZERO + 1e300},
    "F is NaN": {"problem": Problem(lambda x, y: upper(x, y) + math.nan, lower)},
    "F is the logarithm of a negative number": {"problem": Problem(lambda x, y: (x - 1).log().sum() + y.sum(), lower)},
    "f is NaN": {"problem": Problem(upper, lambda x, y: lower(x, y) * math.nan)},
    "f is infinite": {"problem": Problem(upper, lambda x, y: lower(x, y) / 0.0)},
}


@pytest.mark.parametrize("method", [bvfim.RHG, bvfim.AdaptiveBVFIM, bvfim.StochasticBVFIM], ids=lambda m: m.__name__)
@pytest.mark.parametrize("name", NOT_FINITE)
def test_what_is_not_finite_at_the_start_takes_no_step_and_says_so(name, method):
    found = solve(**NOT_FINITE[name], method=method)
    assert (found.status, found.steps) == (Status.NON_FINITE, 0)
    assert not found.status.ok


RAISED = {
    "division by zero": (ZeroDivisionError, Problem(lambda x, y: 1 / 0, lower), ZERO),
    "size of tensor": (RuntimeError, PLAIN, THREE[:2]),
    "in-place": (RuntimeError, Problem(upper, lambda x, y: (y.add_(1) ** 2).sum()), THREE),
    "'weight'": (KeyError, Problem(upper, lambda x, y: {}["weight"]), THREE),
}


@pytest.mark.parametrize("text", RAISED)
def test_what_an_objective_raises_is_left_to_its_author(text):
    """It is raised as it is, and the innermost frame is theirs, not ours."""
    kind, problem, x = RAISED[text]
    with pytest.raises(kind, match=text) as caught:
        solve(problem, x, THREE)
    assert not str(caught.traceback[-1].path).endswith("validate.py")


def test_odd_inputs_that_mean_something_give_the_right_answer():
    plain = solve()
    assert torch.equal(solve(Problem(lambda *both: upper(*both), lower)).x, plain.x)
    assert torch.equal(solve(Problem(upper, lower, Box(torch.zeros(1, requires_grad=True), 1))).x, plain.x)
    inside = Problem(lambda x, y: upper(x["a"], y), lambda x, y: lower(x["a"], y))
    assert torch.equal(solve(inside, {"a": ZERO, "b": None}).x["a"], plain.x)
    assert Box(False, True).project(ZERO + 3) == 1
