"""Tables from files: cells stay as they are written, and what is wrong has a place."""

from __future__ import annotations

import csv
import io

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import bvfim
from bvfim.app.clean import table
from bvfim.app.clean.table import opened, text


def whole(path) -> pd.DataFrame:
    return pd.concat(opened(path).pieces(), ignore_index=True)


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=5))
def test_cells_come_back_as_they_were_written(tmp_path_factory, records):
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    file = io.StringIO(newline="")
    csv.writer(file, quoting=csv.QUOTE_ALL).writerows([("a", "b"), *records])
    path.write_bytes(file.getvalue().encode())
    assert whole(path).values.tolist() == [list(record) for record in records]


def test_numbers_and_words_are_not_interpreted(tmp_path):
    (tmp_path / "t.csv").write_text("﻿a;b\n007;NA\n1.50;=1+1\n", encoding="utf-8")
    assert whole(tmp_path / "t.csv").to_dict("list") == {"a": ["007", "1.50"], "b": ["NA", "=1+1"]}


def test_pieces_follow_each_other(tmp_path, monkeypatch):
    monkeypatch.setattr(table, "PIECE", 3)
    (tmp_path / "t.csv").write_text("a\n" + "\n".join(map(str, range(8))))
    assert [len(piece) for piece in opened(tmp_path / "t.csv").pieces()] == [3, 3, 2]
    assert whole(tmp_path / "t.csv")["a"].tolist() == [str(k) for k in range(8)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"a,b\n1,2\n1,2,3\n", "row 1: expected 2 cells as in the header, got 3"),
        (b"a,b\n1\n", "row 0: expected 2 cells as in the header, got 1"),
        (b"a,b,a\n1,2,3\n", "line 1: two columns are named 'a'"),
        ("a,b\n1,caf\xe9\n".encode("latin-1"), "line 2, byte 6: not UTF-8; save the table as UTF-8"),
        ("a,b\n".encode("utf-16"), "line 1, byte 1: not UTF-8; save the table as UTF-8"),
        (b'a,b\n1,"2\n', "line 2: unexpected end of data"),
    ],
)
def test_what_is_wrong_with_a_table_is_said_with_its_place(tmp_path, content, message):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(bvfim.DataError) as caught:
        whole(tmp_path / "t.csv")
    assert message in str(caught.value)
    assert "t.csv" in str(caught.value)


def test_an_endless_line_is_not_read_whole(tmp_path):
    with (tmp_path / "t.csv").open("wb") as file:
        file.write(b"a,b\n1,")
        file.truncate(2 * 2**30)
    with pytest.raises(bvfim.DataError, match="line 2 is longer than 16 MiB"):
        whole(tmp_path / "t.csv")


def test_parquet_keeps_its_types(tmp_path):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    frame = pd.DataFrame({"a": [1.5, None], "b": ["x", "y"]})
    frame.to_parquet(tmp_path / "t.parquet")
    assert whole(tmp_path / "t.parquet").equals(frame)
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(bvfim.DataError, match=": not a parquet file"):
        opened(tmp_path / "bad.parquet")


@pytest.mark.parametrize("names", [[None], ["id"], [None, "id"]])
def test_parquet_has_its_index_as_columns(tmp_path, names):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    frame = pd.DataFrame({"a": [1.5, 2.5, 3.5], "b": ["x", "y", "z"]})
    frame.index = pd.MultiIndex.from_arrays([[7, 5, 6]] * len(names), names=names)
    if len(names) == 1:
        frame.index = frame.index.get_level_values(0)
    frame.to_parquet(tmp_path / "t.parquet")
    stored = [name or f"__index_level_{k}__" for k, name in enumerate(names)]
    found = whole(tmp_path / "t.parquet")
    assert opened(tmp_path / "t.parquet").columns == tuple(found.columns) == ("a", "b", *stored)
    assert found["a"].tolist() == [1.5, 2.5, 3.5]
    assert all(found[name].tolist() == [7, 5, 6] for name in stored)


def test_a_folder_of_folders_is_a_table_of_pictures(tmp_path):
    for name in ("cat/1.png", "dog/2.PNG", "dog/deep/3.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4)).save(tmp_path / name, "PNG")
    for name in ("notes.txt", "dog/._2.png", ".DS_Store", ".cache/4.png", ".5.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("none")
    found = opened(tmp_path)
    assert found.picture == "file"
    assert whole(tmp_path).values.tolist() == [["cat/1.png", "cat"], ["dog/2.PNG", "dog"], ["dog/deep/3.png", "dog"]]
    Image.new("RGB", (4, 4)).save(tmp_path / "loose.png")
    with pytest.raises(bvfim.DataError, match=r"loose.png is not in a folder"):
        opened(tmp_path)


def test_an_empty_folder_and_no_file(tmp_path):
    with pytest.raises(bvfim.DataError, match="no images in this folder"):
        opened(tmp_path)
    with pytest.raises(bvfim.DataError, match=": no such file or folder"):
        opened(tmp_path / "t.csv")


@pytest.mark.parametrize(("cell", "expected"), [("x", "x"), (None, ""), (float("nan"), ""), (pd.NA, ""), (1, "1")])
def test_cells_as_text(cell, expected):
    assert text(cell) == expected
    assert text({"bytes": b"", "path": "a.png"}) == "a.png"
