"""Files of data sets: in one folder, checked before they are used, downloaded when they are absent.

A file is known by its content once decompressed, since the same content compressed again has other bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pooch
from rich.console import Console
from rich.progress import Progress

from bvfim.reports.files import write_whole
from bvfim.status import DataError

T = TypeVar("T")


def folder() -> Path:
    """The folder of the data files: the environment variable ``BVFIM_DATA``, or else a cache folder of the user.

    Each data set has a subfolder of its own name.

    Example:
        >>> import os, unittest.mock, bvfim.data
        >>> with unittest.mock.patch.dict(os.environ, BVFIM_DATA="some/folder"):
        ...     bvfim.data.folder().as_posix()
        'some/folder'
    """
    try:
        return Path(os.environ.get("BVFIM_DATA") or pooch.os_cache("bvfim")).expanduser()
    except RuntimeError as error:
        raise DataError(f"BVFIM_DATA: {error}") from error


def read(file: str, url: str, parse: Callable[[bytes, str], T]) -> T:
    """Read a file in :func:`folder`, gzip-compressed or not; download it if it is missing.

    Args:
        file: its path in the folder, without ``.gz``.
        url: where to download it; if it ends in ``.gz``, so does the stored file.
        parse: turns the decompressed content and a name for messages into the result. It raises
            :class:`bvfim.DataError` for unexpected content; a download that it rejects is not stored.

    Raises:
        DataError: if the file is damaged, or missing and can't be downloaded or stored.

    Example:
        >>> import os, pathlib, tempfile, unittest.mock
        >>> from bvfim.data import files
        >>> with tempfile.TemporaryDirectory() as home, unittest.mock.patch.dict(os.environ, BVFIM_DATA=home):
        ...     _ = pathlib.Path(home, "greeting").write_bytes(b"hello")
        ...     files.read("greeting", "https://example.org/greeting.gz", lambda content, name: content.decode())
        'hello'
    """
    path = found(file)
    if path is not None:
        return parse(content(path), str(path))
    to = folder() / (f"{file}.gz" if url.endswith(".gz") else file)
    try:
        fetched = _download(url)
    except OSError as error:
        raise DataError(
            f"could not download {url} ({type(error).__name__}): put {to.name} into the folder "
            f"{to.parent}, or set BVFIM_DATA to a folder that contains {to.relative_to(folder())}"
        ) from error
    parsed = parse(_unpacked(fetched, url), url)
    _store(to, fetched)
    return parsed


def found(file: str) -> Path | None:
    """The path of a file in :func:`folder`, gzip-compressed or not; ``None`` if it is missing.

    Example:
        >>> from bvfim.data import files
        >>> files.found("no such file") is None
        True
    """
    plain = folder() / file
    try:
        return next((path for path in (plain.with_name(f"{plain.name}.gz"), plain) if path.exists()), None)
    except OSError as error:
        raise DataError(f"{plain}: can't read the file ({error.strerror or error})") from error


def content(path: Path) -> bytes:
    """The content of a file, decompressed if it is gzip-compressed."""
    try:
        stored = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: can't read the file ({error.strerror or error})") from error
    return _unpacked(stored, str(path))


def check_md5(content: bytes, name: str, md5: str) -> bytes:
    """The content itself, if it has this checksum."""
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != md5:
        raise DataError(f"{name}: not the expected file (its content has md5 {found}, not {md5})")
    return content


def _unpacked(stored: bytes, name: str) -> bytes:
    try:
        # Known by its first bytes, not its name: a server may unpack a file on the way.
        return gzip.decompress(stored) if stored.startswith(b"\x1f\x8b") else stored
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{name}: the gzip file is damaged or truncated ({error}); delete or replace it") from error


def _download(url: str) -> bytes:
    buffer = io.BytesIO()
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        bar = _Bar(progress, url.rsplit("/", 1)[-1])
        pooch.HTTPDownloader(progressbar=bar, chunk_size=1 << 16)(url, buffer, None)
    return buffer.getvalue()


def _store(path: Path, content: bytes) -> None:
    try:
        write_whole(path, content)
    except OSError as error:
        raise DataError(f"{path}: can't store the downloaded file ({error.strerror or error})") from error


class _Bar:
    """The progress bar that pooch asks for, drawn by rich: pooch's own needs tqdm."""

    def __init__(self, progress: Progress, title: str) -> None:
        self._progress = progress
        self._task = progress.add_task(title, total=None)

    @property
    def total(self) -> float | None:
        return self._progress.tasks[0].total

    @total.setter
    def total(self, size: int) -> None:
        self._progress.update(self._task, total=size or None)

    def update(self, size: int) -> None:
        self._progress.advance(self._task, size)

    def reset(self) -> None:
        self._progress.update(self._task, completed=0)

    def close(self) -> None:
        self._progress.refresh()
