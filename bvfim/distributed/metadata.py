"""What ``metadata.json`` says of a sharded checkpoint: JSON that is checked in full before anything relies on it."""

from __future__ import annotations

import hashlib
import json
import math
import re
import reprlib
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.storage import WriteResult

from bvfim.status import CheckpointError

FORMAT = "bvfim-sharded-1"
METADATA = "metadata.json"
SHARDS = "shards-"
"""How the names of the folders with the shards begin: each save makes one of its own, with eight more characters."""
LARGEST = 2**63 - 1
"""The largest size that torch can hold."""
BLOCK = 2**20
"""How many bytes of a file are read at once for its digest."""
_NAMES = "float64 float32 float16 bfloat16 complex64 int64 int32 int16 int8 uint8 bool"
DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in _NAMES.split()}
_SHARD = re.compile(SHARDS + r"[a-z0-9_]{8}/rank-[0-9]+\.safetensors")
"""The only names that a file of shards can have, so that no name leads out of the checkpoint."""


class Saved(NamedTuple):
    """The values of a sharded checkpoint that are not tensors.

    Example:
        >>> from bvfim.distributed.metadata import Saved
        >>> Saved(numbers={"k": 3}, local=[{"seed": 0}, {"seed": 1}]).local[1]
        {'seed': 1}
    """

    numbers: Any
    """Those of the whole run."""
    local: list[Any]
    """Those of each rank that saved."""


class Place(NamedTuple):
    """Where a chunk of a tensor is, and what is to be found there."""

    file: str
    key: str
    sizes: torch.Size
    dtype: torch.dtype


@dataclass(frozen=True)
class Contents:
    """A table of contents that makes sense: the chunks of each tensor lie apart and cover it."""

    folder: Path
    saved: Saved
    tensors: dict[str, TensorStorageMetadata]
    places: dict[MetadataIndex, Place]
    digests: dict[str, str]
    """Of each file of shards."""
    digest: str
    """Of all this."""

    def check_fits(self, tensors: dict[str, Tensor]) -> None:
        """Raise where the checkpoint can't fill these tensors.

        Args:
            tensors: the tensors to fill; of a DTensor, the global shape counts.
        """
        for name, tensor in tensors.items():
            found = self.tensors.get(name)
            if found is None:
                raise ValueError(f"it has no tensor {name!r}")
            kinds = [
                f"{_name(dtype)} of shape {tuple(size)}"
                for dtype, size in ((found.properties.dtype, found.size), (tensor.dtype, tensor.shape))
            ]
            if tensor.is_meta:
                raise ValueError(f"the tensor {name!r} to fill is on the meta device, where nothing is")
            if kinds[0] != kinds[1]:
                raise ValueError(f"it has the tensor {name!r} as {kinds[0]}, not as {kinds[1]}")


def plain(item: Any) -> Any:
    """What JSON can hold, or an error; a tuple becomes a list.

    Example:
        >>> from bvfim.distributed.metadata import plain
        >>> plain({"betas": (0.9, 0.999)})
        {'betas': [0.9, 0.999]}
        >>> plain({0: 1})
        Traceback (most recent call last):
        TypeError: a dict with the key 0: only a str comes back as it was
    """
    if isinstance(item, dict):
        for key in item:
            if not isinstance(key, str):
                raise TypeError(f"a dict with the key {key!r}: only a str comes back as it was")
        return {key: plain(value) for key, value in item.items()}
    if isinstance(item, list | tuple):
        return [plain(value) for value in item]
    if item is None or isinstance(item, bool | int | float | str):
        return item
    raise TypeError(f"a {type(item).__name__} is nothing that JSON can hold")


def as_text(metadata: Metadata, results: list[list[WriteResult]], saved: Saved) -> str:
    """The text of ``metadata.json``.

    Args:
        metadata: that of torch's planner.
        results: what each rank wrote; the ``storage_data`` of each is its file, its key there and the file's digest.
        saved: what else to save.
    """
    written = {result.index: result.storage_data for rank in results for result in rank}
    tensors = {}
    for name, tensor in metadata.state_dict_metadata.items():
        assert isinstance(tensor, TensorStorageMetadata)
        chunks = []
        for chunk in tensor.chunks:
            file, key, _ = written[MetadataIndex(name, chunk.offsets)]
            chunks.append({"offsets": list(chunk.offsets), "sizes": list(chunk.sizes), "file": file, "key": key})
        tensors[name] = {"dtype": _name(tensor.properties.dtype), "size": list(tensor.size), "chunks": chunks}
    files = {file: digest for file, _, digest in written.values()}
    content = {"format": FORMAT, "tensors": tensors, "files": files, **saved._asdict()}
    return json.dumps({**content, "digest": _digest_of(content)})


