"""Pickles read without building anything but numbers, text, lists, dicts and arrays of numbers.

A pickle can name any function to be called while it is read. Here every name it may use stands for a class of this
module, so that nothing outside is called; arrays of objects or of records are refused.
"""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bvfim.status import DataError


def load(content: bytes) -> Any:
    """Load a pickle; Python 2 text becomes bytes, arrays become objects that ``np.asarray`` accepts.

    Raises:
        DataError: if it refers to anything but arrays of numbers, or is damaged.

    Example:
        >>> import pickle, numpy as np
        >>> from bvfim.data import pickles
        >>> np.asarray(pickles.load(pickle.dumps({"data": np.arange(3)}, protocol=2))["data"])
        array([0, 1, 2])
        >>> pickles.load(pickle.dumps(print))
        Traceback (most recent call last):
        bvfim.status.DataError: the pickle refers to builtins.print, which is not allowed
    """
    try:
        return _Reader(io.BytesIO(content), encoding="bytes").load()
    except DataError:
        raise
    except Exception as error:  # a damaged pickle can fail in any way
        raise DataError(f"the pickle is damaged or truncated ({type(error).__name__}: {error})") from error


def _text(value: Any) -> str:
    return value.decode("ascii") if isinstance(value, bytes) else str(value)


class _Dtype:
    """A type of plain numbers, in a byte order."""

    def __init__(self, code: Any, *_: Any) -> None:
        self.code, self.order = _text(code), "="
        if not re.fullmatch(r"[biuf](1|2|4|8)", self.code):
            raise DataError(f"the pickle has an array of type {self.code}, expected numbers")

    def __setstate__(self, state: Any) -> None:
        self.order = _text(state[1])


class _Array:
    """An array in the making: it becomes one when ``np.asarray`` asks for it."""

    def __init__(self, *_: Any) -> None:
        self.found: NDArray[Any] = np.zeros(0)

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, columns_first, content = state
        flat = np.frombuffer(content, dtype=np.dtype(f"{kind.order}{kind.code}"))
        self.found = flat.reshape(shape, order="F" if columns_first else "C").copy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self.found if dtype is None else self.found.astype(dtype)


def _latin1(text: str, _: Any) -> bytes:
    return text.encode("latin1")


_KNOWN: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("_codecs", "encode"): _latin1,  # how later Pythons write bytes into an old pickle
}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _KNOWN:
            raise DataError(f"the pickle refers to {module}.{name}, which is not allowed")
        return _KNOWN[module, name]
