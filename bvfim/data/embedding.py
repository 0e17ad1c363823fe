"""Pictures as short rows whose distances mean something.

What is seen in a picture, by a network that has learned from photographs (:mod:`bvfim.data.encoder`) or by patches of
the pictures themselves (:mod:`bvfim.data.patches`), along the main directions of what is seen in some of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bvfim.data import encoder, files, npz
from bvfim.data.dataset import Dataset
from bvfim.data.patches import Patches
from bvfim.status import DataError

Rows = NDArray[np.float32]
VERSION = 2
"""Of what is computed: another one makes every stored embedding anew."""
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
        >>> from bvfim.data.embedding import Embedding
        >>> images = np.random.default_rng(0).random((50, 12, 12, 3), np.float32)
        >>> embedding = Embedding(images, lambda images: images.reshape(len(images), -1), dimensions=5)
        >>> embedding(images[:3]).shape, embedding.rows.shape
        ((3, 5), (50, 5))
    """

    def __init__(self, images: Rows, seen: Callable[[Rows], Rows], dimensions: int, seed: int = 0) -> None:
        if len(images) < 2:
            raise DataError(f"an embedding is learned from two pictures or more, not from {len(images)}")
        self.seen, rows = seen, torch.from_numpy(seen(images))
        # In float32 the mean of equal numbers is not quite that number, and the rest would count as a difference.
        self._centre = rows.double().mean(0).float()
        spread = (rows - self._centre).square().mean(0).sqrt()
        scale = spread.clamp(min=FAINT * float(spread.max()) or 1.0)
        variances, directions = _main((rows - self._centre) / scale, dimensions, np.random.default_rng(seed))
        self._directions = directions / variances**0.25 / scale[:, None]
        self.rows = self._along(rows)

    def __call__(self, images: Rows) -> Rows:
        """The images as short rows."""
        return self._along(torch.from_numpy(self.seen(images)))

    def _along(self, rows: Tensor) -> Rows:
        found: Rows = ((rows - self._centre) @ self._directions).numpy()
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


def chosen(images: Rows, labels: NDArray[Any]) -> Embedding:
    """Of the embedding by the network and that by patches, the one in which labels agree more with their neighbours'.

    The network knows photographs; where pictures are something else, patches of their own can tell more.

    Args:
        images: of shape (n, side, side, 3), between 0 and 1.
        labels: the label of each.

    Raises:
        DataError: when the pictures are all alike.
    """
    some = _some(len(images), COMPARED)
    views = ((encoder.encoded, BY_NETWORK), (Patches(images), BY_PATCHES))
    found = [Embedding(images[some], seen, dimensions) for seen, dimensions in views]
    best = max(found, key=lambda embedding: agreement(embedding.rows, labels[some]))
    if not best.rows.shape[1]:
        raise DataError("the pictures are all alike: nothing in them can tell one label from another")
    return best


def _some(count: int, most: int) -> NDArray[np.int64]:
    """The places of some pictures, drawn at random, or of all in their order."""
    return np.arange(count) if count <= most else np.random.default_rng(0).permutation(count)[:most]


def agreement(rows: Rows, labels: NDArray[Any]) -> float:
    """The share of rows that have the label which most of their nearest neighbours have.

    Example:
        >>> import numpy as np
        >>> from bvfim.data.embedding import agreement
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


def embedded(data: Dataset, dimensions: int = BY_NETWORK) -> tuple[Rows, Rows]:
    """The rows of both parts of a set of photographs by the network, made once and kept.

    The directions are those of the training part. They are kept in the folder ``cache`` of :func:`bvfim.data.folder`,
    under a checksum of the images and of the network; where nothing can be written there, they are made each time.

    Example:
        >>> import os, tempfile, unittest.mock
        >>> import numpy as np
        >>> from bvfim.data.dataset import Dataset, images
        >>> from bvfim.data.embedding import embedded
        >>> pixels = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3))
        >>> part = images(pixels, 255, np.zeros(40, int))
        >>> with tempfile.TemporaryDirectory() as home, unittest.mock.patch.dict(os.environ, BVFIM_DATA=home):
        ...     train, test = embedded(Dataset("tiny", part, part, ("0",)), dimensions=5)
        >>> train.shape, bool((train == test).all())
        ((40, 5), True)
    """
    parts = [part.inputs.reshape(len(part), *part.shape) for part in (data.train, data.test)]
    path = files.folder() / "cache" / f"{data.name}-{_key(parts, dimensions)}.npz"
    with contextlib.suppress(DataError):  # absent or damaged: made anew
        found = npz.read(files.content(path), str(path), {"train": "f", "test": "f"})
        return found["train"], found["test"]
    embedding = Embedding(parts[0][_some(len(parts[0]), IMAGES)], encoder.encoded, dimensions)
    train, test = (embedding(part) for part in parts)
    _keep(path, train, test)
    return train, test


def _key(parts: list[Rows], dimensions: int) -> str:
    sha256 = [hashlib.sha256(encoder.weights()).hexdigest(), *(npz.sha256(part) for part in parts)]
    stated = {"version": VERSION, "sha256": sha256, "dimensions": dimensions}
    return hashlib.sha256(json.dumps(stated, sort_keys=True).encode()).hexdigest()[:16]


def _keep(path: Path, train: Rows, test: Rows) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, train=train, test=test)
    with contextlib.suppress(OSError):
        files.write_whole(path, buffer.getvalue())
