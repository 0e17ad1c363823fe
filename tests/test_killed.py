"""A run that is killed ten times and resumed ends as one that was never killed, bit for bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import killed
import pytest
import torch

from bvfim import checkpoint

pytestmark = pytest.mark.long


def bits(item):
    """A checkpoint's content, its tensors as bytes."""
    if isinstance(item, torch.Tensor):
        return item.dtype, item.shape, item.numpy().tobytes()
    if isinstance(item, dict):
        return {key: bits(value) for key, value in item.items()}
    return [bits(value) for value in item] if isinstance(item, list | tuple) else item


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_run_killed_ten_times_ends_bit_equal_to_one_that_never_was(tmp_path):
    command = [sys.executable, killed.__file__, str(tmp_path), "0"]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=one_thread, check=False)
    assert done.returncode == 0, done.stderr
    *parts, whole = json.loads(done.stdout)

    assert sorted(part["moment"] for part in parts) == sorted([*killed.KILLS, "never"])
    assert (parts[0]["from"], parts[-1]["to"]) == (0, killed.STEPS) == (whole["from"], whole["to"])
    for part, following in pairwise(parts):
        assert part["to"] - killed.EVERY <= following["from"] <= part["to"], parts
    assert any(following["from"] < part["to"] for part, following in pairwise(parts)), "no kill lost a step"

    ends = [checkpoint.read(tmp_path / name) for name in ("run.safetensors", "whole.safetensors")]
    for end in ends:
        del end["seconds"], end["rows"]["seconds"]
    assert bits(ends[0]) == bits(ends[1])
    assert set(ends[0]) > {"x", "state", "optimizer", "scheduler", "draws", "rows", "evaluations", "random"}

    names = [f"{name}.safetensors{ending}" for name in ("run", "whole") for ending in ("", ".old-1")]
    assert sorted(path.name for path in Path(tmp_path).iterdir()) == names
