"""What ``bvfim clean`` does: read a table, find its wrong labels, and write what was found.

A table of more rows than are learned from at once is read in pieces: some of its rows, drawn at random, are learned
from, and the others judged by a model that has not seen them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bvfim.app.clean import review
from bvfim.app.clean.columns import Columns, columns_of, require_readable
from bvfim.app.clean.pictures import Pictures
from bvfim.app.clean.table import Table, opened, text
from bvfim.labels import decisions
from bvfim.labels.cleaner import LabelCleaner
from bvfim.labels.embedding import Embedding, chosen
from bvfim.labels.inputs import require_common
from bvfim.labels.sentences import model_of
from bvfim.status import DataError, no_such

Progress = Callable[[str, float], object]
"""Is told what is being done, and which share of it is."""
PIECE = 500
"""Pictures that are embedded between two words on how far it is."""
LABEL, GIVEN = "label", "given_label"
"""The column of labels where none is named: the first, or else what cleanlab calls it."""
YES, NO = {"1", "true", "t", "yes", "y"}, {"0", "false", "f", "no", "n", ""}


@dataclass(frozen=True)
class Job:
    """What to clean, and how.

    Args:
        data: a CSV or parquet file, or a folder with one folder of images per label.
        label: the column of labels.
        trusted: a file like the data with correct labels, or the column of the data that marks the trusted rows.
        picture: the image column, if the rows are images.
        ignore: columns to ignore.
        apply: decisions downloaded from the review page.
        bilevel: whether to include the bilevel network.
        most: maximum number of rows to train on.
        seed: random seed.
        sentence_model: the name or folder of a model that embeds sentences, for the package sentence-transformers.
    """

    data: Path
    label: str = LABEL
    trusted: str | None = None
    picture: str | None = None
    ignore: tuple[str, ...] = ()
    apply: Path | None = None
    bilevel: bool = True
    most: int = 50_000
    seed: int = 0
    sentence_model: str | None = None


@dataclass(frozen=True)
class Learned:
    """The rows that were learned from.

    Attributes:
        features: as the cleaner got them.
        labels: as they were believed to be; sure: which of them can be trusted.
        places: where each row stands: the table and its number there.
    """

    features: Any
    labels: NDArray[Any]
    sure: NDArray[np.bool_]
    places: list[tuple[Table, int]]


@dataclass(frozen=True)
class Found:
    """What was found.

    Attributes:
        table: the data; columns: what of it was used.
        issues: a row for each row, as :meth:`bvfim.LabelCleaner.find_label_issues` gives them.
        decided: the labels that a person has decided on, by row.
        cleaner: what has learned from the rows; learned: these rows.
        features: of some rows of the table, as the cleaner gets them.
    """

    table: Table
    columns: Columns
    issues: pd.DataFrame
    decided: dict[int, str]
    cleaner: LabelCleaner
    learned: Learned
    features: Callable[[NDArray[np.int64]], Any]

    @property
    def dropped(self) -> NDArray[np.bool_]:
        """The rows that the cleaned table is without: none, unless cleaning is recommended."""
        drop = self.issues["drop"].to_numpy(bool) & self.cleaner.verdict_.recommended
        drop[list(self.decided)] = False
        return drop


def find(job: Job, progress: Progress) -> Found:
    """Find the wrong labels of a table. Nothing is written."""
    table = opened(job.data)
    picture = job.picture or table.picture
    cleanlab = job.label == LABEL and LABEL not in table.columns and GIVEN in table.columns
    label = GIVEN if cleanlab else job.label
    for column, what in ((label, "the labels"), *((name, "--ignore") for name in job.ignore)):
        table.require(column, what)
    if picture is not None:
        table.require(picture, "the images")
    flag, apart = _trusted(job, table)
    columns = columns_of(table, label, picture, [*job.ignore, *([flag] if flag else [])], _read(table, progress))
    labels, sure = _labels(table, columns, flag)
    decided = {} if job.apply is None else _decided(job.apply, labels)
    sure[list(decided)] = True
    believed = labels.copy()
    believed[list(decided)] = list(decided.values())
    rows = _drawn(believed, sure, job.most, np.random.default_rng(job.seed))
    encoder = _Encoder(columns)
    X, y, mask = encoder.rows(table, rows), believed[rows], sure[rows]
    places = [(table, row) for row in rows.tolist()]
    if apart is not None:
        extra, own = _extra(apart, columns, encoder, job.data.is_dir())
        places += [(apart, row) for row in range(len(own))]
        require_common(labels, own, f"{apart.name}: the labels of the trusted rows")
        X, y, mask = encoder.stacked(X, extra), np.append(y, own), np.append(mask, np.ones(len(own), dtype=bool))
    cleaner = LabelCleaner(
        bilevel=job.bilevel,
        embed=None if job.sentence_model is None else model_of(job.sentence_model),
        random_state=job.seed,
        progress=lambda share: progress("learning", share),
    )
    features = encoder.fitted(X, y.astype(str), progress)
    cleaner.fit(features, y.astype(str), mask if mask.any() else None)
    issues = cleaner.label_issues_.iloc[: len(rows)].set_index(rows)
    if len(rows) < columns.rows:
        issues = pd.concat([issues, *_judged(cleaner, encoder, table, labels, rows, progress)]).sort_index()
    settled = _settled(issues, labels, decided, cleaner.allowed_)
    learned = Learned(features, y.astype(str), mask, places)
    return Found(table, columns, settled, decided, cleaner, learned, lambda some: encoder(encoder.rows(table, some)))


def _trusted(job: Job, table: Table) -> tuple[str | None, Table | None]:
    """The column that says which rows are trusted, or the table of those that are given apart."""
    if job.trusted is None:
        return None, None
    if job.trusted in table.columns:
        return job.trusted, None
    if Path(job.trusted).exists():
        return None, opened(Path(job.trusted))
    raise DataError(f"--trusted {job.trusted}: no such file, and {no_such('column', job.trusted, table.columns)}")


def _read(table: Table, progress: Progress) -> Iterator[pd.DataFrame]:
    rows = 0
    for piece in table.pieces():
        yield piece
        rows += len(piece)
        progress(f"reading, {rows} rows", 0.0)


def _numbered(table: Table) -> Iterator[tuple[int, pd.DataFrame]]:
    """The pieces of a table, with the number of their first row."""
    first = 0
    for piece in table.pieces():
        yield first, piece
        first += len(piece)


def _labels(table: Table, columns: Columns, flag: str | None) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """All labels as text, and which can be trusted; every cell that can't be read is named."""
    labels, sure, bad = [], [], list[tuple[int, str, str]]()
    for first, piece in _numbered(table):
        bad += columns.bad(piece, first)
        labels.append(piece[columns.label].map(text).to_numpy(object))
        sure.append(np.zeros(len(piece), bool))
        if flag is not None:
            words = piece[flag].map(text).str.strip().str.lower().str.removesuffix(".0")
            sure[-1] = words.isin(YES).to_numpy()
            wrong = np.flatnonzero(~words.isin(YES | NO))
            bad += [(first + k, flag, f"{text(piece[flag].iloc[k])!r} is neither yes nor no") for k in wrong.tolist()]
    if not labels:
        raise DataError(f"{table.name}: the trusted set is empty")
    require_readable(table.name, {columns.label, flag}, bad)
    found = np.concatenate(sure)
    if flag is not None and not found.any():
        raise DataError(f"{table.name}: column {flag!r} marks no row as trusted")
    return np.concatenate(labels), found


