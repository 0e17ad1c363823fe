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


@pytest.mark.parametrize("protocol", range(6))
def test_arrays_lists_and_text_are_read(protocol):
    stated = {"data": np.arange(12, dtype=np.uint8).reshape(3, 4), "labels": [1, 2, 3], "name": "batch"}
    found = pickles.load(pickle.dumps(stated, protocol))
    np.testing.assert_array_equal(found["data"], stated["data"])
    assert found["labels"] == [1, 2, 3]


@pytest.mark.parametrize("thing", [Evil(), print, np.load, {"data": [Evil()]}, np.array([Evil()], dtype=object)])
def test_anything_else_is_refused_and_never_run(thing, capfd):
    with pytest.raises(DataError, match=r"the pickle asks for .*, which is not loaded"):
        pickles.load(pickle.dumps(thing))
    assert capfd.readouterr().out == ""


@given(st.binary(max_size=60), st.integers(0, 200))
def test_garbage_and_cut_pickles_are_refused_or_read_as_plain_values(garbage, length):
    whole = pickle.dumps({"data": np.arange(5)})
    for content in (garbage, whole[: min(length, len(whole) - 1)]):
        with contextlib.suppress(DataError):
            pickles.load(content)
