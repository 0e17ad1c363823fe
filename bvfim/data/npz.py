"""Read archives of NumPy arrays, with checks."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bvfim.status import DataError


def read(content: bytes, name: str, kinds: Mapping[str, str]) -> dict[str, NDArray[Any]]:
    """Read arrays from an npz file.

    Args:
        content: content of the file.
        name: name of the file in error messages.
        kinds: for each array to read, the allowed ``dtype.kind`` characters: ``"iu"`` for whole numbers.

    Raises:
        DataError: if the file is damaged, lacks an array, or has one of another kind.

    Example:
        >>> import io, numpy as np
        >>> from bvfim.data import npz
        >>> file = io.BytesIO()
        >>> np.savez(file, labels=np.array([1, 0]))
        >>> npz.read(file.getvalue(), "example", {"labels": "iu"})["labels"]
        array([1, 0])
    """
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            found = {key: np.asarray(file[key]) for key in kinds}
    except Exception as error:  # a damaged archive can fail in any way
        raise DataError(f"{name}: the file is damaged, truncated or a different file ({error})") from error
    for key, array in found.items():
        if array.dtype.kind not in kinds[key]:
            raise DataError(f"{name}: the array {key} has the unexpected dtype {array.dtype}")
    return found


def sha256(*arrays: NDArray[Any]) -> str:
    """The checksum of the bytes of arrays, one after another.

    Example:
        >>> import numpy as np
        >>> from bvfim.data import npz
        >>> npz.sha256(np.zeros(2, np.uint8))[:8]
        '96a296d2'
    """
    found = hashlib.sha256()
    for array in arrays:
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()
