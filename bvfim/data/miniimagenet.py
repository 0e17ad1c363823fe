"""mini-ImageNet: 100 classes of 600 colour images at 84 by 84 pixels, read from a folder provided by the user.

There is no public download with a checksum, so it is never downloaded.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console
from rich.progress import Progress

from bvfim.data import files, tables
from bvfim.status import DataError

SIDE = 84
PARTS = ("train", "val", "test")
HEADER = ["filename", "label"]
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")
BLOCK = 64
"""Of pictures that a thread decodes at a time."""
Part = tuple[NDArray[np.uint8], NDArray[np.int64], tuple[str, ...]]
"""Pixels of shape (n, 3, 84, 84) sorted by class, how many each class has, and the names of the classes."""


class Picture(NamedTuple):
    """A picture that is listed: its class, its file, and the place that lists it, for messages."""

    label: str
    file: Path
    place: str


def read() -> list[Part]:
    """Read the training, validation and test classes (Ravi and Larochelle, 2017), in sorted order.

    The folder ``miniimagenet`` of :func:`bvfim.data.folder` holds either ``train.csv``, ``val.csv`` and ``test.csv``
    with the columns ``filename`` and ``label``, and the images in ``images`` or in ``images/<label>``; or the
    images in ``train/<label>``, ``val/<label>`` and ``test/<label>``. Images of another size are resized
    to 84 by 84.

    Raises:
        DataError: if a file is missing or damaged, or a class is in two parts; the message names file and row.

    Example:
        >>> import os, tempfile, unittest.mock
        >>> from bvfim.data import miniimagenet
        >>> with tempfile.TemporaryDirectory() as home, unittest.mock.patch.dict(os.environ, BVFIM_DATA=home):
        ...     try:
        ...         miniimagenet.read()
        ...     except miniimagenet.DataError as error:
        ...         print(str(error).split(": ")[1])
        mini-ImageNet is missing and can't be downloaded
    """
    home = files.folder() / "miniimagenet"
    if any((home / f"{part}.csv").exists() for part in PARTS):
        listed = {part: list(_of_table(home, part)) for part in PARTS}
    elif any((home / part).is_dir() for part in PARTS):
        listed = {part: list(_of_folders(home / part)) for part in PARTS}
    else:
        raise DataError(
            f"{home}: mini-ImageNet is missing and can't be downloaded: put train.csv, val.csv and test.csv (header "
            f"{','.join(HEADER)}) and the folder images into this folder, or set BVFIM_DATA to its parent folder"
        )
    _require_apart(listed)
    return [_decoded(part, pictures) for part, pictures in listed.items()]


def _of_table(home: Path, part: str) -> Iterator[Picture]:
    path = home / f"{part}.csv"
    records = _records(path)
    header = next(records, [])
    if header != HEADER:
        found = f"the header is {','.join(header)!r}" if header else "the file is empty"
        raise DataError(f"{path}: {found}, not {','.join(HEADER)!r}")
    seen: dict[tuple[str, str], int] = {}
    for row, record in enumerate(records):
        place = f"{path}, row {row}"
        if len(record) != 2 or not all(record):
            raise DataError(f"{place}: {','.join(record)!r} is not a file name and a label")
        name, label = record
        first = seen.setdefault((name, label), row)
        if first != row:
            raise DataError(f"{place}: image {name} is also in row {first}")
        yield Picture(label, _picture_file(home / "images", name, label, place), f"{place}: {name}")
    if not seen:
        raise DataError(f"{path}: the table lists no images")


def _records(path: Path) -> Iterator[list[str]]:
    """The records of a table, without empty lines."""
    content = files.content(path)
    try:
        yield from filter(None, csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: not a CSV table ({error})") from error


def _picture_file(images: Path, name: str, label: str, place: str) -> Path:
    try:
        return next(file for file in (images / name, images / label / name) if file.is_file())
    except (StopIteration, OSError) as error:
        raise DataError(f"{place}: there is no image {name} in {images} or in its folder {label}") from error


def _of_folders(home: Path) -> Iterator[Picture]:
    labels = [path for path in _inside(home) if path.is_dir()]
    if not labels:
        raise DataError(f"{home}: no class folders in this folder")
    for folder in labels:
        pictures = [path for path in _inside(folder) if path.suffix.lower() in SUFFIXES]
        if not pictures:
            raise DataError(f"{folder}: no images in this folder")
        yield from (Picture(folder.name, path, str(path)) for path in pictures)


def _inside(folder: Path) -> list[Path]:
    """What a folder holds, in order, but for hidden files: some systems leave such beside each picture."""
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise DataError(f"{folder}: can't read the folder ({error.strerror or error})") from error


def _require_apart(listed: dict[str, list[Picture]]) -> None:
    part_of: dict[str, str] = {}
    for part, pictures in listed.items():
        for picture in pictures:
            other = part_of.setdefault(picture.label, part)
            if other != part:
                raise DataError(f"{picture.place}: class {picture.label} is in both {part} and {other}")


def _decoded(part: str, listed: Iterable[Picture]) -> Part:
    """Each picture is written to its place as soon as it is decoded, so that none is held twice."""
    pictures = sorted(listed, key=lambda picture: picture.label)
    pixels = np.empty((len(pictures), 3, SIDE, SIDE), np.uint8)

    def decode(first: int) -> None:
        for row, picture in enumerate(pictures[first : first + BLOCK], first):
            pixels[row] = _pixels(picture)

    console = Console(stderr=True)
    blocks = range(0, len(pictures), BLOCK)
    # Threads, since Pillow lets others run while it decodes and resizes.
    with Progress(console=console, disable=not console.is_terminal) as progress, ThreadPoolExecutor() as pool:
        for _ in progress.track(pool.map(decode, blocks), len(blocks), description=f"mini-ImageNet, {part}"):
            pass
    counts = {label: len(list(same)) for label, same in groupby(pictures, lambda picture: picture.label)}
    return pixels, np.array(list(counts.values()), np.int64), tuple(counts)


def _pixels(picture: Picture) -> NDArray[np.uint8]:
    try:
        with Image.open(picture.file, formats=tables.FORMATS) as opened:
            colours = opened.convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"{picture.place}: can't decode the image ({error})") from error
    if colours.size != (SIDE, SIDE):
        # The filter of the scripts that most published results were made with; it also averages, so nothing aliases.
        colours = colours.resize((SIDE, SIDE), Image.Resampling.LANCZOS)
    return np.asarray(colours).transpose(2, 0, 1)