def _decided(path: Path, labels: NDArray[Any]) -> dict[int, str]:
    table = review.read_decisions(path)
    for row, given in zip(table["row"], table["given_label"], strict=True):
        if row >= len(labels) or labels[row] != given:
            has = f"has {labels[row]!r} there" if row < len(labels) else f"ends at row {len(labels) - 1}"
            raise DataError(f"{path}: the decision for row {row} was made for the label {given!r}, but the table {has}")
    return dict(zip(table["row"].astype(int), table["label"], strict=True))


def _drawn(labels: NDArray[Any], sure: NDArray[np.bool_], most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The rows to learn from: all, or about so many of them, half of these trusted at most, and every label once."""
    if len(sure) <= most:
        return np.arange(len(sure))
    trusted, noisy = (rng.permutation(np.flatnonzero(kind)) for kind in (sure, ~sure))
    kept = trusted[: most // 2]
    each = np.unique(labels.astype(str), return_index=True)[1]
    return np.unique(np.concatenate([kept, noisy[: most - len(kept)], each]))


class _Encoder:
    """From pieces of a table to what the cleaner learns from: tables of numbers and words, or embedded pictures."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.embedding: Embedding | None = None

    def raw(self, table: Table, piece: pd.DataFrame, first: int) -> Any:
        if self.columns.picture is None:
            return self.columns.values(piece)
        return Pictures(table.name, table.folder).pixels(piece[self.columns.picture], first)

    def rows(self, table: Table, rows: NDArray[np.int64] | None = None) -> Any:
        """Some rows of a table, or all; the others are looked at too, so that what is wrong with them is said."""
        found = []
        for first, piece in _numbered(table):
            own = self.raw(table, piece, first)
            if rows is not None:
                inside = rows[(rows >= first) & (rows < first + len(piece))] - first
                own = own.iloc[inside] if isinstance(own, pd.DataFrame) else own[inside]
            found.append(own)
        return self.stacked(*found)

    def stacked(self, *parts: Any) -> Any:
        return pd.concat(parts, ignore_index=True) if isinstance(parts[0], pd.DataFrame) else np.concatenate(parts)

    def fitted(self, raw: Any, labels: NDArray[Any], progress: Progress) -> Any:
        """What is learned from; with pictures the embedding is learned first."""
        if self.columns.picture is None:
            return raw
        progress("choosing image features", 0.0)
        self.embedding, found = chosen(raw, labels), []
        if len(self.embedding.rows) == len(raw):
            return self.embedding.rows  # all of them were looked at to choose
        for first in range(0, len(raw), PIECE):
            progress("computing image features", first / len(raw))
            found.append(self(raw[first : first + PIECE]))
        return np.concatenate(found)

    def __call__(self, raw: Any) -> Any:
        return raw if self.embedding is None else self.embedding(raw)


def _extra(table: Table, columns: Columns, encoder: _Encoder, pictures: bool) -> tuple[Any, NDArray[Any]]:
    """The rows and labels of a table of trusted rows; ``pictures`` says whether the data is a folder of them."""
    lacking = any(name not in table.columns for name in (columns.label, *columns.used))
    if lacking and pictures != Path(table.name).is_dir():
        own, other = ("a folder of images", "a table") if pictures else ("a table", "a folder of images")
        raise DataError(f"--trusted {table.name}: this is {other}, but the data is {own}: both must be of one kind")
    table.require(columns.label, "the labels of the trusted rows")
    missing = [name for name in columns.used if name not in table.columns]
    if missing:
        raise DataError(f"{table.name}: the trusted rows lack the column {missing[0]!r} of the data")
    labels, _ = _labels(table, columns, None)
    return encoder.rows(table), labels


def _judged(
    cleaner: LabelCleaner,
    encoder: _Encoder,
    table: Table,
    labels: NDArray[Any],
    learned: NDArray[np.int64],
    progress: Progress,
) -> Iterator[pd.DataFrame]:
    """What is found of the rows that were not learned from."""
    for first, piece in _numbered(table):
        progress("judging", first / len(labels))
        rest = np.setdiff1d(np.arange(first, first + len(piece)), learned)
        if len(rest):
            raw = encoder.raw(table, piece.iloc[rest - first].reset_index(drop=True), first)
            yield cleaner.judge(encoder(raw), labels[rest].astype(str)).set_index(rest)


def _settled(
    issues: pd.DataFrame, labels: NDArray[Any], decided: dict[int, str], allowed: decisions.Allowed
) -> pd.DataFrame:
    """The findings with what was decided, and with the rows to review chosen among all."""
    issues = issues.copy()
    for row, label in decided.items():
        wrong = float(label != labels[row])
        issues.loc[row, ["p_wrong", "label_quality", "sample_weight"]] = [wrong, 1.0 - wrong, 1.0 - wrong]
        issues.loc[row, ["given_label", "suggested_label", "suggested_probability"]] = [labels[row], label, 1.0]
    p_wrong = issues["p_wrong"].to_numpy(np.float64)
    return issues.assign(**allowed.columns(p_wrong))
