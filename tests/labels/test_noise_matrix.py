"""The noise matrix: recovered from samples, and the posterior by Bayes' rule."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bvfim.labels import noise_matrix


def sampled(T, n, seed, sure=0.9):
    """True classes, given labels, and class probabilities that are right on average."""
    rng = np.random.default_rng(seed)
    classes = len(T)
    p = rng.dirichlet(np.full(classes, 1 - sure), size=n)
    truth = np.array([rng.choice(classes, p=row) for row in p])
    return p, truth, np.array([rng.choice(classes, p=T[k]) for k in truth])


@pytest.mark.parametrize("rate", [0.2, 0.5])
def test_the_matrix_of_pair_flips_is_found(rate):
    T = (1 - rate) * np.eye(4) + rate * np.roll(np.eye(4), 1, 1)
    p, _, labels = sampled(T, 4000, 0)
    found = noise_matrix.estimate(p, noise_matrix.flat(4, 0.3), labels, 100)
    np.testing.assert_allclose(found, T, atol=0.05)


def test_the_posterior_is_calibrated_where_the_model_is_right():
    T = noise_matrix.flat(5, 0.4)
    p, truth, labels = sampled(T, 20000, 1, sure=0.5)
    q, _ = noise_matrix.posterior(p, T, labels)
    wrong = 1 - q[np.arange(len(labels)), labels]
    for low in (0.0, 0.25, 0.5, 0.75):
        rows = (wrong >= low) & (wrong < low + 0.25)
        assert (truth != labels)[rows].mean() == pytest.approx(wrong[rows].mean(), abs=0.03)


@given(st.integers(2, 6), st.floats(0.0, 0.4), st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_every_step_makes_the_labels_more_likely(classes, rate, seed):
    """Up to the prior, which counts for a few rows."""
    p, _, labels = sampled(noise_matrix.flat(classes, rate), 300, seed)
    T = noise_matrix.flat(classes, 0.3)
    before = noise_matrix.posterior(p, T, labels)[1]
    T = noise_matrix.estimate(p, T, labels, 20)
    np.testing.assert_allclose(T.sum(1), 1.0)
    assert noise_matrix.posterior(p, T, labels)[1] > before - 2 * classes
