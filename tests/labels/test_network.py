"""The bilevel network: a row's own label does not reach its score, the objectives are means, and it learns."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import bvfim
from bvfim.labels.network import Config, _problem, _start, trained

QUICK = Config(hidden=8, steps=4, lower=8)


def blobs(n=90, trusted=20, seed=0):
    """Two clouds, a third of the labels wrong."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 2, n + trusted)
    inputs = np.column_stack([2.0 * truth - 1.0, rng.normal(size=n + trusted)]) / 1.5
    given = np.where(rng.random(n) < 0.33, 1 - truth[:n], truth[:n])
    return inputs, given, truth, np.arange(n + trusted) % 3


def test_a_rows_own_label_does_not_reach_its_score():
    """But for the slack, one number for all folds."""
    inputs, given, truth, fold = blobs()
    changed = given.copy()
    changed[7] = 1 - changed[7]
    before, after = (trained(inputs, y, truth[90:], 2, fold, 0, QUICK)[1] for y in (given, changed))
    moved = np.abs(before - after).max(1)
    assert moved[fold == fold[7]].max() < 0.01
    assert moved.max() > 3 * moved[fold == fold[7]].max()


def test_it_learns_around_wrong_labels():
    inputs, given, truth, fold = blobs(300, 40)
    network, scores = trained(inputs, given, truth[300:], 2, fold, 0, Config(hidden=8))
    assert (scores.argmax(1) == truth).mean() > 0.97
    np.testing.assert_allclose(scores.sum(1), 0.0, atol=1e-5)
    assert (network(inputs).argmax(1) == truth).mean() > 0.97


def test_the_objectives_are_means_over_the_rows_of_each_fold():
    inputs, given, truth, fold = blobs()
    own = _problem(inputs, given, truth[90:], fold, np.arange(90), np.arange(90, 110))
    y = _start(2, 8, 2, 3, 0)
    y["weight"] = torch.zeros_like(y["weight"])
    x = torch.zeros(3, 90)
    F, f = own.joint(x, y)
    assert float(F) == pytest.approx(3 * np.log(2), rel=1e-5)
    assert float(f) == pytest.approx(3 * 0.5 * np.log(2), rel=1e-5)
    y = _start(2, 8, 2, 3, 0)
    F, f = own.joint(x, y)
    assert float(F) == pytest.approx(float(own.upper(x, y)), rel=1e-5)
    assert float(f) == pytest.approx(float(own.lower(x, y)), rel=1e-5)


def test_training_that_breaks_off_is_told_and_left_out():
    inputs, given, truth, fold = blobs()
    with pytest.warns(bvfim.BvfimWarning, match="the bilevel network was left out"):
        assert trained(inputs, given, truth[90:], 2, fold, 0, Config(hidden=8, steps=4, lr=1e9)) is None
