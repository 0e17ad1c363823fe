from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bvfim.data import pair_flip, symmetric, transition
from bvfim.status import DataError

Noise = Callable[..., tuple[np.ndarray, np.ndarray]]
SEEDS = st.integers(0, 2**32)
RATES = st.floats(0, 1)
both = pytest.mark.parametrize("noise", [symmetric, pair_flip])


@st.composite
def labelled(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    classes = draw(st.integers(2, 6))
    return np.array(draw(st.lists(st.integers(0, classes - 1), max_size=60)), dtype=np.int64), classes


@both
@given(labelled(), RATES, SEEDS)
def test_exactly_the_rate_changes_to_other_classes(
    noise: Noise, data: tuple[np.ndarray, int], rate: float, seed: int
) -> None:
    labels, classes = data
    before = labels.copy()
    noisy, changed = noise(labels, rate, classes, seed)
    np.testing.assert_array_equal(labels, before)
    assert noisy.dtype == np.int64
    assert changed.dtype == np.bool_
    assert changed.sum() == round(rate * len(labels))
    np.testing.assert_array_equal(noisy != labels, changed)
    assert ((noisy >= 0) & (noisy < classes)).all()


@both
@given(labelled(), RATES, SEEDS)
def test_each_class_loses_its_share(noise: Noise, data: tuple[np.ndarray, int], rate: float, seed: int) -> None:
    labels, classes = data
    _, changed = noise(labels, rate, classes, seed)
    for label in range(classes):
        rows = labels == label
        share = rows.sum() * changed.sum() / max(len(labels), 1)
        assert math.floor(share) <= changed[rows].sum() <= math.ceil(share)


@both
@given(labelled(), RATES, SEEDS)
def test_the_seed_decides(noise: Noise, data: tuple[np.ndarray, int], rate: float, seed: int) -> None:
    labels, classes = data
    first, second = noise(labels, rate, classes, seed), noise(labels, rate, classes, seed)
    np.testing.assert_array_equal(first, second)


@both
def test_another_seed_gives_other_rows(noise: Noise) -> None:
    labels = np.arange(1000) % 10
    assert (noise(labels, 0.5, 10, 0)[1] != noise(labels, 0.5, 10, 1)[1]).any()


@given(labelled(), RATES, SEEDS)
def test_pair_flip_goes_to_the_next_class(data: tuple[np.ndarray, int], rate: float, seed: int) -> None:
    labels, classes = data
    noisy, changed = pair_flip(labels, rate, classes, seed)
    np.testing.assert_array_equal(noisy[changed], (labels[changed] + 1) % classes)


def test_symmetric_is_uniform_over_the_other_classes() -> None:
    noisy, _ = symmetric(np.zeros(40_000, dtype=np.int64), 1.0, 5, seed=0)
    counts = np.bincount(noisy, minlength=5)
    # Four standard deviations of a binomial of 40 000 draws at one quarter.
    assert counts[0] == 0
    assert (np.abs(counts[1:] - 10_000) < 4 * math.sqrt(40_000 * 0.25 * 0.75)).all()


@pytest.mark.parametrize("kind", [np.uint8, np.int32, list])
def test_labels_of_any_whole_type_do_not_wrap(kind: Callable[..., object]) -> None:
    labels = np.arange(250, dtype=np.int64)
    noisy, _ = pair_flip(kind(labels), 1.0, 256, seed=0)
    np.testing.assert_array_equal(noisy, labels + 1)


@given(labelled(), SEEDS, st.data())
def test_transition_follows_the_matrix(data: tuple[np.ndarray, int], seed: int, more: st.DataObject) -> None:
    labels, classes = data
    before = labels.copy()
    weights = st.lists(st.integers(0, 3), min_size=classes, max_size=classes).filter(any)
    matrix = np.array([more.draw(weights) for _ in range(classes)], dtype=np.float64)
    matrix /= matrix.sum(axis=1, keepdims=True)
    noisy, changed = transition(labels, matrix, seed)
    np.testing.assert_array_equal(labels, before)
    np.testing.assert_array_equal(noisy != labels, changed)
    assert (matrix[labels, noisy] > 0).all()
    np.testing.assert_array_equal(transition(labels, matrix, seed)[0], noisy)


def test_transition_has_the_frequencies_of_the_matrix() -> None:
    matrix = np.array([[0.7, 0.2, 0.1], [0.0, 1.0, 0.0], [0.3, 0.3, 0.4]])
    labels = np.repeat(np.arange(3), 20_000)
    noisy, _ = transition(labels, matrix, seed=0)
    seen = np.stack([np.bincount(noisy[labels == c], minlength=3) / 20_000 for c in range(3)])
    np.testing.assert_allclose(seen, matrix, atol=0.015)


@both
@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan")])
def test_a_rate_out_of_range_is_refused(noise: Noise, rate: float) -> None:
    with pytest.raises(DataError, match="the noise rate must lie between 0 and 1"):
        noise([0, 1], rate, 2, 0)


@pytest.mark.parametrize(
    ("labels", "classes", "complaint"),
    [
        ([0, 2], 2, "must lie between 0 and 1, but there is a 2"),
        ([0, -1], 2, "must lie between 0 and 1, but there is a -1"),
        ([0.0, 1.0], 2, "a 1-D array of whole numbers, not float64"),
        ([True, False], 2, "a 1-D array of whole numbers, not bool"),
        ([[0], [1]], 2, r"a 1-D array of whole numbers, not int64 of shape \(2, 1\)"),
        ([0, 0], 1, "at least 2 classes, not 1"),
    ],
)
def test_bad_labels_are_refused(labels: list, classes: int, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        symmetric(labels, 0.5, classes, 0)


@pytest.mark.parametrize(
    ("matrix", "complaint"),
    [
        ([[1.0, 0.0]], r"must be square, not of shape \(1, 2\)"),
        ([[1.5, -0.5], [0.0, 1.0]], "no negative entries"),
        ([[1.0, 0.0], [0.5, 0.4]], "row 1 of the transition matrix must sum to one, not to 0.9"),
        ([[float("nan"), 0.0], [0.0, 1.0]], "row 0 of the transition matrix must sum to one, not to nan"),
    ],
)
def test_a_bad_matrix_is_refused(matrix: list, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        transition([0, 1], matrix, 0)


def test_transition_checks_the_labels() -> None:
    with pytest.raises(DataError, match="must lie between 0 and 1"):
        transition([0, 2], np.eye(2), 0)
