"""Methods, and the functions beside solve, with what they can't take: a sentence, or the right answer."""

from __future__ import annotations

import math

import pytest
import torch

import bvfim
from bvfim import BDA, BVFIM, CG, FHG, RHG, TRHG, AdaptiveBVFIM, LowerValue, Neumann, Status, StochasticBVFIM, dynamics
from bvfim.methods import LowerState
from tests.adversarial.small import PLAIN, WITH_DATA, ZERO, D, lower, refused, solve, upper

STARTS = torch.zeros(3, 1, dtype=D)
INNER = (RHG, FHG, TRHG, BDA, CG, Neumann)


class Own(bvfim.Estimator):
    """A user's method that returns what it was made with."""

    def __init__(self, found):
        self.found = found

    def init(self, problem, x, y):
        return LowerState(y, y)

    def estimate(self, problem, x, state, k, data):
        return self.found(x, state)


BARE, LONG = Own(lambda x, state: x), Own(lambda x, state: (torch.zeros(7, dtype=D), state, {}))
WORDS = Own(lambda x, state: ("uphill", state, {}))
FAULTS = {
    "steps must be a whole number of at least 1, not '5'": {"steps": "5"},
    "lr must be a finite number above 0, not None": {"lr": None},
    "lr must be a finite number above 0, not True": {"lr": True},
    "dynamics must be an object from bvfim.dynamics, not 'adam'": {"dynamics": "adam", "lr": 0.1},
    "start must be one of warm, restart, not ['warm']": {"start": ["warm"]},
}


@pytest.mark.parametrize("method", INNER, ids=lambda m: m.__name__)
@pytest.mark.parametrize("sentence", FAULTS)
def test_every_method_with_inner_steps_names_itself_and_the_fault(method, sentence):
    refused(lambda: method(**FAULTS[sentence]), f"{method.__name__}: {sentence}")


