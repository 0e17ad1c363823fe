"""Commands with what they can't take: an exit code of 2, a sentence, no traceback, and nothing written."""

from __future__ import annotations

import os

import numpy as np
import pandas as pd
import pytest

from tests.command import command

pytestmark = pytest.mark.long

PROBLEM = """import torch
x, y, steps, method = torch.zeros(1).double(), torch.zeros(1).double(), 2, "rhg"
def upper(x, y): return ((y - 1) ** 2).sum()
def lower(x, y): return ((y - x) ** 2).sum()
"""
LABELS = np.where(np.arange(60) % 2, "u", "v")
ROWS = pd.DataFrame({"a": np.random.default_rng(0).normal(size=60) + 4 * (LABELS == "u"), "label": LABELS})
ROWS["sure"] = (np.arange(60) % 3 == 0).astype(int)

FILES = {
    "": "p.py does not define upper, lower, x and y",
    b"\xff\xfe\x00\x01": "not a Python file: it can't be decoded as text",
    PROBLEM.encode("utf-16"): "not a Python file: it can't be decoded as text",
    "x = 1\0": "source code string cannot contain null bytes",
    "# -*- coding: nonsense -*-": "unknown encoding: nonsense",
    "x = = 1": "p.py:1: SyntaxError: invalid syntax",
    "raise KeyError('a')": "p.py:1, in <module>: KeyError: 'a'",
    "import sys; sys.exit(3)": "the file called sys.exit(3)",
    "import no_such_module": "ModuleNotFoundError: No module named 'no_such_module'",
    "def f(): return f()\nf()": "RecursionError: maximum recursion depth exceeded",
}
LINES = {
    "x = [1.0]": "p.py:5: x is a list of numbers, not a tensor: write torch.tensor([1.0], dtype=torch.float64)",
    "x = 3": "p.py:5: x contains a int, not a tensor: write torch.tensor(3, dtype=torch.float64)",
    "x = x.numpy()": "p.py:5: x contains a ndarray, not a tensor: write torch.from_numpy(...)",
    "x = torch.nn.Linear(1, 1)": "p.py:5: x contains a Linear, not a tensor: write bvfim.parameters(...)",
    "x = None": "p.py:5: x holds no tensor",
    "x = x.long()": "p.py:5: x must hold floating-point tensors, not torch.int64",
    "x = x.to_sparse()": "p.py:5: x must hold dense tensors with values, not sparse ones",
    "x, y = x.to('meta'), y.to('meta')": "p.py:5: x must hold dense tensors with values, not meta ones",
    "x = x + float('nan')": "p.py:5: x is not finite at the starting point x = [nan], y = [0]",
    "y = y.float()": "x and y must share one dtype, but hold torch.float64 and torch.float32",
    "x, y, method = x.half(), y.half(), None": "AdaptiveBVFIM needs float32 or float64, not torch.float16",
    "upper = 'a'": "p.py:5: upper must be a function, not a str",
    "def upper(x): return x": "p.py:5: upper must be a function of (x, y)",
    "def upper(x, y, d): return x": "p.py:5: upper takes (x, y, data), but there is no data",
    "def upper(x, y): return x + y": "p.py:5: upper must return a scalar, but its result has shape (1,)",
    "def upper(x, y): pass": "p.py:5: upper must return a scalar tensor, not a NoneType",
    "def upper(x, y): return (y - 1).log().sum()": "p.py:5: upper is nan at the starting point x = [0], y = [0]",
    "def upper(x, y): return 1 / 0": "p.py:5, in upper: ZeroDivisionError: division by zero",
    "def lower(x, y): return (x**2).sum()": "p.py:5: lower does not depend on y",
    "method = 'rgh'": "p.py:5: method: no method is called 'rgh'; did you mean 'rhg'?",
    "method = 3": "p.py:5: method: a method must be a bvfim.Estimator",
    "steps = -1": "p.py:5: steps must be a whole number of at least 0, not -1",
    "steps = 'many'": "p.py:5: steps must be a whole number of at least 0, not 'many'",
    "x_set = (0, 1)": "p.py:5: x_set: the set must be None, one set for all leaves",
    "import bvfim; y_set = bvfim.Box(1, 0)": "Box: every lower bound must be at most its upper bound, not 1 and 0",
    "optimizer = 'adam'": "p.py:5: optimizer must be a function from tensors to a torch optimiser, not a str",
    "def context(x): return x": "p.py:5: context must be a function of (x, batch)",
    "joint = 3": "p.py:5: joint must be a function, not a int",
}
TABLES = {
    "": "d.csv: the file is empty",
    "a,label\n": "d.csv: expected at least 2 rows, got 0",
    "a,label\n1,u\n2,v,3\n": "d.csv: row 1: expected 2 cells as in the header, got 3",
    "a,a,label\n1,2,u\n": "d.csv: line 1: two columns are named 'a'",
    "a,label\n1,\xe9\n".encode("latin1"): "d.csv: line 2, byte 3: not UTF-8; save the table as UTF-8",
    "a,lable\n1,u\n2,v\n": "no column is called 'label'; did you mean 'lable'?",
    "label\nu\nv\nu\nv\n": "d.csv: no usable column besides the label",
    ROWS.assign(label="u").to_csv(index=False): "at least two classes are needed, but every label is 'u'",
    ROWS.assign(label=range(60)).to_csv(index=False): "the labels have 60 different values in 60 rows",
    ROWS.assign(label=ROWS["label"].where(ROWS.index > 0)).to_csv(index=False): "row 0, column 'label': the label is",
    ROWS.assign(a=ROWS["a"].astype(str).where(ROWS.index != 7, "oops")).to_csv(
        index=False
    ): "'a': 'oops' is not a number",
    ROWS.assign(a=ROWS["a"].where(ROWS.index != 7, np.inf)).to_csv(index=False): "row 7, column 'a': 'inf' is not a",
    ROWS.assign(a=ROWS["a"].where(ROWS.index != 7, 1e300)).to_csv(index=False): "column 'a': '1e+300' is too large",
}
COMMANDS = {
    "solve none.py": "none.py: no such file",
    "solve .": ". is a folder: pass a file in it, such as p.py",
    "solve /dev/zero": "/dev/zero: not a regular file",
    "solve pipe": "pipe: not a regular file",
    "solve p.py --steps -1": "Invalid value for '--steps'",
    "solve p.py --tol nan": "Invalid value for '--tol'",
    "solve p.py --seed many": "Invalid value for '--seed'",
    "solve p.py --method nueman": "no method is called 'nueman'; did you mean 'neumann'?",
    "solve p.py --method stochasticbvfim --tol 1": "tol: StochasticBVFIM takes no tol",
    "solve p.py --out d.csv": "d.csv: can't make this folder (File exists); choose another one with --out",
    "solve p.py --out d.csv/sub": "d.csv/sub: can't make this folder (Not a directory)",
    "solve p.py --out /proc/x": "/proc/x: can't make this folder (No such file or directory)",
    f"solve p.py --out {'x' * 300}": "--out: File name too long",
    "solve p.py --nonsense": "No such option: --nonsense",
    "clean none.csv": "none.csv: no such file or folder",
    "clean empty": "empty: no images in this folder",
    "clean bad.parquet": "bad.parquet: not a parquet file",
    "clean d.csv --label lable": "no column is called 'lable'; did you mean 'label'?",
    "clean d.csv --trusted nothing": "--trusted nothing: no such file, and no column is called 'nothing'",
    "clean d.csv --trusted a": "is neither yes nor no",
    "clean d.csv --trusted p.py": "the labels of the trusted rows: no column is called 'label'",
    "clean d.csv --ignore zz": "--ignore: no column is called 'zz'; choose from a, label, sure",
    "clean d.csv --image a": "no such file",
    "clean d.csv --apply none.csv": "none.csv: can't read the file",
    "clean d.csv --apply p.py": "p.py, line 1: the columns must be row,decision,given_label,label",
    "clean d.csv --rows 5": "Invalid value for '--rows'",
    "clean d.csv --fail-above nan": "Invalid value for '--fail-above'",
    "clean d.csv --out d.csv": "d.csv is not a folder",
    "clean d.csv --out /proc/x": "/proc/x: can't write there",
    "reproduce toi": "no experiment is called 'toi'; did you mean 'toy'?",
    "reproduce toy --device tpu": "--device tpu: Expected one of cpu",
    "reproduce toy --ways 5": "--ways does not apply to toy",
    "reproduce few-shot --ways five": "--ways five: expected whole numbers, comma-separated",
    "reproduce few-shot --fit a": "--fit a: expected a number and a whole number, as in 0.1,10",
    "reproduce cleaning --data mnits": "no problem is called 'mnits'; did you mean 'mnist'?",
    "reproduce cleaning --methods xx": "no method is called 'xx'; choose from RHG",
    "reproduce theorem --quick --out d.csv": "d.csv/theorem: can't make this folder",
    "bench sped": "No such command 'sped'",
    "bench problems --problem sinus": "no test problem is called 'sinus'; choose from",
    "bench problems --method rgh": "no method is called 'rgh'; did you mean 'rhg'?",
    "bench problems --lr nan": "Invalid value for '--lr'",
    "bench labels --data dogits": "no data set of the benchmark is called 'dogits'; did you mean 'digits'?",
    "bench labels --trusted a,b": "--trusted a,b: expected whole numbers, comma-separated",
    "bench labels --data digits --trusted -5": "--trusted -5: expected whole numbers of at least 0",
    "bench speed --data mnits": "no data set is called 'mnits'; did you mean 'mnist'?",
    "bench growth --device nonsense": "--device nonsense: Expected one of cpu",
    "bench rivals --only chess": "no job is called 'chess'; choose from toy, n = 1",
    "bench rivals --methods rgh": "no method is called 'rgh'; did you mean 'rhg'?",
    "bench rivals --budget-scale 0": "budget_scale must be above 0",
    "bench time-to-result --data nope": "no problem is called 'nope'; choose from mnist",
    "demo --out d.csv": "d.csv: can't make this folder (File exists)",
    "demo --workers none": "Invalid value for '--workers'",
    "slove": "No such command 'slove'",
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "p.py").write_text(PROBLEM)
    (tmp_path / "bad.parquet").write_text("abc")
    ROWS.to_csv(tmp_path / "d.csv", index=False)
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


