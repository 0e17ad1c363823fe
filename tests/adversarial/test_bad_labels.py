"""Rows and labels that LabelCleaner can't take: a sentence, or the right answer."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse

import bvfim

N = 40
LABELS = np.arange(N) % 2
X = np.random.default_rng(0).normal(size=(N, 2)) + 4 * LABELS[:, None]
TRUSTED = np.arange(N) % 4 < 2
TABLE = pd.DataFrame(X, columns=["a", "b"])


def fit(rows=X, labels=LABELS, trusted=TRUSTED, **options):
    made = {name: options.pop(name) for name in ("landmarks", "folds", "classifier", "random_state") if name in options}
    return bvfim.LabelCleaner(bilevel=False, **made).fit(rows, labels, trusted, **options)


def spoilt(value, at=7):
    rows = X.copy()
    rows[at, 1] = value
    return rows


REFUSED = {
    r"Expected 2D array, got scalar": lambda: fit(3.0),
    r"Expected 2D array, got 1D array": lambda: fit(X[:, 0]),
    r"not compatible with arrays of bytes/strings": lambda: fit(np.full((N, 2), "word")),
    r"Complex data not supported": lambda: fit(X * 1j),
    r"0 sample\(s\)|Found array with 0": lambda: fit(X[:0], LABELS[:0]),
    r"0 feature\(s\)": lambda: fit(X[:, :0]),
    r"minimum of 2 is required": lambda: fit(X[:1], LABELS[:1], None),
    r"contains NaN": lambda: fit(spoilt(np.nan)),
    r"contains infinity": lambda: fit(spoilt(np.inf)),
    r"row 7, column 1: the value is too large": lambda: fit(spoilt(1e200)),
    r"row 3, column 2: the value is too large": lambda: fit(sparse.csr_matrix(([1e200], ([3], [2])), (N, 5))),
    r"row 7, column 'b': the value is missing": lambda: fit(TABLE.assign(b=TABLE["b"].where(TABLE.index != 7))),
    r"row 0, column 'a': the value is infinite": lambda: fit(TABLE.assign(a=[-np.inf, *TABLE["a"][1:]])),
    r"X has 40 rows but y has 39 labels": lambda: fit(labels=LABELS[:-1]),
    r"y is missing": lambda: fit(labels=None),
    r"y should be a 1d array": lambda: fit(labels=np.zeros((N, 3))),
    r"row 0: the label in y is missing": lambda: fit(labels=[None, *LABELS[1:]]),
    r"row 1: the label in y is missing \(NaN\)": lambda: fit(labels=[0.0, np.nan, *LABELS[2:]]),
    r"continuous": lambda: fit(labels=X[:, 0]),
    r"at least two classes are needed, but every label is 'cat'": lambda: fit(labels=["cat"] * N),
    r"the labels have 40 different values in 40 rows": lambda: fit(labels=[f"row {i}" for i in range(N)]),
    r"trusted must be a boolean mask of length 40": lambda: fit(trusted=np.arange(5)),
    r"trusted must be a boolean mask of length 40$": lambda: fit(trusted=TRUSTED[:-1]),
    r"trusted marks no row": lambda: fit(trusted=np.zeros(N, bool)),
    r"every row is trusted: there is nothing to clean": lambda: fit(trusted=np.ones(N, bool)),
    r"X_trusted and y_trusted must be given together": lambda: fit(trusted=None, X_trusted=X[:3]),
    r"give either the mask trusted or X_trusted and y_trusted": lambda: fit(X_trusted=X[:3], y_trusted=LABELS[:3]),
    r"X_trusted has 3 rows but y_trusted has 2 labels": lambda: fit(
        trusted=None, X_trusted=X[:3], y_trusted=LABELS[:2]
    ),
    r"X has 1 features, but LabelCleaner is expecting 2": lambda: fit(
        trusted=None, X_trusted=X[:3, :1], y_trusted=LABELS[:3]
    ),
    r"the labels of the trusted rows have nothing in common with": lambda: fit(
        trusted=None, X_trusted=X[:3], y_trusted=[7, 8, 9]
    ),
    r"X must be a DataFrame with the same columns as in fit, not ndarray": lambda: fit(TABLE).predict(X),
    r"The feature names should match": lambda: fit(TABLE).predict(TABLE.rename(columns={"a": "z"})),
    r"row 0: the label 5 was not seen during fit": lambda: fit().judge(X[:2], [5, 0]),
    r"X was given without labels": lambda: bvfim.LabelCleaner().find_label_issues(X),
    r"not fitted yet": lambda: bvfim.LabelCleaner().predict(X),
    r"LabelCleaner: landmarks must be a whole number of at least 1, not 0": lambda: fit(landmarks=0),
    r"LabelCleaner: folds must be a whole number of at least 2, not 1.5": lambda: fit(folds=1.5),
    r"'seed' cannot be used to seed": lambda: fit(random_state="seed"),
    r"Cannot clone object|does not seem to be a scikit-learn estimator": lambda: fit(classifier="svm"),
}


@pytest.mark.filterwarnings("ignore::bvfim.BvfimWarning", "ignore:The number of unique classes:UserWarning")
@pytest.mark.parametrize("pattern", REFUSED)
def test_rows_and_labels_that_can_not_be_taken_get_their_sentence(pattern):
    """In the words of scikit-learn, where the input is of its kind."""
    with pytest.raises((ValueError, TypeError), match=pattern):
        REFUSED[pattern]()


SAME = {
    "a list of lists": (X.tolist(), LABELS.tolist(), TRUSTED.tolist()),
    "a tensor": (torch.tensor(X), torch.tensor(LABELS), torch.tensor(TRUSTED)),
    "a table": (TABLE, pd.Series(LABELS), pd.Series(TRUSTED)),
    "a sparse matrix": (sparse.csr_matrix(X), LABELS, TRUSTED),
    "labels in words": (X, np.where(LABELS, "漢字", ""), TRUSTED),
    "labels that are truth values": (X, LABELS == 1, TRUSTED),
    "one image a row": (X.reshape(N, 2, 1, 1), LABELS, TRUSTED),
}


@pytest.mark.parametrize("name", SAME)
def test_clean_labels_of_any_kind_are_called_clean(name):
    rows, labels, trusted = SAME[name]
    found = fit(rows, labels, trusted, random_state=0)
    assert found.noise_rate_ < 0.05
    assert not found.label_issues_["drop"].any()
    assert found.label_issues_["given_label"].tolist() == np.asarray(labels).tolist()
