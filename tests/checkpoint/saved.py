"""What the tests of checkpoints write, and what they say of it."""

from __future__ import annotations

import re

import pytest
import torch

from bvfim import checkpoint
from bvfim.status import CheckpointError

content = {"k": 3, 1: (None, 2.5, True), "x": torch.arange(6, dtype=torch.float64).reshape(2, 3), "rows": [{"a": "b"}]}


@pytest.fixture
def good(tmp_path):
    path = tmp_path / "run.safetensors"
    checkpoint.write(path, content)
    return path


def same(a, b):
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        alike = a.dtype == b.dtype and a.shape == b.shape
        return alike and torch.equal(a.contiguous().view(-1).view(torch.uint8), b.view(-1).view(torch.uint8))
    if isinstance(a, dict):
        return list(map(repr, a)) == list(map(repr, b)) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b or (a != a and b != b)


def refused(path):
    return pytest.raises(CheckpointError, match=re.escape(str(path)))


def written(folder, *numbers, keep):
    path = folder / "run.safetensors"
    for k in numbers:
        checkpoint.write(path, {"k": k}, keep)
    return path