MADE = {
    "RHG: dynamics must be an object from bvfim.dynamics, not <class": lambda: RHG(dynamics=dynamics.Adam),
    "RHG: segment must be a whole number of at least 1, not 0": lambda: RHG(segment=0),
    "TRHG: keep must be a whole number of at least 1, not 0": lambda: TRHG(keep=0),
    "BDA: alpha must be a finite number of at least 0, not nan": lambda: BDA(alpha=math.nan),
    "CG: damping must be a finite number of at least 0, not inf": lambda: CG(damping=math.inf),
    "CG: cg_steps must be a whole number of at least 1, not 0": lambda: CG(cg_steps=0),
    "Neumann: eta must be a finite number above 0, not -1": lambda: Neumann(eta=-1),
    "BVFIM: z_steps must be a whole number of at least 1, not 0": lambda: BVFIM(z_steps=0),
    "BVFIM: y_steps must be a whole number of at least 1, not 1.5": lambda: BVFIM(y_steps=1.5),
    "BVFIM: mu2 must be a finite number above 0, not 'a'": lambda: BVFIM(mu2="a"),
    "BVFIM: theta must be a finite number of at least 0, not inf": lambda: BVFIM(theta=math.inf),
    "LowerValue: offset must be finite, not '1'": lambda: LowerValue(offset="1"),
    "AdaptiveBVFIM: tol must be a finite number above 0, not 0": lambda: AdaptiveBVFIM(tol=0),
    "AdaptiveBVFIM: seed must be a whole number of at least 0, not -1": lambda: AdaptiveBVFIM(seed=-1),
    "AdaptiveBVFIM: starts must be a whole number of at least 1, not 0": lambda: AdaptiveBVFIM(starts=0),
    "StochasticBVFIM: y_optimizer must be a function, not a str": lambda: StochasticBVFIM(y_optimizer="adam"),
    "GradientDescent: lr must be a finite number above 0, not -1": lambda: dynamics.GradientDescent(-1),
    "Momentum: beta must be a finite number of at least 0, not -1": lambda: dynamics.Momentum(beta=-1),
    "Adam: beta2 must be below 1, not 1.0": lambda: dynamics.Adam(beta2=1.0),
    "OneScale: lr must be a finite number above 0, not -1": lambda: bvfim.OneScale([ZERO], lr=-1),
    "a method must be a bvfim.Estimator, with init and estimate, not a int": lambda: solve(method=3),
    "a method must be a bvfim.Estimator, with init and estimate, not a list": lambda: solve(method=[RHG]),
    "a method must be a bvfim.Estimator, with init and estimate, not a function": lambda: solve(method=lambda: RHG()),
    "a method must be a bvfim.Estimator, with init and estimate, not a module": lambda: solve(method=bvfim.methods),
    "Own.estimate must return a gradient, the next state and a dict": lambda: solve(method=BARE),
    "Own.estimate must return a gradient, the next state": lambda: bvfim.check_hypergradient(PLAIN, ZERO, ZERO, BARE),
    "Own.estimate must return a gradient shaped like x": lambda: solve(method=LONG),
    "Own.estimate must return a gradient shaped like": lambda: bvfim.hypergradient(PLAIN, ZERO, ZERO, LONG),
    "Own.estimate must return a gradient shaped": lambda: solve(method=WORDS),
}
BESIDE = {
    "AdaptiveBVFIM does not estimate a hypergradient": lambda: bvfim.hypergradient(PLAIN, ZERO, ZERO, AdaptiveBVFIM),
    "StochasticBVFIM does not estimate": lambda: bvfim.check_hypergradient(PLAIN, ZERO, ZERO, StochasticBVFIM),
    "step must be a whole number of at least 0, not -1": lambda: bvfim.hypergradient(PLAIN, ZERO, ZERO, step=-1),
    "step must be a whole number of at least 0, not 'a'": lambda: bvfim.check_hypergradient(
        PLAIN, ZERO, ZERO, RHG, step="a"
    ),
    "state must be a LowerState, as RHG.init makes it, not a int": lambda: bvfim.hypergradient(
        PLAIN, ZERO, ZERO, RHG, state=3
    ),
    "state must be a BVFIMState, as BVFIM.init makes it, not a LowerState": lambda: bvfim.hypergradient(
        PLAIN, ZERO, ZERO, BVFIM, state=LowerState(ZERO, ZERO)
    ),
    "there are batches, but neither objective takes them": lambda: bvfim.hypergradient(PLAIN, ZERO, ZERO, data=3.0),
    "there are batches, but neither objective": lambda: bvfim.refit(PLAIN, ZERO, ZERO, batches=[1.0]),
    "check_hypergradient needs float64, or float32": lambda: bvfim.check_hypergradient(
        PLAIN, ZERO.bfloat16(), ZERO.bfloat16(), RHG
    ),
    "tol must be a number of at least 0, not nan": lambda: bvfim.check_hypergradient(
        PLAIN, ZERO, ZERO, RHG, tol=math.nan
    ),
    "tol must be a number of at least 0, not 'a'": lambda: bvfim.check_hypergradient(PLAIN, ZERO, ZERO, RHG, tol="a"),
    "the value is not finite within": lambda: bvfim.check_hypergradient(PLAIN, ZERO + math.nan, ZERO, RHG),
    "steps must be a whole number of at least 0, not -1": lambda: bvfim.refit(PLAIN, ZERO, ZERO, steps=-1),
    "optimizer must be a function from tensors to a torch optimiser, not a str": lambda: bvfim.refit(
        PLAIN, ZERO, ZERO, optimizer="adam"
    ),
    "batches is empty": lambda: bvfim.refit(WITH_DATA, ZERO, ZERO, batches=[]),
    "steps must be a whole number of at least 0, not 'many'": lambda: bvfim.Stepper(PLAIN, ZERO, ZERO, steps="many"),
    "tol must be a number of at least 0, not -1": lambda: bvfim.Stepper(PLAIN, ZERO, ZERO, RHG, tol=-1),
    "neither objective takes them: each is": lambda: bvfim.Stepper(PLAIN, ZERO, ZERO, RHG).step(3.0),
    "lower takes (x, y, data), but there is no data": lambda: [
        stepper := bvfim.Stepper(WITH_DATA, ZERO, ZERO, RHG), stepper.step(1.0), stepper.step(),
    ],
    "the run broke off (non_finite): continue from an earlier": lambda: [
        stepper := bvfim.Stepper(PLAIN, ZERO + math.nan, ZERO, RHG), stepper.step(), stepper.step(),
    ],
    "the state: the checkpoint belongs to another run": lambda: bvfim.Stepper(PLAIN, ZERO, ZERO).load_state_dict(3),
    "its method is CG, not RHG": lambda: bvfim.Stepper(PLAIN, ZERO, ZERO, RHG).load_state_dict(
        bvfim.Stepper(PLAIN, ZERO, ZERO, CG).state_dict()
    ),
}  # fmt: skip
MANY = {
    "xs and ys must be trees of tensors whose leaves have the same first dimension": lambda: many(STARTS, STARTS[:2]),
    "xs and ys must be trees of tensors whose leaves have the same": lambda: many(STARTS[:0], STARTS[:0]),
    "xs and ys must be trees of tensors whose leaves have": lambda: many(torch.zeros(()), STARTS),
    "xs and ys must be trees of tensors whose": lambda: many([1.0], [2.0]),
    "x must hold floating-point tensors, not torch.int64": lambda: many(STARTS.long(), STARTS.long()),
    "x and y must share one dtype": lambda: many(STARTS, STARTS.float()),
    "solve_many does not support resume": lambda: many(method=RHG, resume="a"),
    "solve_many with AdaptiveBVFIM takes no optimizer": lambda: many(optimizer=torch.optim.SGD),
    "solve_many with AdaptiveBVFIM takes no starts": lambda: many(method=AdaptiveBVFIM(starts=3)),
    "steps must be a whole number of at least 0, not nan": lambda: many(steps=math.nan),
    "progress must be a function of the work done and the whole work, not a bool": lambda: many(progress=True),
    "time_limit must be a number of seconds, at least 0, not -1": lambda: many(time_limit=-1),
    "a checkpoint holds one run; solve_many can't be saved": lambda: many(
        callbacks=[bvfim.callbacks.Checkpoint("a", every=1)]
    ),
    "x_set: a Box does not fit a leaf of shape (1,)": lambda: bvfim.solve_many(
        bvfim.Problem(upper, lower, bvfim.Box(STARTS, 1)), STARTS, STARTS
    ),
    "compare needs a non-empty sequence of methods or mapping": lambda: compare({}),
    "compare needs a non-empty sequence of methods or": lambda: compare(RHG()),
    "compare needs a non-empty sequence of methods": lambda: compare(method for method in [RHG]),
    "a method must be a bvfim.Estimator, with init and estimate, not a str": lambda: compare("rhg"),
    "gradients must be a whole number of at least 0, not 'a'": lambda: compare([RHG], gradients="a"),
    "gradients must be a whole number of at least 0, not nan": lambda: compare([RHG], gradients=math.nan),
    "seed must be a whole number that torch takes, not 'a'": lambda: compare([RHG], seed="a"),
    "seed must be a whole number that torch takes, not 1.5": lambda: compare([RHG], seed=1.5),
    f"seed must be a whole number that torch takes, not {2**80}": lambda: compare([RHG], seed=2**80),
    "callbacks must be a list of functions of the run, not a builtin": lambda: compare([RHG], callbacks=print),
}


