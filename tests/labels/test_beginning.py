"""Where the noise matrix begins: what the trusted rows alone say of it, and what comes of that."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bvfim.labels import noise_matrix
from bvfim.labels.beginning import from_trusted, names_another, others
from bvfim.labels.mixture import Config, TrainingRows, fit
from bvfim.labels.ridge import Features

SMALL = Config(widths=(1.0,), penalties=(0.3,), scales=(1.0, 3.0, 10.0), landmarks=60, folds=4, bilevel=None)


def flipped(rate, n=400, trusted=20, classes=4, seed=0):
    """Points around the corners of a square; this share of every class is given the label of the next one."""
    rng = np.random.default_rng(seed)
    truth = rng.permutation(np.arange(n + trusted) % classes)
    angles = 2 * np.pi * truth / classes
    inputs = np.column_stack([np.cos(angles), np.sin(angles)]) + 0.25 * rng.normal(size=(n + trusted, 2))
    given = (truth[:n] + (rng.random(n) < rate)) % classes
    return TrainingRows(inputs, given, truth[n:], classes), truth[:n]


def asked(function, rows):
    kernels, start = [Features.of(rows.inputs[:60], 1.0)], noise_matrix.flat(rows.classes, 0.3)
    return function(kernels, rows.inputs, rows.given, rows.trusted, start, SMALL.penalties, SMALL.scales)


@pytest.mark.parametrize("rate", [0.3, 0.6, 0.8])
def test_the_trusted_rows_alone_tell_the_matrix(rate):
    rows, truth = flipped(rate)
    drawn = np.eye(4)[truth].T @ np.eye(4)[rows.given]
    np.testing.assert_allclose(asked(from_trusted, rows), drawn / drawn.sum(1, keepdims=True), atol=0.08)


def test_the_names_of_the_classes_do_not_matter():
    rows, _ = flipped(0.6)
    order = np.array([2, 0, 3, 1])
    renamed = asked(from_trusted, replace(rows, given=order[rows.given], trusted=order[rows.trusted]))
    np.testing.assert_allclose(renamed[np.ix_(order, order)], asked(from_trusted, rows), atol=1e-9)


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.4])
def test_where_labels_mostly_name_their_class_there_is_one_beginning(rate):
    assert not asked(others, flipped(rate)[0])


@pytest.mark.parametrize("rate", [0.6, 0.8])
def test_labels_that_mostly_name_the_next_class_are_found_wrong(rate):
    rows, truth = flipped(rate)
    found = fit(rows, 0, SMALL)
    assert (found.q.argmax(1) == truth).mean() > 0.97
    assert names_another(found.T)


def test_without_trusted_rows_nothing_tells_the_names_of_the_classes():
    rows, _ = flipped(0.6)
    assert not names_another(fit(replace(rows, inputs=rows.inputs[:400], trusted=rows.trusted[:0]), 0, SMALL).T)


def test_trusted_rows_that_contradict_each_other_change_nothing_for_certain():
    """Labels of the trusted rows at random: whatever they begin with, the labels as they are stay more likely."""
    rows, truth = flipped(0.2)
    rng = np.random.default_rng(1)
    found = fit(replace(rows, trusted=rng.integers(0, 4, 20)), 0, SMALL)
    assert (found.q.argmax(1) == truth).mean() > 0.9
