"""The estimator: scikit-learn's own checks, what it finds on digits, and what it refuses."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import bvfim
from bvfim.data import symmetric

COLUMNS = [
    *("is_label_issue", "drop", "label_quality", "p_wrong", "given_label", "predicted_label", "suggested_label"),
    *("suggested_probability", "sample_weight"),
]


@pytest.mark.long
@parametrize_with_checks([bvfim.LabelCleaner(random_state=0, landmarks=20, folds=2)])
def test_scikit_learn_is_content(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bvfim.BvfimWarning)
        check(estimator)


class Digits:
    """400 digits, 40 % of their labels wrong, and 60 more that are trusted."""

    def __init__(self):
        X, y = load_digits(return_X_y=True)
        X /= 16
        order = np.random.default_rng(0).permutation(len(y))
        ours, apart, rest = order[:400], order[400:460], order[460:]
        self.X, self.truth = X[ours], y[ours]
        self.y, self.wrong = symmetric(self.truth, 0.4, 10, 0)
        self.X_trusted, self.y_trusted = X[apart], y[apart]
        self.X_test, self.y_test = X[rest], y[rest]

    @property
    def trusted(self):
        return {"X_trusted": self.X_trusted, "y_trusted": self.y_trusted}


@pytest.fixture(scope="module")
def digits():
    return Digits()


@pytest.fixture(scope="module")
def fitted(digits):
    return bvfim.LabelCleaner(landmarks=200, random_state=0).fit(digits.X, digits.y, **digits.trusted)


def test_wrong_labels_are_found_with_calibrated_probabilities(digits, fitted):
    found = fitted.find_label_issues()
    assert found.columns.tolist() == COLUMNS
    assert roc_auc_score(digits.wrong, found["p_wrong"]) > 0.98
    assert found["p_wrong"].mean() == pytest.approx(0.4, abs=0.04)
    assert (found["is_label_issue"] == digits.wrong).mean() > 0.95
    assert digits.wrong[found["drop"]].mean() > 0.97
    assert (found["suggested_label"] == digits.truth).mean() > 0.92
    assert (found["given_label"] == digits.y).all()
    assert fitted.noise_rate_ == pytest.approx(found["p_wrong"].mean())
    np.testing.assert_allclose(fitted.transition_matrix_.sum(1), 1.0)
    assert np.diag(fitted.transition_matrix_).mean() == pytest.approx(0.6, abs=0.08)


def test_it_predicts_better_than_a_classifier_that_believes_every_label(digits, fitted):
    plain = LogisticRegression(max_iter=2000).fit(digits.X, digits.y)
    assert fitted.score(digits.X_test, digits.y_test) > plain.score(digits.X_test, digits.y_test) + 0.1
    np.testing.assert_allclose(fitted.transform(digits.X_test).sum(1), 1.0)


def test_a_mask_gives_the_same_as_rows_apart(digits, fitted):
    X, y = np.concatenate([digits.X_trusted, digits.X]), np.concatenate([digits.y_trusted, digits.y])
    trusted = np.arange(len(y)) < 60
    found = bvfim.LabelCleaner(landmarks=200, random_state=0).find_label_issues(X, y, trusted=trusted)
    expected = fitted.find_label_issues()
    np.testing.assert_array_equal(found["p_wrong"][60:], expected["p_wrong"])
    assert (found["p_wrong"][:60] == 0).all()
    assert not found["is_label_issue"][:60].any()


@pytest.mark.long
def test_labels_of_any_type_and_rows_of_any_form_give_the_same(digits):
    names = np.array([f"class {k}" for k in range(10)])
    frame = pd.DataFrame(digits.X, columns=[f"pixel {k}" for k in range(64)])
    apart = pd.DataFrame(digits.X_trusted, columns=frame.columns)
    cleaner = bvfim.LabelCleaner(bilevel=False, landmarks=100, random_state=0)
    expected = cleaner.find_label_issues(digits.X, digits.y, **digits.trusted)["p_wrong"]
    with_names = cleaner.find_label_issues(
        digits.X, names[digits.y], X_trusted=digits.X_trusted, y_trusted=names[digits.y_trusted]
    )
    in_a_table = cleaner.find_label_issues(frame, digits.y, X_trusted=apart, y_trusted=digits.y_trusted)
    images = digits.X.reshape(-1, 8, 8)
    as_images = cleaner.find_label_issues(
        images, digits.y, X_trusted=digits.X_trusted.reshape(-1, 8, 8), y_trusted=digits.y_trusted
    )
    as_sparse = cleaner.find_label_issues(
        sparse.csr_matrix(digits.X),
        labels=digits.y,
        X_trusted=sparse.csr_matrix(digits.X_trusted),
        y_trusted=digits.y_trusted,
    )
    for found in (with_names, in_a_table, as_images, as_sparse):
        np.testing.assert_allclose(found["p_wrong"], expected, atol=1e-6)
    assert with_names["suggested_label"].str.startswith("class").all()


def test_a_column_of_large_values_costs_nothing():
    X, truth = load_wine(return_X_y=True)
    rng = np.random.default_rng(0)
    given, wrong = symmetric(truth, 0.2, 3, 0)
    trusted = rng.permutation(len(truth)) < 40
    given, wrong = np.where(trusted, truth, given), wrong & ~trusted
    X = np.column_stack([X, rng.integers(10**9, 10**10, len(X))])
    cleaner = bvfim.LabelCleaner(bilevel=False, random_state=0)
    assert f1_score(wrong, cleaner.find_label_issues(X, given, trusted=trusted)["is_label_issue"]) > 0.9


def test_the_findings_have_the_index_of_the_rows_or_the_labels(digits):
    names = pd.Index([f"row {k}" for k in range(400)][::-1], name="name")
    cleaner = bvfim.LabelCleaner(bilevel=False, landmarks=50, random_state=0).fit(digits.X, digits.y, **digits.trusted)
    expected = cleaner.find_label_issues()
    assert expected.index.equals(pd.RangeIndex(400))
    by_labels = clone(cleaner).find_label_issues(digits.X, pd.Series(digits.y, names), **digits.trusted)
    frame = pd.DataFrame(digits.X, names)
    apart = {"X_trusted": pd.DataFrame(digits.X_trusted), "y_trusted": pd.Series(digits.y_trusted)}
    by_rows = clone(cleaner).fit(frame, pd.Series(digits.y), **apart)
    for found in (by_labels, by_rows.find_label_issues(), by_rows.judge(frame, digits.y)):
        assert found.index.equals(names)
    pd.testing.assert_frame_equal(by_labels.reset_index(drop=True), expected)


@pytest.mark.long
@pytest.mark.parametrize("classes", [2, 5])
def test_rows_that_tell_nothing_call_no_label_wrong(classes):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(500, 5)), rng.integers(0, classes, 500)
    cleaner = bvfim.LabelCleaner(random_state=0)
    told = (
        pytest.warns(bvfim.BvfimWarning, match=words) for words in ("no rows are trusted", "rows say too little about")
    )
    with next(told), next(told):
        found = cleaner.find_label_issues(X, y)
    assert not found[["is_label_issue", "drop"]].any(axis=None)
    assert found["p_wrong"].max() < 0.05
    assert 0 < cleaner.noise_rate_ < 0.05
    assert (found["suggested_label"] == y).all()
    judged = cleaner.judge(X[:20], y[:20])
    pd.testing.assert_frame_equal(judged, found[:20])
    np.testing.assert_allclose(cleaner.predict_proba(X[:1])[0], np.bincount(y) / 500)


def test_without_trusted_rows_nothing_is_dropped(digits):
    cleaner = bvfim.LabelCleaner(landmarks=200, random_state=0)
    with pytest.warns(bvfim.BvfimWarning, match="no rows are trusted"):
        found = cleaner.find_label_issues(digits.X, digits.y)
    assert (found["p_wrong"] >= 0.9).any()
    assert not found["drop"].any()
    assert not cleaner.judge(digits.X, digits.y)["drop"].any()
    assert (found["is_label_issue"] == digits.wrong).mean() > 0.85


def test_words_in_a_table_count():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 300)
    frame = pd.DataFrame({"sort": np.array(["fish", "fowl"])[truth], "noise": rng.normal(size=300)})
    given, wrong = symmetric(truth, 0.2, 2, 0)
    trusted = np.arange(300) >= 280
    given[trusted] = truth[trusted]
    found = bvfim.LabelCleaner(landmarks=200, random_state=0).find_label_issues(frame, given, trusted=trusted)
    assert (found["is_label_issue"] == (wrong & ~trusted)).all()


def test_it_clones_pickles_and_ends_a_pipeline(digits, fitted):
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(digits.X_test), fitted.predict(digits.X_test))
    assert clone(fitted).get_params() == fitted.get_params()
    line = make_pipeline(StandardScaler(), bvfim.LabelCleaner(landmarks=200, random_state=0))
    with pytest.warns(bvfim.BvfimWarning, match="no rows are trusted"):
        line.fit(digits.X, digits.y)
    assert line.score(digits.X_test, digits.y_test) > 0.85


def test_another_classifier_can_have_the_last_word(digits):
    own = LogisticRegression(max_iter=2000)
    cleaner = bvfim.LabelCleaner(own, landmarks=200, random_state=0).fit(digits.X, digits.y, **digits.trusted)
    plain = clone(own).fit(digits.X, digits.y).score(digits.X_test, digits.y_test)
    assert isinstance(cleaner.classifier_, LogisticRegression)
    assert cleaner.score(digits.X_test, digits.y_test) > plain + 0.1


@pytest.mark.long
def test_a_class_without_trusted_rows_is_told(digits):
    kept = digits.y_trusted != 3
    with pytest.warns(bvfim.BvfimWarning, match="the trusted rows do not cover the class 3"):
        found = bvfim.LabelCleaner(landmarks=200, random_state=0).find_label_issues(
            digits.X, digits.y, X_trusted=digits.X_trusted[kept], y_trusted=digits.y_trusted[kept]
        )
    rows = (digits.truth == 3) | (digits.y == 3)
    assert roc_auc_score(digits.wrong[rows], found["p_wrong"][rows]) > 0.9


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"y": [0, 1]}, "X has 4 rows but y has 2 labels"),
        ({"y": [0, 1, None, 1]}, "row 2: the label in y is missing"),
        ({"y": [1, 1, 1, 1]}, "at least two classes are needed, but every label is 1"),
        ({"y": [0, 1, 0, 1], "trusted": [False] * 4}, "trusted marks no row"),
        ({"y": [0, 1, 0, 1], "trusted": [True] * 4}, "every row is trusted"),
        ({"y": [0, 1, 0, 1], "trusted": [1, 0, 0, 0]}, "a boolean mask of length 4"),
        ({"y": [0, 1, 0, 1], "X_trusted": [[1.0]]}, "must be given together"),
        ({"y": [0, 1, 0, 1], "X_trusted": [[1.0]], "y_trusted": []}, "the trusted set is empty"),
        (
            {"y": ["1", "0", "1", "0"], "X_trusted": [[1.0]], "y_trusted": ["1.0"]},
            "nothing in common with the labels of the data: '1.0' does not occur there, '1' does",
        ),
        (
            {"y": [0, 1, 0, 1], "X_trusted": [[1.0]], "y_trusted": [0, 1]},
            "X_trusted has 1 rows but y_trusted has 2 labels",
        ),
        (
            {"y": [0, 1, 0, 1], "trusted": [True, False, False, False], "X_trusted": [[1.0]], "y_trusted": [0]},
            "either the mask trusted or X_trusted and y_trusted, not both",
        ),
    ],
)
def test_bad_input_is_refused_in_a_sentence(given, message):
    with pytest.raises(bvfim.DataError, match=message):
        bvfim.LabelCleaner().fit([[0.0], [1.0], [2.0], [3.0]], **given)


@pytest.mark.parametrize("wrong", [{"folds": 0}, {"folds": 2.5}, {"landmarks": -1}, {"landmarks": None}])
def test_a_wrong_setting_is_refused_by_name(wrong):
    with pytest.raises(bvfim.MethodError, match=f"LabelCleaner: {next(iter(wrong))} must be a whole number"):
        bvfim.LabelCleaner(**wrong).fit([[0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 1])


def test_rows_that_belong_to_a_table_must_be_one():
    frame = pd.DataFrame({"a": [0.0, 1.0, 2.0, 3.0]})
    with pytest.raises(bvfim.DataError, match=r"X must be a DataFrame with the same columns as in fit, not ndarray"):
        bvfim.LabelCleaner().fit(frame, [0, 1, 0, 1], X_trusted=frame.to_numpy()[:1], y_trusted=[0])


def test_a_value_that_is_no_number_is_told_with_its_place():
    frame = pd.DataFrame({"a": [1.0, np.nan, 2.0, 3.0]})
    with pytest.raises(
        bvfim.DataError, match="row 1, column 'a': the value is missing: fill it, for example with the median"
    ):
        bvfim.LabelCleaner().fit(frame, [0, 1, 0, 1])
    with pytest.raises(bvfim.DataError, match="row 2, column 'a': the value is infinite"):
        bvfim.LabelCleaner().fit(frame.fillna(0.0).replace(2.0, np.inf), [0, 1, 0, 1])
    with pytest.raises(ValueError, match="NaN"):
        bvfim.LabelCleaner().fit(frame.to_numpy(), [0, 1, 0, 1])