def refused(folder, *arguments, sentence):
    """An exit code of 2, the sentence, and what is in the folder stays as it is, but for an empty folder of results."""
    before = {path: path.is_file() and path.read_bytes() for path in folder.iterdir()}
    done = command(*arguments, cwd=folder)
    told = " ".join(done.stderr.replace("│", " ").split())
    assert done.returncode == 2, told
    assert sentence in told
    assert "Traceback" not in told
    left = {path: path.is_file() and path.read_bytes() for path in folder.iterdir() if path.name != "out"}
    assert left == before
    assert not [path for path in (folder / "out").rglob("*") if path.is_file()]


@pytest.mark.parametrize("text", FILES, ids=FILES.values())
def test_a_file_that_is_no_problem_is_refused(text, folder):
    (folder / "p.py").write_bytes(text if isinstance(text, bytes) else text.encode())
    refused(folder, "solve", "p.py", sentence=FILES[text])


@pytest.mark.parametrize("line", LINES)
def test_a_line_that_spoils_a_problem_is_named(line, folder):
    (folder / "p.py").write_text(PROBLEM + line)
    refused(folder, "solve", "p.py", sentence=LINES[line])


@pytest.mark.filterwarnings("always::bvfim.BvfimWarning", "ignore:The number of unique classes:UserWarning")
@pytest.mark.parametrize("text", TABLES, ids=TABLES.values())
def test_a_table_that_can_not_be_cleaned_is_refused(text, folder):
    (folder / "d.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    refused(folder, "clean", "d.csv", sentence=TABLES[text])


@pytest.mark.filterwarnings("always::bvfim.BvfimWarning")
@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_that_makes_no_sense_is_refused(line, folder):
    refused(folder, *line.split(), sentence=COMMANDS[line])


def test_a_file_with_any_name_is_solved(folder):
    (folder / "é 漢字 😀.txt").write_text(PROBLEM)
    done = command("solve", "é 漢字 😀.txt", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "out" / "é 漢字 😀" / "solution.safetensors").is_file()


def test_an_unbounded_problem_ends_with_code_1_and_is_reported(folder):
    line = "method, steps = None, 40\ndef upper(x, y): return y.sum() - (x**2).sum()\n"
    (folder / "p.py").write_text(PROBLEM + line)
    done = command("solve", "p.py", cwd=folder)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert (folder / "out" / "p" / "index.html").is_file()
