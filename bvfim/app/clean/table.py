"""Tables from files, a piece at a time: CSV, parquet, and folders of pictures. Cells of CSV stay as they are written.

What is wrong with a file is said in one sentence with its place. Rows are counted from 0, without the header.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd

from bvfim.status import DataError, no_such

PIECE = 20_000
"""Rows that are held at once, unless more are asked for."""
LINE = 16 * 2**20
"""Bytes of the longest line that is read: a file with a longer one is not a table."""
DELIMITERS = ",;\t|"
PICTURES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}


@dataclass(frozen=True)
class Table:
    """A table that is read a piece at a time, as often as is needed.

    Attributes:
        name: for messages.
        columns: their names.
        pieces: starts to read it anew.
        folder: what the paths of pictures in it are relative to.
        picture: the column of pictures, where the table itself says which one it is.
    """

    name: str
    columns: tuple[str, ...]
    pieces: Callable[[], Iterator[pd.DataFrame]]
    folder: Path
    picture: str | None = None

    def require(self, column: str, what: str) -> None:
        """Refuse a table that has no such column."""
        if column not in self.columns:
            raise DataError(f"{self.name}: {what}: {no_such('column', column, self.columns)}")


def opened(path: Path) -> Table:
    r"""The table in a file, or of a folder that has a folder of pictures for each label.

    Example:
        >>> import pathlib, tempfile
        >>> from bvfim.app.clean.table import opened
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder, "pets.csv")
        ...     _ = file.write_text("weight,kind\n4.20,cat\n")
        ...     next(opened(file).pieces()).to_dict("list")
        {'weight': ['4.20'], 'kind': ['cat']}
    """
    if path.is_dir():
        return _of_folder(path)
    if not path.exists():
        raise DataError(f"{path}: no such file or folder")
    if path.suffix.lower() in (".parquet", ".pq"):
        return _of_parquet(path)
    header, delimiter = _header(path)
    return Table(str(path), header, lambda: _csv_pieces(path, header, delimiter), path.parent)


def _lines(path: Path) -> Iterator[str]:
    """The lines of a text file in UTF-8; none of them is read whole if it is endless."""
    with path.open("rb") as file:
        for number in range(1, 2**63):
            line = file.readline(LINE)
            if not line:
                return
            if len(line) == LINE:
                raise DataError(f"{path}: line {number} is longer than {LINE >> 20} MiB: not a table")
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{path}: line {number}, byte {error.start + 1}: not UTF-8; save the table as UTF-8"
                ) from error


def _records(path: Path, delimiter: str) -> Iterator[list[str]]:
    reader = csv.reader(_lines(path), delimiter=delimiter, strict=True)
    try:
        yield from (record for record in reader if record)
    except csv.Error as error:
        raise DataError(f"{path}: line {reader.line_num}: {error}") from error


def _header(path: Path) -> tuple[tuple[str, ...], str]:
    """The names of the columns, and the delimiter: the one that the first line has most of."""
    first = next(_lines(path), "")
    delimiter = max(DELIMITERS, key=first.count)
    header = tuple(next(_records(path, delimiter), ()))
    if not header:
        raise DataError(f"{path}: the file is empty")
    _require_different(f"{path}: line 1", header)
    return header, delimiter


def _require_different(where: str, columns: tuple[str, ...]) -> None:
    twice = [name for name, count in Counter(columns).items() if count > 1]
    if twice:
        raise DataError(f"{where}: two columns are named {twice[0]!r}")


def _csv_pieces(path: Path, header: tuple[str, ...], delimiter: str) -> Iterator[pd.DataFrame]:
    records = _records(path, delimiter)
    next(records)
    row = 0
    while piece := list(islice(records, PIECE)):
        for record in piece:
            if len(record) != len(header):
                raise DataError(f"{path}: row {row}: expected {len(header)} cells as in the header, got {len(record)}")
            row += 1
        yield pd.DataFrame(piece, columns=list(header), dtype=object)


def _of_parquet(path: Path) -> Table:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise DataError(f"{path}: reading parquet needs pyarrow: pip install 'bvfim[parquet]'") from error
    try:
        columns = tuple(ParquetFile(path).schema_arrow.names)
    except (ArrowException, OSError) as error:
        raise DataError(f"{path}: not a parquet file: {str(error).splitlines()[0]}") from error

    _require_different(f"{path}", columns)

    def pieces() -> Iterator[pd.DataFrame]:
        try:
            for batch in ParquetFile(path).iter_batches(PIECE):
                yield batch.to_pandas(ignore_metadata=True)  # an index is a column like the others
        except (ArrowException, OSError) as error:
            raise DataError(f"{path}: the file is damaged: {str(error).splitlines()[0]}") from error

    return Table(str(path), columns, pieces, path.parent)


def _of_folder(path: Path) -> Table:
    """A row for each picture: its file, and the folder that it is in as its label."""
    files = sorted(file for file in path.rglob("*") if file.suffix.lower() in PICTURES and file.is_file())
    places = [place for file in files if not _hidden(place := file.relative_to(path))]
    if not places:
        raise DataError(f"{path}: no images in this folder")
    loose = [place for place in places if len(place.parts) < 2]
    if loose:
        raise DataError(f"{path}: {loose[0]} is not in a folder named after its label")
    frame = pd.DataFrame({"file": [place.as_posix() for place in places], "label": [p.parts[0] for p in places]})

    def pieces() -> Iterator[pd.DataFrame]:
        return (frame.iloc[k : k + PIECE].reset_index(drop=True) for k in range(0, len(frame), PIECE))

    return Table(str(path), ("file", "label"), pieces, path, "file")


def _hidden(place: Path) -> bool:
    return any(part.startswith(".") for part in place.parts)


def text(cell: Any) -> str:
    """A cell as text: as it was written in CSV, of other tables as Python writes it, nothing where it is missing."""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, dict):
        return str(cell.get("path") or "")
    return "" if pd.api.types.is_scalar(cell) and pd.isna(cell) else str(cell)
