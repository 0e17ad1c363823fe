"""Low-dimensional embeddings of image data sets, computed once and cached next to the data."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
from pathlib import Path

import numpy as np

from bvfim.data import files, npz
from bvfim.data.dataset import Dataset
from bvfim.labels import encoder
from bvfim.labels.arrays import Float32
from bvfim.labels.embedding import BY_NETWORK, IMAGES, Embedding, subset
from bvfim.reports.files import write_whole
from bvfim.status import DataError

VERSION = 2
"""Of what is computed: another one makes every stored embedding anew."""


def embedded(data: Dataset, dimensions: int = BY_NETWORK) -> tuple[Float32, Float32]:
    """Embed both parts of an image data set with the pretrained network; the result is cached.

    The principal directions are those of the training part. The embeddings are cached in the folder ``cache`` of
    :func:`bvfim.data.folder`, under a checksum of the images and the network; if that folder is not writable, they are
    computed each time.

    Example:
        >>> import os, tempfile, unittest.mock
        >>> import numpy as np
        >>> from bvfim.data.dataset import Dataset, images
        >>> from bvfim.data.embedded import embedded
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
    embedding = Embedding(parts[0][subset(len(parts[0]), IMAGES)], encoder.encoded, dimensions)
    train, test = (embedding(part) for part in parts)
    _keep(path, train, test)
    return train, test


def _key(parts: list[Float32], dimensions: int) -> str:
    sha256 = [hashlib.sha256(encoder.weights()).hexdigest(), *(npz.sha256(part) for part in parts)]
    stated = {"version": VERSION, "sha256": sha256, "dimensions": dimensions}
    return hashlib.sha256(json.dumps(stated, sort_keys=True).encode()).hexdigest()[:16]


def _keep(path: Path, train: Float32, test: Float32) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, train=train, test=test)
    with contextlib.suppress(OSError):
        write_whole(path, buffer.getvalue())
