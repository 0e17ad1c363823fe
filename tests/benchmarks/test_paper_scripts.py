"""The scripts that answer what the paper's tables leave open run, and write what the pages show."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest
import torch

SCRIPTS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def written(monkeypatch, tmp_path):
    """A function that runs a script and gives back what it has written."""

    def run(name, *options):
        threads, out = torch.get_num_threads(), tmp_path / "out.json"
        monkeypatch.setattr("sys.argv", [name, *options, "--out", str(out)])
        runpy.run_path(str(SCRIPTS / f"{name}.py"), run_name="__main__")
        torch.set_num_threads(threads)
        found = json.loads(out.read_text())
        assert found["command"].startswith(f"python benchmarks/{name}.py --")
        assert found["machine"]["threads"] == 1
        return found["runs"]

    return run


@pytest.mark.long
def test_trials(written):
    (row,) = written("cleaning_trials", "--only", "RHG", "--seeds", "2", "--upper", "1")
    assert row["trials"] == 9
    assert row["accuracy"] == row["accuracy of z"] > 50


@pytest.mark.long
def test_toy_starts(written):
    rows = written("toy_starts", "--side", "2", "--steps", "1")
    assert len(rows) == 3 * 4 + 2
    assert all(row["share"] == (row["method"] == "AdaptiveBVFIM") for row in rows)


@pytest.mark.long
def test_table_1(written):
    rows = written("table1", "--steps", "3")
    assert len(rows) == 11 * 3
    assert all(row["solved"] for row in rows if row["method"] == "AdaptiveBVFIM")
