"""The certificate says what a run has shown, no more, and what to do next."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import bvfim
from bvfim.interior.certificate import Certificate
from bvfim.testproblems import sine

D = torch.float64
TOY = sine(2)
QUICK = bvfim.AdaptiveBVFIM(tol=1e-2, scouts=6)
CONVEX = bvfim.Problem(lambda x, y: ((x - 1) ** 2).sum() + (y**2).sum(), lambda x, y: ((y - x) ** 2).sum())
"""y = x, so F = (x - 1)^2 + x^2 and F* = 1/2."""


def at(value):
    return torch.full((1,), value, dtype=D)


def certificate(**changes):
    shown = {
        "relaxed": 0.9999,
        "polished": 1.00005,
        "gap": 1e-5,
        "gap_allowed": 1e-3,
        "tol": 1e-3,
        "stationarity": 2e-4,
        "multimodal": False,
        "starts": 1,
        "solved": 1,
        "agreeing": 1,
        "status": bvfim.Status.CONVERGED,
    }
    return bvfim.Certificate(**{**shown, **changes})


ONE_START = (
    "Solved from one start, which shows a local optimum (try bvfim.AdaptiveBVFIM(starts=8), at several times the cost)."
)
ADVICE = {
    bvfim.Status.GAP_OPEN.advice: {"gap": 2e-3, "status": bvfim.Status.GAP_OPEN},
    bvfim.Status.UNBOUNDED.advice: {"status": bvfim.Status.UNBOUNDED},
    "The run stopped before it finished: raise steps.": {"solved": 0, "agreeing": 0, "starts": 4, "status": None},
    ONE_START: {},
    "Only one start found this F: raise starts, since a lower F may exist.": {"starts": 4, "solved": 3},
    "3 of 4 starts agree.": {"starts": 4, "solved": 4, "agreeing": 3},
    "2 of 2 starts agree.": {"starts": 2, "solved": 2, "agreeing": 2, "multimodal": True},
}


@pytest.mark.parametrize("advice", ADVICE)
def test_each_case_has_its_advice(advice):
    shown = certificate(**ADVICE[advice])
    assert shown.advice == advice
    assert str(shown).endswith(f" agree. {advice}")


def test_it_is_told_in_one_sentence_and_the_advice():
    assert str(certificate(starts=4, solved=3, agreeing=2, multimodal=True)) == (
        "F in [0.9999, 1.00005], lower-level gap 1e-05 (allowed: 0.001), stationarity 0.0002, the lower level has "
        "other minima; 3 of 4 starts solved within tol = 0.001, 2 agree. 2 of 4 starts agree."
    )
    assert "other minima of the lower level were not looked for" in str(certificate())
    assert "showed no lower minimum (a grid)" in str(certificate(searched="a grid"))


def test_it_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        certificate().gap = 0.0


@pytest.fixture(scope="module")
def from_four():
    torch.set_num_threads(1)
    return bvfim.solve(TOY.problem, at(-6.0), at(-6.0), dataclasses.replace(QUICK, starts=4))


@pytest.fixture(scope="module")
def convex():
    torch.set_num_threads(1)
    return bvfim.solve(CONVEX, at(-1.0), at(1.0), QUICK)


@pytest.fixture(scope="module")
def far():
    torch.set_num_threads(1)
    return bvfim.solve(CONVEX, at(-6.0), at(-6.0))


def tolerance(solution, gradient):
    """What ``tol`` allows F to be off by."""
    size = torch.cat([solution.x, solution.y]).norm()
    return solution.method.tol * (abs(solution.upper) + gradient.norm() * (1 + size)).item()


def test_the_estimates_enclose_the_optimum_of_the_toy(from_four):
    shown, gradient = from_four.certificate, 2 * torch.cat([from_four.x - 2, from_four.y - 2])
    allowed = tolerance(from_four, gradient)
    assert from_four.status is bvfim.Status.CONVERGED
    assert TOY.upper - allowed <= shown.relaxed <= TOY.upper + 1e-12
    assert TOY.upper - 1e-12 <= shown.polished <= TOY.upper + allowed
    assert shown.polished == pytest.approx(from_four.upper, abs=1e-9)
    # In the interior f exceeds its minimum, so F is lower than at the bottom.
    assert shown.relaxed < shown.polished


def test_the_other_fields_tell_of_a_solved_toy(from_four):
    shown = from_four.certificate
    assert -1e-12 <= shown.gap <= shown.gap_allowed
    # f = sin ranges over [-1, 1].
    assert 0 <= shown.gap < shown.gap_allowed < 1e-2
    assert 0 <= shown.stationarity < 0.1
    assert shown.gap == pytest.approx(from_four.lower + 1, abs=1e-9)


def test_every_start_finds_the_optimum_of_the_toy(from_four):
    shown = from_four.certificate
    assert (shown.starts, shown.solved, shown.agreeing) == (4, 4, 4)
    assert shown.advice == "4 of 4 starts agree."


def test_a_convex_lower_level_shows_one_minimum(convex):
    shown = convex.certificate
    assert not shown.multimodal
    assert (shown.starts, shown.solved, shown.agreeing) == (1, 1, 1)
    assert shown.advice == ONE_START
    gradient = 2 * torch.cat([convex.x - 1, convex.y])
    assert shown.relaxed - tolerance(convex, gradient) <= 0.5 <= shown.polished + tolerance(convex, gradient)


def test_a_second_minimum_is_seen():
    # Over [-3, 3] sin(x + y) has one inside and, at x = 2.36, a higher one at y = -3.
    problem = dataclasses.replace(TOY.problem, x_set=bvfim.Box(-3, 3), y_set=bvfim.Box(-3, 3))
    found = bvfim.solve(problem, at(0.0), at(0.0), QUICK)
    assert found.certificate.multimodal
    assert "Note: the lower level has other minima; y is the lowest that was found." in str(found)


def test_what_the_advice_names_runs():
    method = eval(ONE_START.partition("try ")[2].partition(",")[0])
    assert method == bvfim.AdaptiveBVFIM(starts=8)


def test_a_run_that_is_cut_off_says_how_far_y_is_above_the_lowest():
    found = bvfim.solve(TOY.problem, at(-6.0), at(-6.0), dataclasses.replace(QUICK, starts=2), steps=2)
    gap = found.certificate.gap
    assert gap > found.certificate.gap_allowed
    said = f"y is not the lowest minimum of f(x, ·): f(x, y) is {gap:.2g} above the lowest value found"
    assert said in str(found)
    assert said in found._repr_html_()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, ""),
        ({"gap": 0.43, "multimodal": True}, "is 0.43 above"),
        ({"gap": float("nan")}, ""),
        ({"multimodal": True}, "has other minima"),
        ({"multimodal": True, "status": bvfim.Status.STUCK}, ""),
    ],
)
def test_what_stands_against_y_is_said_once(changes, said):
    caution = certificate(**changes).caution
    assert (said in caution) if said else not caution


def test_minima_that_are_all_as_low_are_no_others(from_four):
    # By its definition: a minimum that is not the lowest. Every minimum of sin over the line is -1.
    assert not from_four.certificate.multimodal


def test_too_few_steps_solve_nothing():
    solution = bvfim.solve(TOY.problem, at(-6.0), at(-6.0), dataclasses.replace(QUICK, starts=2), steps=2)
    assert solution.status is bvfim.Status.MAX_STEPS
    assert (solution.certificate.starts, solution.certificate.solved, solution.certificate.agreeing) == (2, 0, 0)
    assert "raise" in solution.certificate.advice


def test_starts_that_end_elsewhere_do_not_agree():
    # With y = x, F has a minimum near x = -2 and a lower one near x = 2.
    problem = bvfim.Problem(
        lambda x, y: (x**4 - 8 * x**2 - x).sum() + (y - x).sum() ** 2, lambda x, y: ((y - x) ** 2).sum(),
        x_set=bvfim.Box(-3, 3), y_set=bvfim.Box(-3, 3),
    )  # fmt: skip
    found = bvfim.solve_many(problem, torch.stack([at(-2.5), at(2.5)]), torch.stack([at(-2.5), at(2.5)]), QUICK)
    assert found[0].x * found[1].x < 0
    assert all(s.certificate.starts == s.certificate.agreeing == 1 for s in found)
    shown = bvfim.solve(problem, at(-2.5), at(-2.5), dataclasses.replace(QUICK, starts=4)).certificate
    assert 1 <= shown.agreeing < shown.solved <= shown.starts == 4


def test_other_methods_give_none():
    assert bvfim.solve(CONVEX, at(0.0), at(0.0), bvfim.RHG(steps=2), steps=1).certificate is None


def test_polished_is_at_the_bottom_of_the_lower_basin(far):
    # There y = x, and F(x, x) is nowhere below 1/2.
    assert far.status is bvfim.Status.CONVERGED
    assert far.certificate.polished >= 0.5 - 1e-6


def test_asking_for_a_certificate_leaves_the_state_as_it_is():
    problem = TOY.problem.counted_anew()
    state = QUICK.init(problem, at(0.0), at(0.0))
    before = state.starts.counts.clone()
    QUICK.certificate(problem, at(0.0), state)
    assert torch.equal(state.starts.counts, before)


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"coarse": True}, "use float64"), ({"multimodal": True}, "has a kink"), ({}, "badly conditioned or nonsmooth")],
)
def test_the_advice_of_stuck_tells_why(changes, said):
    shown = Certificate(
        relaxed=1.0, polished=1.0, gap=0.0, gap_allowed=1.0, tol=1e-3, stationarity=1.0,
        **{"multimodal": False, **changes}, starts=1, solved=1, agreeing=1, status=bvfim.Status.STUCK,
    )  # fmt: skip
    assert said in shown.advice
