from __future__ import annotations

import numpy as np
import pytest

from bvfim.reproduce.bench import rivals
from bvfim.reproduce.bench.label_columns import Task
from bvfim.reproduce.bench.rivals import CONTESTANTS

pytestmark = pytest.mark.long

JUDGING = [name for name in CONTESTANTS if name not in (rivals.NONE, rivals.ORACLE)]


@pytest.fixture(scope="module")
def easy() -> Task:
    """Three clusters far from each other, with a fifth of the labels wrong: every method finds them all."""
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]])
    truth, trusted, test = (np.arange(size) % 3 for size in (90, 15, 30))
    given = truth.copy()
    given[:18] = (given[:18] + 1) % 3
    rows = [centres[labels] + 0.3 * rng.normal(size=(len(labels), 2)) for labels in (truth, trusted, test)]
    return Task(np.concatenate(rows[:2]), given, trusted, truth, rows[2], test, 3)


def found(name: str, task: Task) -> rivals.Found:
    if name in rivals.CLEANLAB:
        pytest.importorskip("cleanlab", reason="cleanlab is not installed")
    return CONTESTANTS[name](task, 0)


@pytest.fixture(scope="module", params=JUDGING)
def name(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def own(name, easy) -> rivals.Found:
    return found(name, easy)


def test_what_is_easy_is_found(name, own, easy):
    assert own.p_wrong.shape == own.flags.shape == own.labels.shape == own.weights.shape == (90,)
    assert own.flags.dtype == bool
    assert own.p_wrong.min() >= 0.0
    assert own.p_wrong.max() <= 1.0
    assert own.p_wrong[easy.wrong].min() > own.p_wrong[~easy.wrong].max()
    if name != "bilevel weights alone":  # the signs of x flag more than what is wrong
        assert np.array_equal(own.flags, easy.wrong)


def test_what_is_trained_on_after_cleaning_has_no_wrong_label_that_weighs_more_than_a_right_one(own, easy):
    right = own.labels == easy.truth
    assert right.any()
    if not right.all():
        assert own.weights[~right].max() < own.weights[right].min()


def test_the_truth_is_not_seen(name, own, easy):
    blind = Task(easy.inputs, easy.given, easy.trusted, easy.given, easy.test_inputs[:1], easy.test[:1], 3)
    assert np.array_equal(own.p_wrong, found(name, blind).p_wrong)


@pytest.mark.parametrize("name", rivals.CLEANLAB, indirect=True)
def test_cleanlab_is_scored_on_the_noisy_rows_alone(own, easy):
    assert np.array_equal(own.weights, np.where(own.flags, 0.0, 1.0))
    assert np.array_equal(own.labels, easy.given)


def test_a_fold_is_not_reached_by_its_own_labels(easy):
    """Flipping one label leaves the classes that self-training gives to its row."""
    fold = np.random.default_rng(0).permutation(90) % rivals.FOLDS
    given = easy.given.copy()
    given[fold == 2] = (given[fold == 2] + 1) % 3
    other = Task(easy.inputs, given, easy.trusted, easy.truth, easy.test_inputs, easy.test, 3)
    first, second = rivals.self_training(easy, 0), rivals.self_training(other, 0)
    assert np.array_equal(first.labels[fold == 2], second.labels[fold == 2])


def test_classes_that_a_model_has_not_seen_have_probability_zero(easy):
    some = easy.trusted < 2
    inputs = np.concatenate([easy.inputs[:90], easy.inputs[90:][some]])
    cut = Task(inputs, easy.given, easy.trusted[some], easy.truth, easy.test_inputs, easy.test, 3)
    assert (rivals.disagreement(cut, 0).p_wrong[easy.given == 2] == 1.0).all()


def test_without_cleaning_nothing_changes_and_the_oracle_knows(easy):
    for name, labels in ((rivals.NONE, easy.given), (rivals.ORACLE, easy.truth)):
        own = CONTESTANTS[name](easy, 0)
        assert own.p_wrong is None
        assert own.flags is None
        assert np.array_equal(own.labels, labels)
        assert own.weights.min() == own.weights.max() == 1.0
