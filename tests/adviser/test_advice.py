"""The adviser as its users see it."""

import math
from dataclasses import replace

import pytest
import torch

import bvfim
from bvfim.adviser import Candidate, advice
from bvfim.adviser.trial import Trial, tried, worth_of
from bvfim.status import MethodError, Status
from tests.adviser.test_rules import PLAIN

PROBLEM = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum())
START = torch.zeros(2, dtype=torch.float64)
TOLD = advice.Advice(
    Candidate(bvfim.AdaptiveBVFIM()), Candidate(bvfim.CG(lr=0.1), 0.2), 500, ("Because.",), "Batches.", PLAIN
)


def trial(candidate, upper, steps=50, status=Status.MAX_STEPS, error="", seconds=0.1):
    return Trial(candidate, upper, seconds, steps, status, error)


def test_it_answers_for_a_small_problem_and_its_answer_runs(monkeypatch):
    monkeypatch.setattr(advice, "LONGEST", 60.0)  # so that a busy machine changes nothing
    given = bvfim.advise(PROBLEM, START, START, seconds=300)
    solution = bvfim.solve(PROBLEM, START, START, **given.options)
    assert isinstance(given.method, bvfim.AdaptiveBVFIM)
    assert given.optimizer is None
    assert solution.upper == pytest.approx(0, abs=1e-3)
    assert [t.status for t in given.trials] == [Status.CONVERGED]
    assert "came to its end" in given.reasons[-1]
    assert list(given.table.columns) == ["upper", "seconds per step", "steps", "end"]


def test_the_line_it_prints_is_the_run():
    given = bvfim.advise(PROBLEM, START, START, trial=False)
    line = next(line for line in str(given).splitlines() if "Run:" in line)
    scope = {"bvfim": bvfim, "torch": torch, "problem": PROBLEM, "x": START, "y": START}
    assert eval(line.partition("Run: ")[2], scope).method == given.method
    assert all(reason in str(given) for reason in given.reasons)
    assert "<strong>AdaptiveBVFIM</strong>" in given._repr_html_()


def test_batches_and_random_numbers_are_left_as_they_were():
    stream = bvfim.Shuffled(rows=20, size=5)
    next(stream)
    problem = bvfim.Problem(lambda x, y, i: ((y - 1) ** 2).sum(), lambda x, y, i: ((y - x - i.sum()) ** 2).sum())
    before, random = stream.state_dict(), torch.get_rng_state()
    x, y = START.clone(), START.clone()
    bvfim.advise(problem, x, y, stream, seconds=2)
    assert stream.state_dict() == before
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.equal(x, START)
    assert torch.equal(y, START)


def test_the_runner_up_takes_over_where_it_is_clearly_ahead():
    first, second = TOLD.best, TOLD.second
    kept = advice.after(TOLD, (trial(first, 1.0), trial(second, 0.97)), 10)
    turned = advice.after(TOLD, (trial(first, 1.0), trial(second, 0.5)), 10)
    assert (kept.best, kept.second) == (first, second)
    assert "clearly" not in kept.reasons[-1]
    assert (turned.best, turned.second) == (second, first)
    assert "clearly ahead" in turned.reasons[-1]
    assert turned.steps == 100  # ten seconds, a tenth each
    assert kept.steps == 500  # AdaptiveBVFIM ends by itself


def test_a_method_that_fails_its_trial_is_not_advised():
    failed = trial(TOLD.best, math.inf, status=None, error="no such thing")
    given = advice.after(TOLD, (failed, trial(TOLD.second, 5.0)), 10)
    assert given.best == TOLD.second
    assert "AdaptiveBVFIM failed in a trial: no such thing" in given.reasons
    both = advice.after(TOLD, (failed, failed._replace(candidate=TOLD.second)), 10)
    assert both.best == TOLD.best


def test_a_step_too_long_for_a_trial_is_said():
    slow = [trial(c, math.nan, 1, None, seconds=7.0) for c in (TOLD.second, TOLD.best)]
    given = advice.after(TOLD, tuple(slow), 70)
    assert given.reasons[-2:] == tuple(
        f"A step of {name} takes 7 s, which is too long for a trial." for name in ("CG", "AdaptiveBVFIM")
    )
    assert given.best == TOLD.best


def test_a_trial_is_judged_at_a_lower_level_that_is_solved():
    """At x = 3 the minimiser of f is 3, so F is (3 - 1)^2 for each entry, from any y."""
    assert worth_of(PROBLEM, START + 3, START + 50, None, 0.2) == pytest.approx(8)


def test_near_zero_the_fall_since_the_start_tells_what_counts():
    first, second = TOLD.best, TOLD.second
    assert advice.after(TOLD, (trial(first, -1e-12), trial(second, -1e-6)), 10).best == first
    assert advice.after(TOLD, (trial(first, 0.1), trial(second, 1e-6)), 10).best == second


def test_with_a_network_a_trial_decides_only_where_a_method_fails():
    large = replace(TOLD, facts=PLAIN._replace(m=5000, n=5000, smallest=-1.0))
    first, second = large.best, large.second
    kept = advice.after(large, (trial(first, 1.0), trial(second, 0.1)), 10)
    assert kept.best == first
    assert "says nothing" in kept.reasons[-1]
    failed = trial(first, math.inf, status=None, error="no")
    assert advice.after(large, (failed, trial(second, 5.0)), 10).best == second


def test_a_trial_says_what_a_method_refuses():
    problem = bvfim.Problem(PROBLEM.upper, PROBLEM.lower, lower_constraints=lambda x, y: y - x)
    found = tried(problem, START, START, None, Candidate(bvfim.RHG(), 0.1), 1.0, True)
    assert found.failed
    assert "constraints" in found.error


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"problem": 3}, "must be a bvfim.Problem"),
        ({"x": 3.0}, "x"),
        ({"seconds": -1}, "seconds must be"),
        ({"seconds": None}, "seconds must be"),
        ({"trial": "yes"}, "trial"),
        ({"batches": 5}, "batches"),
    ],
)
def test_bad_input_is_named(change, message):
    given = {"problem": PROBLEM, "x": START, "y": START, **change}
    with pytest.raises(bvfim.BvfimError, match=message):
        bvfim.advise(**given)


def test_twins_have_no_choice():
    net = torch.nn.Linear(1, 1)
    with pytest.raises(MethodError, match="StochasticBVFIM alone"):
        bvfim.advise(PROBLEM, START, bvfim.Twins(net, torch.nn.Linear(1, 1)))
