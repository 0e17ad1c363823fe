"""The examples run, and show what they say."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_a_loop_of_ones_own_learns_which_rows_count(capsys):
    path = EXAMPLES / "own_loop.py"
    assert len(path.read_text().splitlines()) <= 25
    runpy.run_path(str(path))
    (share,) = re.findall(r"(\d+)% are right", capsys.readouterr().out)
    assert int(share) >= 90  # 70 before


@pytest.mark.long
def test_two_processes_learn_which_rows_count():
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    for command in ([sys.executable], torchrun):
        script = str(EXAMPLES / "several_gpus.py")
        found = subprocess.run([*command, script], capture_output=True, text=True, timeout=120, check=True).stdout
        right, wrong = map(float, re.findall(r"\d\.\d+", found))
        assert right > 0.6
        assert wrong < 0.2
