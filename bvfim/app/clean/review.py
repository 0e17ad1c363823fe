"""One self-contained HTML page on which a person reviews labels, and the decisions that come back from it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from numpy.typing import NDArray

from bvfim.reports.files import write_whole
from bvfim.status import DataError

COLUMNS = ["row", "decision", "given_label", "label"]
DECISIONS = ("accept", "reject", "relabel")
BINS = 20
SHOWN_CLASSES = 30


class Near(NamedTuple):
    """A row that is near a suspected one: what it is called, its label, and its values or its picture."""

    name: str
    label: str
    values: str
    picture: str


class Why(NamedTuple):
    """Why a label is suspected: the places of rows nearby in a list of them, and what the columns say against it."""

    near: list[int]
    against: list[str]


@dataclass(frozen=True)
class Review:
    """The content of a review page.

    Attributes:
        title: the heading, such as the file's name.
        lead: a sentence or two below it: the verdict.
        issues: what :meth:`bvfim.LabelCleaner.find_label_issues` returns.
        classes: all labels as text, in the order of the matrix.
        transition: [k, j] is the probability that a row of class k was given the label j.
        values: the values to show for each row, by row number; it may have no columns.
        pictures: a data URI for each row that has an image.
        key: identifies the data set; the browser keeps the progress under it.
        why: the reasons for a row to be suspected, by its number; near: the rows that they name.
        trusted: whether these are trusted rows, or only rows that nothing speaks against.

    Example:
        >>> import numpy as np, pandas as pd
        >>> from bvfim.app.clean.review import Review
        >>> Review("pets.csv", "None is.", pd.DataFrame(), ["cat", "dog"], np.eye(2), pd.DataFrame(), {}, "1f").title
        'pets.csv'
    """

    title: str
    lead: str
    issues: pd.DataFrame
    classes: Sequence[str]
    transition: NDArray[np.float64]
    values: pd.DataFrame
    pictures: Mapping[int, str]
    key: str
    why: Mapping[int, Why] = field(default_factory=dict)
    near: Sequence[Near] = ()
    trusted: bool = True


def write(path: Path, review: Review, limit: int = 10_000) -> Path:
    """Write the page; an existing file is replaced once the new one is complete.

    Args:
        path: the file.
        review: what it shows.
        limit: maximum number of rows to show: those whose labels are most likely wrong.

    Returns:
        The file.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np, pandas as pd
        >>> from bvfim.app.clean.review import Review, write
        >>> issues = pd.DataFrame({"is_label_issue": [True, False], "p_wrong": [0.9, 0.0],
        ...                        "given_label": ["cat", "dog"], "suggested_label": ["dog", "dog"],
        ...                        "suggested_probability": [0.9, 1.0]})
        >>> values = pd.DataFrame({"sound": ["woof", "wow"]})
        >>> found = Review("pets.csv", "One label.", issues, ["cat", "dog"], np.eye(2), values, {}, "1f")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     text = write(Path(folder, "review.html"), found).read_text()
        >>> "woof" in text, "wow" in text, "http:" in text
        (True, False, False)
    """
    _check(review)
    # All of it is ASCII, and none of these can end the script element.
    data = json.dumps(_data(review, limit), allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        data = data.replace(character, f"\\u{ord(character):04x}")
    loader = PackageLoader("bvfim.app.clean", "templates")
    template = Environment(loader=loader, autoescape=True, undefined=StrictUndefined).get_template("review.html")
    page = template.render(title=review.title, lead=review.lead, data=Markup(data))
    write_whole(path, page.encode("utf-8", "replace"))
    return path


def read_decisions(path: Path) -> pd.DataFrame:
    r"""Read the decisions exported by the page.

    Args:
        path: the file, ``decisions.csv``.

    Returns:
        The columns ``row`` (the position in the input, from 0), ``decision`` (``accept``, ``reject`` or ``relabel``),
        ``given_label``, and ``label``: the label to use.

    Raises:
        DataError: if the file is not an export of the page; the message names the line.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from bvfim.app.clean.review import read_decisions
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "decisions.csv")
        ...     _ = path.write_text('row,decision,given_label,label\n7,"accept","cat","dog"\n')
        ...     print(read_decisions(path).to_csv(index=False))
        row,decision,given_label,label
        7,accept,cat,dog
        <BLANKLINE>
    """
    try:
        content = path.read_bytes()
        # A spreadsheet that saves the file may put a byte order mark before it.
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"{path}: can't read the file ({error.strerror})") from error
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise DataError(f"{path}, line {line}: not UTF-8") from error
    found: list[tuple[int, str, str, str]] = []
    lines: dict[int, int] = {}
    records = _records(text, path)
    _, header = next(records, (1, []))
    if header != COLUMNS:
        raise DataError(f"{path}, line 1: the columns must be {','.join(COLUMNS)}, not {','.join(header)!r}")
    for line, fields in records:
        if fields == [""]:
            continue
        decided = _decision(fields, f"{path}, line {line}")
        first = lines.setdefault(decided[0], line)
        if first != line:
            raise DataError(f"{path}, line {line}: row {decided[0]} already has a decision on line {first}")
        found.append(decided)
    return pd.DataFrame(found, columns=COLUMNS, dtype=object).astype({"row": np.int64})


# The csv module of Python 3.10 refuses NUL, and every one refuses long fields.
_FIELD = re.compile(r'(?:"([^"]*(?:""[^"]*)*)"|([^",\r\n]*))(,|\r?\n|\Z)')


def _records(text: str, path: Path) -> Iterator[tuple[int, list[str]]]:
    """The records of a CSV file, each with the line on which it begins."""
    place, line, first = 0, 1, 1
    fields: list[str] = []
    while place < len(text) or fields:
        field = _FIELD.match(text, place)
        if field is None:
            raise DataError(f"{path}, line {line}: not valid CSV: a quote is missing or misplaced")
        fields.append(field[2] if field[1] is None else field[1].replace('""', '"'))
        line += text.count("\n", place, field.end())
        place = field.end()
        if field[3] != ",":
            yield first, fields
            first, fields = line, []


def _decision(fields: list[str], place: str) -> tuple[int, str, str, str]:
    if len(fields) != len(COLUMNS):
        raise DataError(f"{place}: expected {len(COLUMNS)} fields, got {len(fields)}")
    row, decision, given, label = fields
    if not re.fullmatch("[0-9]{1,15}", row):
        raise DataError(f"{place}: row must be a non-negative whole number, not {row!r}")
    if decision not in DECISIONS:
        raise DataError(f"{place}: decision must be one of {', '.join(DECISIONS)}, not {decision!r}")
    for name, value in (("given_label", given), ("label", label)):
        if not value:
            raise DataError(f"{place}: {name} is empty")
    if decision == "reject" and label != given:
        raise DataError(f"{place}: reject keeps the label {given!r}, but label is {label!r}")
    return int(row), decision, _unguarded(given), _unguarded(label)


def _unguarded(label: str) -> str:
    """A label without the apostrophe that the page puts before whatever a spreadsheet could take for a formula.

    It does so before =, +, -, @, tab and carriage return, and before an apostrophe, so that nothing is lost.
    """
    return label[1:] if re.match(r"'[=+\-@\t\r']", label) else label


def _check(review: Review) -> None:
    names = list(review.classes)
    if review.transition.shape != (len(names), len(names)):
        raise DataError(f"got {len(names)} classes but a matrix of shape {review.transition.shape}")
    if "" in names or len(set(names)) < len(names):
        raise DataError("class names must be distinct and non-empty")
    named = [(near.name, near.picture) for near in review.near if near.picture]
    for name, picture in [*((f"row {row}", own) for row, own in review.pictures.items()), *named]:
        if not picture.startswith("data:image/"):
            raise DataError(f"{name}: the image is not a data URI")


def _data(review: Review, limit: int) -> dict[str, Any]:
    issues = review.issues
    p_wrong = np.nan_to_num(issues["p_wrong"].to_numpy(dtype=np.float64))
    order = np.argsort(-p_wrong, kind="stable")[: int((p_wrong > 0).sum())]
    shown = order[:limit]
    missing = np.setdiff1d(shown, review.values.index)
    if len(missing):
        raise DataError(f"row {missing[0]} is up for review but has no values")
    values = review.values.loc[shown]
    texts = [_texts(values.iloc[:, column]) for column in range(values.shape[1])]
    parts = {
        "row": shown.tolist(),
        "given": _codes(review.classes, issues["given_label"].iloc[shown]),
        "suggested": _codes(review.classes, issues["suggested_label"].iloc[shown]),
        "pWrong": p_wrong[shown].round(6).tolist(),
        "sureness": np.nan_to_num(issues["suggested_probability"].to_numpy(np.float64)[shown]).round(6).tolist(),
        "flagged": issues["is_label_issue"].to_numpy(bool)[shown].tolist(),
        "picture": [review.pictures.get(int(row), "") for row in shown],
        "values": list(map(list, zip(*texts, strict=True))) if texts else [[] for _ in shown],
        "near": [review.why[row].near if row in review.why else [] for row in shown.tolist()],
        "against": [review.why[row].against if row in review.why else [] for row in shown.tolist()],
    }
    transition = np.nan_to_num(np.asarray(review.transition, dtype=np.float64))
    noisiest = np.sort(np.argsort(transition.diagonal(), kind="stable")[:SHOWN_CLASSES])
    return {
        "key": review.key,
        "classes": list(review.classes),
        "columns": [str(name) for name in review.values.columns],
        "entries": [dict(zip(parts, entry, strict=True)) for entry in zip(*parts.values(), strict=True)],
        "near": [near._asdict() for near in review.near],
        "trusted": review.trusted,
        "leftOut": len(order) - len(shown),
        "histogram": np.histogram(p_wrong.clip(0.0, 1.0), bins=BINS, range=(0.0, 1.0))[0].tolist(),
        "noise": {"classes": noisiest.tolist(), "matrix": transition[np.ix_(noisiest, noisiest)].round(6).tolist()},
    }


def _codes(classes: Sequence[str], labels: Iterable[Any]) -> list[int]:
    codes = {name: code for code, name in enumerate(classes)}
    try:
        return [codes[str(label)] for label in labels]
    except KeyError as error:
        raise DataError(f"the label {error.args[0]!r} is not among the classes") from error


def _texts(column: pd.Series) -> list[str]:
    """The values as they print; a missing one is empty."""
    missing = column.isna().to_numpy()
    return ["" if absent else str(value) for value, absent in zip(column.array, missing, strict=True)]
