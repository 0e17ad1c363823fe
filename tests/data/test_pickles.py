from __future__ import annotations

import contextlib
import os
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bvfim.data import pickles
from bvfim.status import DataError


class Evil:
    def __reduce__(self):
        return os.system, ("echo harm",)


@pytest.mark.parametrize("protocol", range(5))
@pytest.mark.parametrize("dtype", ["u1", "<i8", ">i4", "f4", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_lists_and_text_are_read(protocol, dtype, order):
    stated = {
        "data": (np.arange(12) % 5).astype(dtype).reshape(3, 4, order=order),
        "labels": [1, 2, 3],
        "name": "batch",
    }
    found = pickles.load(pickle.dumps(stated, protocol))
    np.testing.assert_array_equal(np.asarray(found["data"]), stated["data"])
    assert np.asarray(found["data"]).dtype == np.dtype(dtype)
    assert found["labels"] == [1, 2, 3]


@pytest.mark.parametrize("thing", [Evil(), print, np.load, {"data": [Evil()]}])
def test_anything_else_is_refused_and_never_run(thing, capfd):
    with pytest.raises(DataError, match=r"the pickle refers to .*, which is not allowed"):
        pickles.load(pickle.dumps(thing))
    assert capfd.readouterr().out == ""


POINTERS = (
    b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tC\x01btR"
    b"(K\x01(K\x02tcnumpy\ndtype\n(X\x02\x00\x00\x00O8\x89\x88tR(K\x03X\x01\x00\x00\x00|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    b"\x89C\x10AAAAAAAABBBBBBBBtb."
)
"""An array of objects made of raw bytes: addresses of the writer's choice."""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (POINTERS, "an array of type O8, expected numbers"),
        (pickle.dumps(np.array([Evil()], dtype=object), 2), "expected numbers"),
        (pickle.dumps(np.zeros(2, dtype=[("a", "i4")]), 2), "expected numbers"),
        (b"cnumpy.f2py.__main__\ndtype\n.", "refers to numpy.f2py.__main__.dtype"),
        (b"cnumpy\nload\n(X\x04\x00\x00\x00file\x85R.", "refers to numpy.load"),
        (pickle.dumps(np.arange(3), 5), "which is not allowed"),
    ],
)
def test_numpy_is_no_way_out(content, message):
    with pytest.raises(DataError, match=message):
        pickles.load(content)


@given(st.binary(max_size=60), st.integers(0, 200))
def test_garbage_and_cut_pickles_are_refused_or_read_as_plain_values(garbage, length):
    whole = pickle.dumps({"data": np.arange(5)})
    for content in (garbage, whole[: min(length, len(whole) - 1)]):
        with contextlib.suppress(DataError):
            pickles.load(content)
