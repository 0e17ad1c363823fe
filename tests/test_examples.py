"""The examples run, and show what they say."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_a_loop_of_ones_own_learns_which_rows_count(capsys):
    path = EXAMPLES / "own_loop.py"
    assert len(path.read_text().splitlines()) <= 25
    runpy.run_path(str(path))
    (share,) = re.findall(r"(\d+)% are right", capsys.readouterr().out)
    assert int(share) >= 90  # 70 before
