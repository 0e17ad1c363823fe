"""Which columns of a table say something about a row, and what they say as numbers, words and sentences."""

from __future__ import annotations

import re
import shlex
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from bvfim.app.clean.table import Table, text
from bvfim.labels.inputs import LARGEST
from bvfim.labels.sentences import DIFFERENT, are_sentences, is_long, repeats
from bvfim.status import DataError

MOSTLY = 0.9
"""A column is one of numbers, or of dates, if so many of its cells are; cells that are empty don't count."""
SAMPLE = 100_000
"""Numbers of a column from which its median is computed, at most: the first ones."""
INDEX = re.compile(r"__index_level_\d+__")
"""What pandas calls an index without a name in a file."""
ABSENT = {"", "na", "n/a", "nan", "null", "none", "nil", "-", "--", "?", "missing"}
"""What stands in a column of numbers or dates where there is no value."""
DATES = ("ISO8601", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d %b %Y", "%b %d, %Y")
"""How dates are written; of two that both fit, the first counts."""
NUMBER = "number"
EPOCH, DAY = pd.Timestamp(0, tz="UTC"), pd.Timedelta(days=1)
FINDINGS = {
    *("is_label_issue", "drop", "label_quality", "label_score", "p_wrong", "given_label", "predicted_label"),
    *("suggested_label", "suggested_probability", "sample_weight"),
}
"""What cleanlab and ``bvfim clean`` call their findings."""
LISTED = 50
"""Cells that are listed, at most."""


@dataclass
class _Seen:
    """What is known of a column so far.

    Attributes:
        parsed: how many of its cells are numbers, or dates of each form.
        some: what the first of them are as numbers.
    """

    rows: int = 0
    absent: int = 0
    long: int = 0
    parsed: dict[str, int] = field(default_factory=lambda: dict.fromkeys((NUMBER, *DATES), 0))
    some: dict[str, list[np.ndarray]] = field(default_factory=lambda: {form: [] for form in (NUMBER, *DATES)})
    words: set[str] = field(default_factory=set)
    counts: bool = True
    first: float = 0.0

    def add(self, cells: pd.Series) -> None:
        values, texts = numbers(cells), cells.map(text)
        self.first = self.first if self.rows else float(values.iloc[0])
        self.counts = self.counts and bool((values == self.first + self.rows + np.arange(len(values))).all())
        self._note(NUMBER, values)
        self.rows += len(values)
        self.absent += int((values.isna() & absent(texts)).sum())
        self.long += sum(map(is_long, texts))
        if texts.str.contains(r"\d").sum() >= MOSTLY * (~absent(texts)).sum() and not self.mostly(NUMBER):
            for form in DATES:
                self._note(form, days(texts, form))
        if len(self.words) <= DIFFERENT:
            self.words.update(texts.unique())

    def _note(self, form: str, values: pd.Series) -> None:
        here = values.dropna().to_numpy()
        if self.parsed[form] < SAMPLE:
            self.some[form].append(here)
        self.parsed[form] += len(here)

    def mostly(self, form: str) -> bool:
        """Whether so many cells are most of those that are not empty."""
        return self.parsed[form] > 0 and self.parsed[form] >= MOSTLY * (self.rows - self.absent)

    @property
    def form(self) -> str | None:
        """What its cells are: numbers, or dates of some form; None where they are neither."""
        date = max(DATES, key=lambda form: self.parsed[form])
        return next((form for form in (NUMBER, date) if self.mostly(form)), None)

    def median(self, form: str) -> float:
        return float(np.median(np.concatenate(self.some[form])))


@dataclass(frozen=True)
class Columns:
    """The columns that are used.

    Attributes:
        label: the column of labels.
        forms: the columns of numbers and dates, and how these are written.
        words, sentences: the columns of each kind; picture: the one of pictures, if there is one.
        left_out: the others, with the reason.
        filled: for columns with missing values, how many there are, and what is put in their place.
        rows: of the table.
    """

    label: str
    forms: Mapping[str, str]
    words: tuple[str, ...]
    sentences: tuple[str, ...]
    picture: str | None
    left_out: dict[str, str]
    rows: int
    filled: Mapping[str, tuple[int, float]] = field(default_factory=dict)

    @property
    def used(self) -> tuple[str, ...]:
        """Everything that must be there in a table of trusted rows."""
        return (self.picture,) if self.picture else (*self.forms, *self.words, *self.sentences)

    @property
    def notes(self) -> list[str]:
        """What a person should know of the columns, in sentences."""
        said = [f"column {name!r} is not used: {why}" for name, why in self.left_out.items()]
        said += [f"column {name!r} is read as sentences" for name in self.sentences]
        said += [f"column {name!r} is read as dates ({form})" for name, form in self.forms.items() if form != NUMBER]
        for name, (count, median) in self.filled.items():
            what = "value is" if count == 1 else "values are"
            shown = f"{median:g}" if self.forms[name] == NUMBER else f"{(EPOCH + median * DAY).date()}"
            own = f"{count} missing {what} filled with the median, {shown}, and marked by a column of their own"
            said.append(f"column {name!r}: {own}")
        return said

    def values(self, piece: pd.DataFrame) -> pd.DataFrame:
        """The columns of some rows that are used, with the median in the place of missing numbers and dates."""
        found: dict[str, pd.Series] = {}
        for name, form in self.forms.items():
            found[name] = read(piece[name], form)
            if name in self.filled:
                found[f"{name} is missing"] = found[name].isna().astype(np.float64)
                found[name] = found[name].fillna(self.filled[name][1])
        words = {name: piece[name].map(text) for name in (*self.words, *self.sentences)}
        return pd.DataFrame(found | words, index=piece.index)

    def bad(self, piece: pd.DataFrame, first: int) -> Iterator[tuple[int, str, str]]:
        """The cells of some rows that can't be read: row, column and what is wrong."""
        labels = piece[self.label].map(text)
        yield from ((first + k, self.label, "the label is missing") for k in _where(labels.str.strip() == ""))
        for name, form in self.forms.items() if self.picture is None else ():
            texts, values = piece[name].map(text), read(piece[name], form)
            empty = values.isna() & absent(texts)
            for k in _where(~(values.abs() <= LARGEST) & ~empty):
                kind = NUMBER if form == NUMBER else "date"
                what = "too large" if np.isfinite(values.iloc[k]) else f"not a {kind}"
                yield first + k, name, f"{texts.iloc[k][:40]!r} is {what}"
            if name not in self.filled:  # a table of trusted rows may lack what the data has
                yield from ((first + k, name, "the value is missing") for k in _where(empty))


def _where(holds: pd.Series) -> list[int]:
    found: list[int] = np.flatnonzero(holds.to_numpy(bool)).tolist()
    return found


def require_readable(name: str, needed: Container[str | None], bad: list[tuple[int, str, str]]) -> None:
    """Refuse a table with cells that can't be read, and list all of them; columns that are needed can't be ignored."""
    if not bad:
        return
    ignored = ",".join(dict.fromkeys(column for _, column, _ in bad if column not in needed))
    columns = "columns" if "," in ignored else "column"
    way = f", or ignore the {columns} with --ignore {shlex.quote(ignored)}" if ignored else ""
    cells = [f"row {row}, column {column!r}: {what}" for row, column, what in sorted(bad)]
    if len(cells) == 1:
        raise DataError(f"{name}: {cells[0]}; fix it{way}")
    more = [f"and {len(cells) - LISTED} more"] if len(cells) > LISTED else []
    listed = "\n  ".join(["", *cells[:LISTED], *more])
    raise DataError(f"{name}: {len(cells)} cells can't be read; fix them{way}:{listed}")


def numbers(cells: pd.Series) -> pd.Series:
    """The cells as numbers, NaN where they are none."""
    return pd.to_numeric(cells, errors="coerce").astype(np.float64).mask(cells.isna())


def absent(texts: pd.Series) -> pd.Series:
    """Which cells say that there is no value."""
    return texts.str.strip().str.lower().isin(ABSENT)


def days(texts: pd.Series, form: str) -> pd.Series:
    """Dates that are written so as days since 1970, NaN where they are not."""
    return (pd.to_datetime(texts.str.strip(), format=form, errors="coerce", utc=True) - EPOCH) / DAY


def read(cells: pd.Series, form: str) -> pd.Series:
    """The cells of a column of numbers or dates."""
    return numbers(cells) if form == NUMBER else days(cells.map(text), form)


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
    if "is_label_issue" in table.columns:
        own = [name for name in table.columns if name in FINDINGS and name != label]
        left_out |= dict.fromkeys(own, "it is a finding of cleanlab or of an earlier run")
    left_out |= dict.fromkeys(apart, "ignored on request")
    seen = {name: _Seen() for name in table.columns if name != label and name not in left_out and picture is None}
    rows = 0
    for piece in pieces:
        rows += len(piece)
        for name, known in seen.items():
            known.add(piece[name])
    if rows < 2:
        raise DataError(f"{table.name}: expected at least 2 rows, got {rows}")
    kinds: dict[str, list[str]] = {"words": [], "sentences": []}
    forms: dict[str, str] = {}
    filled = {}
    for name, known in seen.items():
        if known.counts:
            left_out[name] = "it only numbers the rows"
        elif known.form is not None:
            forms[name] = known.form
            if known.absent:
                filled[name] = known.absent, known.median(known.form)
        elif repeats(len(known.words), rows):
            kinds["words"].append(name)
        elif are_sentences(len(known.words), rows, known.long):
            kinds["sentences"].append(name)
        else:
            left_out[name] = "almost all its values are different"
    if picture is None and not any(kinds.values()) and not forms:
        raise DataError(f"{table.name}: no usable column besides the label")
    texts = {kind: tuple(names) for kind, names in kinds.items()}
    return Columns(label, forms, picture=picture, left_out=left_out, rows=rows, filled=filled, **texts)
