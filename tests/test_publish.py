"""What is said of the version and of Python in several files is said alike."""

from __future__ import annotations

import re
from pathlib import Path

import bvfim

ROOT = Path(__file__).parent.parent
PYTHONS = ["3.10", "3.11", "3.12", "3.13"]


def test_the_citation_has_the_version():
    (version,) = re.findall(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert version == bvfim.__version__


def test_every_python_that_is_promised_is_tried():
    promised = (ROOT / "pyproject.toml").read_text()
    assert re.findall(r"Python :: (3\.\d+)", promised) == PYTHONS
    assert f'requires-python = ">={PYTHONS[0]}"' in promised
    listed = ", ".join(f'"{python}"' for python in PYTHONS)
    assert f"python: [{listed}]" in (ROOT / ".github/workflows/ci.yml").read_text()
