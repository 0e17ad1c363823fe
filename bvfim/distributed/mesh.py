"""Meshes, groups, and tensors whose rows lie on several ranks."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from bvfim import tree
from bvfim.core.draw import Several
from bvfim.status import MethodError


def count(batch: Any) -> int:
    """The rows of a batch: those of its first tensor that has a dimension; 1 where there is none.

    Example:
        >>> import torch
        >>> from bvfim.distributed.mesh import count
        >>> count({"inputs": torch.zeros(5, 2), "labels": torch.zeros(5)}), count(0.5)
        (5, 1)
    """
    if isinstance(batch, Several):
        return count(batch.draws[-1])
    return next((len(t) for t in tree.leaves(batch) if isinstance(t, Tensor) and t.dim()), 1)


def group_of(mesh: DeviceMesh | dist.ProcessGroup) -> dist.ProcessGroup:
    """The group of a mesh with one dimension."""
    if isinstance(mesh, dist.ProcessGroup):
        return mesh
    if not isinstance(mesh, DeviceMesh):
        raise MethodError(
            f"mesh must be a torch.distributed.device_mesh.DeviceMesh or a process group, not a {type(mesh).__name__}"
        )
    if mesh.ndim != 1:
        raise MethodError(f"mesh must have one dimension, not {mesh.ndim}: take that of the data, such as mesh['dp']")
    return mesh.get_group()


def place_in(mesh: DeviceMesh | dist.ProcessGroup | None) -> tuple[int, int]:
    """The rank of this process, and how many there are.

    Example:
        >>> from bvfim.distributed.mesh import place_in
        >>> place_in(None)
        (0, 1)
    """
    if mesh is None:
        return 0, 1
    group = group_of(mesh)
    return dist.get_rank(group), dist.get_world_size(group)


def is_sharded(t: Any) -> bool:
    """Whether a tensor is a DTensor."""
    return hasattr(t, "to_local") and hasattr(t, "device_mesh")


def by_rows(t: Any, group: dist.ProcessGroup) -> bool:
    """Whether a DTensor is sharded along its first dimension on the mesh of a group."""
    return t.placements[0].is_shard(0) and t.device_mesh.ndim == 1 and t.device_mesh.get_group() == group


def as_sharded(rows: Tensor, like: Any) -> Any:
    """The DTensor whose rows on this rank these are."""
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(
        rows, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
    )
