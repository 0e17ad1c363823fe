"""The files of a sharded checkpoint, written and read at the word of the planners of torch.distributed.checkpoint.

::

    run/metadata.json                          what there is, and where; the digest of every file
    run/shards-k3x9_a7b/rank-0.safetensors     what rank 0 saved

A save makes a new folder of shards beside the one before it, and moves the new ``metadata.json`` over the old one
when everything else is on the disk: a process killed at any moment leaves the old checkpoint or the new one, and at no
moment is there none. What ``metadata.json`` does not name is removed after that.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from bvfim.checkpoint import as_path
from bvfim.distributed.metadata import METADATA, SHARDS, Contents, Place, Saved, as_text, digest_of_file, inside, read
from bvfim.status import CheckpointError

if sys.platform != "win32":
    import fcntl


class Writer(StorageWriter):
    """Writes one checkpoint; to be closed when the save has ended, well or badly."""

    shards: Path
    """The new folder, known to the first rank alone."""

    def __init__(self, path: Path, saved: Saved) -> None:
        self.path, self.saved = path, saved
        self.ending = contextlib.ExitStack()

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Do nothing: the path is known."""

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the first rank learns that it coordinates when it is to plan for all."""

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Leave the plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """On the first rank: make the new folder of shards, and tell each rank its file."""
        with told(self.path, "written"):
            self.path.mkdir(parents=True, exist_ok=True)
            self.ending.enter_context(_locked(self.path))
            self.ending.callback(_tidy, self.path)
            self.shards = Path(tempfile.mkdtemp(prefix=SHARDS, dir=self.path))
        files = [str(self.shards / f"rank-{rank}.safetensors") for rank in range(len(plans))]
        return [dataclasses.replace(plan, storage_data=file) for plan, file in zip(plans, files, strict=True)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write the parts that fall to this rank."""
        file, results = Path(plan.storage_data), []
        with told(file, "written"):
            parts = {str(i): _copied(planner.resolve_data(item)) for i, item in enumerate(plan.items)}
            if parts:
                save_file(parts, file)
                with file.open("rb+") as stream:
                    os.fsync(stream.fileno())
                name, digest = f"{file.parent.name}/{file.name}", digest_of_file(file)
                for item, (key, part) in zip(plan.items, parts.items(), strict=True):
                    results.append(WriteResult(item.index, part.nbytes, (name, key, digest)))
        return _done(results)

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """On the first rank, when all have written: the new checkpoint takes the place of the one before."""
        with told(self.path / METADATA, "written"):
            new = self.shards / METADATA
            with new.open("w", encoding="utf-8") as file:
                file.write(as_text(metadata, results, self.saved))
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path / METADATA)

    def close(self) -> None:
        """Remove what belongs to no checkpoint any more; only the first rank has anything to do."""
        self.ending.close()

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether this is a path."""
        return isinstance(checkpoint_id, str | os.PathLike)


class Reader(StorageReader):
    """Reads one checkpoint. What its files hold is to be checked first, by ``check_file``."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path

    @cached_property
    def contents(self) -> Contents:
        """What there is, read at the first use."""
        return read(as_path(self.path))

    def check_file(self, name: str) -> None:
        """Raise where a file of shards is not what ``metadata.json`` says."""
        file = inside(self.contents.folder, name)
        with told(file, "read"):
            if digest_of_file(file) != self.contents.digests[name]:
                raise CheckpointError(f"{file}: the checkpoint is damaged (its digest does not match)")
            with safe_open(str(file), framework="pt") as shard:
                for place in self.contents.places.values():
                    if place.file == name:
                        _chunk(shard, place)

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Do nothing: the path is known."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """What the planner asks of a checkpoint."""
        return Metadata(dict(self.contents.tensors))

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Do nothing: every rank does the same."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Leave the plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Leave the plans as they are."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Fill the tensors of this rank."""
        places, files = self.contents.places, dict[str, list[ReadItem]]()
        for item in plan.items:
            files.setdefault(places[item.storage_index].file, []).append(item)
        for name, items in files.items():
            file = inside(self.contents.folder, name)
            with told(file, "read"), safe_open(str(file), framework="pt") as shard:
                for item in items:
                    part = tuple(slice(i, i + n) for i, n in zip(item.storage_offsets, item.lengths, strict=True))
                    target = planner.resolve_tensor(item).detach()
                    target.copy_(_chunk(shard, places[item.storage_index])[part])
                    planner.commit_tensor(item, target)
        return _done(None)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether this is a path."""
        return isinstance(checkpoint_id, str | os.PathLike)


@contextlib.contextmanager
def told(path: str | os.PathLike[str], done: str) -> Iterator[None]:
    """Whatever goes wrong is a CheckpointError that names the file.

    Torch sends errors from rank to rank, pickled; one that can't be pickled would leave the other ranks waiting.

    Example:
        >>> from bvfim.distributed.files import told
        >>> with told("run", "read"):
        ...     raise OSError(5, "Input/output error")
        Traceback (most recent call last):
        bvfim.status.CheckpointError: run: the checkpoint could not be read (Input/output error)
    """
    try:
        yield
    except CheckpointError:
        raise
    except CheckpointException as error:  # no Exception: those of all ranks
        reasons = [_sentence(path, done, one) for one, _ in error.failures.values()]
        raise CheckpointError("; ".join(dict.fromkeys(reasons))) from error
    except Exception as error:
        raise CheckpointError(_sentence(path, done, error)) from error


def _sentence(path: str | os.PathLike[str], done: str, error: BaseException) -> str:
    if isinstance(error, CheckpointError):
        return str(error)
    text = error.strerror if isinstance(error, OSError) else str(error)
    reason, *_ = [*(text or "").splitlines(), type(error).__name__]
    return f"{path}: the checkpoint could not be {done} ({reason})"


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other runs from writing to a folder, where the file system can."""
    if sys.platform == "win32":
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(handle)
        raise CheckpointError(f"{folder}: another run is writing a checkpoint there") from error
    except OSError:  # no locks here
        pass
    try:
        yield
    finally:
        os.close(handle)


def _tidy(folder: Path) -> None:
    """Remove the shards of earlier saves, and of those that failed or were killed."""
    with contextlib.suppress(OSError, UnicodeError):
        source = folder / METADATA
        named = source.read_text(encoding="utf-8") if source.exists() else ""
        for shards in folder.glob(f"{SHARDS}????????"):
            if shards.name not in named:
                shutil.rmtree(shards, ignore_errors=True)


def _copied(tensor: Any) -> Tensor:
    """A tensor on the CPU with memory of its own and no lazy conjugation, as safetensors needs it."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu").copy_(tensor.detach())


def _chunk(shard: Any, place: Place) -> Tensor:
    """A chunk, which is read from the disk when its values are asked for."""
    found: Tensor = shard.get_tensor(place.key)
    if (found.shape, found.dtype) != (place.sizes, place.dtype):
        raise ValueError(f"its tensor {place.key!r} has another shape or dtype than {METADATA} says")
    return found


def _done(result: Any) -> Future[Any]:
    future = Future[Any]()
    future.set_result(result)
    return future
