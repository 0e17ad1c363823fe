"""What columns hold."""

from __future__ import annotations

import pandas as pd
import pytest

import bvfim
from bvfim.app.clean.columns import columns_of, numbers
from bvfim.app.clean.table import opened


def columns(path, **changed):
    table = opened(path)
    asked = {"label": "y", "picture": None, "apart": ()} | changed
    return table, columns_of(table, pieces=table.pieces(), **asked)


@pytest.fixture
def file(tmp_path):
    lines = [f"{k + 5},{k * k / 7},{'ab'[k % 2]},name {k},{k % 3},spam" for k in range(40)]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["row,size,kind,name,y,other", *lines]))
    return path


def test_each_column_has_its_kind(file):
    _, found = columns(file, apart=["other"])
    assert found.numbers == ("size",)
    assert found.words == ("kind",)
    assert found.left_out == {
        "other": "ignored on request",
        "row": "it only numbers the rows",
        "name": "almost all its values are different",
    }
    assert found.rows == 40


def test_values_are_numbers_and_words(file):
    table, found = columns(file)
    piece = next(table.pieces())
    values = found.values(table.name, piece, 0)
    assert values["size"].tolist()[:2] == [0.0, 1 / 7]
    assert values["kind"].tolist()[:2] == ["a", "b"]


@pytest.mark.parametrize(
    ("cell", "message"),
    [("", "the value is missing"), ("oops", "'oops' is not a number"), ("1e308", "'1e308' is too large")],
)
def test_a_cell_that_is_no_number_is_named(file, cell, message):
    lines = file.read_text().splitlines()
    parts = lines[18].split(",")
    lines[18] = ",".join([parts[0], cell, *parts[2:]])
    file.write_text("\n".join(lines))
    table, found = columns(file)
    with pytest.raises(bvfim.DataError) as caught:
        found.values(table.name, next(table.pieces()), 100)
    assert f"row 117, column 'size': {message}; fix it, or ignore the column with --ignore size" in str(caught.value)


def test_the_hint_quotes_a_name_with_spaces(file):
    file.write_text(file.read_text().replace("size", "mean size", 1).replace(",0.0,", ",,", 1))
    table, found = columns(file)
    with pytest.raises(bvfim.DataError, match="--ignore 'mean size'"):
        found.values(table.name, next(table.pieces()), 0)


def test_an_index_is_left_out(file):
    lines = file.read_text().splitlines()
    file.write_text(
        "\n".join([f"__index_level_0__,{lines[0]}", *(f"{k * 7 % 40},{r}" for k, r in enumerate(lines[1:]))])
    )
    _, found = columns(file)
    assert found.left_out["__index_level_0__"] == "it is a pandas index"
    assert found.numbers == ("size",)


def test_a_missing_date_is_no_number():
    cells = pd.Series([pd.Timestamp("2026-01-01"), pd.NaT])
    assert numbers(cells).isna().tolist() == [False, True]


def test_a_missing_label_is_named(file):
    file.write_text(file.read_text().replace(",2,spam", ", ,spam", 1))
    table, found = columns(file)
    with pytest.raises(bvfim.DataError, match="row 2, column 'y': the label is missing"):
        found.labels(table.name, next(table.pieces()), 0)


def test_a_table_that_says_nothing_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("y\n0\n1\n")
    with pytest.raises(bvfim.DataError, match="no usable column besides the label"):
        columns(tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text("a,y\n0,1\n")
    with pytest.raises(bvfim.DataError, match="expected at least 2 rows, got 1"):
        columns(tmp_path / "t.csv")
