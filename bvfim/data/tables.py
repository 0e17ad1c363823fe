"""Parquet tables of images: one encoded image and one label per row."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from PIL import Image

from bvfim.data import files
from bvfim.status import DataError

FORMATS = ("PNG", "JPEG", "WEBP")
"""The formats of pictures that are decoded; some others would start programs."""


def read(path: Path, shape: tuple[int, ...]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Decode the images of a table, and return them with their labels.

    Args:
        path: a parquet file with the columns ``image`` (the bytes of an image file) and ``label``.
        shape: required shape of every image: height, width, and 3 for colour.

    Raises:
        DataError: if the file, a column or an image is damaged or missing; the message names the row.

    Example:
        >>> from pathlib import Path
        >>> from bvfim.data import tables
        >>> tables.read(Path("nothing.parquet"), (32, 32, 3))
        Traceback (most recent call last):
        bvfim.status.DataError: nothing.parquet: can't read the file (No such file or directory)
    """
    table = _table(path)
    missing = [column for column in ("image", "label") if column not in table.columns]
    if missing:
        raise DataError(f"{path}: the table has no column {missing[0]!r}; it has {', '.join(map(str, table.columns))}")
    pixels = np.empty((len(table), *shape), dtype=np.uint8)
    for row, picture in enumerate(table["image"]):
        pixels[row] = _decoded(picture, shape, f"{path}, row {row}")
    labels = table["label"].to_numpy()
    if labels.dtype.kind not in "iu":
        raise DataError(f"{path}: labels must be whole numbers, not {labels.dtype}")
    return pixels, labels.astype(np.int64)


def _table(path: Path) -> pd.DataFrame:
    content = io.BytesIO(files.content(path))
    try:
        return pd.read_parquet(content)
    except ImportError as error:
        raise DataError(f"{path}: reading parquet needs pyarrow: pip install 'bvfim[parquet]'") from error
    except Exception as error:  # the errors of pyarrow have no common base
        raise DataError(f"{path}: the table is damaged or truncated ({error})") from error


def _decoded(picture: object, shape: tuple[int, ...], name: str) -> NDArray[np.uint8]:
    if not isinstance(picture, bytes):
        raise DataError(f"{name}: expected an image, got {type(picture).__name__}")
    try:
        with Image.open(io.BytesIO(picture), formats=FORMATS) as opened:
            found = np.asarray(opened.convert("RGB" if len(shape) == 3 else "L"))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"{name}: can't decode the image ({error})") from error
    if found.shape != shape:
        raise DataError(f"{name}: expected an image of shape {shape}, got {found.shape}")
    return found
