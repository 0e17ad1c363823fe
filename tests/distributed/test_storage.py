"""Sharded checkpoints: what some ranks saved comes back on others, a save is whole or not at all, damage is refused."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

from bvfim.distributed import files
from bvfim.distributed.storage import load, peek, save
from bvfim.status import CheckpointError
from tests.distributed.ranks import run_ranks

NUMBERS = {"k": 3, "rates": [0.1, 1e-300], "name": "mu \N{GREEK SMALL LETTER MU}", "none": None, "deep": {"ok": True}}


def whole():
    """The tensors as one process would hold them."""
    return {
        "even": torch.arange(24, dtype=torch.float64).reshape(8, 3),
        "uneven": torch.arange(35, dtype=torch.float32).reshape(7, 5),
        "few": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),  # of four ranks, two have nothing of it
        "columns": torch.arange(12).reshape(2, 6),
        "replicated": torch.linspace(-1, 1, 3, dtype=torch.float64),
        "empty": torch.zeros(0, 3),
        "plain": torch.tensor([True, False]),
        "scalar": torch.tensor(2.5, dtype=torch.bfloat16),
        "strided": torch.arange(12, dtype=torch.int32).reshape(3, 4).T,
        "conjugated": torch.tensor([1 + 2j, 3 - 1j], dtype=torch.complex64).conj(),
    }


PLACEMENTS = {
    "even": Shard(0), "uneven": Shard(0), "few": Shard(0), "empty": Shard(0), "columns": Shard(1),
    "replicated": Replicate(),
}  # fmt: skip
"""Of the DTensors; the others are plain."""


def mesh():
    return init_device_mesh("cpu", (dist.get_world_size(),))


def spread(tensors):
    return {
        name: distribute_tensor(tensor, mesh(), [PLACEMENTS[name]]) if name in PLACEMENTS else tensor
        for name, tensor in tensors.items()
    }


def blank():
    return {name: torch.ones_like(tensor) for name, tensor in whole().items()}


def assert_whole(tensors):
    for name, expected in whole().items():
        found = tensors[name].full_tensor() if isinstance(tensors[name], DTensor) else tensors[name]
        assert found.dtype == expected.dtype, name
        assert torch.equal(found, expected), name


def raised(action, *args, **options):
    """The text of the error."""
    with pytest.raises(CheckpointError) as caught:
        action(*args, **options)
    return str(caught.value)


def step(weight, optimizer):
    optimizer.zero_grad()
    weight.square().sum().backward()
    optimizer.step()


def trained(steps):
    """A sharded weight and its Adam."""
    weight = torch.nn.Parameter(distribute_tensor(torch.linspace(-1, 1, 10).reshape(5, 2), mesh(), [Shard(0)]))
    optimizer = torch.optim.Adam([weight], 0.1)
    for _ in range(steps):
        step(weight, optimizer)
    return weight, optimizer, {"w": weight, **{f"adam.{key}": t for key, t in optimizer.state[weight].items()}}


def saves(rank, count, folder):
    """Save, and go on for a step."""
    save(folder / f"from-{count}", spread(whole()), NUMBERS if rank == 0 else "ignored", local={"rank": rank})
    weight, optimizer, state = trained(3)
    save(folder / f"adam-{count}", state, {"betas": optimizer.param_groups[0]["betas"]})
    step(weight, optimizer)
    return weight.detach().full_tensor()


def loads(rank, count, folder, saved_by):
    """Load what others saved, and go on for a step."""
    tensors = spread(blank())
    given = dict(tensors)
    saved = load(folder / f"from-{saved_by}", tensors)
    assert all(tensors[name] is given[name] for name in given)
    assert_whole(tensors)
    assert saved == (NUMBERS, [{"rank": r} for r in range(saved_by)])

    weight, optimizer, state = trained(1)
    assert load(folder / f"adam-{saved_by}", state).numbers == {"betas": [0.9, 0.999]}
    step(weight, optimizer)
    return weight.detach().full_tensor()


def loads_alone(folder, saved_by):
    tensors = blank()
    assert load(folder / f"from-{saved_by}", tensors).local[-1] == {"rank": saved_by - 1}
    assert_whole(tensors)


def on_four(rank, count, folder):
    """Also in two groups, of which each saves and loads for itself."""
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    mine = folder / f"group-{rank // 2}"
    save(mine, {"x": torch.full((2,), rank // 2)}, rank, groups[rank // 2], local=rank)
    x = torch.zeros(2, dtype=torch.int64)
    first = 2 * (rank // 2)
    assert load(mine, {"x": x}, groups[rank // 2]) == (first, [first, first + 1])
    assert x.tolist() == 2 * [rank // 2]
    return loads(rank, count, folder, 2), saves(rank, count, folder)


def on_two(rank, count, folder):
    tensors = spread(blank())
    load(folder / "from-1", tensors)
    assert_whole(tensors)
    return loads(rank, count, folder, 4)


@pytest.mark.long
def test_what_some_ranks_saved_comes_back_on_others(tmp_path):
    expected = run_ranks(2, saves, tmp_path)[0]
    loads_alone(tmp_path, 2)
    found = [tensor for pair in run_ranks(4, on_four, tmp_path) for tensor in pair]
    loads_alone(tmp_path, 4)
    save(tmp_path / "from-1", whole(), NUMBERS, local={"rank": 0})
    loads_alone(tmp_path, 1)
    found += run_ranks(2, on_two, tmp_path)
    assert len(found) == 10
    assert all(torch.equal(tensor, expected) for tensor in found)


class Unpicklable(Exception):
    def __reduce__(self):
        raise TypeError("this can't be sent to another rank")


def failing(error):
    def fail(*_, **__):
        raise error

    return fail


def failures(rank, count, folder):
    """What each rank raises where one fails, and at the end one dies."""
    path, told = folder / "run", {}
    tensors = spread(whole())
    save(path, tensors, 1)

    def where_second_fails(error):
        with pytest.MonkeyPatch.context() as patch:
            if rank == 1:
                patch.setattr(files, "save_file", failing(error))
            return raised(save, path, tensors, 2)

    told["disk full"] = where_second_fails(OSError(errno.ENOSPC, "No space left on device"))
    told["unpicklable"] = where_second_fails(Unpicklable("odd"))
    told["interrupted"] = where_second_fails(KeyboardInterrupt())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", failing(OSError(errno.EIO, "Input/output error")))
        told["not moved"] = raised(save, path, tensors, 2)
    told["local"] = raised(save, path, tensors, 2, local={1} if rank else None)
    told["path"] = raised(save, 3 if rank else path, tensors, 2)
    told["list"] = raised(save, path, [] if rank else tensors, 2)
    summand = DTensor.from_local(torch.ones(2), mesh(), [Partial()])
    told["partial"] = raised(save, path, {"g": summand}, 2)
    told["unfit"] = raised(load, path, {"even": torch.zeros(8 + rank // 2, 3, dtype=torch.float64)})
    dist.barrier()
    assert_alone(path, 1)
    dist.barrier()

    damaged = folder / "damaged"
    if rank == 0:
        shutil.copytree(path, damaged)
        (file,) = damaged.glob("*/rank-1.*")
        change_byte(file, -1)
    dist.barrier()
    blanks = spread(blank())
    told["damaged"] = raised(load, damaged, blanks)
    for name, tensor in blanks.items():
        here = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        assert torch.equal(here, torch.ones_like(here)), name

    if rank == 1:
        files.save_file = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    told["dead"] = raised(save, path, tensors, 2)
    return told


@pytest.mark.long
def test_where_one_rank_fails_all_raise_and_the_earlier_checkpoint_stays(tmp_path):
    told, dead, other = run_ranks(3, failures, tmp_path)
    assert dead is None
    path = tmp_path / "run"
    shards = rf"{re.escape(str(path))}/shards-\w{{8}}/rank-1.safetensors"
    unwritten = f"{path}: the checkpoint could not be written"
    expected = {
        "disk full": rf"{shards}: the checkpoint could not be written \(No space left on device\)",
        "unpicklable": rf"{shards}: the checkpoint could not be written \(odd\)",
        "interrupted": re.escape(f"{unwritten} (KeyboardInterrupt)"),
        "not moved": re.escape(f"{path}/metadata.json: the checkpoint could not be written (Input/output error)"),
        "local": re.escape(f"{unwritten} (a set is nothing that JSON can hold)"),
        "path": "the path of a checkpoint must be a str or a path, not 3",
        "list": re.escape(f"{unwritten} ('list' object has no attribute 'items')"),
        "partial": re.escape(f"{unwritten} (the tensor 'g' is not yet summed up over the ranks)"),
        "unfit": re.escape(
            f"{path}: the checkpoint could not be read "
            "(it has the tensor 'even' as float64 of shape (8, 3), not as float64 of shape (9, 3))"
        ),
        "damaged": rf"{re.escape(str(tmp_path / 'damaged'))}/shards-\w{{8}}/rank-1.safetensors: "
        rf"the checkpoint is damaged \(its digest does not match\)",
        "dead": re.escape(unwritten) + r" \(.+\)",
    }
    assert told.keys() == other.keys() == expected.keys()
    for case, pattern in expected.items():
        assert re.fullmatch(pattern, told[case]), told[case]
        assert other[case] == told[case] or case == "dead"
    assert_alone(path, 1)
    save(path, whole(), 2)
    assert_alone(path, 2)


def assert_alone(path, numbers):
    """The checkpoint is this one, and nothing else is in its folder."""
    assert peek(path).numbers == numbers
    assert sorted(file.name.partition("-")[0] for file in path.iterdir()) == ["metadata.json", "shards"]


def change_byte(file, at):
    raw = bytearray(file.read_bytes())
    raw[at] ^= 1
    file.write_bytes(raw)
