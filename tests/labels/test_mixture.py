"""The mixture: no row's own label reaches its score, and nothing depends on the names of the classes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bvfim.labels.mixture import Config, TrainingRows, fit, self_trained
from bvfim.labels.noise_matrix import flat
from bvfim.labels.ridge import Features

SMALL = Config(widths=(1.0,), penalties=(0.3,), scales=(5.0,), landmarks=60, folds=4, bilevel=None)


def blobs(n=120, trusted=12, classes=3, rate=0.3, seed=0):
    """Points around the corners of a triangle, some with a wrong label."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, classes, n + trusted)
    angles = 2 * np.pi * truth / classes
    inputs = np.column_stack([np.cos(angles), np.sin(angles)]) + 0.35 * rng.normal(size=(n + trusted, 2))
    wrong = rng.random(n) < rate
    given = np.where(wrong, (truth[:n] + rng.integers(1, classes, n)) % classes, truth[:n])
    return TrainingRows(inputs, given, truth[n:], classes), truth[:n], wrong


@pytest.mark.parametrize("r", [0, 1, 2])
def test_a_rows_own_label_does_not_reach_its_score(r):
    """But for the noise matrix of the later rounds, nine numbers for all rows."""
    rows, _, _ = blobs()
    features, fold = Features.of(rows.inputs[:60], 1.0), np.arange(132) % 4

    def scores(given):
        return list(self_trained(replace(rows, given=given), features, fold, flat(3, SMALL.rate), SMALL))[r].scores

    for i in (3, 50):
        changed = rows.given.copy()
        changed[i] = (changed[i] + 1) % 3
        moved = np.abs(scores(changed) - scores(rows.given)).max(1)
        assert moved[i] < (1e-9 if r == 0 else 0.01)
        assert moved.max() > moved[i], "it reaches the rows around it"


def test_the_names_of_the_classes_do_not_matter():
    rows, _, _ = blobs()
    order = np.array([2, 0, 1])
    plain, renamed = (
        fit(rows, 0, SMALL),
        fit(replace(rows, given=order[rows.given], trusted=order[rows.trusted]), 0, SMALL),
    )
    np.testing.assert_allclose(renamed.q[:, order], plain.q, atol=1e-6)
    np.testing.assert_allclose(renamed.T[np.ix_(order, order)], plain.T, atol=1e-6)


def test_the_scale_of_the_inputs_does_not_matter():
    rows, _, _ = blobs()
    plain, stretched = fit(rows, 0, SMALL), fit(replace(rows, inputs=1000 * rows.inputs), 0, SMALL)
    np.testing.assert_allclose(stretched.q, plain.q, atol=1e-6)


def test_wrong_labels_are_probable_where_they_are():
    rows, truth, wrong = blobs(600, 30, seed=1)
    found = fit(rows, 0, Config(landmarks=100))
    p_wrong = 1 - found.q[np.arange(600), rows.given]
    assert p_wrong[wrong].mean() > 0.85
    assert p_wrong[~wrong].mean() < 0.1
    assert p_wrong.mean() == pytest.approx(wrong.mean(), abs=0.03)
    assert (found.predict(rows.inputs[:600]).argmax(1) == truth).mean() > 0.95


@pytest.mark.parametrize("trusted", [0, 1])
def test_few_rows_or_none_that_are_trusted_are_enough(trusted):
    rows, _, wrong = blobs(200, trusted)
    found = fit(rows, 0, SMALL)
    assert (found.q.argmax(1) != rows.given)[wrong].mean() > 0.8


def test_many_classes_do_not_cost_their_square():
    rows, _, _ = blobs(300, 300, classes=200, rate=0.1)
    found = fit(rows, 0, SMALL)
    assert found.T.shape == (200, 200)
    assert np.isfinite(found.q).all()
