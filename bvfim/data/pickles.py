"""Pickles read without building anything but arrays, lists, dicts and text: a pickle can otherwise run any code."""

from __future__ import annotations

import io
import pickle
from typing import Any

from bvfim.status import DataError

_ARRAYS = ("_reconstruct", "ndarray", "dtype", "scalar", "_frombuffer")


def load(content: bytes) -> Any:
    """What a pickle holds; text of Python 2 comes as bytes.

    Raises:
        DataError: when it asks for anything but arrays, or is damaged.

    Example:
        >>> import pickle, numpy as np
        >>> from bvfim.data import pickles
        >>> pickles.load(pickle.dumps({"data": np.arange(3)}))["data"].sum()
        np.int64(3)
        >>> pickles.load(pickle.dumps(print))
        Traceback (most recent call last):
        bvfim.status.DataError: the pickle asks for builtins.print, which is not loaded
    """
    try:
        return _Arrays(io.BytesIO(content), encoding="bytes").load()
    except DataError:
        raise
    except Exception as error:  # a damaged pickle can fail in any way
        raise DataError(f"the pickle is damaged or cut short ({type(error).__name__}: {error})") from error


class _Arrays(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        numpy = module.split(".")[0] == "numpy" and name in _ARRAYS
        if numpy or (module, name) == ("_codecs", "encode"):  # how later Pythons write the bytes of an array
            return super().find_class(module, name)
        raise DataError(f"the pickle asks for {module}.{name}, which is not loaded")
