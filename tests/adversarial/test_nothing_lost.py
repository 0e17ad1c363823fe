"""What a user has on disk is neither overwritten nor removed by a second run."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

import bvfim
from bvfim.app import python_file
from bvfim.labels.cleaner import LabelCleaner
from bvfim.reproduce.experiments.complexity import Config
from bvfim.reproduce.experiments.resumable import How, measured
from bvfim.status import BvfimWarning, CheckpointError, ProblemError
from tests.command import command


def test_parts_of_an_earlier_run_are_set_aside(tmp_path):
    folder = tmp_path / "parts"
    for value in (1, 2, 3):
        part = {"one": lambda value=value: pd.DataFrame({"a": [value]})}
        if value == 1:
            measured(Config(), part, How(folder))
        else:
            with pytest.warns(BvfimWarning, match=f"parts-before-{value - 1}"):
                measured(Config(), part, How(folder))
    found = [pd.read_csv(tmp_path / name / "one.csv")["a"][0] for name in ("parts", "parts-before-1", "parts-before-2")]
    assert found == [3, 1, 2]


def test_a_link_stays_a_link(tmp_path):
    real, link = tmp_path / "disk" / "run.safetensors", tmp_path / "run.safetensors"
    real.parent.mkdir()
    link.symlink_to(real)
    bvfim.checkpoint.write(link, {"k": 1})
    assert link.is_symlink()
    assert bvfim.checkpoint.read(real) == {"k": 1}


def test_what_is_no_regular_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="not a regular file"):
        bvfim.checkpoint.write(tmp_path / "pipe", {"k": 1})
    with pytest.raises(ProblemError, match="not a regular file"):
        python_file.read(tmp_path / "pipe")
    with pytest.raises(ProblemError, match="not a regular file"):
        python_file.read(Path("/dev/zero"))


def test_a_file_that_is_too_large_is_refused(tmp_path):
    with (tmp_path / "large.py").open("wb") as file:
        file.truncate(python_file.LARGEST + 1)
    with pytest.raises(ProblemError, match="larger than 16 MiB"):
        python_file.read(tmp_path / "large.py")


PROBLEM = """import torch
x, y, steps, method = torch.full((1,), {start}).double(), torch.zeros(1).double(), 3, "rhg"
def upper(x, y): return ((y - 1) ** 2).sum()
def lower(x, y): return ((y - x) ** 2).sum()
"""


def test_two_files_of_one_name_do_not_overwrite_each_other(tmp_path):
    for folder, start in (("a", 0.0), ("b", 5.0)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "p.py").write_text(PROBLEM.format(start=start))
    saved = tmp_path / "out" / "p" / "solution.safetensors"
    assert command("solve", "a/p.py", cwd=tmp_path).returncode == 0
    first = saved.read_bytes()
    second = command("solve", "b/p.py", cwd=tmp_path)
    assert second.returncode == 2
    assert "solution.safetensors already exists; use --force to overwrite it or --out for" in second.stderr
    assert saved.read_bytes() == first
    assert command("solve", "b/p.py", "--out", "out/other", cwd=tmp_path).returncode == 0
    assert command("solve", "b/p.py", "--force", cwd=tmp_path).returncode == 0
    forced, apart = (load_file(path)["x"] for path in (saved, tmp_path / "out" / "other" / "solution.safetensors"))
    assert torch.equal(forced, apart)
    assert saved.read_bytes() != first


@pytest.mark.filterwarnings("always::bvfim.BvfimWarning")
def test_a_folder_that_is_taken_during_a_run_stays_as_it_is(tmp_path):
    late = "def optimizer(p):\n    open('out/p/index.html', 'a').close()\n    return torch.optim.Adam(p)\n"
    (tmp_path / "p.py").write_text(PROBLEM.format(start=0.0) + late)
    done = command("solve", "p.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "out/p was taken by another run meanwhile" in " ".join(done.stderr.split())
    assert (tmp_path / "out" / "p" / "index.html").read_bytes() == b""
    assert (tmp_path / "out" / "p-2" / "solution.safetensors").is_file()


def test_two_runs_on_one_path_both_go_on(tmp_path):
    failed = []

    def write(k):
        try:
            for i in range(60):
                bvfim.checkpoint.write(tmp_path / "run.safetensors", {"k": k, "i": i, "x": torch.zeros(1000)})
        except CheckpointError as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert bvfim.checkpoint.read(tmp_path / "run.safetensors")["i"] == 59


@pytest.mark.parametrize("damage", [{"k": "three"}, {"rows": 5}, {"x": None}, {"evaluations": []}, {"kinds": 3}])
def test_a_checkpoint_with_absurd_contents_gets_its_sentence(tmp_path, damage):
    problem = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum())
    start, path = torch.zeros(1, dtype=torch.float64), tmp_path / "run.safetensors"
    bvfim.solve(problem, start, start, bvfim.RHG(), steps=2, callbacks=[bvfim.callbacks.Checkpoint(path)])
    bvfim.checkpoint.write(path, {**bvfim.checkpoint.read(path), **damage})
    with pytest.raises(CheckpointError):
        bvfim.solve(problem, start, start, bvfim.RHG(), steps=4, resume=path)


@pytest.mark.filterwarnings("ignore:The number of unique classes:UserWarning")  # scikit-learn suspects it too
@pytest.mark.parametrize("kind", ["unique", "continuous", "nearly unique"])
def test_labels_that_are_no_classes_are_refused(kind):
    numbers = np.random.default_rng(0)
    X, trusted = numbers.normal(size=(60, 3)), np.arange(60) % 3 == 0
    y = {
        "unique": np.arange(60).astype(str),
        "continuous": numbers.normal(size=60),
        "nearly unique": (np.arange(60) // 1.5).astype(str),
    }[kind]
    with pytest.raises(ValueError, match=r"different values in 60 rows|continuous"):
        LabelCleaner().fit(X, y, trusted=trusted)
