"""Each rule, and each of the reasons it gives."""

import math

import pytest

import bvfim
from bvfim.adviser import Candidate, rules
from bvfim.adviser.facts import Facts

PLAIN = Facts(
    m=10, n=20, batches=False, sampled=False, stated=(), follower="optimistic", upper=2.0, seconds=1e-4, twice=True,
    largest=4.0, smallest=1.0, fall=3.0, descent=30, reached=True, minima=1, flat=0.5, common=1.0, x_length=2.0,
)  # fmt: skip
LARGE = {"m": 5000, "n": 5000}


@pytest.mark.parametrize(
    ("seen", "best", "second", "reason"),
    [
        ({"follower": "pessimistic"}, "AdaptiveBVFIM", "SiPBA", "breaks ties against the leader"),
        ({"stated": ("lower_constraints",)}, "AdaptiveBVFIM", "StochasticBVFIM", "constraints (lower_constraints)"),
        (
            {"stated": ("upper_constraints",), "batches": True},
            "StochasticBVFIM",
            "BVFIM",
            "batches or too many entries",
        ),
        ({"stated": ("upper_constraints",), **LARGE}, "StochasticBVFIM", "BVFIM", "batches or too many entries"),
        ({"batches": True, "sampled": True, "common": 0.01}, "BVFIM", "RHG", "have 1% in common"),
        ({"batches": True, "sampled": True, "common": 0.01, "twice": False}, "BVFIM", "F2SA", "found anew for each"),
        ({**LARGE, "flat": 1e-6}, "RHG", "StochasticBVFIM", "many minimisers"),
        ({**LARGE, "flat": 1e-6, "twice": False}, "BVFIM", "StochasticBVFIM", "many minimisers"),
        ({"batches": True, "sampled": True, "common": 0.4}, "StochasticBVFIM", "RHG", "40% of a gradient"),
        ({"batches": True, "twice": False}, "StochasticBVFIM", "F2SA", "one gradient of each objective a step"),
        ({}, "AdaptiveBVFIM", "StochasticBVFIM", "have 10 and 20 entries"),
        ({"minima": 2}, "AdaptiveBVFIM", "AdaptiveBVFIM", "have 10 and 20 entries"),
        ({"smallest": -1.0}, "AdaptiveBVFIM", "StochasticBVFIM", "a line search finds its own steps"),
        (LARGE, "CG", "StochasticBVFIM", "strongly convex at its minimum (condition 4e+00)"),
        ({**LARGE, "smallest": -1.0}, "StochasticBVFIM", "TRHG", "not strongly convex"),
        ({**LARGE, "twice": False}, "StochasticBVFIM", "F2SA", "not strongly convex"),
    ],
)
def test_the_first_rule_that_applies_decides(seen, best, second, reason):
    first, other, reasons, otherwise = rules.decided(PLAIN._replace(**seen))
    assert (first.name, other.name) == (best, second)
    assert reason in reasons[0]
    assert otherwise.endswith(".")


def test_every_rule_is_reached_by_a_test_above():
    seen = test_the_first_rule_that_applies_decides.pytestmark[0].args[1]
    reached = {next(i for i, r in enumerate(rules.RULES) if r.applies(PLAIN._replace(**given))) for given, *_ in seen}
    assert reached == set(range(len(rules.RULES)))


@pytest.mark.parametrize(
    ("seen", "remark"),
    [
        ({"twice": False}, "can't be differentiated twice"),
        ({"minima": 3}, "ended at 3 different values"),
        ({}, "has curvatures from 1 to 4"),
    ],
)
def test_what_else_was_seen_is_said(seen, remark):
    assert any(remark in reason for reason in rules.decided(PLAIN._replace(**seen))[2])
    others = [text for other, text in (("twice", "twice"), ("minima", "several minima")) if other not in seen]
    assert not any(text in reason for text in others for reason in rules.decided(PLAIN._replace(**seen))[2])


def test_several_minima_get_several_starts_in_a_trial():
    best, second, *_ = rules.decided(PLAIN._replace(minima=2))
    assert best.method == bvfim.AdaptiveBVFIM()
    assert second.method == bvfim.AdaptiveBVFIM(starts=rules.STARTS)


def test_steps_are_those_that_the_probes_measured():
    """The step on y is one over the largest curvature, that on x a share of its length."""
    found = rules.implicit(PLAIN)
    assert found.method.dynamics == bvfim.dynamics.Adaptive(lr=0.25)
    assert found.lr == rules.X_STEP * 2
    assert found.method.cg_steps == rules.PRODUCTS * 2  # the square root of the condition number
    assert rules.anew(PLAIN).method.steps == 30
    assert rules.anew(PLAIN._replace(descent=5000)).method.steps == rules.LONG_RUN
    assert rules.implicit(PLAIN._replace(smallest=math.nan)).method.cg_steps == PLAIN.n
    assert rules.y_step(PLAIN._replace(largest=math.nan)) == 0.01


@pytest.mark.parametrize("make", [rules.warm, rules.nested, rules.truncated, rules.implicit, rules.difference])
def test_a_candidate_prints_as_the_code_that_runs_it(make):
    candidate = make(PLAIN)
    method, _, optimizer = str(candidate).partition(", optimizer=")
    assert eval(method, {"bvfim": bvfim}) == candidate.method
    assert f"lr={candidate.lr:g}" in optimizer


def test_a_method_that_moves_x_itself_has_no_optimiser():
    assert Candidate(bvfim.AdaptiveBVFIM()).optimizer is None
    assert "optimizer" not in str(Candidate(bvfim.AdaptiveBVFIM(starts=2)))


def test_a_set_that_is_no_box_gets_the_default_optimiser_of_x():
    boxed, other = (rules.decided(PLAIN._replace(**LARGE, boxed=boxed))[0] for boxed in (True, False))
    assert boxed.lr is not None
    assert other.optimizer is None
    assert "Adam" not in str(other)
