"""``LabelCleaner``: a scikit-learn estimator that finds wrong labels."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin, clone
from sklearn.utils import assert_all_finite, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from bvfim.cleaning import decisions, mixture
from bvfim.cleaning.inputs import Inputs, require_values
from bvfim.status import BvfimWarning, DataError

Array = NDArray[np.float64]


class LabelCleaner(ClassifierMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Finds wrong labels with the help of a few rows whose labels can be trusted, and learns from the rest.

    The probability that a label is wrong is that of :mod:`bvfim.cleaning.mixture`: out of sample, and calibrated by the
    likelihood of all labels, the trusted ones among them.

    Args:
        classifier: a scikit-learn classifier that takes sample weights, for :meth:`predict`; it is trained on the rows
            with their most probable labels, weighted by how probable they are. By default the mixture itself predicts.
        bilevel: whether the bilevel network is one of the models that are mixed; without it the fit is about twice as
            fast, and on rows that are hard to tell apart somewhat worse.
        landmarks: how many rows the kernels are expanded in; more is slower and finer.
        folds: how many parts of the rows are left out in turn.
        random_state: of the landmarks and the folds.

    Attributes:
        classes_: the labels.
        transition_matrix_: [k, j] is the probability that a row of class k was given the label j.
        noise_rate_: the share of the labels that are wrong, expected.
        label_issues_: what :meth:`find_label_issues` returns.

    Example:
        >>> import numpy as np
        >>> import bvfim
        >>> X = np.repeat([[-1.0], [1.0]], 30, 0) + 0.1 * np.random.default_rng(0).normal(size=(60, 1))
        >>> y = np.repeat(["cat", "dog"], 30)
        >>> y[:4] = "dog"
        >>> issues = bvfim.LabelCleaner(random_state=0).find_label_issues(X, y, X_trusted=[[-1.0], [1.0]],
        ...                                                               y_trusted=["cat", "dog"])
        >>> issues.index[issues["is_label_issue"]].tolist(), issues["suggested_label"][0]
        ([0, 1, 2, 3], 'cat')
    """

    def __init__(
        self,
        classifier: Any = None,
        *,
        bilevel: bool = True,
        landmarks: int = 600,
        folds: int = 5,
        random_state: Any = None,
    ) -> None:
        self.classifier = classifier
        self.bilevel = bilevel
        self.landmarks = landmarks
        self.folds = folds
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        trusted: ArrayLike | None = None,
        *,
        X_trusted: Any = None,
        y_trusted: ArrayLike | None = None,
    ) -> LabelCleaner:
        """Learn which labels are wrong.

        Args:
            X: the rows: numbers, images, a table with words in it, or a sparse matrix.
            y: their labels, of any type.
            trusted: which of the rows have labels that can be trusted, as a mask; or give these apart:
            X_trusted: their rows; y_trusted: and labels.
        """
        rows, labels, mask = self._together(X, y, trusted, X_trusted, y_trusted)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise DataError(f"there is nothing to tell apart: every label is the class {self.classes_[0]!r}")
        self._said(codes, mask)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        config = mixture.Config(landmarks=self.landmarks, folds=self.folds)
        if not self.bilevel:
            config = replace(config, bilevel=None)
        order = np.argsort(mask, kind="stable")  # the noisy rows first, each kind in its own order
        self._inputs, found = _best(_taken(rows, order), codes[order], int((~mask).sum()), seed, config)
        self._mixture = found
        self.transition_matrix_ = found.T
        q = np.eye(len(self.classes_))[codes]
        q[~mask] = found.q
        asked = len(np.asarray(y))  # the rows that are given apart come after these
        self.label_issues_ = _issues(self.classes_, codes[:asked], q[:asked], found.p, order, mask)
        self.noise_rate_ = float(self.label_issues_["p_wrong"].to_numpy()[~mask[:asked]].mean())
        self.classifier_ = None
        if self.classifier is not None:
            self.classifier_ = clone(self.classifier)
            self.classifier_.fit(rows, self.classes_[q.argmax(1)], sample_weight=q.max(1))
        return self

    def find_label_issues(
        self,
        X: Any = None,
        labels: ArrayLike | None = None,
        *,
        y: ArrayLike | None = None,
        trusted: ArrayLike | None = None,
        X_trusted: Any = None,
        y_trusted: ArrayLike | None = None,
    ) -> pd.DataFrame:
        """A row for each row of X, in its order: how probable it is that its label is wrong, and what it should be.

        Args:
            X: the rows; without them those that :meth:`fit` has seen.
            labels: their labels; y: is the same.
            trusted: see :meth:`fit`; X_trusted: likewise; y_trusted: likewise.

        Returns:
            The columns ``is_label_issue`` (worth a look), ``drop`` (can be left out without one), ``label_quality``
            (how probably the label is right), ``p_wrong``, ``given_label``, ``predicted_label`` (by the row alone),
            ``suggested_label`` (by the row and its label) with ``suggested_probability``, and ``sample_weight``.
        """
        given = y if labels is None else labels
        if X is not None:
            if given is None:
                raise DataError("rows were given without labels")
            self.fit(X, given, trusted, X_trusted=X_trusted, y_trusted=y_trusted)
        check_is_fitted(self)
        return self.label_issues_.copy()

    def predict_proba(self, X: Any) -> Array:
        """The probabilities of the classes, in the order of ``classes_``."""
        check_is_fitted(self)
        rows = self._checked(X, reset=False)
        if self.classifier_ is not None:
            found: Array = self.classifier_.predict_proba(rows)
            return found
        return self._mixture.predict(self._inputs(rows))

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row."""
        best = self.predict_proba(X).argmax(1)
        found: NDArray[Any] = self.classes_[best]
        return found

    def transform(self, X: Any) -> Array:
        """The probabilities of the classes, as features."""
        return self.predict_proba(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _checked(self, X: Any, *, reset: bool) -> Any:
        if isinstance(X, pd.DataFrame):
            validate_data(self, X, reset=reset, skip_check_array=True)
            require_values(X)
            return X
        options = {"accept_sparse": "csr", "allow_nd": True, "ensure_min_samples": 2 if reset else 1}
        return validate_data(self, X, reset=reset, **options)

    def _together(
        self, X: Any, y: ArrayLike, trusted: ArrayLike | None, X_trusted: Any, y_trusted: ArrayLike | None
    ) -> tuple[Any, NDArray[Any], NDArray[np.bool_]]:
        """All rows and labels, those that are given apart at the end, and which are trusted."""
        if (X_trusted is None) != (y_trusted is None):
            raise DataError("X_trusted and y_trusted belong together")
        if trusted is not None and X_trusted is not None:
            raise DataError("give the trusted rows as a mask or apart, not both")
        rows, labels = self._checked(X, reset=True), _labels(y, "y")
        count = rows.shape[0]
        if len(labels) != count:
            raise DataError(f"there are {count} rows and {len(labels)} labels")
        mask = np.zeros(count, dtype=bool)
        if trusted is not None:
            mask = np.asarray(trusted)
            if mask.dtype != bool or mask.shape != (count,):
                raise DataError(f"trusted must be a mask of {count} truth values")
            _require(int(mask.sum()), "trusted names no row")
            _require(int((~mask).sum()), "every row is trusted: there is nothing to clean")
        if X_trusted is None or y_trusted is None:
            return rows, labels, mask
        extra, own = self._checked(X_trusted, reset=False), _labels(y_trusted, "y_trusted")
        _require(len(own), "the trusted set is empty")
        if len(own) != extra.shape[0]:
            raise DataError(f"there are {extra.shape[0]} trusted rows and {len(own)} trusted labels")
        return _stacked(rows, extra), np.concatenate([labels, own]), np.append(mask, np.ones(len(own), dtype=bool))

    def _said(self, codes: NDArray[np.int64], mask: NDArray[np.bool_]) -> None:
        if not mask.any():
            warnings.warn("no rows are trusted: the labels are judged by each other alone", BvfimWarning, stacklevel=3)
            return
        absent = np.setdiff1d(np.arange(len(self.classes_)), codes[mask])
        if len(absent):
            names = ", ".join(map(repr, self.classes_[absent][:10].tolist()))
            message = f"no trusted row is of the class {names}: its labels are judged by each other alone"
            warnings.warn(message, BvfimWarning, stacklevel=3)


def _best(
    rows: Any, codes: NDArray[np.int64], noisy: int, seed: int, config: mixture.Config
) -> tuple[Inputs, mixture.Mixture]:
    """The mixture on rows scaled column by column or by one number, whichever makes the labels more likely."""
    classes = int(codes.max()) + 1
    options = [Inputs(rows, standard) for standard in (False, True)]
    data = [mixture.Rows(inputs(rows), codes[:noisy], codes[noisy:], classes) for inputs in options]
    first = [mixture.fit(own, seed, config.short()).likelihood for own in data]
    chosen = int(np.argmax(first))
    return options[chosen], mixture.fit(data[chosen], seed, config)


def _issues(
    classes: NDArray[Any],
    codes: NDArray[np.int64],
    q: Array,
    p: Array,
    order: NDArray[np.int64],
    mask: NDArray[np.bool_],
) -> pd.DataFrame:
    asked = len(codes)
    p_wrong = 1.0 - q[np.arange(asked), codes]
    p_wrong[mask[:asked]] = 0.0
    predicted = np.empty(len(order), dtype=np.int64)
    predicted[order] = p.argmax(1)
    return pd.DataFrame(
        {
            "is_label_issue": decisions.review(p_wrong),
            "drop": decisions.drop(p_wrong),
            "label_quality": 1.0 - p_wrong,
            "p_wrong": p_wrong,
            "given_label": classes[codes],
            "predicted_label": classes[predicted[:asked]],
            "suggested_label": classes[q.argmax(1)],
            "suggested_probability": q.max(1),
            "sample_weight": 1.0 - p_wrong,
        }
    )


def _labels(y: ArrayLike | None, name: str) -> NDArray[Any]:
    if y is None:
        raise DataError(f"LabelCleaner requires y to be passed, but the target y is None: {name} is missing")
    labels = column_or_1d(y, warn=True)
    missing = np.asarray(pd.isna(labels))
    if missing.any():
        raise DataError(f"row {int(missing.argmax())}: the label in {name} is missing (NaN)")
    if len(labels):
        assert_all_finite(labels, input_name=name)
        check_classification_targets(labels)
    return labels


def _require(count: int, otherwise: str) -> None:
    if not count:
        raise DataError(otherwise)


def _taken(rows: Any, order: NDArray[np.int64]) -> Any:
    return rows.iloc[order] if isinstance(rows, pd.DataFrame) else rows[order]


def _stacked(rows: Any, extra: Any) -> Any:
    if isinstance(rows, pd.DataFrame):
        return pd.concat([rows, extra], ignore_index=True)
    return sparse.vstack([rows, extra]).tocsr() if sparse.issparse(rows) else np.concatenate([rows, extra])
