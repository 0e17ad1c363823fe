"""``bvfim advise`` as a user types it."""

from __future__ import annotations

import pytest

from bvfim.app.problem_file import EXAMPLE
from tests.command import command


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "game.py"
    path.write_text(EXAMPLE)
    return path


def test_it_prints_a_method_its_reasons_and_the_line_that_runs_it(file):
    done = command("advise", str(file), "--no-trial")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("AdaptiveBVFIM")
    for part in ("x and y have 2 and 2 entries", "Run: bvfim.solve(problem, x, y,", "Runner-up:", "What would change"):
        assert part in done.stdout


@pytest.mark.long
def test_a_trial_is_told(file):
    done = command("advise", str(file), "--seconds", "300")
    assert done.returncode == 0, done.stderr
    assert "trial" in done.stdout.lower()


def test_an_error_names_the_line(file):
    file.write_text(EXAMPLE.replace("((y - x) ** 2).sum()", "(y - x) ** 2"))
    done = command("advise", str(file))
    assert done.returncode == 2
    assert "game.py:5" in done.stderr
