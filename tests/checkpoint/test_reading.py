"""Files that can't be read: damaged ones, those of someone else, and none at all."""

from __future__ import annotations

import os
import random
import re

import pytest
import torch
from safetensors.torch import save_file

from bvfim import checkpoint
from bvfim.status import CheckpointError
from tests.checkpoint import saved
from tests.checkpoint.saved import refused

good = saved.good


def header_end(raw):
    return 8 + int.from_bytes(raw[:8], "little")


def test_a_file_cut_anywhere_is_refused(good):
    for length in reversed(range(len(good.read_bytes()))):
        os.truncate(good, length)
        with refused(good):
            checkpoint.read(good)


def flipped(path, begin, end):
    """The file with one bit after the other flipped, in place: a file that is written anew waits for the disk."""
    raw = path.read_bytes()
    with path.open("r+b", buffering=0) as file:
        for i in range(begin, end):
            for byte in [raw[i] ^ (1 << bit) for bit in range(8)]:
                file.seek(i)
                file.write(bytes([byte]))
                yield
            file.seek(i)
            file.write(raw[i : i + 1])


@pytest.mark.parametrize("part", ["length", "header", "tensors"])
def test_a_flipped_bit_is_noticed(good, part):
    raw = good.read_bytes()
    end = header_end(raw)
    missed = 0
    for _ in flipped(good, *{"length": (0, 8), "header": (8, end), "tensors": (end, len(raw))}[part]):
        try:
            checkpoint.read(good)
            missed += 1
        except CheckpointError:
            pass
        except Exception:
            missed += 1
    assert missed == 0
    assert good.read_bytes() == raw


def test_random_bytes_are_refused(tmp_path):
    path, chance = tmp_path / "noise", random.Random(0)
    for length in [0, 1, 7, 8, 9, 16, *[chance.randrange(2000) for _ in range(60)]]:
        path.write_bytes(chance.randbytes(length))
        with refused(path):
            checkpoint.read(path)
        path.write_bytes(max(length - 8, 0).to_bytes(8, "little") + chance.randbytes(max(length - 8, 0)))
        with refused(path):
            checkpoint.read(path)


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}, {"format": "bvfim-checkpoint-0", "content": "{}"}])
def test_the_safetensors_file_of_someone_else_is_refused(tmp_path, metadata):
    path = tmp_path / "model.safetensors"
    save_file({"w": torch.ones(2)}, path, metadata)
    with pytest.raises(CheckpointError, match=f"{re.escape(str(path))}: this is not a bvfim checkpoint"):
        checkpoint.read(path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "{}",
        "3",
        "null",
        '{"list": []}',
        '{"dict": 3}',
        '{"dict": [["a"]]}',
        '{"dict": [["a", {}]]}',
        '{"dict": [["a", {"tensor": "7"}]]}',
        '{"dict": [["a", {"tensor": []}]]}',
        '{"dict": [["a", {"pickle": ["b"]}]]}',
        '{"dict": [[{"list": []}, 1]]}',
        "[" * 100_000,
    ],
    ids=lambda text: text[:40] or "empty",
)
def test_a_header_that_makes_no_sense_is_refused(tmp_path, text):
    path = tmp_path / "run.safetensors"
    save_file({"0": torch.ones(2)}, path, {"format": checkpoint.FORMAT, "content": text})
    with refused(path):
        checkpoint.read(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path in (tmp_path / "nowhere", tmp_path):
        with refused(path):
            checkpoint.read(path)
