"""Data sets for few-shot learning: images by class, split into training, validation and test classes.

The class splits are the standard ones, so that results are comparable: for Omniglot the split of Vinyals
et al. (Matching networks for one shot learning, 2016), as the project torchmeta (Deleu et al., 2019) lists it; for
CIFAR-FS that of Bertinetto et al. (Meta-learning with differentiable closed-form solvers, 2019), listed there too; for
mini-ImageNet that of the files, which is usually the one of Ravi and Larochelle (Optimization as a model for few-shot
learning, 2017).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bvfim.data import cifar, miniimagenet, omniglot
from bvfim.data.dataset import Dataset, Split
from bvfim.status import DataError, no_such


# Arrays have no single truth value, so neither class can be compared field by field.
@dataclass(frozen=True, eq=False)
class ClassImages:
    """Images grouped by class.

    Args:
        pixels: uint8 of shape (n, channels, side, side): all images of the first class, then the second, and so on.
        counts: number of images per class, at least one: int64.
        names: names of the classes.

    Raises:
        DataError: if these do not match.

    Example:
        >>> import numpy as np
        >>> from bvfim.data.fewshot import ClassImages
        >>> len(ClassImages(np.zeros((5, 1, 28, 28), np.uint8), np.array([3, 2]), ("alpha", "beta")))
        2
    """

    pixels: NDArray[np.uint8]
    counts: NDArray[np.int64]
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        shape = self.pixels.shape
        if self.pixels.dtype != np.uint8 or len(shape) != 4 or shape[2] != shape[3]:
            raise DataError(f"pixels must be uint8 of shape (n, channels, side, side), not {self.pixels.dtype} {shape}")
        if self.counts.shape != (len(self.names),):
            raise DataError(f"counts has shape {self.counts.shape}, but there are {len(self.names)} class names")
        empty = np.flatnonzero(self.counts < 1)
        if empty.size:
            raise DataError(f"class {self.names[empty[0]]} has no images")
        if self.counts.sum() != len(self.pixels):
            raise DataError(f"the class counts add up to {self.counts.sum()} images, but there are {len(self.pixels)}")

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, eq=False)
class FewShot:
    """A few-shot data set; its parts have no class in common.

    Args:
        name: its name in :func:`load`.
        train: the training classes.
        validation: the validation classes.
        test: the test classes.
        note: how the files differ from the published data set, or that this was not verified; empty otherwise.

    Example:
        >>> import numpy as np
        >>> from bvfim.data.fewshot import FewShot, grouped
        >>> parts = [grouped(np.zeros((4, 3, 8, 8), np.uint8), [0] * 4, [name]) for name in ("cat", "dog", "cow")]
        >>> FewShot("pets", *parts).test.names
        ('cow',)
    """

    name: str
    train: ClassImages
    validation: ClassImages
    test: ClassImages
    note: str = ""


def load(name: str) -> FewShot:
    """Load a few-shot data set by name, case-insensitively.

    ``omniglot``: 1028, 172 and 423 characters, 20 drawings each, 28 by 28 with ink = 255; no rotations are added.
    ``cifar-fs``: 64, 16 and 20 classes of CIFAR-100, training and test images combined, 3 by 32 by 32.
    ``miniimagenet``: 64, 16 and 20 classes, 3 by 84 by 84; see :mod:`bvfim.data.miniimagenet` for the expected files.

    Raises:
        DataError: if there is no such data set, or its files are damaged, or missing and can't be downloaded.

    Example:
        >>> from bvfim.data import fewshot
        >>> fewshot.load("omniglott")
        Traceback (most recent call last):
        bvfim.status.DataError: no few-shot data set is called 'omniglott'; did you mean 'omniglot'?
    """
    if name.lower() in _LOADERS:
        return _LOADERS[name.lower()]()
    raise DataError(no_such("few-shot data set", name, _LOADERS))


def grouped(pixels: NDArray[np.uint8], labels: Sequence[int] | NDArray[np.int64], names: Sequence[str]) -> ClassImages:
    """Return a copy of the images, grouped by class; images of a class keep their order.

    Args:
        pixels: as :class:`ClassImages` has them, in any order.
        labels: index of each image's class in ``names``; images with a negative label are left out.
        names: names of the classes.

    Example:
        >>> import numpy as np
        >>> from bvfim.data.fewshot import grouped
        >>> images = np.arange(4, dtype=np.uint8).reshape(4, 1, 1, 1)
        >>> found = grouped(images, [1, 0, -1, 1], ["cat", "dog"])
        >>> found.pixels.ravel().tolist(), found.counts.tolist()
        ([1, 0, 3], [1, 2])
    """
    given = np.asarray(labels, np.int64)
    if given.shape != pixels.shape[:1] or (given >= len(names)).any():
        raise DataError(
            f"labels of shape {given.shape} up to {given.max(initial=-1)} do not match {len(pixels)} images of "
            f"{len(names)} classes"
        )
    rows = np.argsort(given, kind="stable")[np.count_nonzero(given < 0) :]
    counts = np.bincount(given[rows], minlength=len(names)).astype(np.int64)
    return ClassImages(np.ascontiguousarray(pixels[rows]), counts, tuple(names))


def joined(*parts: ClassImages) -> ClassImages:
    """Combine the classes of all parts.

    Example:
        >>> import numpy as np
        >>> from bvfim.data.fewshot import grouped, joined
        >>> joined(*[grouped(np.zeros((4, 3, 8, 8), np.uint8), [0] * 4, [name]) for name in ("cat", "dog")]).names
        ('cat', 'dog')
    """
    pixels, counts = (np.concatenate([getattr(part, name) for part in parts]) for name in ("pixels", "counts"))
    return ClassImages(pixels, counts, tuple(name for part in parts for name in part.names))


def _omniglot() -> FewShot:
    data = omniglot.load()
    train, validation, test = _parts(data, _VALIDATION_CHARACTERS, _TEST_CHARACTERS)
    return FewShot("omniglot", train, validation, test, data.note)


def _cifar_fs() -> FewShot:
    data = cifar.CIFAR100()
    train, validation, test = _parts(data, _VALIDATION_THINGS, _TEST_THINGS)
    notes = filter(None, [data.note, *_differences([train, validation, test])])
    return FewShot("cifar-fs", train, validation, test, "; ".join(notes))


def _miniimagenet() -> FewShot:
    train, validation, test = (ClassImages(*part) for part in miniimagenet.read())
    notes = ["not verified against the published images", *_differences([train, validation, test])]
    return FewShot("miniimagenet", train, validation, test, "; ".join(notes))


def _parts(data: Dataset, validation: str, test: str) -> list[ClassImages]:
    """The images of both parts of a data set; the classes that no text names, nor their alphabet, are to learn from."""
    pixels = np.concatenate([_pixels(data.train), _pixels(data.test)])
    labels = np.concatenate([data.train.labels, data.test.labels])
    empty = np.flatnonzero(np.bincount(labels, minlength=len(data.classes)) == 0)
    if empty.size:
        raise DataError(f"{data.name}: class {data.classes[empty[0]]} has no images")
    choose_by, judge_by = set(validation.split()), set(test.split())
    chosen: list[list[int]] = [[], [], []]
    for label, name in enumerate(data.classes):
        known_as = {name, name.split("/")[0]}
        chosen[1 if known_as & choose_by else 2 if known_as & judge_by else 0].append(label)
    found = []
    for part in chosen:
        place = np.full(len(data.classes), -1)
        place[part] = np.arange(len(part))
        found.append(grouped(pixels, place[labels], [data.classes[label] for label in part]))
    return found


def _pixels(split: Split) -> NDArray[np.uint8]:
    """The images as bytes, channels first."""
    pixels = np.empty(split.inputs.shape, np.uint8)
    # Exact: float32 gives back each of the 256 levels when it is divided and multiplied by 255.
    np.multiply(split.inputs, np.float32(255), out=pixels, casting="unsafe")
    shaped = pixels.reshape(len(pixels), *split.shape)
    return shaped[:, None] if shaped.ndim == 3 else shaped.transpose(0, 3, 1, 2)


def _differences(parts: Sequence[ClassImages]) -> list[str]:
    """In what parts differ from 64, 16 and 20 classes of 600 images, as CIFAR-FS and mini-ImageNet are published."""
    sizes = [len(part) for part in parts]
    counts = np.concatenate([part.counts for part in parts])
    low, high = counts.min(), counts.max()
    found = [] if sizes == [64, 16, 20] else [f"{sizes[0]}, {sizes[1]} and {sizes[2]} classes, not 64, 16 and 20"]
    if (low, high) != (600, 600):
        found.append(f"{low if low == high else f'{low} to {high}'} images per class, not 600")
    return found


_LOADERS: dict[str, Callable[[], FewShot]] = {
    "omniglot": _omniglot,
    "cifar-fs": _cifar_fs,
    "miniimagenet": _miniimagenet,
}
NAMES = tuple(_LOADERS)
"""What :func:`load` knows."""

# Whole alphabets but for one: the test characters are those after the first 1200 by the numbers of their files.
_VALIDATION_CHARACTERS = "Armenian Bengali Early_Aramaic Hebrew Mkhedruli_(Georgian)"
_TEST_CHARACTERS = (
    "Gurmukhi/character42 Gurmukhi/character43 Gurmukhi/character44 Gurmukhi/character45 Kannada Keble Malayalam "
    "Manipuri Mongolian Old_Church_Slavonic_(Cyrillic) Oriya Sylheti Syriac_(Serto) Tengwar Tibetan ULOG"
)

_VALIDATION_THINGS = (
    "beaver beetle butterfly camel cattle crab crocodile flatfish lamp maple_tree motorcycle otter sea shark "
    "television tractor"
)
_TEST_THINGS = (
    "baby bed bicycle chimpanzee fox leopard man pickup_truck plain poppy rocket rose snail sweet_pepper table "
    "telephone wardrobe whale woman worm"
)
