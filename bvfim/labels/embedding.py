"""Pictures as short rows whose distances mean something.

What is seen in a picture, by a network that has learned from photographs (:mod:`bvfim.labels.encoder`) or by patches of
the pictures themselves (:mod:`bvfim.labels.patches`), along the main directions of what is seen in some of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bvfim.labels import encoder
from bvfim.labels.arrays import Float32
from bvfim.labels.patches import Patches
from bvfim.status import DataError

BY_NETWORK, BY_PATCHES = 100, 200
"""How many directions are kept of what the network sees, and of what the patches see."""
IMAGES = 5_000
"""How many pictures of a data set the directions are learned from, at most."""
FLAT = 1e-6
"""Directions with less than this share of the largest variance are left out."""
FAINT = 1e-3
"""What is seen so little, beside what varies most, is not scaled up further."""
NEIGHBOURS, COMPARED = 10, 2000
"""How many neighbours of a picture are asked for their labels, and of how many pictures at most."""


class Embedding:
    """What is seen in pictures along its main directions, which are learned from some pictures.

    Args:
        images: of shape (n, side, side, 3), between 0 and 1; at least two.
        seen: gives rows of numbers for pictures.
        dimensions: how many directions are kept, each scaled by the fourth root of its variance.
        seed: of what the directions are looked for from.

    Attributes:
        rows: the pictures that it was learned from, as :meth:`__call__` gives them; without columns where they are all
            alike.

    Example:
        >>> import numpy as np
        >>> from bvfim.labels.embedding import Embedding
        >>> images = np.random.default_rng(0).random((50, 12, 12, 3), np.float32)
        >>> embedding = Embedding(images, lambda images: images.reshape(len(images), -1), dimensions=5)
        >>> embedding(images[:3]).shape, embedding.rows.shape
        ((3, 5), (50, 5))
    """

    def __init__(self, images: Float32, seen: Callable[[Float32], Float32], dimensions: int, seed: int = 0) -> None:
        if len(images) < 2:
            raise DataError(f"an embedding needs at least 2 images, got {len(images)}")
        self.seen, rows = seen, torch.from_numpy(seen(images))
        # In float32 the mean of equal numbers is not quite that number, and the rest would count as a difference.
        self._centre = rows.double().mean(0).float()
        spread = (rows - self._centre).square().mean(0).sqrt()
        scale = spread.clamp(min=FAINT * float(spread.max()) or 1.0)
        variances, directions = _main((rows - self._centre) / scale, dimensions, np.random.default_rng(seed))
        self._directions = directions / variances**0.25 / scale[:, None]
        self.rows = self._along(rows)

    def __call__(self, images: Float32) -> Float32:
        """The images as short rows."""
        return self._along(torch.from_numpy(self.seen(images)))

    def _along(self, rows: Tensor) -> Float32:
        found: Float32 = ((rows - self._centre) @ self._directions).numpy()
        return found


def _main(rows: Tensor, count: int, rng: np.random.Generator, rounds: int = 6) -> tuple[Tensor, Tensor]:
    """The largest variances of centred rows and their directions, by subspace iteration.

    (Halko, Martinsson and Tropp, Finding structure with randomness, 2011.) All directions of the thousands of responses
    would take minutes.
    """
    count = min(count, len(rows) - 1, rows.shape[1])  # the others have no variance
    start = rng.standard_normal((rows.shape[1], min(2 * count, *rows.shape)), np.float32)
    basis = torch.linalg.qr(torch.from_numpy(start))[0]
    for _ in range(rounds):
        basis = torch.linalg.qr(rows.T @ (rows @ basis))[0]
    variances, directions = torch.linalg.eigh(torch.cov((rows @ basis).T))
    variances, directions = variances[-count:].flip(0), (basis @ directions[:, -count:]).flip(1)
    kept = variances > FLAT * variances[0]  # images may be copies of each other
    return variances[kept], directions[:, kept]


def chosen(images: Float32, labels: NDArray[Any]) -> Embedding:
    """Of the embedding by the network and that by patches, the one in which labels agree more with their neighbours'.

    The network knows photographs; where pictures are something else, patches of their own can tell more.

    Args:
        images: of shape (n, side, side, 3), between 0 and 1.
        labels: the label of each.

    Raises:
        DataError: when the pictures are all alike.
    """
    some = subset(len(images), COMPARED)
    views = ((encoder.encoded, BY_NETWORK), (Patches(images), BY_PATCHES))
    found = [Embedding(images[some], seen, dimensions) for seen, dimensions in views]
    best = max(found, key=lambda embedding: agreement(embedding.rows, labels[some]))
    if not best.rows.shape[1]:
        raise DataError("the images are all alike, so they can't tell one label from another")
    return best


def subset(count: int, most: int) -> NDArray[np.int64]:
    """The places of some pictures, drawn at random, or of all in their order."""
    return np.arange(count) if count <= most else np.random.default_rng(0).permutation(count)[:most]


def agreement(rows: Float32, labels: NDArray[Any]) -> float:
    """The share of rows that have the label which most of their nearest neighbours have.

    Example:
        >>> import numpy as np
        >>> from bvfim.labels.embedding import agreement
        >>> rows = np.repeat(np.float32([[0], [9]]), 20, axis=0)
        >>> agreement(rows, np.array(["cat"] * 19 + ["dog"] * 21))
        0.975
    """
    kinds, own = np.unique(labels, return_inverse=True)
    count = min(NEIGHBOURS, len(rows) - 1)
    if not count or not rows.shape[1]:
        return 0.0
    from sklearn.neighbors import NearestNeighbors  # slow to import, and only pictures need it

    near = NearestNeighbors(n_neighbors=count).fit(rows).kneighbors(return_distance=False)
    votes = np.zeros((len(rows), len(kinds)), np.int64)
    np.add.at(votes, (np.arange(len(rows))[:, None], own[near]), 1)
    return float((votes.argmax(1) == own).mean())
