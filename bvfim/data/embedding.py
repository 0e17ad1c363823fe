"""A cheap embedding of small colour images: random patches as filters, pooled, projected onto their main directions.

After Coates, Lee and Ng, An analysis of single-layer networks in unsupervised feature learning, 2011: patches are
normalised and whitened, some of them serve as filters, both halves of the responses are pooled over a grid. No label is
seen. The square root evens the pooled responses out.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from bvfim.data import files, npz
from bvfim.data.dataset import Dataset
from bvfim.status import DataError

Rows = NDArray[np.float32]
VERSION = 1
"""Of what is computed: another one makes every stored embedding anew."""
FLAT = 1e-6
"""Directions with less than this share of the largest variance are left out."""
BATCH = 20
"""Images whose patches are in memory at once."""


@dataclass(frozen=True)
class Settings:
    """Of an embedding.

    Args:
        filters: how many patches serve as filters.
        dimensions: how many directions are kept, each scaled by the fourth root of its variance.
        grid: how many cells the responses are pooled over, along each side.
        threshold: below which a response counts as none.
        side: of a patch, in pixels.
        patches: how many the whitening is learned from.
        images: how many the directions are learned from, at most.
        whitening: what is added to the variances before they are evened out.
        contrast: what is added to the variance of a patch before it is scaled to one.
        seed: of the patches and the images.
    """

    filters: int = 400
    dimensions: int = 200
    grid: int = 3
    threshold: float = 0.25
    side: int = 6
    patches: int = 30_000
    images: int = 5_000
    whitening: float = 0.1
    contrast: float = 0.01
    seed: int = 0


DEFAULT = Settings()


class Embedding:
    """The filters and the directions, learned from images.

    Args:
        images: of shape (n, side, side, channels), between 0 and 1.
        settings: what is learned.

    Example:
        >>> import numpy as np
        >>> from bvfim.data.embedding import Embedding, Settings
        >>> images = np.random.default_rng(0).random((50, 12, 12, 3), np.float32)
        >>> Embedding(images, Settings(filters=8, dimensions=5, patches=500))(images).shape
        (50, 5)
    """

    def __init__(self, images: Rows, settings: Settings = DEFAULT) -> None:
        self.settings = settings
        rng = np.random.default_rng(settings.seed)
        patches = self._normalised(self._sampled(images, rng))
        self._mean = patches.mean(0)
        variances, directions = torch.linalg.eigh(torch.cov((patches - self._mean).T))
        whiten = directions @ torch.diag(1.0 / torch.sqrt(variances + settings.whitening)) @ directions.T
        chosen = torch.from_numpy(rng.permutation(len(patches))[: settings.filters])
        self._filters = whiten @ functional.normalize((patches[chosen] - self._mean) @ whiten, dim=1).T
        learned = images if len(images) <= settings.images else images[rng.permutation(len(images))[: settings.images]]
        pooled = torch.cat(list(self._pooled(learned)))
        self._centre = pooled.mean(0)
        variances, directions = _main(pooled - self._centre, settings.dimensions, rng)
        self._directions = directions / variances**0.25

    def __call__(self, images: Rows) -> Rows:
        """The images as short rows."""
        found: Rows = torch.cat([(part - self._centre) @ self._directions for part in self._pooled(images)]).numpy()
        return found

    def _pooled(self, images: Rows) -> Iterator[Tensor]:
        return (self._responses(images[k : k + BATCH]) for k in range(0, len(images), BATCH))

    def _responses(self, images: Rows) -> Tensor:
        """As if each patch were normalised and multiplied by the filters, which is one convolution."""
        pixels, side = torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2), self.settings.side
        mean, square = (functional.avg_pool2d(p.mean(1, keepdim=True), side, 1) for p in (pixels, pixels.square()))
        filters = self._filters.T.reshape(-1, pixels.shape[1], side, side)
        sums, shift = self._filters.sum(0)[:, None, None], (self._mean @ self._filters)[:, None, None]
        found = (functional.conv2d(pixels, filters) - sums * mean) / self._spread(square - mean.square()) - shift
        halves = ((sign * found - self.settings.threshold).clamp_(min=0) for sign in (1, -1))
        cells = [functional.adaptive_avg_pool2d(half, self.settings.grid) for half in halves]
        return torch.cat(cells, 1).flatten(1).sqrt()

    def _sampled(self, images: Rows, rng: np.random.Generator) -> Tensor:
        """Patches from anywhere, each laid out as :func:`torch.nn.functional.unfold` does."""
        side, count = self.settings.side, self.settings.patches
        last = images.shape[1] - side + 1
        places = zip(*(rng.integers(0, high, count) for high in (len(images), last, last)), strict=True)
        found = [images[i, a : a + side, b : b + side].transpose(2, 0, 1).ravel() for i, a, b in places]
        return torch.from_numpy(np.stack(found))

    def _normalised(self, patches: Tensor) -> Tensor:
        """Of mean zero, and of equal contrast where there is any."""
        centred = patches - patches.mean(-1, keepdim=True)
        return centred / self._spread(centred.square().mean(-1, keepdim=True))

    def _spread(self, variance: Tensor) -> Tensor:
        return torch.sqrt(variance + self.settings.contrast)


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


def embedded(data: Dataset, settings: Settings = DEFAULT) -> tuple[Rows, Rows]:
    """The rows of both parts of a set of images, learned from the training part, made once and kept.

    They are kept in the folder ``cache`` of :func:`bvfim.data.folder`, under the settings and a checksum of the images;
    where nothing can be written there, they are made each time.

    Example:
        >>> import os, tempfile, unittest.mock
        >>> import numpy as np
        >>> from bvfim.data.dataset import Dataset, images
        >>> from bvfim.data.embedding import Settings, embedded
        >>> pixels = np.random.default_rng(0).integers(0, 256, (40, 12, 12, 3))
        >>> part = images(pixels, 255, np.zeros(40, int))
        >>> with tempfile.TemporaryDirectory() as home, unittest.mock.patch.dict(os.environ, BVFIM_DATA=home):
        ...     train, test = embedded(Dataset("tiny", part, part, ("0",)), Settings(8, 5, patches=500))
        >>> train.shape, bool((train == test).all())
        ((40, 5), True)
    """
    parts = [part.inputs.reshape(len(part), *part.shape) for part in (data.train, data.test)]
    path = files.folder() / "cache" / f"{data.name}-{_key(parts, settings)}.npz"
    with contextlib.suppress(DataError):  # absent or damaged: made anew
        found = npz.read(files.content(path), str(path), {"train": "f", "test": "f"})
        return found["train"], found["test"]
    embedding = Embedding(parts[0], settings)
    train = embedding(parts[0])
    test = embedding(parts[1]) if len(parts[1]) else train[:0]
    _keep(path, train, test)
    return train, test


def _key(parts: list[Rows], settings: Settings) -> str:
    stated = {"version": VERSION, "sha256": [npz.sha256(part) for part in parts], "settings": asdict(settings)}
    return hashlib.sha256(json.dumps(stated, sort_keys=True).encode()).hexdigest()[:16]


def _keep(path: Path, train: Rows, test: Rows) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, train=train, test=test)
    with contextlib.suppress(OSError):
        files.write_whole(path, buffer.getvalue())
