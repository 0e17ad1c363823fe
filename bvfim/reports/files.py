"""Files that are written whole or not at all."""

from __future__ import annotations

import uuid
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Write a file, and its folder where there is none: the whole content, or nothing and the old file stays.

    Example:
        >>> import pathlib, tempfile
        >>> from bvfim.reports.files import write_whole
        >>> with tempfile.TemporaryDirectory() as home:
        ...     write_whole(pathlib.Path(home, "deep", "greeting"), b"hello")
        ...     [path.name for path in pathlib.Path(home, "deep").iterdir()]
        ['greeting']
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        part.write_bytes(content)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
