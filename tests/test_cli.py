"""The command as a user types it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import bvfim


def run(*arguments, cwd=None):
    code = "from bvfim.cli import main; main()"
    environment = {**os.environ, "PYTHONPATH": str(Path(bvfim.__file__).parent.parent)}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, check=False)


def test_reproduce_complexity_writes_what_it_says(tmp_path):
    done = run("reproduce", "complexity", "--quick", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    names = {path.name for path in (tmp_path / "complexity").iterdir()}
    assert names == {"complexity.csv", "measurements.csv", "complexity.png", "complexity.svg", "summary.json"}
    about = json.loads((tmp_path / "complexity" / "summary.json").read_text())
    assert about["config"] == {"n": 512, "m": 8, "T": 64, "doublings": 2}
    assert about["machine"]["bvfim"] == bvfim.__version__
    assert all(about["summary"]["agrees"].values())
    assert "O(c(Tz + Ty))" in (tmp_path / "complexity" / "complexity.csv").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reproduce", "complexty"], "no experiment is called 'complexty'; did you mean 'complexity'?"),
        (["bench", "speed", "--data", "minst"], "no data set is called 'minst'; did you mean 'mnist'?"),
    ],
)
def test_mistakes_end_in_one_sentence_and_code_two(arguments, message, tmp_path):
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_help_and_version():
    done = run("--help")
    assert done.returncode == 0
    for command in ("demo", "reproduce", "bench"):
        assert command in done.stdout
    assert run("--version").stdout.strip() == f"bvfim {bvfim.__version__}"
    assert run("reproduce", "--nonsense").returncode == 2
