"""Rows of any kind as numbers whose distances mean something."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.decomposition import TruncatedSVD
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from bvfim.labels.arrays import Array
from bvfim.labels.sentences import Embed, Terms, are_sentences, embedded, is_long
from bvfim.status import DataError

WIDE = 256
"""Columns from which on rows are shortened."""
SHORT = 100
"""To how many."""
SHARES = (1.0, 0.2, 5.0)
"""What a column of sentences may count beside the other columns: as much, or hardly, or nearly alone."""
LARGEST = 1e150
"""Beyond it squares overflow."""
FILL = "fill it, for example with the median, or use bvfim clean"
CONSTANT, CONSTANT_SPARSE = 1e-9, 1e-6
"""A column is constant whose spread is so small beside its own size: what rounding makes of one value."""


class Inputs:
    """What turns rows into numbers, learned from some of them.

    Columns that are constant are left out, wide rows are projected onto their main directions, and the mean is taken
    off.

    Args:
        view: what splits rows into parts.
        parts: of the rows that it is learned from.
        standard: whether every column is scaled by itself, as for columns of different units, or all by one number, as
            for pixels and embeddings.
        sentences: what a column of sentences counts beside all the other columns together.
    """

    def __init__(self, view: View, parts: list[Any], standard: bool, sentences: float = 1.0) -> None:
        self.view = view
        self._parts = [_Part(part, standard) for part in parts]
        counts = [1.0] * view.plain + [sentences] * (len(parts) - view.plain)
        self._weights = np.array(counts) / np.linalg.norm(counts)

    def of(self, parts: list[Any]) -> Array:
        """Rows that have been split into parts as numbers, of mean square length one where they were learned."""
        found = [weight * own(part) for weight, own, part in zip(self._weights, self._parts, parts, strict=True)]
        return np.column_stack(found) if len(found) > 1 else found[0]

    @classmethod
    def options(cls, view: View, parts: list[Any]) -> list[Inputs]:
        """The ways to scale such rows, of which the labels choose one."""
        shares = SHARES if view.plain and len(parts) > 1 else SHARES[:1]
        return [cls(view, parts, standard, share) for share in shares for standard in (False, True)]


def numbers_of(X: Any, standard: bool) -> Array:
    """Rows as numbers, learned from these rows; see :class:`Inputs`.

    Example:
        >>> import numpy as np
        >>> from bvfim.labels.inputs import numbers_of
        >>> numbers_of(np.array([[0.0, 0.0], [2.0, 400.0]]), standard=True).round(3).tolist()
        [[-0.707, -0.707], [0.707, 0.707]]
    """
    view = View(X)
    parts = view(X)
    return Inputs(view, parts, standard).of(parts)


class View:
    """The matrices that rows are looked at as: one for each column of sentences, and one for all else.

    Words become columns of zeros and ones, truth values, dates and numbers stay as they are, and sentences become their
    terms (:mod:`bvfim.labels.sentences`).

    Args:
        X: the rows that it is learned from: a table, an array of numbers or of images, or a sparse matrix.
        embed: gives rows of numbers for sentences; with it, they are looked at so, too.

    Example:
        >>> import pandas as pd
        >>> from bvfim.labels.inputs import View
        >>> table = pd.DataFrame({"age": [1, 2, 3], "said": ["a cat purrs", "the dog barks", "two cats purr"]})
        >>> [part.shape[0] for part in View(table)(table)]
        [3, 3]
    """

    def __init__(self, X: Any, embed: Embed | None = None) -> None:
        self._table = _Table(X, embed) if isinstance(X, pd.DataFrame) else None

    @property
    def plain(self) -> bool:
        """Whether there is a first part, which holds all but the sentences."""
        return self._table is None or self._table.plain

    def __call__(self, X: Any) -> list[Any]:
        """The parts of some rows."""
        if self._table is not None:
            return self._table(X)
        return [X.tocsr().astype(np.float64) if sparse.issparse(X) else flattened(X).astype(np.float64)]

    def words(self, parts: list[Any]) -> Any:
        """The terms of a table's sentences; None where there are none. A sparse matrix of numbers is numbers."""
        found = [part for part in parts if sparse.issparse(part)] if self._table is not None else []
        return sparse.hstack(found).tocsr() if found else None


