"""The idx format of MNIST: a magic number, the dimensions, then the entries.

The magic number is two zero bytes, a byte for the type of the entries (0x08 for unsigned bytes) and a byte
for the number of dimensions; each dimension is a big-endian 32-bit whole number.
"""

from __future__ import annotations

import math
import struct

import numpy as np
from numpy.typing import NDArray

from bvfim.status import DataError

UNSIGNED_BYTE = 0x08


def parse(content: bytes, name: str) -> NDArray[np.uint8]:
    """Parse the array in an idx file of unsigned bytes, with at least one dimension.

    Args:
        content: the whole file, decompressed.
        name: name of the file in error messages.

    Raises:
        DataError: if the content is not exactly one complete idx file.

    Example:
        >>> from bvfim.data import idx
        >>> idx.parse(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]), "three-labels")
        array([7, 8, 9], dtype=uint8)
    """
    if len(content) < 4 or content[:2] != b"\0\0" or content[3] == 0:
        raise DataError(f"{name}: not an idx file")
    if content[2] != UNSIGNED_BYTE:
        raise DataError(f"{name}: entries must be unsigned bytes (0x08), not type {content[2]:#04x}")
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise DataError(f"{name}: the header of the idx file is truncated")
    shape = struct.unpack(f">{content[3]}I", content[4:start])
    if len(content) != start + math.prod(shape):
        raise DataError(
            f"{name}: an idx file of shape {shape} needs {start + math.prod(shape)} bytes, but this has {len(content)}"
        )
    try:
        # The copy makes the array writable, which bytes are not.
        return np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy()
    except ValueError as error:
        raise DataError(f"{name}: NumPy does not support arrays of shape {shape}") from error
