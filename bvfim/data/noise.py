"""Synthetic label noise: symmetric noise, pair flips, and arbitrary transition matrices.

No function modifies its input; each draws from one generator created from the seed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bvfim.status import DataError

Labels = NDArray[np.int64]
Mask = NDArray[np.bool_]


def symmetric(labels: ArrayLike, rate: float, classes: int, seed: int) -> tuple[Labels, Mask]:
    """Change a fraction of the labels, each to one of the other classes with equal probability.

    Exactly ``round(rate * n)`` of the n labels change. Each class loses its proportional share of them,
    rounded to a whole number.

    Args:
        labels: whole numbers from 0 to ``classes - 1``.
        rate: the fraction to change, from 0 to 1.
        classes: the number of classes, at least two.
        seed: seed for NumPy's default generator.

    Returns:
        The noisy labels, and a mask that is true where a label was changed.

    Example:
        >>> import bvfim.data
        >>> labels = [0, 0, 1, 1, 2, 2]
        >>> noisy, changed = bvfim.data.symmetric(labels, rate=0.5, classes=3, seed=0)
        >>> int(changed.sum()), bool(((noisy != labels) == changed).all())
        (3, True)
    """
    clean = check_labels(labels, classes)
    rng = np.random.default_rng(seed)
    changed = _choose(clean, rate, classes, rng)
    return _shift(clean, changed, rng.integers(1, classes, size=int(changed.sum())), classes)


def pair_flip(labels: ArrayLike, rate: float, classes: int, seed: int) -> tuple[Labels, Mask]:
    """Change a fraction of the labels from their class c to ``(c + 1) % classes``.

    The rows are chosen as in :func:`symmetric`: ``round(rate * n)`` of them, each class losing its share.

    Args:
        labels: whole numbers from 0 to ``classes - 1``.
        rate: the fraction to change, from 0 to 1.
        classes: the number of classes, at least two.
        seed: seed for NumPy's default generator.

    Returns:
        The noisy labels, and a mask that is true where a label was changed.

    Example:
        >>> import bvfim.data
        >>> noisy, changed = bvfim.data.pair_flip([0, 1, 2], rate=1.0, classes=3, seed=0)
        >>> noisy
        array([1, 2, 0])
    """
    clean = check_labels(labels, classes)
    changed = _choose(clean, rate, classes, np.random.default_rng(seed))
    return _shift(clean, changed, 1, classes)


def transition(labels: ArrayLike, matrix: ArrayLike, seed: int) -> tuple[Labels, Mask]:
    """Resample every label independently: class a becomes class b with probability ``matrix[a, b]``.

    Args:
        labels: whole numbers from 0 to one below the number of rows of the matrix.
        matrix: square, without negative entries, each row summing to one.
        seed: seed for NumPy's default generator.

    Returns:
        The noisy labels, and a mask that is true where the drawn label differs.

    Example:
        >>> import bvfim.data
        >>> noisy, changed = bvfim.data.transition([0, 0, 1, 1], [[0, 1], [0, 1]], seed=0)
        >>> noisy, changed
        (array([1, 1, 1, 1]), array([ True,  True, False, False]))
    """
    table = np.asarray(matrix, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] != table.shape[1]:
        raise DataError(f"the transition matrix must be square, not of shape {table.shape}")
    if (table < 0).any():
        raise DataError("the transition matrix must have no negative entries")
    sums = table.sum(axis=1)
    wrong = np.flatnonzero(~np.isclose(sums, 1.0, rtol=0.0, atol=1e-6))
    if wrong.size:
        raise DataError(f"row {wrong[0]} of the transition matrix must sum to one, not to {sums[wrong[0]]:g}")
    clean = check_labels(labels, len(table))
    # Divided by its own last entry, each row ends in exactly one: above every uniform draw.
    cumulative = table.cumsum(axis=1)
    cumulative /= cumulative[:, -1:]
    uniform = np.random.default_rng(seed).random(len(clean))
    noisy = (cumulative[clean] <= uniform[:, None]).sum(axis=1, dtype=np.int64)
    return noisy, noisy != clean


def check_labels(labels: ArrayLike, classes: int) -> Labels:
    """A fresh int64 array of the labels; anything but a row of whole numbers below ``classes`` is refused.

    Example:
        >>> from bvfim.data import noise
        >>> noise.check_labels([0, 3], classes=3)
        Traceback (most recent call last):
        bvfim.status.DataError: the labels of 3 classes must lie between 0 and 2, but there is a 3
    """
    if classes < 2:
        raise DataError(f"there must be at least 2 classes, not {classes!r}")
    array = np.asarray(labels)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise DataError(f"labels must be a 1-D array of whole numbers, not {array.dtype} of shape {array.shape}")
    outside = array[(array < 0) | (array >= classes)]
    if outside.size:
        raise DataError(
            f"the labels of {classes} classes must lie between 0 and {classes - 1}, but there is a {outside[0]}"
        )
    return array.astype(np.int64)


def _choose(labels: Labels, rate: float, classes: int, rng: np.random.Generator) -> Mask:
    """A mask of ``round(rate * n)`` rows, shared among the classes by largest remainder."""
    if not 0 <= rate <= 1:
        raise DataError(f"the noise rate must lie between 0 and 1, not {rate!r}")
    total = round(rate * len(labels))
    counts = np.bincount(labels, minlength=classes)
    quota, remainder = np.divmod(counts * total, max(len(labels), 1))
    # Equal remainders are put in a random order, lest the same classes always lose the odd row.
    order = np.lexsort((rng.random(classes), -remainder))
    quota[order[: total - quota.sum()]] += 1
    chosen = np.zeros(len(labels), dtype=np.bool_)
    for label in range(classes):
        chosen[rng.choice(np.flatnonzero(labels == label), quota[label], replace=False)] = True
    return chosen


def _shift(labels: Labels, changed: Mask, by: Labels | int, classes: int) -> tuple[Labels, Mask]:
    noisy = labels.copy()
    noisy[changed] = (noisy[changed] + by) % classes
    return noisy, changed
