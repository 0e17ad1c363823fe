"""Where data sets come from: files in one folder, downloaded when they are absent, or scikit-learn.

A file is known by the checksum of its content once decompressed, since the same content compressed again
has other bytes. To add a data set, add a function that makes it to ``SOURCES``.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import uuid
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pooch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress

from bvfim.data import idx
from bvfim.status import DataError, no_such


# Arrays have no single truth value, so neither class can be compared field by field.
@dataclass(frozen=True, eq=False)
class Split:
    """One part of a data set.

    Args:
        inputs: one example a row, flattened: float32 of shape (n, d), between 0 and 1.
        labels: the class of each example: int64 of shape (n,).
        shape: the shape of one example before it was flattened, such as (28, 28).

    Example:
        >>> import bvfim.data
        >>> test = bvfim.data.load("digits").test
        >>> len(test), test.inputs.shape, test.shape
        (355, (355, 64), (8, 8))
    """

    inputs: NDArray[np.float32]
    labels: NDArray[np.int64]
    shape: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set with its usual parts.

    Args:
        name: what :func:`load` knows it by.
        train: the examples to learn from.
        test: the examples to judge by.
        classes: the name of each class, in the order of the labels.

    Example:
        >>> import bvfim.data
        >>> digits = bvfim.data.load("digits")
        >>> len(digits.train), len(digits.test), len(digits.classes)
        (1442, 355, 10)
    """

    name: str
    train: Split
    test: Split
    classes: tuple[str, ...]


def load(name: str) -> Dataset:
    """The data set called ``name``, in any case of letters, downloaded on first use.

    ``mnist`` and ``fashion-mnist`` are read from :func:`folder`; ``digits`` comes with scikit-learn and needs
    no file. Each call reads the files anew, so that the arrays may be written to.

    Raises:
        DataError: when there is no such data set, or its files are damaged, or absent and out of reach.

    Example:
        >>> import bvfim.data
        >>> bvfim.data.load("digits").classes[:3]
        ('0', '1', '2')
        >>> bvfim.data.load("cifar")
        Traceback (most recent call last):
        bvfim.status.DataError: no data set is called 'cifar'; there are digits, mnist, fashion-mnist
    """
    if name.lower() in SOURCES:
        return SOURCES[name.lower()]()
    raise DataError(no_such("data set", name, SOURCES))


def folder() -> Path:
    """The folder of the data files: the environment's ``BVFIM_DATA``, or else a cache of the user's.

    Each data set has a folder of its own name there.

    Example:
        >>> import os, unittest.mock, bvfim.data
        >>> with unittest.mock.patch.dict(os.environ, BVFIM_DATA="some/folder"):
        ...     bvfim.data.folder().as_posix()
        'some/folder'
    """
    return Path(os.environ.get("BVFIM_DATA") or pooch.os_cache("bvfim")).expanduser()


@dataclass(frozen=True)
class IdxSource:
    """A data set in MNIST's four idx files; called, it loads them.

    Args:
        name: of the data set and of its folder.
        url: where the compressed files are, ending in a slash.
        classes: the name of each class.
        md5: the checksum of each file, decompressed, under its name without ``.gz``.

    Example:
        >>> from bvfim.data import sources
        >>> sources.MNIST.name, sorted(sources.MNIST.md5)[0]
        ('mnist', 't10k-images-idx3-ubyte')
    """

    name: str
    url: str
    classes: tuple[str, ...]
    md5: Mapping[str, str]

    def __call__(self) -> Dataset:
        """Load the four files, or none."""
        return Dataset(self.name, self._split("train"), self._split("t10k"), self.classes)

    def _split(self, part: str) -> Split:
        labels = self._array(f"{part}-labels-idx1-ubyte")
        images = self._array(f"{part}-images-idx3-ubyte")
        return _images(images, 255, labels)

    def _array(self, file: str) -> NDArray[np.uint8]:
        content = read(f"{self.name}/{file}", f"{self.url}{file}.gz", self.md5[file])
        return idx.parse(content, f"{self.name}/{file}")


