"""The reasons: closed forms of one column at a time, and the nearest trusted rows by brute force."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from bvfim.labels.evidence import SMOOTHING, Evidence, nearest

CODES = np.array([0, 0, 0, 0, 1, 1, 1, 1])
WEIGHTS = np.array([1.0, 0.5, 1.0, 1.0, 1.0, 1.0, 0.8, 1.0])


def against(frame, row, given, other, sentences=()):
    evidence = Evidence(frame, CODES, WEIGHTS, ["cat", "dog"], sentences)
    return evidence.against(frame[row : row + 1], np.array([given]), np.array([other]))[0]


def test_a_number_speaks_by_the_ratio_of_two_normal_densities():
    values = np.array([1.0, 2.0, 1.5, 2.5, 9.0, 8.0, 8.5, 2.0])
    mean = [np.average(values[k == CODES], weights=WEIGHTS[k == CODES]) for k in (0, 1)]
    squares = [(WEIGHTS[k == CODES] * (values[k == CODES] - mean[k]) ** 2).sum() for k in (0, 1)]
    pooled, totals = sum(squares) / WEIGHTS.sum(), [WEIGHTS[k == CODES].sum() for k in (0, 1)]
    spread = [np.sqrt((squares[k] + pooled) / (totals[k] + 1)) for k in (0, 1)]
    (reason,) = against(pd.DataFrame({"size": values}), 7, 1, 0)
    expected = norm.logpdf(2.0, mean[0], spread[0]) - norm.logpdf(2.0, mean[1], spread[1])
    assert reason.strength == pytest.approx(expected)
    usual = [f"({mean[k]:.3g} ± {spread[k]:.2g})" for k in (0, 1)]
    assert reason.text == f"2: usual for cat {usual[0]}, not for dog {usual[1]}"
    assert against(pd.DataFrame({"size": values}), 7, 0, 1) == [], "and not the other way round"


def test_a_word_speaks_by_the_ratio_of_its_shares():
    words = ["meow", "meow", "meow", "purr", "woof", "woof", "woof", "meow"]
    (reason,) = against(pd.DataFrame({"sound": words}), 7, 1, 0)
    share = [
        (SMOOTHING + WEIGHTS[np.array(words) == "meow"] @ (CODES[np.array(words) == "meow"] == k))
        / (WEIGHTS[k == CODES].sum() + 3 * SMOOTHING)
        for k in (0, 1)
    ]
    assert reason.strength == pytest.approx(np.log(share[0] / share[1]))
    assert reason.text == f"'meow': in {100 * share[0]:.0f} % of cat, {100 * share[1]:.0f} % of dog"
    new = pd.DataFrame({"sound": ["moo"]})
    evidence = Evidence(pd.DataFrame({"sound": words}), CODES, WEIGHTS, ["cat", "dog"], ())
    assert evidence.against(new, np.array([0]), np.array([1])) == [[]], "a word that nobody has seen says nothing"


def test_the_words_of_a_sentence_are_named_and_one_that_comes_once_is_not():
    texts = [
        "a cat purrs",
        "one cat purrs",
        "cat naps",
        "the cat sits",
        "a dog barks",
        "dog naps",
        "dog runs",
        "cat quux",
    ]
    (reason,) = against(pd.DataFrame({"said": texts}), 7, 1, 0, ("said",))
    assert reason.column == "said"
    assert reason.text.startswith("'cat': ")
    assert reason.text.endswith(" times as frequent in cat as in dog")
    alone = [f"word{k}" for k in range(8)]
    assert against(pd.DataFrame({"said": alone}), 7, 1, 0, ("said",)) == []


def test_nothing_speaks_against_a_label_that_is_kept():
    assert against(pd.DataFrame({"size": np.arange(8.0)}), 0, 1, 1) == []


def test_the_nearest_trusted_rows_are_those_of_the_class_by_brute_force():
    rng = np.random.default_rng(0)
    rows, trusted, classes = rng.normal(size=(1100, 3)), rng.normal(size=(40, 3)), np.arange(40) % 3
    wanted = rng.integers(0, 4, 1100)  # nobody trusts a row of the last class
    for row, want, found in zip(rows, wanted, nearest(rows, wanted, trusted, classes, most=2), strict=True):
        own = np.flatnonzero(classes == want)
        expected = own[np.argsort(np.linalg.norm(trusted[own] - row, axis=1))[:2]]
        assert found.tolist() == expected.tolist()
