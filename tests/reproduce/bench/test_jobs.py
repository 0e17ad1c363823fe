import math

import pytest
import torch
from torch.nn import functional

from bvfim import tree
from bvfim.reproduce.bench.jobs import jobs, judged
from bvfim.reproduce.bench.jobs.base import Posed
from bvfim.reproduce.bench.jobs.known import names, toy_value
from bvfim.reproduce.experiments import cleaning
from bvfim.reproduce.experiments.penalties import load, minimiser
from bvfim.testproblems import collection, sine, starts
from bvfim.testproblems.judge import best_upper

ALL = {job.name: job for job in jobs()}
KNOWN = [name for name, job in ALL.items() if job.family in ("toy", "test problems")]
FLAT = "MitsosBarton2006Ex310"
"""The problem in which every x is optimal."""
TOLERANCE = 1e-2
"""Relative to 1 + |F*|, as `testproblems.solved` has it."""


def same(first, second):
    pairs = zip(tree.leaves(first), tree.leaves(second), strict=True)
    return all(torch.equal(torch.as_tensor(a), torch.as_tensor(b)) for a, b in pairs)


def drawn(posed, count=3):
    streams = [getattr(posed.batches, side, posed.batches) for side in ("upper", "lower")]
    return [[tree.leaves(next(iter(stream))) for _ in range(count)] for stream in streams] if posed.batches else []


def test_there_are_seven_kinds_and_names_are_names():
    assert len(ALL) == len(jobs()) >= 20
    assert len({job.family for job in jobs()}) == 7
    assert all(0 < job.budget <= 8 for job in jobs())


@pytest.mark.parametrize("name", ALL)
def test_a_seed_gives_the_same_problem_again_and_another_seed_another(name):
    first, again, other = (ALL[name].build(seed) for seed in (0, 0, 1))
    assert same((first.x, first.y), (again.x, again.y))
    for a, b in zip(drawn(first), drawn(again), strict=True):
        assert all(same(x, y) for x, y in zip(a, b, strict=True))
    value = judged(first, first.x)
    assert math.isfinite(value)
    assert value == judged(again, again.x)
    assert name == FLAT or value != judged(other, other.x)


@pytest.mark.parametrize("name", ALL)
def test_the_judge_leaves_the_problem_alone_and_knows_no_y_but_its_own(name):
    posed = ALL[name].build(0)
    value = judged(posed, posed.x)
    counts = posed.problem.evaluations.as_dict()
    assert not any(counts.values())
    for leaf in tree.leaves(posed.y):  # as a method could that trained it in place
        leaf.add_(1.0)
    assert judged(posed, posed.x) == value


@pytest.mark.parametrize("name", KNOWN)
def test_at_a_known_optimum_the_judge_gives_its_value_and_more_elsewhere(name):
    posed = ALL[name].build(0)
    test = next((t for t in collection() if t.name == name), sine(2.0, len(posed.y), 2.0))
    allowed = TOLERANCE * (1 + abs(test.upper))
    assert posed.optimum == test.upper
    assert posed.judge(test.x) == pytest.approx(test.upper, abs=allowed)
    for x, _ in starts(test, 3, seed=5):
        assert posed.judge(x) >= test.upper - allowed
    assert name == FLAT or posed.judge(posed.x) > test.upper + allowed


def test_the_closed_form_of_the_toy_agrees_with_the_brute_judge():
    test = sine(2.0, 1, 2.0)
    for x, _ in starts(test, 3, seed=1, reach=3.0):
        assert toy_value(1, x) == pytest.approx(best_upper(test, x), abs=2e-2)  # y may be out by a hair there


def test_the_first_by_name_are_taken():
    everyone = sorted((t.name for t in collection() if "sine" not in t.name), key=str.lower)
    assert names() == everyone[:12]


def test_right_weights_are_worth_more_than_equal_ones_and_wrong_ones_less():
    posed = ALL["cleaning"].build(0)
    task = cleaning.problem(
        "digits", activation="relu", centred=True, train=500, validation=200, hidden=32, noise=0.4, seed=0
    )
    right = torch.from_numpy(1.0 - 2.0 * task.wrong).float()
    assert posed.judge(5 * right) < 0.8 * posed.judge(posed.x) < 0.5 * posed.judge(-5 * right)


def test_features_that_are_all_zero_are_worth_a_guess():
    posed = ALL["few-shot, 5 images"].build(0)
    blind = tree.map(torch.zeros_like, posed.x)
    assert posed.judge(blind) == pytest.approx(math.log(3), abs=1e-5)


def test_an_architecture_that_cuts_every_edge_is_worth_a_guess():
    posed = ALL["architecture"].build(0)
    cut = 1e4 * functional.one_hot(torch.zeros(len(posed.x), dtype=torch.long), posed.x.shape[1]).float()
    assert posed.judge(cut) == pytest.approx(math.log(2), abs=0.02)
    assert posed.judge(posed.x) < 0.6 * posed.judge(cut)


def test_grey_images_teach_less_than_real_ones():
    posed = ALL["distillation"].build(0)
    assert posed.judge(0 * posed.x) > 1.2 * posed.judge(posed.x)


def test_one_penalty_for_all_is_that_penalty_for_each():
    task = load("diabetes")
    one, zero = torch.full((1,), -1.0, dtype=torch.float64), torch.zeros(task.features + 1, dtype=torch.float64)
    y, hessian = minimiser(task, one, zero)
    torch.testing.assert_close(y, minimiser(task, one.expand(task.features), zero)[0])
    torch.testing.assert_close(hessian, torch.func.hessian(lambda y: task.lower(one, y))(y))


def test_what_is_not_finite_or_has_no_exact_solution_is_worth_nothing():
    posed = ALL["toy, n = 1"].build(0)
    assert judged(posed, 0 * posed.x + math.nan) == math.inf

    def unsolved(x):
        raise ArithmeticError

    assert judged(Posed(posed.problem, posed.x, posed.y, unsolved), posed.x) == math.inf
    assert judged(Posed(posed.problem, posed.x, posed.y, lambda x: math.nan), posed.x) == math.inf