def read(folder: Path) -> Contents:
    """The table of contents of a checkpoint, or an error.

    Args:
        folder: the checkpoint.
    """
    source = folder / METADATA
    try:
        if not source.is_file():
            raise CheckpointError(f"{folder}: there is no such checkpoint")
        content = json.loads(inside(folder, METADATA).read_text(encoding="utf-8"))
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise CheckpointError(f"{source}: this is not a sharded bvfim checkpoint")
        digest = content.pop("digest")
        if digest != _digest_of(content):
            raise ValueError("its digest does not match")
        return _contents(folder, content, digest)
    except CheckpointError:
        raise
    except (OSError, LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{source}: the checkpoint is damaged or truncated ({error})") from error


def inside(folder: Path, name: str) -> Path:
    """A regular file of a checkpoint, which no link leads to.

    Args:
        folder: the checkpoint.
        name: the file, relative to it.
    """
    file = folder / name
    if file.resolve() != folder.resolve() / name or not file.is_file():
        raise CheckpointError(f"{file}: the checkpoint is damaged (this is no regular file of its folder)")
    return file


def digest_of_file(file: Path) -> str:
    """A digest of the bytes of a file."""
    found = hashlib.blake2b(digest_size=16)
    with file.open("rb") as stream:
        while block := stream.read(BLOCK):
            found.update(block)
    return found.hexdigest()


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _digest_of(content: dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(content).encode(), digest_size=16).hexdigest()


def _contents(folder: Path, content: dict[str, Any], digest: str) -> Contents:
    for name in content["files"]:
        if not _SHARD.fullmatch(name):
            raise ValueError(f"{reprlib.repr(name)} is not the name of a file of shards")
    if not isinstance(content["local"], list):
        raise TypeError("what each rank saved is not a list")
    saved = Saved(content["numbers"], content["local"])
    contents = Contents(folder, saved, {}, {}, dict(content["files"]), digest)
    for name, tensor in content["tensors"].items():
        dtype, size = DTYPES[tensor["dtype"]], _numbers(tensor["size"])
        chunks = []
        for item in tensor["chunks"]:
            chunk = ChunkStorageMetadata(_numbers(item["offsets"]), _numbers(item["sizes"]))
            index = MetadataIndex(name, chunk.offsets)
            if index in contents.places or item["file"] not in contents.digests:
                raise ValueError(f"a chunk of the tensor {reprlib.repr(name)} has no place of its own")
            contents.places[index] = Place(item["file"], str(item["key"]), chunk.sizes, dtype)
            chunks.append(chunk)
        if not _make_up(size, chunks):
            raise ValueError(f"the chunks of the tensor {reprlib.repr(name)} do not make it up")
        contents.tensors[name] = TensorStorageMetadata(TensorProperties(dtype), size, chunks)
    return contents


def _numbers(item: Any) -> torch.Size:
    if not isinstance(item, list) or not all(type(n) is int and 0 <= n <= LARGEST for n in item):
        raise ValueError(f"{reprlib.repr(item)} is neither a size nor an offset")
    return torch.Size(item)


def _make_up(size: torch.Size, chunks: list[ChunkStorageMetadata]) -> bool:
    """Whether chunks lie inside of a tensor, do not overlap, and leave nothing of it out."""
    for chunk in chunks:
        if not len(chunk.offsets) == len(chunk.sizes) == len(size):
            return False
        if any(begin + length > n for begin, length, n in zip(chunk.offsets, chunk.sizes, size, strict=True)):
            return False
    volumes = [math.prod(chunk.sizes) for chunk in chunks]
    full = [chunk for chunk, volume in zip(chunks, volumes, strict=True) if volume]
    return sum(volumes) == math.prod(size) and all(_apart(a, b) for a, b in combinations(full, 2))


def _apart(a: ChunkStorageMetadata, b: ChunkStorageMetadata) -> bool:
    return any(
        a.offsets[d] + a.sizes[d] <= b.offsets[d] or b.offsets[d] + b.sizes[d] <= a.offsets[d]
        for d in range(len(a.sizes))
    )
