"""Why labels are suspected, for the page: trusted rows nearby, and the columns and words that speak against a label."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bvfim.app.clean.job import Found
from bvfim.app.clean.pictures import Pictures
from bvfim.app.clean.review import Near, Why
from bvfim.app.clean.table import Table, text
from bvfim.labels.evidence import Evidence, nearest

EXPLAINED = 2000
"""Rows that are explained, at most: the most suspicious ones. The page grows by half a kilobyte with each."""
SURELY = 0.05
"""Without trusted rows, those stand in for them whose labels are wrong with a smaller probability than this."""
SUMMARY = 200
"""Characters of a row that is named."""


def explained(found: Found) -> tuple[dict[int, Why], list[Near]]:
    """The reasons for each suspected row, and the rows that they name."""
    issues = found.issues
    undecided = issues.drop(index=list(found.decided))
    suspects = undecided[undecided["given_label"].astype(str) != undecided["suggested_label"].astype(str)]
    rows = np.sort(suspects["p_wrong"].nlargest(EXPLAINED).index.to_numpy(np.int64))
    if not len(rows):
        return {}, []
    names = [str(name) for name in found.cleaner.classes_]
    given, other = (_codes(names, issues.loc[rows, c]) for c in ("given_label", "suggested_label"))
    features = found.features(rows)
    near, places = _neighbours(found, features, names, other)
    against = _reasons(found, features, names, given, other)
    return {row: Why(near[i], against[i]) for i, row in enumerate(rows.tolist())}, _shown(found, places)


def _codes(names: list[str], labels: pd.Series) -> NDArray[np.int64]:
    return np.array([names.index(str(label)) for label in labels])


def _neighbours(
    found: Found, features: Any, names: list[str], wanted: NDArray[np.int64]
) -> tuple[list[list[int]], list[int]]:
    """For each row which of the named rows are near; and which of those that were learned from are named."""
    learned, cleaner = found.learned, found.cleaner
    sure = learned.sure
    if not sure.any():
        sure = cleaner.label_issues_["p_wrong"].to_numpy() < SURELY
    trusted = np.flatnonzero(sure)
    every = cleaner.coordinates(learned.features)[trusted]
    own = _codes(names, pd.Series(learned.labels[trusted]))
    close = nearest(cleaner.coordinates(features), wanted, every, own)
    named = sorted({int(trusted[k]) for some in close for k in some})
    place = {row: i for i, row in enumerate(named)}
    return [[place[int(trusted[k])] for k in some] for some in close], named


def _reasons(
    found: Found, features: Any, names: list[str], given: NDArray[np.int64], other: NDArray[np.int64]
) -> list[list[str]]:
    """What the columns say; nothing where the rows are pictures."""
    if found.columns.picture is not None:
        return [[]] * len(given)
    issues = found.cleaner.label_issues_
    codes = _codes(names, issues["suggested_label"])
    weights = issues["suggested_probability"].to_numpy(np.float64)
    evidence = Evidence(found.learned.features, codes, weights, names, found.columns.sentences)
    said = evidence.against(features, given, other)
    return [[f"{reason.column}: {reason.text}" for reason in own] for own in said]


def _shown(found: Found, learned: list[int]) -> list[Near]:
    """The named rows as the page shows them."""
    places = [found.learned.places[k] for k in learned]
    records: dict[tuple[str, int], Any] = {}
    for table in {id(table): table for table, _ in places}.values():
        wanted = {row for own, row in places if own is table}
        first = 0
        for piece in table.pieces():
            for row in range(first, first + len(piece)):
                if row in wanted:
                    records[table.name, row] = piece.iloc[row - first]
            first += len(piece)
    return [
        _near(found, table, row, records[table.name, row], str(found.learned.labels[k]))
        for k, (table, row) in zip(learned, places, strict=True)
    ]


def _near(found: Found, table: Table, row: int, record: pd.Series, label: str) -> Near:
    name = f"row {row}" if table is found.table else f"{table.name.rsplit('/', 1)[-1]}, row {row}"
    picture = found.columns.picture
    if picture is not None:
        return Near(name, label, "", Pictures(table.name, table.folder).shown(record[picture], row))
    cells = [text(record[column]) for column in found.table.columns if column in found.columns.used]
    return Near(name, label, " · ".join(cells)[:SUMMARY], "")
