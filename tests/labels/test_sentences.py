"""Sentences: which columns are, what they become, and that wrong labels are found by them."""

from __future__ import annotations

import pickle
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone

import bvfim
from bvfim.core.extras import MissingExtraError
from bvfim.labels.inputs import View
from bvfim.labels.mixture import Config, TrainingRows, reading
from bvfim.labels.noise_matrix import flat
from bvfim.labels.sentences import Terms, are_sentences, model_of

SUBJECTS = {"cat": "purrs meows scratches sleeps hunts", "ship": "sails anchors sinks docks drifts"}
SHARED = ["today", "again", "slowly", "here", "often", "quietly", "maybe", "once", "always", "somewhere"]


def said(n=240, seed=0):
    """Sentences about cats and ships, their labels, a tenth of which is wrong, and which they are."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 2, n)
    kinds = list(SUBJECTS)
    texts = [
        " ".join(["the", *rng.choice(SUBJECTS[kinds[k]].split(), 2), *rng.choice(SHARED, 4), str(i)])
        for i, k in enumerate(truth)
    ]
    wrong = rng.permutation(n) < n // 10
    labels = np.array(kinds)[np.where(wrong, 1 - truth, truth)]
    return pd.DataFrame({"text": texts}), labels, np.array(kinds)[truth], wrong


@pytest.mark.parametrize(
    ("different", "rows", "long", "expected"),
    [(999, 1000, 900, True), (999, 1000, 400, False), (5, 1000, 900, False), (200, 1000, 900, False), (3, 4, 3, True)],
)
def test_sentences_are_long_and_hardly_come_twice(different, rows, long, expected):
    assert are_sentences(different, rows, long) == expected


def test_a_table_is_split_into_sentences_and_all_else():
    frame = said(60)[0].assign(size=np.arange(60.0), colour=["red", "blue"] * 30)
    view = View(frame)
    plain, text = view(frame)
    assert plain.shape == (60, 3)
    np.testing.assert_allclose(np.sqrt(text.multiply(text).sum(1)), 1.0)
    assert view.words([plain, text]).shape == text.shape
    embedded = View(frame, lambda texts: [[len(t), 1.0] for t in texts])(frame)
    assert [part.shape[1] for part in embedded] == [3, text.shape[1], 2]


def test_what_is_not_text_has_no_terms():
    frame = pd.DataFrame({"a": [1.0, 2.0]})
    for rows in (np.ones((3, 2)), sparse.csr_matrix(np.ones((3, 2))), frame):
        view = View(rows)
        assert view.words(view(rows)) is None


@pytest.mark.parametrize("trusted", [0, 20])
def test_wrong_labels_of_sentences_are_found(trusted):
    frame, labels, truth, wrong = said()
    apart = {"X_trusted": said(trusted, 1)[0], "y_trusted": said(trusted, 1)[2]} if trusted else {}
    cleaner = bvfim.LabelCleaner(random_state=0, bilevel=False)
    with pytest.warns(bvfim.BvfimWarning) if not trusted else nullcontext():
        issues = cleaner.find_label_issues(frame, labels, **apart)
    assert (issues["is_label_issue"] == wrong).mean() > 0.98
    assert (issues["suggested_label"] == truth).mean() > 0.98
    new = said(50, 2)
    assert (cleaner.predict(new[0]) == new[2]).mean() > 0.98
    again = pickle.loads(pickle.dumps(cleaner))
    np.testing.assert_array_equal(again.predict_proba(new[0]), cleaner.predict_proba(new[0]))


def test_sentences_that_say_nothing_do_not_hide_a_number_that_does_nor_the_other_way_round():
    frame, labels, truth, wrong = said()
    rng = np.random.default_rng(3)
    chatter = [" ".join(rng.choice(SHARED, 6)) + f" {k}" for k in range(len(frame))]
    size = 6.0 * (truth == "ship") + rng.normal(size=len(frame))
    for table in (
        {"text": chatter, "size": size},
        {"text": frame["text"], **{f"n{k}": rng.normal(size=240) for k in range(9)}},
    ):
        apart = {"trusted": np.arange(240) >= 210}
        given = np.where(apart["trusted"], truth, labels)
        issues = bvfim.LabelCleaner(random_state=0, bilevel=False).find_label_issues(
            pd.DataFrame(table), given, **apart
        )
        assert (issues["is_label_issue"][:210] == wrong[:210]).mean() > 0.97


def test_an_embedding_counts_beside_the_terms():
    frame, labels, _, _ = said()

    def embed(texts):
        return [[float("the" in t), float(any(w in t for w in SUBJECTS["cat"].split()))] for t in texts]

    cleaner = clone(bvfim.LabelCleaner(random_state=0, bilevel=False, embed=embed))
    with pytest.warns(bvfim.BvfimWarning):
        cleaner.fit(frame, labels)
    assert cleaner.embed is embed
    with pytest.warns(bvfim.BvfimWarning), pytest.raises(bvfim.DataError, match=r"finite numbers for each, not shape"):
        bvfim.LabelCleaner(embed=lambda texts: [1.0]).fit(frame, labels)


def test_no_rows_own_label_reaches_what_reads_it():
    frame, labels, _, _ = said(120)
    given, config = (labels == "ship").astype(int), Config(smoothings=(0.3,), scales=(3.0,), bilevel=None)
    words = Terms(frame["text"].tolist())(frame["text"].tolist())
    rows, fold = np.zeros((120, 1)), np.arange(120) % 5

    def scores(labels, r):
        own = TrainingRows(rows, labels, given[:0], 2, words)
        return list(reading(own, fold, flat(2, config.rate), config))[r].scores

    for r in (0, 2):
        changed = given.copy()
        changed[7] = 1 - changed[7]
        moved = np.abs(scores(changed, r) - scores(given, r)).max(1)
        assert moved[7] < (1e-9 if r == 0 else 0.05)
        assert moved.max() > moved[7]


def test_a_model_of_sentences_is_asked_for_by_name(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtraError, match="pip install sentence-transformers"):
        model_of("small")

    class Model:
        def __init__(self, name):
            if name != "small":
                raise OSError(f"{name} is no folder\nand no model")

        def encode(self, texts):
            return np.array([[len(text)] for text in texts])

    monkeypatch.setitem(sys.modules, "sentence_transformers", SimpleNamespace(SentenceTransformer=Model))
    assert model_of("small")(["four"]).tolist() == [[4]]
    with pytest.raises(bvfim.DataError, match=r"^no model of sentences in 'large': large is no folder$"):
        model_of("large")
