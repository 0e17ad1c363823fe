from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bvfim.data import balanced_split
from bvfim.status import DataError

SEEDS = st.integers(0, 2**32)


@given(st.integers(2, 5), st.lists(st.integers(0, 17), max_size=4), SEEDS)
def test_parts_are_disjoint_and_balanced(classes: int, sizes: list[int], seed: int) -> None:
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(classes), sum(sizes) + 1))
    parts = balanced_split(labels, sizes, classes, seed)
    assert [len(part) for part in parts] == sizes
    rows = np.concatenate([np.empty(0, dtype=np.int64), *parts])
    assert len(np.unique(rows)) == len(rows)
    for part in parts:
        counts = np.bincount(labels[part], minlength=classes)
        assert counts.max() - counts.min() <= (len(part) % classes > 0)


@given(st.integers(2, 5), st.lists(st.integers(0, 17), max_size=4), SEEDS)
def test_the_seed_decides(classes: int, sizes: list[int], seed: int) -> None:
    labels = np.repeat(np.arange(classes), sum(sizes) + 1)
    for first, second in zip(
        balanced_split(labels, sizes, classes, seed), balanced_split(labels, sizes, classes, seed), strict=True
    ):
        np.testing.assert_array_equal(first, second)


def test_the_rows_are_mixed_and_the_input_is_untouched() -> None:
    labels = np.repeat(np.arange(10), 100)
    before = labels.copy()
    (part,) = balanced_split(labels, [500], 10, seed=0)
    np.testing.assert_array_equal(labels, before)
    assert len(set(labels[part[:50]])) > 5
    assert set(part) != set(balanced_split(labels, [500], 10, seed=1)[0])


@given(SEEDS)
def test_odd_rows_come_from_the_classes_that_have_them(seed: int) -> None:
    labels = [0, 0, 0, 1, 1, 2, 2]
    first, second, third = balanced_split(labels, [3, 1, 3], 3, seed)
    assert sorted([*first, *second, *third]) == list(range(7))
    assert [labels[row] for row in second] == [0]


def test_a_class_with_too_few_rows_is_named() -> None:
    with pytest.raises(DataError, match=r"^class 1 has 1 rows, but splits of sizes \[2, 2\] need 2 of it$"):
        balanced_split([0, 0, 0, 1], [2, 2], 2, seed=0)


def test_a_negative_size_is_refused() -> None:
    with pytest.raises(DataError, match="must not be negative"):
        balanced_split([0, 1], [-1], 2, seed=0)


def test_bad_labels_are_refused() -> None:
    with pytest.raises(DataError, match="must lie between 0 and 1"):
        balanced_split([0, 2], [2], 2, seed=0)
