from __future__ import annotations

import contextlib
import struct

import hypothesis.extra.numpy as npst
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bvfim.data import idx
from bvfim.status import DataError

ARRAYS = npst.arrays(np.uint8, npst.array_shapes(max_dims=5, min_side=0, max_side=4))


def encode(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


@given(ARRAYS)
def test_round_trip(array: np.ndarray) -> None:
    parsed = idx.parse(encode(array), "file")
    assert parsed.dtype == np.uint8
    assert parsed.flags.writeable
    np.testing.assert_array_equal(parsed, array, strict=True)


@given(ARRAYS, st.data())
def test_every_truncation_is_refused(array: np.ndarray, data: st.DataObject) -> None:
    content = encode(array)
    length = data.draw(st.integers(0, len(content) - 1))
    with pytest.raises(DataError, match=r"^file: "):
        idx.parse(content[:length], "file")


@given(ARRAYS, st.binary(min_size=1))
def test_anything_after_the_end_is_refused(array: np.ndarray, tail: bytes) -> None:
    with pytest.raises(DataError, match=r"^file: "):
        idx.parse(encode(array) + tail, "file")


@given(st.binary(max_size=64))
def test_any_bytes_are_parsed_or_refused(content: bytes) -> None:
    with contextlib.suppress(DataError):
        assert encode(idx.parse(content, "file")) == content


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "file: not an idx file"),
        (b"\x89PNG\r\n\x1a\n", "file: not an idx file"),
        (b"\0\0\x08\0\x05", "file: not an idx file"),
        (b"\0\0\x0d\1\0\0\0\0", "file: entries must be unsigned bytes (0x08), not type 0x0d"),
        (b"\0\0\x08\3\0\0\0\1", "file: the header of the idx file is truncated"),
        (b"\0\0\x08\1\0\0\0\2\7", "file: an idx file of shape (2,) needs 10 bytes, but this has 9"),
        (b"\0\0\x08\5" + b"\xff" * 16 + b"\0" * 4, "file: NumPy does not support arrays of shape"),
        (b"\0\0\x08\x50" + b"\0\0\0\1" * 0x50 + b"\7", "file: NumPy does not support arrays of shape"),
    ],
)
def test_a_foreign_file_is_refused_by_name(content: bytes, complaint: str) -> None:
    with pytest.raises(DataError) as caught:
        idx.parse(content, "file")
    assert str(caught.value).startswith(complaint)
