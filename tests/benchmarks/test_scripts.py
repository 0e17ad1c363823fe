import json
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

SCRIPTS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    """Imports a script as it is imported when it is run; afterwards it is forgotten."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    before = set(sys.modules)
    yield import_module
    for name in set(sys.modules) - before:
        if (SCRIPTS / f"{name}.py").exists():
            del sys.modules[name]


def test_a_rivals_best_numbers_are_chosen_one_by_one(script):
    looks = script("few_trusted_mnist").Looks(None, 100)
    looks.rows = [
        {"accuracy": 0.8, "AUROC": 0.9, "retrained": 0.7, "seconds": 1.0},
        {"accuracy": 0.7, "AUROC": 0.8, "retrained": 0.9, "seconds": 2.0},
    ]
    best = looks.best()
    assert [best[key] for key in ("accuracy", "AUROC", "retrained")] == [0.8, 0.9, 0.9]
    assert (best["seconds"], best["seconds in all"]) == (1.0, 2.0)


def test_distillation_starts_at_a_real_row_of_each_class(script):
    task = script("distillation").Distillation(0, 2)
    assert task.given.tolist() == [c for c in range(10) for _ in range(2)]
    row = (task.inputs[:1200] == task.x[5]).all(1).nonzero()[0, 0]
    assert task.labels[row] == task.given[5]


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("per_feature", ["--steps", "5", "--random", "1"]),
        ("distillation", ["--share", "0.005", "--seeds", "1"]),
        ("scalable", ["--n", "3", "--limit", "2"]),
        ("architecture_digits", ["--steps", "20", "--seeds", "1", "--random", "1"]),
    ],
)
def test_a_short_run_writes_its_command_and_its_machine(script, monkeypatch, tmp_path, name, options):
    threads = torch.get_num_threads()
    monkeypatch.setattr("sys.argv", [name, *options, "--out", str(tmp_path / "out.json")])
    script(name).main()
    torch.set_num_threads(threads)
    written = json.loads((tmp_path / "out.json").read_text())
    assert written["command"].startswith(f"python benchmarks/{name}.py --")
    assert written["machine"]["threads"] == 1
    assert written["runs"]
