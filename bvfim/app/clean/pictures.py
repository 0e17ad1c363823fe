"""Pictures: read from files or cells, as pixels of one size, and as small copies for a page."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from bvfim.status import DataError

SIDE = 32
"""Of the square that a picture is shrunk to before it is looked at."""
SHOWN = 96
"""Of the largest side of a picture on the page."""


class Pictures:
    """The pictures of a table.

    Args:
        name: of the table, for messages.
        folder: what paths are relative to.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder

    def picture(self, cell: Any, row: int) -> Image.Image:
        """The picture of a cell: a path, the bytes of a file, or both in a record as data sets in parquet have it."""
        if isinstance(cell, dict):
            cell = cell.get("bytes") or cell.get("path")
        where = f" {cell}" if isinstance(cell, str) else ""
        try:
            with Image.open(io.BytesIO(cell) if isinstance(cell, bytes) else self.folder / str(cell)) as image:
                return image.convert("RGB")
        except (OSError, ValueError, SyntaxError, UnidentifiedImageError, Image.DecompressionBombError) as error:
            reason = "no such file" if isinstance(error, FileNotFoundError) else "it can't be read"
            raise DataError(f"{self.name}: row {row}: image{where}: {reason}") from error

    def pixels(self, cells: Iterable[Any], first: int) -> NDArray[np.float32]:
        """Every picture as a square of colours between 0 and 1, in an array (rows, side, side, 3)."""
        small = [
            np.asarray(self.picture(cell, row).resize((SIDE, SIDE), Image.Resampling.BOX), dtype=np.float32) / 255
            for row, cell in enumerate(cells, first)
        ]
        return np.stack(small) if small else np.zeros((0, SIDE, SIDE, 3), np.float32)

    def shown(self, cell: Any, row: int) -> str:
        """A small copy that a page can hold."""
        image = self.picture(cell, row)
        image.thumbnail((SHOWN, SHOWN))
        kept = io.BytesIO()
        image.save(kept, "JPEG", quality=85)
        return "data:image/jpeg;base64," + base64.b64encode(kept.getvalue()).decode()
