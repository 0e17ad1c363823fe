"""Labels that people gave: CIFAR-10N (Wei et al., 2022), for the training part of CIFAR-10 in its published order."""

from __future__ import annotations

import hashlib
import io
import zipfile

import numpy as np
from numpy.typing import NDArray

from bvfim.data import files, pickles
from bvfim.status import DataError, no_such

KINDS = {
    "clean": "clean_label",
    "aggregate": "aggre_label",
    "worse": "worse_label",
    "random1": "random_label1",
    "random2": "random_label2",
    "random3": "random_label3",
}
"""Our names of the columns: the published labels, the majority of three people, the worst of them, and each."""
_URL = "https://github.com/UCSC-REAL/cifar-10-100n/raw/main/data/CIFAR-10_human.pt"
_PACKED = "noisy-labels/cifar10n_train.npz"
_SHA256 = "e14cd65ab126cbc76931e583d779c39e41ca4cdc91320f957d420e0777099268"


def human(kind: str) -> NDArray[np.int64]:
    """The 50000 labels of one kind; rows are those of ``load("cifar10").train``.

    Args:
        kind: one of :data:`KINDS`; ``worse`` has 40 % wrong labels, ``aggregate`` 9 %.

    Raises:
        DataError: when the file is damaged, or absent and out of reach.

    Example:
        >>> import bvfim.data
        >>> try:
        ...     bvfim.data.human("best")
        ... except bvfim.DataError as error:
        ...     print(str(error)[:40])
        no kind of human label is called 'best';
    """
    if kind not in KINDS:
        raise DataError(no_such("kind of human label", kind, KINDS))
    path = files.found(_PACKED)
    columns = (
        _packed(files.content(path), str(path))
        if path is not None
        else files.read("noisy-labels/CIFAR-10_human.pt", _URL, _published)
    )
    return columns[KINDS[kind]].astype(np.int64)


def _packed(content: bytes, name: str) -> dict[str, NDArray[np.int8]]:
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            columns = {key: file[key] for key in KINDS.values()}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{name}: the file is damaged, cut short or not CIFAR-10N ({error})") from error
    return _checked(columns, name)


def _published(content: bytes, name: str) -> dict[str, NDArray[np.int8]]:
    """The file of the authors: a dict of arrays, as torch saves it."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            inside = next(member for member in archive.namelist() if member.endswith("data.pkl"))
            found = pickles.load(archive.read(inside))
        columns = {key: np.asarray(found[key]).astype(np.int8) for key in KINDS.values()}
    except (DataError, zipfile.BadZipFile, StopIteration, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{name}: the file is damaged, cut short or not CIFAR-10N ({error})") from error
    return _checked(columns, name)


def _checked(columns: dict[str, NDArray[np.int8]], name: str) -> dict[str, NDArray[np.int8]]:
    found = hashlib.sha256(b"".join(columns[key].astype(np.int8).tobytes() for key in KINDS.values())).hexdigest()
    if found != _SHA256:
        raise DataError(f"{name}: these are not the labels of CIFAR-10N (sha256 {found})")
    return columns
