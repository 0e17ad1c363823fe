"""Omniglot: 1623 characters of 50 alphabets, each drawn by 20 people, at 28 by 28 pixels with ink = 1."""

from __future__ import annotations

import io
import zipfile

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from bvfim.data import files, npz
from bvfim.data.dataset import Dataset, images
from bvfim.status import DataError

_URL = "https://raw.githubusercontent.com/brendenlake/omniglot/master/python/"
_ZIPS = {
    "images_background": ("68d2efa1b9178cc56df9314c21c6e718", 19280),
    "images_evaluation": ("6b91aef0f799c5bb55b94e3f2daec811", 13180),
}
SIDE = 28
PACKED = "omniglot/omniglot_28.npz"
_PACKED_SHA256 = "ab5e4d0ea96aa0aab677107fc683949dcd9454e54b298ed7b08313b29f4f6b4f"

Drawings = tuple[NDArray[np.uint8], list[str]]
"""Pixels, and the name alphabet/character of each."""


def load() -> Dataset:
    """Load the 964 background characters as training part and the 659 evaluation characters as test part.

    Labels number the characters of both parts in alphabet order, so no class is in both parts.
    Reads ``omniglot_28.npz`` if it is in the folder, otherwise the two published archives.
    """
    path = files.found(PACKED)
    drawings = [_published(top) for top in _ZIPS] if path is None else _packed(files.content(path), str(path))
    names = [sorted(set(named)) for _, named in drawings]
    classes = tuple(names[0] + names[1])
    number = {name: label for label, name in enumerate(classes)}
    parts = [images(pixels, 255, np.array([number[n] for n in named])) for pixels, named in drawings]
    return Dataset("omniglot", parts[0], parts[1], classes)


def _published(top: str) -> Drawings:
    def parse(content: bytes, name: str) -> Drawings:
        return _unzipped(content, name, top)

    return files.read(f"omniglot/{top}.zip", f"{_URL}{top}.zip", parse)


def _packed(content: bytes, name: str) -> list[Drawings]:
    numbers = dict.fromkeys(("alphabet_id", "character_in_alphabet"), "iu")
    kinds = {"images": "u", "alphabet_names": "U", "is_evaluation": "b", **numbers}
    found = npz.read(content, name, kinds)
    pixels, later = found["images"], found["is_evaluation"]
    alphabet, character = (found[key].astype(np.int64) for key in ("alphabet_id", "character_in_alphabet"))
    names = found["alphabet_names"]
    spelt = np.frombuffer("\n".join(map(str, names.flat)).encode(), np.uint8)
    shapes = [pixels.shape[1:], alphabet.shape, character.shape, later.shape]
    if pixels.dtype != np.uint8 or shapes != [(SIDE, SIDE), *[pixels.shape[:1]] * 3]:
        raise DataError(f"{name}: expected images of uint8 {SIDE} x {SIDE}, got {pixels.dtype} {pixels.shape}")
    checksum = npz.sha256(pixels, alphabet, character, later, spelt)
    if checksum != _PACKED_SHA256:
        raise DataError(f"{name}: not the drawings of Omniglot (sha256 {checksum})")
    named = [f"{names[a]}/character{c + 1:02d}" for a, c in zip(alphabet, character, strict=True)]
    return [(pixels[rows], [named[i] for i in np.flatnonzero(rows)]) for rows in (~later, later)]


def _unzipped(content: bytes, name: str, top: str) -> Drawings:
    md5, count = _ZIPS[top]
    files.check_md5(content, name, md5)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = sorted(m for m in archive.namelist() if m.endswith(".png"))
        pixels = np.stack([_small(archive.read(member)) for member in members])
    if len(pixels) != count:
        raise DataError(f"{name}: expected {count} drawings, got {len(pixels)}")
    return pixels, [member.removeprefix(f"{top}/").rsplit("/", 1)[0] for member in members]


def _small(picture: bytes) -> NDArray[np.uint8]:
    """A drawing at 28 by 28, ink = 255."""
    with Image.open(io.BytesIO(picture), formats=("PNG",)) as drawing:
        small = drawing.convert("L").resize((SIDE, SIDE), Image.Resampling.LANCZOS)
    return 255 - np.asarray(small)