class _Part:
    """One matrix as numbers whose distances mean something; see :class:`Inputs`."""

    def __init__(self, rows: Any, standard: bool) -> None:
        spread = _spread(rows)
        overall = float(np.sqrt((spread**2).mean())) or 1.0
        # An infinite scale makes a constant an exact zero, however large it is.
        self._scale = np.where(spread > 0.0, spread if standard else overall, np.inf)
        self._directions = None
        if len(spread) > WIDE:
            shortened = TruncatedSVD(min(SHORT, len(spread) - 1), random_state=0)
            self._directions = shortened.fit(self._scaled(rows)).components_.T
        found = self._projected(rows)
        self._mean = found.mean(0)
        self._size = float(np.sqrt(((found - self._mean) ** 2).sum(1).mean())) or 1.0

    def __call__(self, rows: Any) -> Array:
        return (self._projected(rows) - self._mean) / self._size

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
            raise DataError(f"row {int(missing.argmax())}, column {name!r}: the value is missing: {FILL}")
        if pd.api.types.is_float_dtype(frame[name]):
            size = np.abs(frame[name].to_numpy(np.float64))
            if (size > LARGEST).any():
                row = int((size > LARGEST).argmax())
                what = "infinite" if np.isinf(size[row]) else "too large"
                raise DataError(f"row {row}, column {name!r}: the value is {what}")


def require_moderate(rows: Any) -> None:
    """Refuse an array or a sparse matrix with a value whose square overflows, and say where it is."""
    values = rows.data if sparse.issparse(rows) else rows
    if not values.size or max(float(values.max()), -float(values.min())) <= LARGEST:
        return
    whole = rows.tocoo() if sparse.issparse(rows) else None
    first = int((np.abs(values) > LARGEST).argmax())
    row, column = divmod(first, rows[0].size) if whole is None else (whole.row[first], whole.col[first])
    raise DataError(f"row {row}, column {column}: the value is too large")


class _Table:
    """The columns of a table as matrices; see :class:`View`."""

    def __init__(self, frame: pd.DataFrame, embed: Embed | None) -> None:
        self._embed = embed
        self._numbers = [k for k, kind in enumerate(frame.dtypes) if _is_number(kind)]
        texts = [k for k in range(frame.shape[1]) if k not in self._numbers]
        self._sentences = {k: Terms(_texts(frame, k)) for k in texts if _said(_texts(frame, k))}
        self._words = [k for k in texts if k not in self._sentences]
        self._hot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
        if self._words:
            self._hot.fit(self._named(frame))

    @property
    def plain(self) -> bool:
        """Whether there is a column that is not one of sentences."""
        return bool(self._words or self._numbers)

    def __call__(self, frame: pd.DataFrame) -> list[Any]:
        words = [self._hot.transform(self._named(frame))] if self._words else []
        plain = [*words, *(_floats(frame.iloc[:, k]) for k in self._numbers)]
        found: list[Any] = [np.column_stack(plain)] if plain else []
        for k, known in self._sentences.items():
            texts = _texts(frame, k)
            found += [known(texts)] if self._embed is None else [known(texts), embedded(self._embed, texts)]
        return found

    def _named(self, frame: pd.DataFrame) -> NDArray[Any]:
        return frame.iloc[:, self._words].astype(str).to_numpy(object)


def _texts(frame: pd.DataFrame, column: int) -> list[str]:
    found: list[str] = frame.iloc[:, column].astype(str).tolist()
    return found


def _said(texts: list[str]) -> bool:
    """Whether a column is one of sentences."""
    return are_sentences(len(set(texts)), len(texts), sum(map(is_long, texts)))


def _is_number(kind: Any) -> bool:
    return bool(pd.api.types.is_numeric_dtype(kind) or kind.kind in "mM")


def _floats(cells: pd.Series) -> Array:
    whole = cells.astype(np.int64) if cells.dtype.kind in "mM" else cells
    return np.asarray(whole.to_numpy(np.float64), np.float64)


def _spread(rows: Any) -> Array:
    """The standard deviation of each column, exactly zero where it is constant."""
    mean = np.asarray(rows.mean(0)).ravel()
    if sparse.issparse(rows):
        size, least = np.sqrt(np.asarray(rows.power(2).mean(0)).ravel()), CONSTANT_SPARSE
        found = np.sqrt(np.maximum(size**2 - mean**2, 0.0))
    else:
        found, least = np.sqrt(((rows - mean) ** 2).mean(0)), CONSTANT
        size = np.hypot(mean, found)
    return np.where(found > least * size, found, 0.0)


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


def index_of(X: Any, labels: Any, count: int) -> pd.Index:
    """What the rows are called: by their table, or else by their labels, or else counted from 0."""
    named = next((own for own in (X, labels) if isinstance(own, pd.DataFrame | pd.Series)), None)
    return pd.RangeIndex(count) if named is None else named.index


def require_common(given: NDArray[Any], trusted: NDArray[Any], what: str) -> None:
    """Refuse trusted labels of which none is among those that were given: they are written in another way."""
    both = np.concatenate([given, trusted])
    if not np.isin(both[len(given) :], both[: len(given)]).any():
        example = f"{trusted.tolist()[0]!r} does not occur there, {given.tolist()[0]!r} does"
        raise DataError(f"{what} have nothing in common with the labels of the data: {example}")


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
