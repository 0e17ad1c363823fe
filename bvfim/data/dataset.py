"""The data set classes: a training and a test part of flattened examples with labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


# Arrays have no single truth value, so neither class can be compared field by field.
@dataclass(frozen=True, eq=False)
class Split:
    """One part of a data set.

    Args:
        inputs: one flattened example per row: float32 of shape (n, d), between 0 and 1.
        labels: the class of each example: int64 of shape (n,).
        shape: shape of one example before flattening, such as (28, 28) or (32, 32, 3).

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
    """A data set with its standard training and test parts.

    Args:
        name: its name in :func:`bvfim.data.load`.
        train: the training examples.
        test: the test examples.
        classes: the name of each class, in the order of the labels.
        note: how the files differ from the published data set; empty if they do not.

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
    note: str = ""


def images(pixels: NDArray[np.generic], white: float, labels: NDArray[np.generic]) -> Split:
    """The part with these images, one along the first dimension, whose white is ``white``.

    Example:
        >>> import numpy as np
        >>> from bvfim.data.dataset import images
        >>> images(np.full((2, 3, 3), 255), 255, np.array([0, 1])).inputs.max()
        np.float32(1.0)
    """
    inputs = pixels.reshape(len(pixels), int(np.prod(pixels.shape[1:]))).astype(np.float32)
    inputs /= white
    return Split(inputs, labels.astype(np.int64), pixels.shape[1:])
