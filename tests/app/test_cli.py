"""The command as a user types it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console
from safetensors.torch import load_file
from typer.testing import CliRunner

import bvfim
from bvfim.app import cli, results
from bvfim.reports import page, report
from bvfim.status import DataError
from tests.browser import assert_shown
from tests.command import command


def started(*arguments, cwd=None):
    """The command in a process of its own."""
    code = "from bvfim.app.main import main; main()"
    environment = {**os.environ, "PYTHONPATH": str(Path(bvfim.__file__).parent.parent)}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=cwd, env=environment, check=False
    )


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory):
    out = tmp_path_factory.mktemp("reproduced")
    done = command("reproduce", "theorem", "complexity", "--quick", "--seed", "3", "--workers", "1", "--out", str(out))
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.long
def test_reproduce_writes_what_it_says(reproduced):
    names = {path.name for path in (reproduced / "complexity").iterdir()}
    assert names == {"complexity.csv", "measurements.csv", "complexity.png", "complexity.svg", "summary.json", "parts"}
    about = json.loads((reproduced / "complexity" / "summary.json").read_text())
    assert about["config"] == {"n": 512, "m": 8, "T": 64, "doublings": 2, "seed": 3, "device": "cpu"}
    assert about["machine"]["bvfim"] == bvfim.__version__
    assert all(about["summary"]["agrees"].values())
    assert "O(c(Tz + Ty))" in (reproduced / "complexity" / "complexity.csv").read_text()


@pytest.mark.long
def test_a_resumed_run_takes_over_what_is_there_and_gives_the_same_numbers(reproduced, tmp_path):
    shutil.copytree(reproduced / "theorem", tmp_path / "theorem")
    gone = sorted((tmp_path / "theorem" / "parts").glob("*.csv"))[0]
    gone.unlink()
    options = ["--quick", "--seed", "3", "--resume", "--out", str(tmp_path)]
    assert command("reproduce", "theorem", *options).returncode == 0
    assert gone.exists()
    for path in (reproduced / "theorem").glob("*.csv"):
        assert (tmp_path / "theorem" / path.name).read_text() == path.read_text()
    other = command("reproduce", "theorem", "--quick", "--seed", "4", "--resume", "--out", str(tmp_path))
    assert other.returncode == 2
    assert "the run to resume used a different seed" in " ".join(other.stderr.split())


@pytest.mark.long
def test_a_browser_shows_the_page_of_a_run(reproduced):
    assert_shown(reproduced / "index.html")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reproduce", "complexty"], "no experiment is called 'complexty'; did you mean 'complexity'?"),
        (["reproduce", "toy", "--device", "gpu0"], "--device gpu0:"),
        (["solve", "nothing.py"], "nothing.py: no such file"),
        (["bench", "speed", "--data", "minst"], "no data set is called 'minst'; did you mean 'mnist'?"),
    ],
)
def test_mistakes_end_in_one_sentence_and_code_two(arguments, message, tmp_path):
    done = command(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_help_and_version():
    done = started("--help")
    assert done.returncode == 0
    for name in ("demo", "solve", "reproduce", "bench", "clean"):
        assert name in done.stdout
    assert command("--version").stdout.strip() == f"bvfim {bvfim.__version__}"
    assert command("reproduce", "--nonsense").returncode == 2


GAME = Path(bvfim.__file__).parent.parent / "examples" / "stackelberg.py"


@pytest.fixture(scope="module")
def solved(tmp_path_factory):
    out = tmp_path_factory.mktemp("solved")
    done = command("solve", str(GAME), "--out", str(out / "game"), "--seed", "1")
    assert done.returncode == 0, done.stderr
    return done, out / "game"


def test_a_file_is_solved_and_reported(solved):
    done, out = solved
    assert "converged" in done.stdout
    assert "step 0: F" in done.stderr, "the course, in plain lines where there is no terminal"
    assert load_file(out / "solution.safetensors")["x"].tolist() == pytest.approx([5, 4, 5.5], abs=5e-3)
    assert {"index.html", "summary.json", "history.csv", "solution.csv"} <= {path.name for path in out.iterdir()}


def test_a_browser_shows_the_report_of_a_file(solved):
    assert_shown(solved[1] / "index.html")


GOOD = {
    "x": "x = torch.zeros(2)",
    "y": "y = torch.zeros(2)",
    "upper": "def upper(x, y): return ((y - 1) ** 2).sum()",
    "lower": "def lower(x, y): return ((y - x) ** 2).sum()",
}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ({"upper": "def upper(x, y) return 0"}, "file.py:4: SyntaxError"),
        ({"lower": ""}, "file.py does not define lower"),
        ({"y": "y = torch.zeros(3)"}, "file.py:5, in lower: RuntimeError: The size of tensor a (3) must match"),
        ({"upper": "def upper(x, y): return (y - 1).log().sum()"}, "file.py:4: upper is nan at the start"),
    ],
    ids=["a syntax error", "a missing name", "a wrong shape", "a NaN"],
)
def test_a_wrong_file_is_told_in_one_screen_with_its_line(line, told, tmp_path):
    (tmp_path / "file.py").write_text("\n".join(["import torch", *{**GOOD, **line}.values()]) + "\n")
    done = command("solve", "file.py", cwd=tmp_path)
    assert done.returncode == 2
    assert told in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 24
    assert "Traceback" in command("solve", "file.py", "--debug", cwd=tmp_path).stderr


@pytest.mark.long
def test_a_narrow_terminal_gets_the_columns_that_fit(reproduced, monkeypatch, capsys):
    frame = pd.read_csv(reproduced / "theorem" / "theorem-falling.csv").set_index(["problem", "k"])
    for width in (80, 300):
        monkeypatch.setattr(results, "console", Console(width=width))
        results.show(page.Chapter("theorem", None, report.Results({"theorem-falling": frame}), reproduced))
    narrow, wide = capsys.readouterr().out.split("data and figures:")[:2]
    assert "more columns in theorem-falling.csv" in narrow
    assert "0.3219" in narrow, "whole numbers, not the beginnings of them"
    assert "more columns" not in wide


def test_marks_in_a_table_are_shown_as_they_are(capsys):
    frame = pd.DataFrame({"[/x]": ["[red]"]})
    results.show(page.Chapter("any", None, report.Results({"t": frame})))
    assert "[/x]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["few-shot", "--ways", "five"], "--ways five: expected whole numbers, comma-separated"),
        (["few-shot", "--fit", "0.1"], "--fit 0.1: expected a number and a whole number, as in 0.1,10"),
        (["few-shot", "--ways", "1"], "ways must be a whole number of at least 2, not 1"),
        (["few-shot", "--data", "digits"], "no data set is called 'digits'"),
        (["few-shot", "--methods", "CG"], "no method is called 'CG'"),
        (["few-shot", "--seeds", "3"], "--seeds does not apply to few-shot"),
        (["toy", "--train-ways", "3"], "--train-ways does not apply to toy"),
        (["toy", "--ways", "3"], "--ways does not apply to toy"),
    ],
)
def test_options_of_an_experiment_are_checked_before_it_runs(arguments, message, tmp_path):
    done = CliRunner().invoke(cli.app, ["reproduce", *arguments, "--out", str(tmp_path / "out")])
    assert isinstance(done.exception, DataError)
    assert message in str(done.exception)
    assert not (tmp_path / "out").exists()


def test_all_leaves_out_on_a_cpu_what_takes_hours_there(capsys):
    assert "few-shot" not in cli._chosen(["all"], "cpu")
    assert "skipping few-shot, which takes hours on a CPU" in " ".join(capsys.readouterr().out.split())
    assert "few-shot" in cli._chosen(["all"], "cuda")
    assert list(cli._chosen(["few-shot"], "cpu")) == ["few-shot"]


def test_quick_sizes_give_way_to_what_was_asked_for():
    chosen = cli._chosen(["few-shot", "cleaning"], "cpu")

    def sizes(**asked):
        found = cli._configs(chosen, asked, True, seed=0, device="cpu")
        return {name: (config.methods, config.steps) for name, config in found.items()}

    assert sizes()["few-shot"] == (("BVFIM",), 200)
    assert {steps for _, steps in sizes(steps=1000).values()} == {1000}
    every = sizes(methods=("all",))
    assert every["few-shot"][0] == ("RHG", "TRHG", "BDA", "BVFIM")
    assert {"CG", "Neumann"} < set(every["cleaning"][0])


def test_all_settings_are_looked_at_before_the_first_experiment(tmp_path):
    done = command("reproduce", "cleaning", "few-shot", "--methods", "CG", "--out", str(tmp_path))
    assert done.returncode == 2
    assert "no method is called 'CG'" in done.stderr
    assert not list(tmp_path.iterdir())
