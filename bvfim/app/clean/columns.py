"""Which columns of a table say something about a row, and what they say as numbers and words."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from bvfim.app.clean.table import Table, text
from bvfim.labels.inputs import LARGEST
from bvfim.status import DataError

MOSTLY = 0.9
"""A column is one of numbers if so many of its cells are."""
WORDS = 200
"""A column with more different words than this, or with hardly a word twice, says nothing about the rows."""
INDEX = re.compile(r"__index_level_\d+__")
"""What pandas calls an index without a name in a file."""


@dataclass
class _Seen:
    """What is known of a column so far."""

    rows: int = 0
    numbers: int = 0
    words: set[str] = field(default_factory=set)
    counts: bool = True
    first: float = 0.0

    def add(self, cells: pd.Series) -> None:
        values = numbers(cells).to_numpy()
        self.first = self.first if self.rows else float(values[0])
        self.counts = self.counts and bool((values == self.first + self.rows + np.arange(len(values))).all())
        self.rows += len(values)
        self.numbers += int((~np.isnan(values)).sum())
        if len(self.words) <= WORDS:
            self.words.update(cells.map(text).unique())


@dataclass(frozen=True)
class Columns:
    """The columns that are used.

    Attributes:
        label: the column of labels.
        numbers, words: those of each kind; picture: the one of pictures, if there is one.
        left_out: the others, with the reason.
        rows: of the table.
    """

    label: str
    numbers: tuple[str, ...]
    words: tuple[str, ...]
    picture: str | None
    left_out: dict[str, str]
    rows: int

    @property
    def used(self) -> tuple[str, ...]:
        """Everything that must be there in a table of trusted rows."""
        return (self.picture,) if self.picture else (*self.numbers, *self.words)

    def labels(self, name: str, piece: pd.DataFrame, first: int) -> pd.Series:
        """The labels of some rows as text; none may be missing."""
        labels = piece[self.label].map(text)
        empty = (labels.str.strip() == "").to_numpy()
        if empty.any():
            raise DataError(f"{name}: row {first + int(empty.argmax())}, column {self.label!r}: the label is missing")
        return labels

    def values(self, name: str, piece: pd.DataFrame, first: int) -> pd.DataFrame:
        """The columns of numbers and words of some rows; no number may be missing.

        Args:
            name: of the table; piece: of it; first: the number of its first row.
        """
        found = {}
        for column in self.numbers:
            found[column] = numbers(piece[column])
            wrong = ~(np.abs(found[column].to_numpy(np.float64)) <= LARGEST)
            if wrong.any():
                row = int(wrong.argmax())
                cell = text(piece[column].iloc[row])
                large = np.isfinite(found[column].iloc[row])
                wrongly = "is too large" if large else "is not a number"
                what = f"{cell[:40]!r} {wrongly}" if cell else "the value is missing"
                raise DataError(
                    f"{name}: row {first + row}, column {column!r}: {what}; fix it, or ignore the column with "
                    f"--ignore {shlex.quote(column)}"
                )
        return pd.DataFrame(found | {column: piece[column].map(text) for column in self.words}, index=piece.index)


def numbers(cells: pd.Series) -> pd.Series:
    """The cells as numbers, NaN where they are none."""
    return pd.to_numeric(cells, errors="coerce").astype(np.float64).mask(cells.isna())


def columns_of(
    table: Table, label: str, picture: str | None, apart: Iterable[str], pieces: Iterator[pd.DataFrame]
) -> Columns:
    """Look through a table once to see what its columns hold.

    Args:
        table: the table; pieces: its rows.
        label: the column of labels; picture: of pictures, which are then all that is used.
        apart: columns to leave out.
    """
    left_out = {name: "it is a pandas index" for name in table.columns if INDEX.fullmatch(name) and name != label}
    left_out |= dict.fromkeys(apart, "ignored on request")
    seen = {name: _Seen() for name in table.columns if name != label and name not in left_out and picture is None}
    rows = 0
    for piece in pieces:
        rows += len(piece)
        for name, known in seen.items():
            known.add(piece[name])
    if rows < 2:
        raise DataError(f"{table.name}: expected at least 2 rows, got {rows}")
    kinds: dict[str, list[str]] = {"numbers": [], "words": []}
    for name, known in seen.items():
        if known.counts:
            left_out[name] = "it only numbers the rows"
        elif known.numbers >= MOSTLY * known.rows:
            kinds["numbers"].append(name)
        elif len(known.words) > min(WORDS, max(2, known.rows // 4)):
            left_out[name] = "almost all its values are different"
        else:
            kinds["words"].append(name)
    if picture is None and not any(kinds.values()):
        raise DataError(f"{table.name}: no usable column besides the label")
    return Columns(label, tuple(kinds["numbers"]), tuple(kinds["words"]), picture, left_out, rows)
