"""Checkpoints of tensors that are spread over ranks: a folder of safetensors files and one of JSON, data only.

torch.distributed.checkpoint plans which rank saves and loads which part, so that a checkpoint can be loaded on another
number of ranks. Its own storage pickles its metadata; that of :mod:`bvfim.distributed.files` does not, and reading
executes no code.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner

from bvfim.checkpoint import as_path
from bvfim.distributed.files import Reader, Writer, told
from bvfim.distributed.metadata import DTYPES, Saved, plain, read
from bvfim.status import CheckpointError

T = TypeVar("T")


def save(
    path: str | os.PathLike[str],
    tensors: dict[str, Tensor],
    numbers: Any,
    group: dist.ProcessGroup | None = None,
    *,
    local: Any = None,
    alone: bool = False,
) -> None:
    """Save tensors and numbers, on all ranks of a group together; without process groups, of this process.

    Every rank returns when the checkpoint is complete, or every rank raises a :class:`bvfim.status.CheckpointError`.
    The checkpoint before it is there until the new one is complete. All ranks must see the same file system. Of two
    runs that save at one path at once, the second raises, if the file system has locks.

    Args:
        path: the folder to write or replace.
        tensors: those of this rank: plain ones, which must be equal on all ranks and are taken from the first, and
            DTensors.
        numbers: what JSON can hold, taken from the first rank. Tuples come back as lists.
        group: all ranks by default.
        local: what JSON can hold, of each rank.
        alone: save those of this process, whatever process groups there are.

    Example:
        >>> import tempfile, torch
        >>> from bvfim.distributed import storage
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     storage.save(f"{folder}/run", {"x": torch.ones(2)}, {"k": 3}, local="of the first")
        ...     storage.peek(f"{folder}/run")
        Saved(numbers={'k': 3}, local=['of the first'])
    """
    alone = alone or not dist.is_initialized()

    def checked() -> tuple[Any, Any]:
        as_path(path)
        for name, tensor in tensors.items():
            _check_can_be_saved(name, tensor)
        return plain(numbers), plain(local)

    with told(path, "written"):
        everyone = _together(group, alone, path, "written", checked)
        saved = Saved(everyone[0][0], [own for _, own in everyone])
        planner = DefaultSavePlanner(
            flatten_state_dict=False, flatten_sharded_tensors=False, dedup_save_to_lowest_rank=True
        )
        with _alone_is_fine(), contextlib.closing(Writer(as_path(path), saved)) as writer:
            state_dict_saver.save(tensors, storage_writer=writer, planner=planner, process_group=group, no_dist=alone)


def load(
    path: str | os.PathLike[str],
    tensors: dict[str, Tensor],
    group: dist.ProcessGroup | None = None,
    *,
    alone: bool = False,
) -> Saved:
    """Fill tensors in place from a checkpoint, on all ranks of a group together, however many ranks saved it.

    Every rank returns, or every rank raises a :class:`bvfim.status.CheckpointError`. Damage is found before any tensor
    is touched; each file is checked by one rank.

    Args:
        path: the checkpoint.
        tensors: those of this rank. What else the checkpoint holds is left out.
        group: all ranks by default.
        alone: load on this process, whatever process groups there are.

    Returns:
        the rest of the checkpoint.

    Example:
        >>> import tempfile, torch
        >>> from bvfim.distributed import storage
        >>> x = torch.zeros(2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     storage.save(f"{folder}/run", {"x": torch.ones(2)}, {"k": 3})
        ...     storage.load(f"{folder}/run", {"x": x}).numbers
        {'k': 3}
        >>> x
        tensor([1., 1.])
    """
    reader, alone = Reader(path), alone or not dist.is_initialized()

    def checked() -> str:
        reader.contents.check_fits(tensors)
        rank, count = (0, 1) if alone else (dist.get_rank(group), dist.get_world_size(group))
        for name in sorted(reader.contents.digests)[rank::count]:
            reader.check_file(name)
        return reader.contents.digest

    with told(path, "read"):
        if len(set(_together(group, alone, path, "read", checked))) > 1:
            raise CheckpointError(f"{path}: the checkpoint was replaced while it was read")
        planner = DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
        with _alone_is_fine():
            state_dict_loader.load(
                dict(tensors), storage_reader=reader, planner=planner, process_group=group, no_dist=alone
            )
    return reader.contents.saved


def peek(path: str | os.PathLike[str]) -> Saved:
    """The numbers of a checkpoint, without its tensors; on one rank or on several.

    Example:
        >>> from bvfim.distributed import storage
        >>> storage.peek("no-such-folder")
        Traceback (most recent call last):
        bvfim.status.CheckpointError: no-such-folder: there is no such checkpoint
    """
    return read(as_path(path)).saved


def _check_can_be_saved(name: str, tensor: Any) -> None:
    if not isinstance(name, str) or not isinstance(tensor, Tensor):
        raise TypeError(f"{name!r}: not a tensor with a str for its name, but a {type(tensor).__name__}")
    if tensor.layout != torch.strided or tensor.is_meta or tensor.dtype not in DTYPES.values():
        kind = f"layout {tensor.layout} and dtype {tensor.dtype} on {tensor.device}"
        raise ValueError(f"the tensor {name!r} has {kind}")
    # A DTensor; each rank holds one summand, and torch would save that of the first.
    if any(placement.is_partial() for placement in getattr(tensor, "placements", ())):
        raise ValueError(f"the tensor {name!r} is not yet summed up over the ranks")


def _together(
    group: dist.ProcessGroup | None, alone: bool, path: str | os.PathLike[str], done: str, action: Callable[[], T]
) -> list[T]:
    """The results of all ranks, or the errors of all ranks on each of them."""
    result: T | CheckpointError
    try:
        with told(path, done):
            result = action()
    except CheckpointError as error:
        result = error
    everyone: list[Any] = [result]
    if not alone:
        everyone = [None] * dist.get_world_size(group)
        dist.all_gather_object(everyone, result, group=group)
    errors = [str(one) for one in everyone if isinstance(one, CheckpointError)]
    if errors:
        raise CheckpointError("; ".join(dict.fromkeys(errors)))
    return everyone


@contextlib.contextmanager
def _alone_is_fine() -> Iterator[None]:
    """Without the warning of torch that there is no process group."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is ")
        yield
