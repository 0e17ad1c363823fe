"""Labels that people gave: CIFAR-10N (Wei et al., 2022), for the training part of CIFAR-10 in its published order."""

from __future__ import annotations

import io
import zipfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bvfim.data import files, npz, pickles
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
Columns = dict[str, NDArray[Any]]
_PACKED = "noisy-labels/cifar10n_train.npz"
_SHA256 = "26209de892bb1b72229d566ca241503962bb753a0929a24f68ad4a86bd4aee4f"


def human(kind: str) -> NDArray[np.int64]:
    """Load the 50000 human labels of one kind, in the order of the published training set.

    If your copy of CIFAR-10 is truncated, its rows match the first of these labels.

    Args:
        kind: one of :data:`KINDS`; ``worse`` has 40 % wrong labels, ``aggregate`` 9 %.

    Raises:
        DataError: if the file is damaged, or missing and can't be downloaded.

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


def _packed(content: bytes, name: str) -> Columns:
    return _checked(npz.read(content, name, dict.fromkeys(KINDS.values(), "iu")), name)


def _published(content: bytes, name: str) -> Columns:
    """The file of the authors: a dict of arrays, as torch saves it."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            inside = next(member for member in archive.namelist() if member.endswith("data.pkl"))
            found = pickles.load(archive.read(inside))
        columns = {key: np.asarray(found[key]) for key in KINDS.values()}
    except Exception as error:  # a damaged archive can fail in any way
        raise DataError(f"{name}: the file is damaged, truncated or a different file ({error})") from error
    return _checked(columns, name)


def _checked(columns: Columns, name: str) -> Columns:
    for column in columns.values():
        if column.dtype.kind not in "iu" or column.ndim != 1:
            raise DataError(f"{name}: unexpected column of dtype {column.dtype} and shape {column.shape}")
    found = npz.sha256(*(columns[key].astype(np.int64) for key in KINDS.values()))
    if found != _SHA256:
        raise DataError(f"{name}: not the labels of CIFAR-10N (sha256 {found})")
    return columns
