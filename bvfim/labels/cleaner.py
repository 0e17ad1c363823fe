"""``LabelCleaner``: a scikit-learn estimator that finds wrong labels."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from bvfim.labels import decisions, mixture, noise_matrix
from bvfim.labels.arrays import Array
from bvfim.labels.benefit import Benefit, benefit
from bvfim.labels.frequencies import frequencies, informative
from bvfim.labels.inputs import (
    Inputs,
    View,
    index_of,
    labels_of,
    require,
    require_common,
    require_moderate,
    require_values,
    stacked,
    taken,
)
from bvfim.labels.modules import TorchClassifier
from bvfim.labels.sentences import Embed
from bvfim.schedules import require_count
from bvfim.status import BvfimWarning, DataError

FEWEST = 2
"""The least number of rows a class, on average: with fewer, most labels can't be compared with anything."""


class LabelCleaner(ClassifierMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Find wrong labels with the help of a few trusted rows, and train a classifier on the cleaned labels.

    The probability that a label is wrong comes from :mod:`bvfim.labels.mixture`. It is computed out of sample and
    calibrated by the likelihood of all labels, including the trusted ones.

    Args:
        classifier: the model used by :meth:`predict`: a scikit-learn classifier that accepts sample weights, or a torch
            module that returns logits. It is trained on the most probable label of each row, weighted by its
            probability. By default the mixture itself predicts. :func:`bvfim.labels.modules.paper_network` is the
            network of the paper.
        bilevel: whether the mixture includes the bilevel network. Without it, fitting is about twice as fast, and
            somewhat worse on data that are hard to classify.
        landmarks: number of landmark rows of the kernel approximation; more is slower and more accurate.
        folds: number of cross-validation folds.
        embed: a function from a list of sentences to rows of numbers, such as the ``encode`` of a model of the package
            sentence-transformers, for the columns of sentences of a DataFrame. Without it they are seen by the TF-IDF
            of the pieces of their words alone.
        random_state: seed or generator for the landmarks and the folds.
        progress: a function called during :meth:`fit` with the fraction of the work done so far.

    Attributes:
        classes_: the class labels.
        transition_matrix_: [k, j] is the probability that a row of class k was given the label j.
        noise_rate_: the expected fraction of wrong labels; a lower bound if the rows say nothing about the labels.
        label_issues_: the table that :meth:`find_label_issues` returns.
        allowed_: whether the data suffice to flag rows for review, and to drop rows without review.
        verdict_: whether cleaning helps, judged on the trusted rows: ``verdict_.recommended``, or ``print`` it.

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
        embed: Embed | None = None,
        random_state: Any = None,
        progress: Callable[[float], object] | None = None,
    ) -> None:
        self.classifier = classifier
        self.bilevel = bilevel
        self.landmarks = landmarks
        self.folds = folds
        self.embed = embed
        self.random_state = random_state
        self.progress = progress

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
            X: the rows: an array, images, a DataFrame (columns of words and of sentences are allowed), or a sparse
                matrix.
            y: their labels, of any type.
            trusted: a boolean mask of the rows with trusted labels. Alternatively pass trusted rows separately:
            X_trusted: the trusted rows.
            y_trusted: the labels of the trusted rows.
        """
        require_count(self, "landmarks")
        require_count(self, "folds", 2)
        rows, labels, mask = self._together(X, y, trusted, X_trusted, y_trusted)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise DataError(f"at least two classes are needed, but every label is {self.classes_.tolist()[0]!r}")
        if len(self.classes_) * FEWEST > len(labels):
            raise DataError(
                f"the labels have {len(self.classes_)} different values in {len(labels)} rows: they look like numbers "
                "or identifiers, not classes; group them first, or name another column"
            )
        self._said(codes, mask)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        config = mixture.Config(landmarks=self.landmarks, folds=self.folds)
        if not self.bilevel:
            config = replace(config, bilevel=None)
        order = np.argsort(mask, kind="stable")  # the noisy rows first, each kind in its own order
        progress = self.progress or (lambda share: None)
        noisy = int((~mask).sum())
        self._inputs, data, found = best(taken(rows, order), codes[order], noisy, seed, config, progress, self.embed)
        self.verdict_: Benefit = benefit(data, found, config)
        told = informative(data, found)
        self.allowed_ = decisions.Allowed(told, told and bool(mask.any()))
        if not told:
            found = frequencies(data)
            warnings.warn(
                "the rows say too little about the labels to call any label wrong", BvfimWarning, stacklevel=2
            )
        self._mixture = found
        self.transition_matrix_ = found.T
        exact = np.eye(len(self.classes_))
        p, q = np.empty((len(codes), len(exact))), exact[codes]
        p[order], q[~mask] = found.p, found.q
        if told:  # rows that say nothing are alike for no reason
            self._known(data.inputs, order, codes, mask, q)
        asked = len(np.asarray(y))  # the rows that are given apart come after these
        issues = decisions.table(self.classes_, codes[:asked], p[:asked], q[:asked], self.allowed_)
        self.label_issues_ = issues.set_axis(index_of(X, y, asked), axis=0)
        self.noise_rate_ = float(self.label_issues_["p_wrong"].to_numpy()[~mask[:asked]].mean())
        self._fit_classifier(rows, q)
        progress(1.0)
        return self

    def judge(self, X: Any, labels: ArrayLike) -> pd.DataFrame:
        """Return the table of :meth:`find_label_issues` for rows that :meth:`fit` has not seen.

        Args:
            X: the rows.
            labels: their labels, each one of ``classes_``.
        """
        check_is_fitted(self)
        given = labels_of(labels, "labels")
        codes = np.minimum(np.searchsorted(self.classes_, given), len(self.classes_) - 1)
        unknown = self.classes_[codes] != given
        if unknown.any():
            row = int(unknown.argmax())
            raise DataError(f"row {row}: the label {given.tolist()[row]!r} was not seen during fit")
        p = self._predicted(self._checked(X, reset=False))
        q = noise_matrix.posterior(p, self.transition_matrix_, codes)[0]
        return decisions.table(self.classes_, codes, p, q, self.allowed_).set_axis(index_of(X, labels, len(p)), axis=0)

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
        """Return, for each row of X in order, the probability that its label is wrong, and a suggested label.

        The index is that of X if it is a DataFrame, else that of the labels if they are a Series, else 0, 1, ...
        Without trusted rows, no row is marked ``drop``; if the rows say nothing about the labels, given or trusted, no
        row is marked as an issue.

        Args:
            X: the rows; by default those passed to :meth:`fit`.
            labels: their labels.
            y: the same as ``labels``.
            trusted, X_trusted, y_trusted: see :meth:`fit`.

        Returns:
            A table with the columns ``is_label_issue`` (worth reviewing), ``drop`` (can be dropped without review),
            ``label_quality`` (probability that the label is correct), ``p_wrong``, ``given_label``,
            ``predicted_label`` (from the row alone), ``suggested_label`` (from the row and its label) with
            ``suggested_probability``, and ``sample_weight``.
        """
        given = y if labels is None else labels
        if X is not None:
            if given is None:
                raise DataError("X was given without labels")
            self.fit(X, given, trusted, X_trusted=X_trusted, y_trusted=y_trusted)
        check_is_fitted(self)
        return self.label_issues_.copy()

    def predict_proba(self, X: Any) -> Array:
        """Return class probabilities, in the order of ``classes_``."""
        check_is_fitted(self)
        rows = self._checked(X, reset=False)
        if self.classifier_ is not None:
            found: Array = self.classifier_.predict_proba(rows)
            return found
        return self._predicted(rows)

    def coordinates(self, X: Any) -> Array:
        """Return the rows as the cleaner sees them: numbers whose distances mean something."""
        check_is_fitted(self)
        return self._inputs.of(self._inputs.view(self._checked(X, reset=False)))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each row."""
        best = self.predict_proba(X).argmax(1)
        found: NDArray[Any] = self.classes_[best]
        return found

    def transform(self, X: Any) -> Array:
        """Return class probabilities, as features."""
        return self.predict_proba(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _predicted(self, rows: Any) -> Array:
        parts = self._inputs.view(rows)
        return self._mixture.predict(self._inputs.of(parts), self._inputs.view.words(parts))

    def _checked(self, X: Any, *, reset: bool) -> Any:
        if reset:
            self._tabular = isinstance(X, pd.DataFrame)
        elif self._tabular and not isinstance(X, pd.DataFrame):
            raise DataError(f"X must be a DataFrame with the same columns as in fit, not {type(X).__name__}")
        if isinstance(X, pd.DataFrame):
            validate_data(self, X, reset=reset, skip_check_array=True)
            require_values(X)
            return X
        options = {"accept_sparse": "csr", "allow_nd": True, "ensure_min_samples": 2 if reset else 1}
        rows = validate_data(self, X, reset=reset, **options)
        require_moderate(rows)
        return rows

    def _together(
        self, X: Any, y: ArrayLike, trusted: ArrayLike | None, X_trusted: Any, y_trusted: ArrayLike | None
    ) -> tuple[Any, NDArray[Any], NDArray[np.bool_]]:
        """All rows and labels, those that are given apart at the end, and which are trusted."""
        if (X_trusted is None) != (y_trusted is None):
            raise DataError("X_trusted and y_trusted must be given together")
        if trusted is not None and X_trusted is not None:
            raise DataError("give either the mask trusted or X_trusted and y_trusted, not both")
        rows, labels = self._checked(X, reset=True), labels_of(y, "y")
        count = rows.shape[0]
        if len(labels) != count:
            raise DataError(f"X has {count} rows but y has {len(labels)} labels")
        mask = np.zeros(count, dtype=bool)
        if trusted is not None:
            mask = np.asarray(trusted)
            if mask.dtype != bool or mask.shape != (count,):
                raise DataError(f"trusted must be a boolean mask of length {count}")
            require(int(mask.sum()), "trusted marks no row")
            require(int((~mask).sum()), "every row is trusted: there is nothing to clean")
        if X_trusted is None or y_trusted is None:
            return rows, labels, mask
        extra, own = self._checked(X_trusted, reset=False), labels_of(y_trusted, "y_trusted")
        require(len(own), "the trusted set is empty")
        if len(own) != extra.shape[0]:
            raise DataError(f"X_trusted has {extra.shape[0]} rows but y_trusted has {len(own)} labels")
        require_common(labels, own, "the labels of the trusted rows")
        return stacked(rows, extra), np.concatenate([labels, own]), np.append(mask, np.ones(len(own), dtype=bool))

    def _known(
        self, inputs: Array, order: NDArray[np.int64], codes: NDArray[np.int64], mask: NDArray[np.bool_], q: Array
    ) -> None:
        """A row that is also among the trusted ones has the label that it has there, if it has but one there."""
        noisy = int((~mask).sum())
        known: dict[bytes, set[int]] = {}
        for row, code in zip(inputs[noisy:], codes[order[noisy:]], strict=True):
            known.setdefault(row.tobytes(), set()).add(int(code))
        found = [(i, next(iter(own))) for i in range(noisy) if len(own := known.get(inputs[i].tobytes(), set())) == 1]
        for i, code in found:
            q[order[i]] = np.eye(q.shape[1])[code]
        if found:
            message = f"{len(found)} rows are also in the trusted set: their labels are taken from there"
            warnings.warn(message, BvfimWarning, stacklevel=3)

    def _fit_classifier(self, rows: Any, q: Array) -> None:
        self.classifier_ = None
        if self.classifier is not None:
            module = isinstance(self.classifier, torch.nn.Module)
            self.classifier_ = TorchClassifier(self.classifier) if module else clone(self.classifier)
            self.classifier_.fit(rows, self.classes_[q.argmax(1)], sample_weight=q.max(1))

    def _said(self, codes: NDArray[np.int64], mask: NDArray[np.bool_]) -> None:
        if not mask.any():
            message = "no rows are trusted: the labels are judged only against each other"
            warnings.warn(message, BvfimWarning, stacklevel=3)
            return
        absent = np.setdiff1d(np.arange(len(self.classes_)), codes[mask])
        if len(absent):
            names = ", ".join(map(repr, self.classes_[absent][:10].tolist()))
            message = f"the trusted rows do not cover the class {names}: its labels are judged only against each other"
            warnings.warn(message, BvfimWarning, stacklevel=3)


def best(
    rows: Any,
    codes: NDArray[np.int64],
    noisy: int,
    seed: int,
    config: mixture.Config,
    progress: Callable[[float], object] = lambda share: None,
    embed: Embed | None = None,
) -> tuple[Inputs, mixture.TrainingRows, mixture.Mixture]:
    """The mixture on rows scaled in the way that makes the labels most likely."""
    classes = int(codes.max()) + 1
    view = View(rows, embed)
    parts = view(rows)
    options = Inputs.options(view, parts)
    labels = codes[:noisy], codes[noisy:], classes, view.words(parts)
    data = [mixture.TrainingRows(inputs.of(parts), *labels) for inputs in options]
    first = [mixture.fit(own, seed, config.short()).likelihood for own in data]
    chosen = int(np.argmax(first))
    progress(0.1)
    found = mixture.fit(data[chosen], seed, config, lambda share: progress(0.1 + 0.85 * share))
    return options[chosen], data[chosen], found
