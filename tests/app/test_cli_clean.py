"""``bvfim clean`` as a user has it: exit codes, sentences, files; and the page driven in Chromium, end to end."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bvfim
from bvfim.app.clean import output
from tests.browser import launched
from tests.command import command

HOSTILE = [
    "</script><script>window.hacked = 1</script>",
    '=HYPERLINK("x","y")',
    "\u202eabc\u05d0\u05d1",
    "long " * 2000,
]


def clean(folder, *arguments):
    return command("clean", *arguments, cwd=folder)


def records(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def table(count, seed):
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 2, count)
    size = 10 * kind + rng.normal(size=count)
    note = [HOSTILE[k % len(HOSTILE)] if k < 8 else f"note {k}" for k in range(count)]
    return pd.DataFrame({"size": size.round(3), "note": note, "kind": np.array(["<i>cat</i>", "dog, 'big'"])[kind]})


@pytest.fixture
def folder(tmp_path):
    data = table(120, 0)
    other = {"<i>cat</i>": "dog, 'big'", "dog, 'big'": "<i>cat</i>"}
    data.loc[:7, "kind"] = data.loc[:7, "kind"].map(other)
    data.to_csv(tmp_path / "pets.csv", index=False)
    table(20, 1).to_csv(tmp_path / "sure.csv", index=False)
    return tmp_path


ASKED = ("pets.csv", "--label", "kind", "--trusted", "sure.csv", "--no-bilevel")


def test_the_command_of_a_shell(folder):
    shell = [sys.executable, "-c", "from bvfim.app.main import main; main()", "clean", "none.csv"]
    ran = subprocess.run(shell, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 2
    assert "none.csv" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_it_says_what_it_found_and_dry_runs_write_nothing(folder):
    before = sorted(path.name for path in folder.iterdir())
    ran = clean(folder, *ASKED, "--dry-run")
    assert ran.returncode == 0, ran.stderr
    assert re.search(r"120 rows: about [78] labels are wrong \(6\.\d %\)", ran.stdout)
    assert "column 'note' is not used" in ran.stdout
    assert sorted(path.name for path in folder.iterdir()) == before


def test_exit_codes(folder):
    assert clean(folder, *ASKED, "--fail-above", "0.01").returncode == 1
    again = clean(folder, *ASKED)
    assert again.returncode == 2
    assert "already exists; use --force" in again.stderr.replace("\n", " ")
    assert clean(folder, *ASKED, "--force", "--fail-above", "0.5").returncode == 0
    config = json.loads((folder / "pets-cleaned" / "config.json").read_text())
    assert 5 <= config["dropped"] <= 8, "no right label, and most of the wrong ones"


def test_the_folder_of_results_stands_beside_the_data(tmp_path, monkeypatch):
    inside = tmp_path / "photos.v2"
    inside.mkdir()
    monkeypatch.chdir(inside)
    for data in (".", inside, "../photos.v2", "../photos.v2/."):
        assert output.beside(Path(data)).resolve() == tmp_path / "photos.v2-cleaned"
    assert output.beside(Path("..")) == tmp_path.with_name(f"{tmp_path.name}-cleaned")
    assert output.beside(Path("pets.tar.csv")) == Path("pets.tar-cleaned")
    with pytest.raises(bvfim.DataError, match="--out"):
        output.beside(Path("/"))
    ran = clean(inside, ".")
    assert ran.returncode == 2
    assert "no images in this folder" in ran.stderr.replace("\n", " ")


def latin(folder):
    (folder / "pets.csv").write_bytes("size,kind\n1,caf\xe9\n".encode("latin-1"))


def ragged(folder):
    with (folder / "pets.csv").open("a") as file:
        file.write("1,2,3,4,5\n")


def other_columns(folder):
    pd.DataFrame({"length": [1.0], "kind": ["x"]}).to_csv(folder / "sure.csv", index=False)


def empty_trusted(folder):
    (folder / "sure.csv").write_text("size,note,kind\n")


def one_class(folder):
    for name in ("pets.csv", "sure.csv"):
        pd.read_csv(folder / name).assign(kind="cat").to_csv(folder / name, index=False)


def no_number(folder):
    data = pd.read_csv(folder / "pets.csv", dtype=str)
    data.loc[17, "size"] = "oops"
    data.to_csv(folder / "pets.csv", index=False)


def endless(folder):
    with (folder / "pets.csv").open("ab") as file:
        file.truncate(2 * 2**30)


def unreadable(folder):
    pd.DataFrame({"image": ["a.png", "b.png"], "kind": ["x", "y"]}).to_csv(folder / "pets.csv", index=False)
    (folder / "a.png").write_bytes(b"no picture")


@pytest.mark.parametrize(
    ("spoil", "arguments", "sentence"),
    [
        (None, ("--label", "knid"), "no column is called 'knid'; did you mean 'kind'?"),
        (latin, (), "line 2, byte 6: not UTF-8; save the table as UTF-8"),
        (ragged, (), "row 120: expected 3 cells as in the header, got 5"),
        (other_columns, (), "the trusted rows lack the column 'size' of the data"),
        (empty_trusted, (), "the trusted set is empty"),
        (one_class, (), "at least two classes are needed, but every label is 'cat'"),
        (no_number, (), "row 17, column 'size': 'oops' is not a number; fix it"),
        (endless, (), "is longer than 16 MiB"),
        (unreadable, ("--image", "image"), "row 0: image a.png: it can't be read"),
        (None, ("--trusted", "sur.csv"), "--trusted sur.csv: no such file"),
        (None, ("--apply", "none.csv"), "none.csv"),
    ],
)
def test_bad_input_ends_in_one_sentence_and_writes_nothing(folder, spoil, arguments, sentence):
    if spoil is not None:
        spoil(folder)
    before = sorted(path.name for path in folder.iterdir())
    ran = clean(folder, *ASKED, *arguments)
    told = ran.stderr.replace("\n", " ")
    assert ran.returncode == 2, ran.stdout + ran.stderr
    assert sentence in told
    assert "Traceback" not in told
    assert sorted(path.name for path in folder.iterdir()) == before


def test_a_review_from_the_command_to_the_page_and_back(folder):
    """Find, look, decide, download, apply."""
    with launched() as browser:
        assert clean(folder, *ASKED).returncode == 0
        given = records(folder / "pets.csv")[1:]
        tab = browser.new_page()
        logged = []
        tab.on("console", lambda message: logged.append(message.text))
        tab.on("pageerror", lambda error: logged.append(str(error)))
        tab.goto((folder / "pets-cleaned" / "report.html").as_uri())
        tab.keyboard.press("a")
        tab.keyboard.press("r")
        with tab.expect_download() as download:
            tab.get_by_role("button", name="Download decisions").click()
        download.value.save_as(folder / "decisions.csv")
        assert tab.evaluate("window.hacked") is None
        assert logged == []
    decided = records(folder / "decisions.csv")[1:]
    assert sorted(decision for _, decision, *_ in decided) == ["accept", "reject"]
    ran = clean(folder, *ASKED, "--apply", "decisions.csv", "--force")
    assert ran.returncode == 0, ran.stderr
    cleaned = {tuple(record[:2]): record[2] for record in records(folder / "pets-cleaned" / "cleaned.csv")}
    for number, decision, *_ in decided:
        row = given[int(number)]
        assert (cleaned[tuple(row[:2])] == row[2]) is (decision == "reject")
