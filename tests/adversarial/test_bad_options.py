"""Options, callbacks, batches and schedules that are none: a sentence, or the right answer."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import bvfim
from bvfim import Batches, Problem, Shuffled, Status, callbacks, schedules
from bvfim.status import BvfimWarning
from tests.adversarial.small import PLAIN, WITH_DATA, ZERO, refused, shifted, solve, upper


def one_shot():
    yield 1.0


class Ending:
    """A stream that says it can be resumed, and ends after one batch for good."""

    def __init__(self):
        self.left = 1

    def __iter__(self):
        return self

    def __next__(self):
        if not self.left:
            raise StopIteration
        self.left -= 1
        return 1.0

    def state_dict(self):
        return {"left": self.left}

    def load_state_dict(self, state):
        self.left = state["left"]


class Nothing:
    def __iter__(self):
        return iter(())


BOTH = Problem(lambda x, y, data: upper(x, y), shifted)
SOLVE = {
    "steps must be a whole number of at least 0, not '10'": {"steps": "10"},
    "steps must be a whole number of at least 0, not 2.0": {"steps": 2.0},
    "steps must be a whole number of at least 0, not True": {"steps": True},
    "steps must be a whole number of at least 0, not nan": {"steps": math.nan},
    "steps must be a whole number of at least 0, not tensor(2)": {"steps": torch.tensor(2)},
    "time_limit must be a number of seconds, at least 0, not True": {"time_limit": True},
    "tol must be a number of at least 0, not True": {"tol": True},
    "tol must be a number of at least 0, not -1": {"tol": -1},
    "tol: AdaptiveBVFIM moves x itself and takes no tol": {"tol": 0.1, "method": None},
    "tol: StochasticBVFIM takes no tol": {"tol": 0.1, "method": bvfim.StochasticBVFIM},
    "optimizer must be a function from tensors to a torch optimiser, not a SGD": {
        "optimizer": torch.optim.SGD([ZERO.clone().requires_grad_()], 0.1)
    },
    "optimizer must be a function from tensors to a torch optimiser, not a str": {"optimizer": "adam"},
    "optimizer must be a function from tensors to a torch optimiser, but returned a NoneType": {
        "optimizer": lambda p: None
    },
    "optimizer must be a function from tensors to a torch optimiser, not one of another": {"optimizer": lambda: 1},
    "optimizer: AdaptiveBVFIM moves x itself": {"optimizer": torch.optim.Adam, "method": None},
    "scheduler must return a learning-rate scheduler, not a int": {"scheduler": lambda optimizer: 3},
    "scheduler must be a function from an optimiser to its scheduler, not one": {"scheduler": lambda: None},
    "accelerate must be one of auto, none, cudagraph, compile, not 'fast'": {"accelerate": "fast"},
    "accelerate must be one of auto, none, cudagraph, compile, not None": {"accelerate": None},
    "refit must be True or False, not 'no'": {"refit": "no"},
    "progress must be True, False or None, not 1": {"progress": 1},
    "holdout must be a function of x and y, not one of another number": {"holdout": lambda x: 1.0},
    "holdout must return a number, not a Tensor of shape (2,)": {"holdout": lambda x, y: torch.zeros(2)},
    "holdout must return a number, not a NoneType": {"holdout": lambda x, y: None},
    "holdout must return a number, not a str": {"holdout": lambda x, y: "low"},
    "callbacks must be a list of functions of the run, not a NoneType": {"callbacks": None},
    "callbacks must be functions of the run, but one is a str": {"callbacks": {"a": print}},
    "callbacks must be functions of the run, but one is the class EarlyStop": {"callbacks": [callbacks.EarlyStop]},
    "a callback must be a function of the run, not one of another number": {"callbacks": [lambda: None]},
    "a callback must return True, False or None, not a Tensor": {"callbacks": [lambda run: torch.zeros(2)]},
    "a callback must return True, False or None, not a ndarray": {"callbacks": [lambda run: np.zeros(2)]},
    "EarlyStop: score must return a number, not a dict": {"callbacks": [callbacks.EarlyStop(lambda run: run.row)]},
    "batches must not be a one-shot iterator or generator": {"problem": WITH_DATA, "batches": one_shot()},
    "batches ran out after 1 draws and does not start over": {"problem": WITH_DATA, "batches": Ending()},
    "batches is empty": {"problem": WITH_DATA, "batches": Nothing()},
    "batches must be a sequence or an iterable of batches, not a str": {"problem": WITH_DATA, "batches": "abc"},
    "batches must be a sequence or an iterable of batches, not a int": {"problem": WITH_DATA, "batches": 3},
    "batches must be a sequence or an iterable of batches, not a dict": {"problem": WITH_DATA, "batches": {"a": 1}},
    "batches must be a sequence or an iterable of batches, not a function": {"problem": WITH_DATA, "batches": one_shot},
    "batches must be a sequence or an iterable of batches, not a Tensor": {"problem": WITH_DATA, "batches": ZERO[0]},
    "batches must be a sequence or an iterable of batches, not a type": {"problem": WITH_DATA, "batches": Batches},
    "batches.upper must not be a one-shot": {"problem": BOTH, "batches": Batches(one_shot(), [1.0])},
    "batches.lower is empty": {"problem": BOTH, "batches": Batches([1.0], [])},
    "batches.upper must be a sequence or": {"problem": BOTH, "batches": Batches(None, [1.0])},
    "batches.lower must be a sequence or": {"problem": BOTH, "batches": Batches([1.0], Batches([1.0], [2.0]))},
    "lower takes (x, y, data), but there is no data": {"problem": WITH_DATA, "batches": [None]},
    "batches: AdaptiveBVFIM moves x itself": {"problem": WITH_DATA, "batches": [1.0], "method": bvfim.AdaptiveBVFIM},
    "it can't be combined with Batches(every='inner')": {
        "problem": Problem(BOTH.upper, shifted, context=lambda x, batch: x),
        "batches": Batches([1.0], [1.0], every="inner"),
    },
}
MADE = {
    "Batches: every must be upper or inner, not 'step'": lambda: Batches([1], [2], every="step"),
    "Shuffled: rows must be a whole number of at least 1, not 0": lambda: Shuffled(0, 1),
    "Shuffled: rows must be a whole number of at least 1, not 3.0": lambda: Shuffled(3.0, 1),
    "Shuffled: rows must be a whole number of at least 1, not True": lambda: Shuffled(True, 1),
    "Shuffled: size must be a whole number of at least 1, not -2": lambda: Shuffled(3, -2),
    "Shuffled: seed must be a whole number, not 'a'": lambda: Shuffled(3, 1, seed="a"),
    "Shuffled: device must be one that torch knows, not 'tpu'": lambda: Shuffled(3, 1, device="tpu"),
    "the saved position of batches is 'a', not a number": lambda: Shuffled(3, 1).load_state_dict({"drawn": "a"}),
    "Checkpoint: every must be a whole number of at least 1, not 0": lambda: callbacks.Checkpoint("a", every=0),
    "Checkpoint: minutes must be a finite number above 0, not nan": lambda: callbacks.Checkpoint("a", minutes=math.nan),
    "Checkpoint: keep must be a whole number of at least 1, not 0": lambda: callbacks.Checkpoint("a", keep=0),
    "Checkpoint: give every, minutes, or both": lambda: callbacks.Checkpoint("a", every=None),
    "the path of a checkpoint must be a str or a path, not None": lambda: callbacks.Checkpoint(None),
    "EarlyStop: patience must be a whole number of at least 1, not 0": lambda: callbacks.EarlyStop(patience=0),
    "EarlyStop: margin must be a finite number of at least 0, not nan": lambda: callbacks.EarlyStop(margin=math.nan),
    "EarlyStop: score must be a function of the run, not a str": lambda: callbacks.EarlyStop(score="upper"),
    "Log: write must be a function of a row of the history, not a str": lambda: callbacks.Log("print"),
    "Log: every must be a whole number of at least 1, not 0.5": lambda: callbacks.Log(print, every=0.5),
    "TensorBoard: every must be a whole number of at least 1, not -1": lambda: callbacks.TensorBoard("a", every=-1),
    "ProgressBar: pause must be a finite number of at least 0, not 'a'": lambda: callbacks.ProgressBar(pause="a"),
    "ProgressBar: delay must be a finite number of at least 0, not None": lambda: callbacks.ProgressBar(delay=None),
    "join: schedules must be functions of the step, not []": lambda: schedules.join([], []),
    "join: schedules must be functions of the step, not [1.0, 2.0]": lambda: schedules.join([1.0, 2.0], [5]),
    "join: boundaries must be whole numbers, not ['a']": lambda: schedules.join([schedules.constant(1)] * 2, ["a"]),
    "join: 1 schedules need 0 boundaries, not 1": lambda: schedules.join([schedules.constant(1)], [2]),
    "join: the boundaries must be positive and increasing": lambda: schedules.join([schedules.constant(1)] * 3, [5, 2]),
    "constant: value must be a number, not 'a'": lambda: schedules.constant("a"),
    "geometric: rate must be a number, not None": lambda: schedules.geometric(1.0, None),
    "harmonic: start must be a number, not 1j": lambda: schedules.harmonic(1j),
    "the schedule of lr must be a function of the step": lambda: bvfim.RHG(lr=lambda: 0.1),
    "the schedule of lr must return a number, not a str": lambda: solve(method=bvfim.RHG(lr=lambda k: "a")),
    "the schedule of lr must return a number, not a Tensor of shape (2,)": lambda: solve(
        method=bvfim.CG(lr=lambda k: torch.zeros(2))
    ),
    "the schedule of lr returned inf at step 0": lambda: solve(method=bvfim.RHG(lr=lambda k: math.inf)),
    "the schedule of lr returned nan at step 0": lambda: solve(method=bvfim.RHG(lr=schedules.constant(math.nan))),
    "the schedule of lr returned -1.0 at step 0": lambda: solve(method=bvfim.RHG(lr=schedules.geometric(-1.0, 0.5))),
}


@pytest.mark.parametrize("sentence", SOLVE)
def test_a_bad_option_of_solve_gets_its_sentence(sentence):
    refused(lambda: solve(**SOLVE[sentence]), sentence)


@pytest.mark.parametrize("sentence", MADE)
def test_a_bad_argument_gets_its_sentence(sentence):
    refused(MADE[sentence], sentence)


def test_an_option_that_is_not_there_is_named():
    for call in (solve, lambda **o: bvfim.compare(PLAIN, [bvfim.RHG], ZERO, ZERO, **o)):
        with pytest.raises(TypeError, match="unexpected keyword argument 'stepz'"):
            call(stepz=3)


def test_extreme_options_that_mean_something_give_the_right_answer():
    plain = solve()
    assert torch.equal(solve(time_limit=math.inf).x, plain.x)
    assert solve(steps=0).upper == 8
    assert solve(tol=math.inf).status is Status.CONVERGED
    assert solve(method=None, steps=10**30).upper == pytest.approx(0.5, abs=1e-3)
    assert solve(steps=30, callbacks=[callbacks.EarlyStop(lambda run: math.nan, patience=5)]).steps == 5
    assert solve(method=bvfim.RHG(lr=schedules.geometric(1.0, 1e300)), steps=5).status is Status.NON_FINITE
    assert len(next(Shuffled(3, 10))) == 3
    assert solve(WITH_DATA, batches=[1.0, math.nan], steps=4).status is Status.NON_FINITE
    assert solve(WITH_DATA, batches=torch.ones(3, dtype=torch.float64)).lower == pytest.approx(plain.lower)
    with pytest.warns(BvfimWarning, match="x is not on a CUDA device"):
        assert torch.equal(solve(accelerate="cudagraph").x, plain.x)


@pytest.mark.parametrize("error", [ValueError, StopIteration, KeyError])
def test_what_a_callback_raises_comes_through_and_the_run_is_saved(error, tmp_path):
    def fails(run):
        if run.k == 3:
            raise error("theirs")

    path = tmp_path / "run.safetensors"
    with pytest.raises(error, match="theirs"):
        solve(steps=9, callbacks=[callbacks.Checkpoint(path), fails])
    assert bvfim.checkpoint.read(path)["k"] == 3
