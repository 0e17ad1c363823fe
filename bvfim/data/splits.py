"""Disjoint class-balanced subsets of a data set."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bvfim.data.noise import check_labels
from bvfim.status import DataError


def balanced_split(labels: ArrayLike, sizes: Sequence[int], classes: int, seed: int) -> list[NDArray[np.int64]]:
    """Draw disjoint, class-balanced subsets of given sizes.

    Sizes divisible by the number of classes are balanced exactly, others within one row per class; the extra
    rows come from the classes with the most rows left. The rows of a subset are in random order.

    Args:
        labels: whole numbers from 0 to ``classes - 1``.
        sizes: number of rows of each subset.
        classes: the number of classes, at least two.
        seed: seed for NumPy's default generator.

    Returns:
        The row indices of each subset.

    Example:
        >>> import bvfim.data
        >>> labels = [0, 1, 0, 1, 0, 1]
        >>> train, test = bvfim.data.balanced_split(labels, sizes=[4, 2], classes=2, seed=0)
        >>> sorted(labels[row] for row in train), sorted(labels[row] for row in test)
        ([0, 0, 1, 1], [0, 1])
    """
    known = check_labels(labels, classes)
    if any(size < 0 for size in sizes):
        raise DataError(f"split sizes must not be negative, got {list(sizes)}")
    rng = np.random.default_rng(seed)
    counts = np.bincount(known, minlength=classes)
    quotas = np.array([[size // classes] * classes for size in sizes], dtype=np.int64).reshape(len(sizes), classes)
    for quota, size in zip(quotas, sizes, strict=True):
        spare = counts - quotas.sum(axis=0)
        quota[np.lexsort((rng.random(classes), -spare))[: size % classes]] += 1
    needed = quotas.sum(axis=0)
    short = np.flatnonzero(needed > counts)
    if short.size:
        label = short[0]
        raise DataError(
            f"class {label} has {counts[label]} rows, but splits of sizes {list(sizes)} need {needed[label]} of it"
        )
    parts: list[list[NDArray[np.int64]]] = [[] for _ in sizes]
    for label in range(classes):
        rows = rng.permutation(np.flatnonzero(known == label))
        pieces = np.split(rows, quotas[:, label].cumsum())[: len(sizes)]
        for part, piece in zip(parts, pieces, strict=True):
            part.append(piece)
    return [rng.permutation(np.concatenate(part)) for part in parts]
