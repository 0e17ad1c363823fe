"""The data sets by name. To add one, add a function that makes it to ``SOURCES``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bvfim.data import cifar, files, idx, omniglot
from bvfim.data.dataset import Dataset, Split, images
from bvfim.status import DataError, no_such


def load(name: str) -> Dataset:
    """Load a data set by name, case-insensitively; it is downloaded on first use.

    ``mnist``, ``fashion-mnist``, ``cifar10``, ``cifar100`` and ``omniglot`` are read from :func:`bvfim.data.folder`;
    ``digits`` comes with scikit-learn and needs no file. Each call reads the files again, so the
    arrays may be modified.

    Raises:
        DataError: if there is no such data set, or its files are damaged, or missing and can't be downloaded.

    Example:
        >>> import bvfim.data
        >>> bvfim.data.load("digits").classes[:3]
        ('0', '1', '2')
    """
    if name.lower() in SOURCES:
        return SOURCES[name.lower()]()
    raise DataError(no_such("data set", name, SOURCES))


@dataclass(frozen=True)
class IdxSource:
    """Loader of a data set in the four idx files of the MNIST format.

    Args:
        name: name of the data set and of its folder.
        url: base URL of the compressed files, ending in a slash.
        classes: the name of each class.
        md5: checksum of each decompressed file, by its name without ``.gz``.

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
        pixels = self._array(f"{part}-images-idx3-ubyte")
        return images(pixels, 255, labels)

    def _array(self, file: str) -> NDArray[np.uint8]:
        def parse(content: bytes, name: str) -> NDArray[np.uint8]:
            return idx.parse(files.check_md5(content, name, self.md5[file]), name)

        return files.read(f"{self.name}/{file}", f"{self.url}{file}.gz", parse)


def _digits() -> Dataset:
    """The 8 by 8 digits of scikit-learn; the last fifth of each class is the test part."""
    # Imported here, since scikit-learn takes longer to import than all the rest.
    from sklearn.datasets import load_digits

    raw = load_digits()
    test = np.zeros(len(raw.target), dtype=np.bool_)
    for label in range(10):
        rows = np.flatnonzero(raw.target == label)
        test[rows[len(rows) - len(rows) // 5 :]] = True
    train, held_out = (images(raw.images[rows], 16, raw.target[rows]) for rows in (~test, test))
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

SOURCES: dict[str, Callable[[], Dataset]] = {
    "digits": _digits,
    "mnist": MNIST,
    "fashion-mnist": FASHION_MNIST,
    "cifar10": cifar.CIFAR10,
    "cifar100": cifar.CIFAR100,
    "omniglot": omniglot.load,
}
"""What :func:`load` knows: for each name, a function that makes the data set."""
