"""Naive Bayes: scikit-learn's own, where the targets are classes, and what soft targets mean."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from sklearn.naive_bayes import MultinomialNB

from bvfim.labels.naive_bayes import NaiveBayes


def terms(seed=0, rows=40, width=12):
    return sparse.csr_matrix(np.random.default_rng(seed).poisson(0.7, (rows, width)).astype(float))


def test_it_is_scikit_learns_where_every_row_has_one_class():
    words, labels = terms(), np.arange(40) % 3
    own = NaiveBayes.of(words, np.eye(3)[labels], 0.3)
    theirs = MultinomialNB(alpha=0.3).fit(words, labels)
    np.testing.assert_allclose(own.terms.T, theirs.feature_log_prob_, rtol=1e-12)
    log_p = own(words) - np.logaddexp.reduce(own(words), axis=1, keepdims=True)
    shares = (np.bincount(labels) + 1) / 43
    prior = MultinomialNB(alpha=0.3, class_prior=shares).fit(words, labels)
    np.testing.assert_allclose(log_p, prior.predict_log_proba(words), atol=1e-12)


def test_a_row_that_is_half_of_two_classes_counts_as_two_halves():
    words, labels = terms(), np.arange(40) % 3
    halves = np.vstack([0.5 * np.eye(3)[labels], 0.5 * np.eye(3)[(labels + 1) % 3]])
    twice = NaiveBayes.of(sparse.vstack([words, words]).tocsr(), halves, 0.3)
    once = NaiveBayes.of(words, halves[:40] + halves[40:], 0.3)
    np.testing.assert_allclose(once.terms, twice.terms)
    np.testing.assert_allclose(once.classes, twice.classes)
