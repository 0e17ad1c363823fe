"""The files that ``bvfim clean`` writes: all of them, or none."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import itertools
import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bvfim.app import terminal
from bvfim.app.clean import review
from bvfim.app.clean.job import Found, Job, Progress
from bvfim.app.clean.pictures import Pictures
from bvfim.app.clean.table import text
from bvfim.app.clean.why import explained
from bvfim.reports.report import machine
from bvfim.status import DataError

FILES = ("issues.csv", "cleaned.csv", "report.html", "config.json")
SHOWN = 10_000
"""Rows on the page, at most."""


def beside(data: Path) -> Path:
    """The folder for the results, where none is named: beside the data.

    Example:
        >>> from pathlib import Path
        >>> from bvfim.app.clean.output import beside
        >>> beside(Path("pets.csv")).as_posix()
        'pets-cleaned'
    """
    place = data if data.name not in ("", "..") else data.resolve()
    if not place.name:
        raise DataError(f"{data}: can't write next to this folder; choose another one with --out")
    return place.with_name(f"{place.name if place.is_dir() else place.stem}-cleaned")


def require_new(out: Path, force: bool, inputs: Iterable[Path] = ()) -> None:
    """Refuse to write over what is read or over files of an earlier run, or where there can't be a folder."""
    for name, path in itertools.product(FILES, inputs):
        if (out / name).exists() and path.exists() and (out / name).samefile(path):
            raise DataError(f"{path} is an input and would be overwritten; choose another folder with --out")
    terminal.require_new(out, FILES, force)
    there_is = next(place for place in (out, *out.absolute().parents) if place.exists())
    if not there_is.is_dir():
        raise DataError(f"{there_is} is not a folder")
    try:
        Path(tempfile.mkdtemp(prefix=".unfinished-", dir=there_is)).rmdir()
    except OSError as error:
        raise DataError(f"{out}: can't write there: {error.strerror}") from error


def write(job: Job, found: Found, out: Path, progress: Progress) -> None:
    """Write every file into a folder; they appear together when all are complete."""
    out.mkdir(parents=True, exist_ok=True)
    with _apart(out) as folder:
        shown, key = _tables(found, folder, progress)
        review.write(folder / FILES[2], _review(job, found, shown, key), SHOWN)
        (folder / FILES[3]).write_text(json.dumps(_config(job, found, key), indent=1, default=str) + "\n", "utf-8")
        for name in FILES:
            (folder / name).replace(out / name)


@contextmanager
def _apart(out: Path) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=out))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _tables(found: Found, folder: Path, progress: Progress) -> tuple[pd.DataFrame, str]:
    """Write both tables; give back the rows that the page will show, and a name for the data: a hash of their cells."""
    columns, place = list(found.table.columns), found.table.columns.index(found.columns.label)
    own = [_new(name, columns) for name in found.issues.columns]
    suspects = set(found.issues["p_wrong"].nlargest(SHOWN).index)
    dropped, shown, first, name = found.dropped, [], 0, hashlib.sha256(repr((columns, place)).encode())
    with _csv(folder / FILES[0]) as issues, _csv(folder / FILES[1]) as kept:
        issues.writerow([*columns, *own])
        kept.writerow(columns)
        for piece in found.table.pieces():
            findings = found.issues.iloc[first : first + len(piece)].to_numpy(object).tolist()
            for row, (record, more) in enumerate(zip(piece.to_numpy(object).tolist(), findings, strict=True), first):
                cells = list(map(text, record))
                name.update(repr(cells).encode())
                issues.writerow([*cells, *(f"{v:.6g}" if isinstance(v, float) else v for v in more)])
                if not dropped[row]:
                    kept.writerow([*cells[:place], found.decided.get(row, cells[place]), *cells[place + 1 :]])
            inside = [row for row in range(first, first + len(piece)) if row in suspects]
            shown.append(piece.iloc[[row - first for row in inside]].set_index(pd.Index(inside, dtype=int)))
            first += len(piece)
            progress("writing", first / found.columns.rows)
    return pd.concat(shown), name.hexdigest()[:32]


def _new(name: str, columns: list[str]) -> str:
    return name if name not in columns else _new(f"found_{name}", columns)


@contextmanager
def _csv(path: Path) -> Iterator[Any]:
    with path.open("w", encoding="utf-8", newline="") as file:
        yield csv.writer(file, lineterminator="\n")


def _review(job: Job, found: Found, shown: pd.DataFrame, key: str) -> review.Review:
    pictures: dict[int, str] = {}
    if found.columns.picture is not None:
        source = Pictures(found.table.name, found.table.folder)
        pictures = {row: source.shown(shown.at[row, found.columns.picture], row) for row in shown.index.tolist()}
    cleaner = found.cleaner
    known = [str(name) for name in cleaner.classes_]
    corrected = sorted(set(map(str, found.issues["given_label"])) - set(known))  # labels that no row has any more
    transition = np.eye(len(known) + len(corrected))
    transition[: len(known), : len(known)] = cleaner.transition_matrix_
    why, near = explained(found) if found.cleaner.allowed_.review else ({}, [])
    return review.Review(
        title=job.data.name,
        lead=" ".join(sentences(found)),
        issues=found.issues,
        classes=known + corrected,
        transition=transition,
        values=shown.drop(columns=found.columns.label).map(text),
        pictures=pictures,
        key=key,
        why=why,
        near=near,
        trusted=bool(found.learned.sure.any()),
    )


def sentences(found: Found) -> list[str]:
    """What was found, in words."""
    issues, verdict, allowed = found.issues, found.cleaner.verdict_, found.cleaner.allowed_
    if not allowed.review:
        more = "columns that tell the classes apart" if verdict.rows else "trusted rows"
        return [f"{len(issues)} rows. They say too little about the labels to call any label wrong; provide {more}."]
    expected = float(issues["p_wrong"].sum())
    surely = f"{int(issues['drop'].sum())} are almost certainly wrong and can be dropped without review"
    if not allowed.drop:
        surely = "none can be dropped without review because there are no trusted rows"
    kept = "" if verdict.recommended else " The cleaned table keeps every row."
    return [
        f"{len(issues)} rows: about {expected:.0f} labels are wrong ({expected / len(issues):.1%}).".replace("%", " %"),
        f"{int(issues['is_label_issue'].sum())} are worth reviewing; {surely}.",
        f"{verdict}{kept}",
    ]


def _config(job: Job, found: Found, key: str) -> dict[str, Any]:
    cleaner, columns = found.cleaner, found.columns
    return {
        "job": dataclasses.asdict(job),
        "machine": machine(),
        "columns": {name: getattr(columns, name) for name in ("forms", "words", "sentences", "left_out", "filled")},
        "rows": columns.rows,
        "classes": [str(name) for name in cleaner.classes_],
        "noise rate": float(found.issues["p_wrong"].mean()),
        "noise matrix": cleaner.transition_matrix_.tolist(),
        "verdict": dataclasses.asdict(cleaner.verdict_) | {"recommended": cleaner.verdict_.recommended},
        "issues": int(found.issues["is_label_issue"].sum()),
        "dropped": int(found.dropped.sum()),
        "decided": len(found.decided),
        "key": key,
    }