def many(xs=STARTS, ys=STARTS, method=None, **options):
    return bvfim.solve_many(PLAIN, xs, ys, method, **{"steps": 2, **options})


def compare(methods, **options):
    return bvfim.compare(PLAIN, methods, ZERO, ZERO, steps=2, **options)


REFUSED = [*MADE.items(), *BESIDE.items(), *MANY.items()]


@pytest.mark.parametrize(("sentence", "case"), REFUSED, ids=[sentence for sentence, _ in REFUSED])
def test_what_can_not_be_taken_gets_its_sentence(sentence, case):
    refused(case, sentence)


@pytest.mark.filterwarnings("ignore:the starts can't run in one batch")
def test_a_method_that_is_wrong_for_many_starts_gets_its_sentence():
    refused(lambda: many(method=LONG), "Own.estimate must return a gradient shaped like x")


def test_compare_looks_at_every_method_before_it_solves_with_the_first():
    solved = []
    refused(lambda: compare([RHG, "cg"], callbacks=[solved.append]), "not a str")
    assert solved == []


@pytest.mark.parametrize("method", [None, RHG], ids=["AdaptiveBVFIM", "RHG"])
def test_one_start_that_is_not_finite_does_not_spoil_the_others(method):
    found = many(torch.tensor([[0.0], [math.nan], [0.0]], dtype=D), method=method)
    assert [s.status for s in found] == [Status.MAX_STEPS, Status.NON_FINITE, Status.MAX_STEPS]
    assert found[2].x == many(method=method)[2].x


def test_a_method_that_returns_nan_ends_at_its_start():
    found = solve(method=Own(lambda x, state: (x * math.nan, state, {})))
    assert (found.status, found.steps, found.upper) == (Status.NON_FINITE, 0, 8)
    checked = bvfim.check_hypergradient(PLAIN, ZERO, ZERO, Own(lambda x, state: (x * math.nan, state, {})))
    assert checked.verdict is bvfim.Verdict.WRONG
