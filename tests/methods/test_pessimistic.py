"""A follower who breaks ties against the leader: the worst answer is found, and what is not attained is told."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import bvfim
from bvfim.callbacks import Checkpoint
from bvfim.testproblems import pessimistic, starts, unattained
from tests.methods.test_bvfim import OnlyOnce

D = torch.float64
LUCCHETTI, EX311, EX319, EX324, SIPBA = pessimistic()
MORGAN, EX314, KLENIATI, YEZZA, PAULAVICIUS = unattained()


def solved_from(test, seed, count=6, **how):
    ((x, y),) = starts(test, 1, seed)
    return bvfim.solve(test.problem, x, y, bvfim.AdaptiveBVFIM(starts=count, seed=100 * seed), refit=False, **how)


@pytest.mark.long
@pytest.mark.parametrize("test", pessimistic(), ids=lambda t: t.name)
def test_what_is_attained_is_found_and_never_called_unattained(test):
    found = solved_from(test, 0)
    assert found.status is bvfim.Status.CONVERGED
    assert found.upper == pytest.approx(test.upper, abs=1e-2 * (1 + abs(test.upper)))
    assert found.certificate.gap <= found.certificate.gap_allowed


@pytest.mark.long
@pytest.mark.parametrize("test", unattained(), ids=lambda t: t.name)
def test_what_is_not_attained_is_approached(test):
    found = solved_from(test, 0)
    assert found.status in (bvfim.Status.CONVERGED, bvfim.Status.NOT_ATTAINED)
    assert found.upper == pytest.approx(test.upper, abs=1e-2 * (1 + abs(test.upper)))


@pytest.mark.long
@pytest.mark.parametrize("test", [EX314, PAULAVICIUS], ids=lambda t: t.name)
def test_a_jump_is_told_with_the_sequence_that_approaches_it(test):
    found = solved_from(test, 1)
    assert found.status is bvfim.Status.NOT_ATTAINED
    assert found.status.ok
    shown = found.certificate
    assert shown.edge > 0.5
    assert shown.advice == found.status.advice
    far = [abs(x.item() - test.x.item()) for x, _ in shown.approach]
    assert far[-1] < 1e-3
    assert far[-1] <= min(far[:3])


def test_the_worst_of_two_answers_from_one_start():
    """y = 1 + x / 10 -+ sqrt((1 + x) / 2) are equally good for the follower at every x."""
    found = solved_from(EX324, 0, count=1)
    assert found.status is bvfim.Status.CONVERGED
    assert found.x.item() == pytest.approx(0, abs=1e-3)
    assert found.y.item() == pytest.approx(1 - 0.5**0.5, abs=1e-3)
    assert found.evaluations["hvp"] == found.evaluations["jvp"] == 0
    assert (found.history["slack"] > 0).all()
    assert found.history["mu2"].is_monotonic_decreasing


@pytest.mark.long
@pytest.mark.parametrize(("of_F", "of_f", "shift"), [(1e6, 1.0, 0.0), (1e-6, 1e5, 0.0), (1.0, 1e-5, 2.0)])
def test_scales_of_both_and_a_constant_in_f_change_nothing(of_F, of_f, shift):
    moved = bvfim.Problem(
        lambda x, y: of_F * EX324.problem.upper(x, y),
        lambda x, y: of_f * EX324.problem.lower(x, y) + shift,
        x_set=EX324.problem.x_set,
        y_set=EX324.problem.y_set,
        follower="pessimistic",
    )
    one = solved_from(EX324, 0, count=1)
    other = solved_from(dataclasses.replace(EX324, problem=moved), 0, count=1)
    assert other.status is one.status
    assert other.upper / of_F == pytest.approx(one.upper, abs=1e-4)
    for kind in ("upper", "lower"):
        assert other.evaluations[kind] == pytest.approx(one.evaluations[kind], rel=0.2)


@pytest.mark.long
@pytest.mark.parametrize("units", [1e-4, 1e4])
def test_other_units_of_x_and_y_change_nothing(units):
    moved = bvfim.Problem(
        lambda x, y: EX324.problem.upper(x / units, y * units),
        lambda x, y: EX324.problem.lower(x / units, y * units),
        x_set=bvfim.Box(0.0, units),
        y_set=bvfim.Box(0.0, 3 / units),
        follower="pessimistic",
    )
    ((x, y),) = starts(EX324, 1, 0)
    found = bvfim.solve(moved, x * units, y / units, refit=False)
    assert found.status is bvfim.Status.CONVERGED
    assert found.upper == pytest.approx(EX324.upper, abs=1e-3)


def test_without_boxes_and_with_a_flat_lower_level():
    """S(x) is the line y_1 + y_2 = x_1 + x_2, and the worst of it the foot of the perpendicular from (1, -1)."""
    problem = bvfim.Problem(
        lambda x, y: (x**2).sum() + x[0] - ((y - torch.tensor([1.0, -1.0])) ** 2).sum(),
        lambda x, y: (y.sum() - x.sum()) ** 2,
        follower="pessimistic",
    )
    boxed = dataclasses.replace(problem, x_set=bvfim.Box(-1.0, 1.0))
    found = bvfim.solve(boxed, torch.zeros(2, dtype=D), torch.zeros(2, dtype=D), refit=False)
    x = found.x
    foot = torch.tensor([1.0, -1.0], dtype=D) + x.sum() / 2
    assert torch.allclose(found.y, foot, atol=0.05)
    assert found.upper == pytest.approx((x**2).sum().item() + x[0].item() - x.sum().item() ** 2 / 2, abs=1e-2)


def test_float32_gets_there_too():
    x, y = torch.full((1,), 0.7), torch.full((1,), 2.0)
    found = bvfim.solve(EX324.problem, x, y, refit=False)
    assert found.x.dtype is torch.float32
    assert found.upper == pytest.approx(EX324.upper, abs=1e-2)
    with pytest.raises(bvfim.MethodError, match="float32 or float64"):
        bvfim.solve(EX324.problem, x.half(), y.half())


def test_killed_and_resumed_it_gives_the_same_bits(tmp_path):
    path = tmp_path / "run.pt"
    whole = solved_from(LUCCHETTI, 0, count=3)
    solved_from(LUCCHETTI, 0, count=3, steps=3, callbacks=[Checkpoint(path)])
    resumed = solved_from(LUCCHETTI, 0, count=3, resume=path)
    assert torch.equal(whole.x, resumed.x)
    assert torch.equal(whole.y, resumed.y)
    assert whole.evaluations == resumed.evaluations
    assert whole.status is resumed.status
    assert resumed.certificate == whole.certificate or str(resumed.certificate) == str(whole.certificate)


def test_objectives_that_cannot_be_mapped():
    upper = LUCCHETTI.problem.upper
    problem = dataclasses.replace(LUCCHETTI.problem, upper=lambda x, y: upper(x, y) + OnlyOnce.apply(x).sum())
    found = bvfim.solve(problem, torch.full((1,), 0.5, dtype=D), torch.full((1,), 0.5, dtype=D), refit=False)
    assert found.upper == pytest.approx(0.5, abs=1e-3)


def test_many_starts_are_solved_one_after_another():
    xs = torch.tensor([[0.2], [0.8]], dtype=D)
    found = bvfim.solve_many(EX324.problem, xs, 2 * xs)
    assert [s.upper for s in found] == pytest.approx(2 * [EX324.upper], abs=1e-3)


@pytest.mark.parametrize("name", ["lower_constraints", "upper_equalities"])
def test_constraints_are_refused_in_a_sentence(name):
    problem = dataclasses.replace(EX324.problem, **{name: lambda x, y: x - y})
    with pytest.raises(bvfim.MethodError, match=f"^{name}: with a pessimistic follower only sets are supported$"):
        bvfim.solve(problem, EX324.x, EX324.y)


def test_a_run_that_is_stopped_early_says_so():
    found = solved_from(EX324, 0, count=1, steps=2)
    assert found.status is bvfim.Status.MAX_STEPS
    assert found.certificate.status is None
    assert found.certificate.advice == "The run stopped before it finished: raise steps."
