from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    """Two workers on two cores: one thread each."""
    torch.set_num_threads(1)


@pytest.fixture
def mnist():
    """Skips, with a reason, where the real files are not there."""
    folder = Path(os.environ.get("BVFIM_DATA", "")) / "mnist"
    if not os.environ.get("BVFIM_DATA") or not folder.is_dir():
        pytest.skip("BVFIM_DATA names no folder with mnist in it")
    return "mnist"
