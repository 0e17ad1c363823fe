"""Kernel ridge regression: its closed forms against refitting without the row."""

from __future__ import annotations

import numpy as np
import pytest

from bvfim.labels.ridge import Features, folded

rng = np.random.default_rng(0)
ROWS, TARGETS = rng.normal(size=(40, 3)), rng.normal(size=(40, 2))
WEIGHTS = rng.uniform(0.5, 3.0, size=40)
FOLD = np.arange(40) % 4
PENALTIES = np.array([0.1, 2.0])


@pytest.fixture(scope="module")
def phi():
    return Features.of(ROWS, 0.3)(ROWS)


def refitted(phi, rows, penalty):
    """Scores of all rows by the regression on some of them, from the normal equations."""
    own, v = phi[rows], WEIGHTS[rows, None]
    system = own.T @ (v * own) + penalty * np.eye(phi.shape[1])
    return phi @ np.linalg.solve(system, own.T @ (v * TARGETS[rows]))


def test_the_features_give_the_kernel_at_the_landmarks(phi):
    distances = ((ROWS[:, None] - ROWS) ** 2).sum(-1)
    np.testing.assert_allclose(phi[:, :-1] @ phi[:, :-1].T, np.exp(-0.3 * distances), atol=1e-4)


@pytest.mark.parametrize("j", [0, 1])
def test_a_training_row_is_scored_as_if_it_had_been_left_out(phi, j):
    whole, _ = folded(phi, WEIGHTS, FOLD, PENALTIES)
    found = whole.scores(TARGETS, j)
    for i in range(0, 40, 7):
        np.testing.assert_allclose(found[i], refitted(phi, np.arange(40) != i, PENALTIES[j])[i], atol=1e-8)


@pytest.mark.parametrize("j", [0, 1])
def test_a_fold_is_scored_by_a_model_without_it(phi, j):
    _, without = folded(phi, WEIGHTS, FOLD, PENALTIES)
    for k, model in enumerate(without):
        plain = refitted(phi, k != FOLD, PENALTIES[j])
        np.testing.assert_allclose(model.scores(TARGETS, j)[k == FOLD], plain[k == FOLD], atol=1e-8)
        np.testing.assert_allclose(phi @ model.coefficients(TARGETS, j), plain, atol=1e-8)


def test_rows_that_are_all_equal_do_no_harm():
    equal = np.ones((6, 2))
    phi = Features.of(equal, 1.0)(equal)
    whole, _ = folded(phi, np.ones(6), np.arange(6) % 2, PENALTIES)
    assert np.isfinite(whole.scores(TARGETS[:6], 0)).all()
