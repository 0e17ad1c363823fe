"""Checkpoints of runs on a mesh: folders, which any number of ranks can resume from, as they can from a file.

Rows of x, and what an optimiser knows of each entry of x, are saved as parts of whole tensors, so that other ranks can
take other rows. The positions of batches and of random generators belong to each rank.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from torch import Tensor

from bvfim import checkpoint
from bvfim.checkpoint import as_path, pack, unpack
from bvfim.distributed import storage
from bvfim.distributed.files import told
from bvfim.distributed.mesh import as_sharded, is_sharded
from bvfim.distributed.metadata import read
from bvfim.distributed.world import World
from bvfim.status import CheckpointError, warn

Likes = dict[str, list[Any]]
"""For each part of a run, tensors that say on which ranks its own lie: DTensors, or plain ones that are everywhere."""
OF_X = ("x", "optimizer")
"""The parts that hold the rows of this rank as plain tensors."""


class Spread(NamedTuple):
    """A tensor of a run that lies on several ranks, a DTensor that says how, and whether the run holds its own rows."""

    tensor: Tensor
    like: Any
    rows: bool


def save(
    path: str | os.PathLike[str], content: dict[str, Any], own: dict[str, Any], world: World, likes: Likes
) -> None:
    """Write a checkpoint, on all ranks together.

    Args:
        path: the folder to write or replace. A file of that name, which one process wrote, becomes its predecessor.
        content: what there is of the run; but for ``likes``, it is the same on every rank.
        own: what each rank has for itself.
        world: the processes of the run.
        likes: which parts lie on several ranks.
    """

    def packed() -> tuple[dict[str, Tensor], Any, dict[str, Any]]:
        with told(path, "written"):
            if world.rank == 0 and as_path(path).is_file():
                checkpoint.shift(as_path(path), as_path(path), keep=2)
            spread = {id(found.tensor): found.like for found in _spread(content, likes, here=True)}
            tensors: dict[str, Tensor] = {}
            numbers = pack(content, tensors)
            for name, t in tensors.items():
                if id(t) in spread and not is_sharded(t):
                    tensors[name] = as_sharded(t, spread[id(t)])
            return tensors, numbers, {name: _as_text(one) for name, one in own.items()}

    tensors, numbers, local = world.together(packed)
    storage.save(path, tensors, numbers, world.group, local=local, alone=world.group is None)


def load(path: str | os.PathLike[str], world: World, likes: Likes) -> tuple[Path, dict[str, Any]]:
    """A checkpoint, and its content with what this rank has for itself; on all ranks together.

    Args:
        path: a folder or a file. For a file that is damaged or not there, its predecessor.
        world: the processes of the run.
        likes: which parts are to lie on several ranks, and how.
    """
    if world.agreed([checkpoint.is_folder(path)])[0]:
        return as_path(path), _of_folder(path, world, likes)
    source, content = world.together(lambda: checkpoint.newest(path))
    return source, _shared_out(content, likes)


def _shared_out(content: dict[str, Any], likes: Likes) -> dict[str, Any]:
    """The content of a file, of which this rank keeps its rows."""
    from torch.distributed.tensor import distribute_tensor

    spread = {id(found.tensor): found for found in _spread(content, likes)}
    tensors: dict[str, Tensor] = {}
    packed = pack(content, tensors)
    for name, t in tensors.items():
        if id(t) in spread:
            _, like, rows = spread[id(t)]
            whole: Any = distribute_tensor(t, like.device_mesh, like.placements)
            tensors[name] = whole.to_local() if rows else whole
    found: dict[str, Any] = unpack(packed, tensors)
    return found


def _of_folder(path: str | os.PathLike[str], world: World, likes: Likes) -> dict[str, Any]:
    def blanks() -> tuple[dict[str, Any], list[str]]:
        """Tensors to fill, and the names of those that hold rows of x."""
        with told(path, "read"):
            contents = read(as_path(path))
            named = {
                name: torch.empty(found.size, dtype=found.properties.dtype, device="meta")
                for name, found in contents.tensors.items()
            }
            spread = {id(found.tensor): found for found in _spread(unpack(contents.saved.numbers, named), likes)}
            tensors = {
                name: _blank(t, spread[id(t)].like) if id(t) in spread else torch.empty_like(t, device="cpu")
                for name, t in named.items()
            }
            return tensors, [name for name, t in named.items() if id(t) in spread and spread[id(t)].rows]

    tensors, of_x = world.together(blanks)
    numbers, ranks = storage.load(path, tensors, world.group, alone=world.group is None)
    with told(path, "read"):
        found: dict[str, Any] = unpack(numbers, tensors | {name: tensors[name].to_local() for name in of_x})
        own = ranks[world.rank] if len(ranks) == world.size else ranks[0]
        found |= {name: _of_text(one) for name, one in own.items()}
        differ = len(ranks) != world.size and any(one["draws"] != own["draws"] for one in ranks)
    if differ:
        warn(
            f"{path}: the {len(ranks)} processes that wrote the checkpoint were at different positions of their "
            f"batches; now all go on at that of the first ({world.size} in number), in another order"
        )
    return found


def _spread(content: dict[str, Any], likes: Likes, here: bool = False) -> Iterator[Spread]:
    """The tensors that lie on several ranks: whole ones, or ``here`` those of this rank."""
    for part, leaves in likes.items():
        for like, t in _paired(content.get(part), leaves):
            if not is_sharded(like):
                continue
            rows = part in OF_X
            shape = like.to_local().shape if here and rows else like.shape
            if t.shape == shape:
                yield Spread(t, like, rows)
            elif here and t.dim() and not is_sharded(t):
                raise CheckpointError(
                    f"{part}: it holds a tensor of shape {tuple(t.shape)}, which is neither a number nor has an entry "
                    "for each one of x: where the rows of x lie on several ranks, this can't be saved"
                )


def _paired(found: Any, leaves: list[Any]) -> Iterator[tuple[Any, Tensor]]:
    """The tensors of a part, each with the leaf that it belongs to: leaves themselves, or the state of an optimiser."""
    if isinstance(found, list):
        yield from zip(leaves, found, strict=False)  # where they do not match, the run will refuse them
    elif isinstance(found, dict):
        for i, memory in found["state"].items():
            yield from ((leaves[i], t) for t in memory.values() if isinstance(t, Tensor))


def _blank(t: Tensor, like: Any) -> Any:
    """A DTensor to fill with the values of a tensor."""
    return as_sharded(torch.empty_like(like.to_local(), dtype=t.dtype), like)


def _as_text(item: Any) -> dict[str, Any]:
    """What JSON can hold of a nesting with tensors."""
    tensors: dict[str, Tensor] = {}
    packed = pack(item, tensors)
    data = safetensors.torch.save({name: t.detach().cpu().clone().contiguous() for name, t in tensors.items()})
    return {"content": packed, "tensors": base64.b64encode(data).decode()}


def _of_text(text: dict[str, Any]) -> Any:
    """The inverse of :func:`_as_text`."""
    return unpack(text["content"], safetensors.torch.load(base64.b64decode(text["tensors"])))
