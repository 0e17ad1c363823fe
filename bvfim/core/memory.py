"""Peak memory of tensors, counted rather than sampled.

On a CUDA device the allocator counts. On the CPU a dispatch mode sees every tensor that an operation returns, and its
bytes are freed when its storage is finalised: the count is the same on every machine.
"""

from __future__ import annotations

import weakref
from types import TracebackType
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from bvfim import tree


class _Live(TorchDispatchMode):
    """Adds up the bytes of the storages that were born inside the mode and still live."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        inputs = {id(t.untyped_storage()) for t in tree.leaves((args, kwargs)) if isinstance(t, Tensor)}
        for t in tree.leaves(result):
            if isinstance(t, Tensor) and id(t.untyped_storage()) not in inputs:
                self._add(t.untyped_storage())
        return result

    def _add(self, storage: torch.UntypedStorage) -> None:
        key, size = id(storage), storage.nbytes()
        if key in self._known:
            return
        self._known.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._remove, key, size)

    def _remove(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.now -= size


class PeakMemory:
    """The peak number of bytes held by tensors created inside the ``with`` block.

    Args:
        device: where to count; the CPU by default.

    Example:
        >>> import torch
        >>> from bvfim.core.memory import PeakMemory
        >>> with PeakMemory() as memory:
        ...     for _ in range(10):
        ...         t = torch.zeros(1000)
        >>> memory.peak
        8000
    """

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self._device = torch.device(device)
        self._mode = _Live()
        self.peak = 0

    def __enter__(self) -> PeakMemory:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
            torch.cuda.reset_peak_memory_stats(self._device)
            self._before = torch.cuda.memory_allocated(self._device)
        else:
            self._mode.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
            self.peak = torch.cuda.max_memory_allocated(self._device) - self._before
        else:
            self._mode.__exit__(kind, error, trace)
            self.peak = self._mode.peak
