"""Whether cleaning is recommended: by rows that can be trusted, out of sample."""

from __future__ import annotations

import numpy as np
import pytest

from bvfim.data import pair_flip
from bvfim.labels import mixture
from bvfim.labels.benefit import Benefit, benefit

CONFIG = mixture.Config(bilevel=None, landmarks=100)


def rows(flipped: float, seed: int = 0) -> mixture.TrainingRows:
    """Three heaps of points, a share of each given the label of the next one."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, 360)
    inputs = np.array([[0.0, 1.0], [1.0, 0.0], [-1.0, -1.0]])[labels] + 0.4 * rng.normal(size=(360, 2))
    given = pair_flip(labels[:300], flipped, 3, seed)[0]
    return mixture.TrainingRows(inputs, given, labels[300:], 3)


def test_cleaning_helps_where_most_labels_of_a_class_are_those_of_another():
    data = rows(0.55)
    found = benefit(data, mixture.fit(data, 0, CONFIG), CONFIG)
    assert found.gain > 2 * found.error
    assert found.recommended
    assert "Cleaning helps" in str(found)
    assert found.rows == 60


def test_cleaning_makes_no_difference_where_labels_are_right():
    data = rows(0.0)
    found = benefit(data, mixture.fit(data, 0, CONFIG), CONFIG)
    assert abs(found.gain) <= 0.05
    assert found.recommended


def test_harm_is_said():
    harmed = Benefit(cleaned=0.7, plain=0.8, error=0.02, rows=300)
    assert not harmed.recommended
    assert str(harmed).startswith("Cleaning does harm: 70.0 % of the 300 trusted rows")


def test_without_trusted_rows_nothing_is_recommended():
    data = rows(0.2)
    alone = mixture.TrainingRows(data.inputs[:300], data.given, data.trusted[:0], 3)
    found = benefit(alone, mixture.fit(alone, 0, CONFIG), CONFIG)
    assert not found.recommended
    assert "no way to tell" in str(found)
    assert np.isnan(found.gain)


@pytest.mark.parametrize(("gain", "recommended"), [(0.05, True), (-0.03, True), (-0.05, False)])
def test_a_loss_within_its_error_is_none(gain, recommended):
    found = Benefit(0.5 + gain, 0.5, 0.02, 100)
    assert found.recommended is recommended
    assert ("helps" if gain > 0 else "too few, or too easy" if recommended else "does harm") in str(found)


@pytest.mark.parametrize(("lost", "rows", "recommended"), [(1, 1, True), (1, 60, True), (4, 60, True), (5, 60, False)])
def test_harm_takes_more_than_a_few_lost_rows(lost, rows, recommended):
    """With d the lost rows and no other difference, the error is √d / rows, and d > 2 √d from five on."""
    labels = np.arange(400) % 2
    data = mixture.TrainingRows(10.0 * labels[: 300 + rows, None] + 0.0, labels[:300], labels[300 : 300 + rows], 2)
    found = mixture.fit(data, 0, CONFIG)
    found.p[300 : 300 + lost] = found.p[300 : 300 + lost, ::-1]
    judged = benefit(data, found, CONFIG)
    assert judged.gain == pytest.approx(-lost / rows)
    assert judged.recommended is recommended
    assert ("too few, or too easy, to show whether" if recommended else "does harm") in str(judged)
