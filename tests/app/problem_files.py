"""The text of a problem stated in a file, whole and in parts, and the fixture that writes and loads it."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from bvfim.app import problem_file

START = "import torch, bvfim\nx, y = torch.zeros(2).double(), torch.zeros(2).double()\n"
UPPER = "def upper(x, y):\n    return ((y - 1) ** 2).sum() + (x**2).sum()\n"
LOWER = "def lower(x, y):\n    return ((y - x) ** 2).sum()\n"
GOOD = START + UPPER + LOWER  # upper is on line 3, lower on line 5, more begins on line 7


@pytest.fixture
def state(tmp_path, monkeypatch):
    """Write a file named ``game.py`` into the working folder and load it."""
    monkeypatch.chdir(tmp_path)

    def write(text):
        Path("game.py").write_text(textwrap.dedent(text))
        return problem_file.load("game.py")

    return write