def read(file: str, url: str, md5: str) -> bytes:
    """The checked content of a file in :func:`folder`, compressed with gzip or not; downloaded if absent.

    Args:
        file: its path in the folder, without ``.gz``.
        url: where the compressed file can be had.
        md5: the checksum of the content, decompressed.

    Raises:
        DataError: when the file is damaged, or is absent and can't be downloaded or stored.

    Example:
        >>> import hashlib, os, pathlib, tempfile, unittest.mock
        >>> from bvfim.data import sources
        >>> with tempfile.TemporaryDirectory() as home, unittest.mock.patch.dict(os.environ, BVFIM_DATA=home):
        ...     _ = pathlib.Path(home, "greeting").write_bytes(b"hello")
        ...     sources.read("greeting", "https://example.org/greeting.gz", hashlib.md5(b"hello").hexdigest())
        b'hello'
    """
    plain = folder() / file
    packed = plain.with_name(f"{plain.name}.gz")
    for path in (packed, plain):
        try:
            stored = path.read_bytes()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise DataError(f"{path}: the file can't be read ({error.strerror or error})") from error
        return _checked(stored, str(path), md5)
    try:
        fetched = _download(url)
    except OSError as error:
        raise DataError(
            f"{url} could not be downloaded ({type(error).__name__}): put {packed.name} into the folder "
            f"{packed.parent}, or set BVFIM_DATA to a folder that holds {file}.gz"
        ) from error
    content = _checked(fetched, url, md5)
    _store(packed, fetched)
    return content


def _checked(stored: bytes, name: str, md5: str) -> bytes:
    try:
        # Known by its first bytes, not its name: a server may unpack a file on the way.
        content = gzip.decompress(stored) if stored.startswith(b"\x1f\x8b") else stored
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{name}: the gzip file is damaged or cut short ({error}); delete or replace it") from error
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != md5:
        raise DataError(f"{name}: this is not the expected file (md5 of its content {found}, not {md5})")
    return content


def _download(url: str) -> bytes:
    buffer = io.BytesIO()
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        bar = _Bar(progress, url.rsplit("/", 1)[-1])
        pooch.HTTPDownloader(progressbar=bar, chunk_size=1 << 16)(url, buffer, None)
    return buffer.getvalue()


def _store(path: Path, content: bytes) -> None:
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            part.write_bytes(content)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise DataError(f"{path}: the downloaded file can't be stored ({error.strerror or error})") from error


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


def _images(images: NDArray[np.generic], white: float, labels: NDArray[np.generic]) -> Split:
    inputs = images.reshape(len(images), -1).astype(np.float32)
    inputs /= white
    return Split(inputs, labels.astype(np.int64), images.shape[1:])


def _digits() -> Dataset:
    """The 8 by 8 digits of scikit-learn; the last fifth of each class is the test part."""
    # Imported here, since scikit-learn takes longer to import than all the rest.
    from sklearn.datasets import load_digits

    raw = load_digits()
    test = np.zeros(len(raw.target), dtype=np.bool_)
    for label in range(10):
        rows = np.flatnonzero(raw.target == label)
        test[rows[len(rows) - len(rows) // 5 :]] = True
    train, held_out = (_images(raw.images[rows], 16, raw.target[rows]) for rows in (~test, test))
    return Dataset("digits", train, held_out, TEN)


TEN = tuple("0123456789")

MNIST = IdxSource(
    "mnist",
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    TEN,
    {
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    },
)

FASHION_MNIST = IdxSource(
    "fashion-mnist",
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    {
        "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
        "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
        "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
    },
)

SOURCES: dict[str, Callable[[], Dataset]] = {"digits": _digits, "mnist": MNIST, "fashion-mnist": FASHION_MNIST}
"""What :func:`load` knows: for each name, a function that makes the data set."""
