"""Rows of any kind as numbers whose distances mean something."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import TruncatedSVD
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from bvfim.cleaning.arrays import Array
from bvfim.status import DataError

WIDE = 256
"""Columns from which on rows are shortened."""
SHORT = 100
"""To how many."""


class Inputs:
    """What turns rows into numbers, learned from some of them.

    Words become columns of zeros and ones, wide rows are projected onto their main directions, and the mean is taken
    off.

    Args:
        X: a table, an array of numbers or of images, or a sparse matrix.
        standard: whether every column is scaled by itself, as for columns of different units, or all by one number, as
            for pixels and embeddings.

    Example:
        >>> import numpy as np
        >>> from bvfim.cleaning.inputs import Inputs
        >>> rows = np.array([[0.0, 0.0], [2.0, 400.0]])
        >>> Inputs(rows, standard=True)(rows).round(3).tolist()
        [[-0.707, -0.707], [0.707, 0.707]]
    """

    def __init__(self, X: Any, standard: bool) -> None:
        self._encoder = _encoder(X) if isinstance(X, pd.DataFrame) else None
        if self._encoder is not None:
            self._encoder.fit(X)
        rows = self._numbers(X)
        mean_square = np.asarray(rows.power(2).mean(0) if sparse.issparse(rows) else (rows**2).mean(0)).ravel()
        mean = np.asarray(rows.mean(0)).ravel()
        spread = np.sqrt(np.maximum(mean_square - mean**2, 0.0))
        overall = float(np.sqrt((spread**2).mean())) or 1.0
        self._scale = np.where(spread > 1e-6 * overall, spread, overall) if standard else np.full(len(mean), overall)
        self._directions = None
        if len(mean) > WIDE:
            shortened = TruncatedSVD(min(SHORT, len(mean) - 1), random_state=0)
            self._directions = shortened.fit(self._scaled(rows)).components_.T
        found = self._projected(rows)
        self._mean = found.mean(0)
        self._size = float(np.sqrt(((found - self._mean) ** 2).sum(1).mean())) or 1.0

    def __call__(self, X: Any) -> Array:
        """The rows as numbers, of mean square length one where they were learned."""
        return (self._projected(self._numbers(X)) - self._mean) / self._size

    def _numbers(self, X: Any) -> Any:
        if self._encoder is not None:
            return self._encoder.transform(X)
        return X.tocsr().astype(np.float64) if sparse.issparse(X) else flattened(X).astype(np.float64)

    def _scaled(self, rows: Any) -> Any:
        return rows.multiply(1.0 / self._scale).tocsr() if sparse.issparse(rows) else rows / self._scale

    def _projected(self, rows: Any) -> Array:
        scaled = self._scaled(rows)
        if self._directions is not None:
            return np.asarray(scaled @ self._directions)
        return np.asarray(scaled.todense()) if sparse.issparse(scaled) else np.asarray(scaled)


def flattened(X: Any) -> NDArray[Any]:
    """An array with one row for each entry of the first dimension."""
    rows = np.asarray(X)
    return rows.reshape(len(rows), -1) if rows.ndim > 2 else rows


def require_values(frame: pd.DataFrame) -> None:
    """Refuse a table with a hole, and say where it is."""
    for name in frame.columns:
        missing = frame[name].isna().to_numpy()
        if missing.any():
            raise DataError(f"row {int(missing.argmax())}, column {name!r}: the value is missing")
        if pd.api.types.is_float_dtype(frame[name]) and (endless := np.isinf(frame[name].to_numpy(np.float64))).any():
            raise DataError(f"row {int(endless.argmax())}, column {name!r}: the value is infinite")


def _encoder(frame: pd.DataFrame) -> ColumnTransformer:
    words = [name for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name])]
    numbers = [name for name in frame.columns if name not in words]
    hot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    return ColumnTransformer([("words", hot, words), ("numbers", "passthrough", numbers)])


def labels_of(y: ArrayLike | None, name: str) -> NDArray[Any]:
    """Labels that were given, checked: one for each row, none missing."""
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


def require(count: int, otherwise: str) -> None:
    """Refuse to have none of something."""
    if not count:
        raise DataError(otherwise)


def taken(rows: Any, order: NDArray[np.int64]) -> Any:
    """Rows in another order."""
    return rows.iloc[order] if isinstance(rows, pd.DataFrame) else rows[order]


def stacked(rows: Any, extra: Any) -> Any:
    """Rows under rows."""
    if isinstance(rows, pd.DataFrame):
        return pd.concat([rows, extra], ignore_index=True)
    return sparse.vstack([rows, extra]).tocsr() if sparse.issparse(rows) else np.concatenate([rows, extra])
