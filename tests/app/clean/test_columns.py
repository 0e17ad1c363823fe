"""What columns hold."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import bvfim
from bvfim.app.clean.columns import columns_of, days, numbers, require_readable
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
    assert found.forms == {"size": "number"}
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
    values = found.values(piece)
    assert values["size"].tolist()[:2] == [0.0, 1 / 7]
    assert values["kind"].tolist()[:2] == ["a", "b"]


def changed(file, **cells):
    """The file with other cells: of column and row, as in size_17."""
    frame = pd.read_csv(file, dtype=str)
    for place, cell in cells.items():
        name, row = place.rsplit("_", 1)
        frame.loc[int(row), name.replace("_", " ")] = cell
    frame.to_csv(file, index=False)
    return file


def refused(file):
    table, found = columns(file)
    with pytest.raises(bvfim.DataError) as caught:
        require_readable("t.csv", {found.label}, list(found.bad(next(table.pieces()), 100)))
    return str(caught.value)


@pytest.mark.parametrize(("cell", "message"), [("oops", "'oops' is not a number"), ("1e308", "'1e308' is too large")])
def test_a_cell_that_is_no_number_is_named(file, cell, message):
    said = f"row 117, column 'size': {message}; fix it, or ignore the column with --ignore size"
    assert refused(changed(file, size_17=cell)) == f"t.csv: {said}"


def test_all_bad_cells_are_named_at_once(file):
    said = refused(changed(file, size_3="oops", size_17="1e308", y_5=" "))
    assert said == (
        "t.csv: 3 cells can't be read; fix them, or ignore the column with --ignore size:\n"
        "  row 103, column 'size': 'oops' is not a number\n"
        "  row 105, column 'y': the label is missing\n"
        "  row 117, column 'size': '1e308' is too large"
    )
    with pytest.raises(bvfim.DataError) as caught:
        require_readable("t.csv", {"y"}, [(k, "a b", "bad") for k in range(99)] + [(3, "c", "bad")])
    said = str(caught.value)
    assert said.startswith("t.csv: 100 cells can't be read; fix them, or ignore the columns with --ignore 'a b,c':")
    assert said.splitlines()[-1].strip() == "and 50 more"


def test_the_hint_quotes_a_name_with_spaces(file):
    file.write_text(file.read_text().replace("size", "mean size", 1))
    assert "--ignore 'mean size'" in refused(changed(file, mean_size_0="oops"))


@pytest.mark.parametrize("hole", ["", "NA", "n/a", "?", "-", "NaN", "None"])
def test_missing_numbers_are_filled_with_the_median_and_said(file, hole):
    table, found = columns(changed(file, size_3=hole, size_9=hole))
    rest = [k * k / 7 for k in range(40) if k not in (3, 9)]
    assert found.filled == {"size": (2, pytest.approx(np.median(rest)))}
    piece = next(table.pieces())
    values = found.values(piece)
    assert values["size"][3] == values["size"][9] == np.median(rest)
    assert values["size"][4] == 16 / 7
    assert values["size is missing"].to_numpy().nonzero()[0].tolist() == [3, 9]
    assert list(found.bad(piece, 0)) == []
    assert "column 'size': 2 missing values are filled with the median, " in " ".join(found.notes)


def test_a_hole_in_trusted_rows_alone_is_named(file):
    table, found = columns(file)
    piece = next(table.pieces()).assign(size="")
    assert next(found.bad(piece, 0)) == (0, "size", "the value is missing")


WRITTEN = {
    "%Y-%m-%d": "ISO8601",
    "%Y-%m-%dT%H:%M:%SZ": "ISO8601",
    "%d.%m.%Y": "%d.%m.%Y",
    "%Y/%m/%d": "ISO8601",
    "%m/%d/%Y": "%m/%d/%Y",
    "%d/%m/%Y": "%d/%m/%Y",
    "%d %b %Y": "%d %b %Y",
}


@pytest.mark.parametrize("form", WRITTEN)
def test_dates_are_days(tmp_path, form):
    when = pd.date_range("2025-12-20", periods=40, freq="36h")
    frame = pd.DataFrame({"when": when.strftime(form), "y": ["a", "b"] * 20})
    frame.loc[7, "when"] = ""
    frame.to_csv(tmp_path / "t.csv", index=False)
    table, found = columns(tmp_path / "t.csv")
    assert found.forms == {"when": WRITTEN[form]}
    values = found.values(next(table.pieces()))
    expected = days(pd.Series(when.strftime(form)), WRITTEN[form])
    rest = expected.drop(7)
    np.testing.assert_array_equal(values["when"].drop(7), rest)
    assert values["when"][7] == rest.median()
    assert expected[0] == pytest.approx((when[0] - pd.Timestamp(0)) / pd.Timedelta(days=1), abs=1)
    assert f"column 'when' is read as dates ({WRITTEN[form]})" in found.notes
    assert "filled with the median, 2026-01-" in found.notes[-1]
    frame.loc[3, "when"] = "the day after"
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert "row 103, column 'when': 'the day after' is not a date; fix it" in refused(tmp_path / "t.csv")


def test_sentences_are_neither_words_nor_left_out(file):
    texts = [f"the quick fox number {k} jumps over" for k in range(40)]
    frame = pd.read_csv(file).assign(said=texts)
    frame.to_csv(file, index=False)
    table, found = columns(file)
    assert found.sentences == ("said",)
    assert found.words == ("kind", "other")
    assert found.values(next(table.pieces()))["said"].tolist() == texts
    assert "column 'said' is read as sentences" in found.notes


def test_the_findings_of_cleanlab_are_not_learned_from(file):
    frame = pd.read_csv(file)
    own = {"is_label_issue": frame["y"] == 0, "label_quality": frame["size"], "predicted_label": frame["kind"]}
    frame.assign(**own, given_label=frame["y"]).to_csv(file, index=False)
    _, found = columns(file)
    assert set(found.left_out) == {"row", "name", *own, "given_label"}
    assert found.used == ("size", "kind", "other")


def test_an_index_is_left_out(file):
    lines = file.read_text().splitlines()
    file.write_text(
        "\n".join([f"__index_level_0__,{lines[0]}", *(f"{k * 7 % 40},{r}" for k, r in enumerate(lines[1:]))])
    )
    _, found = columns(file)
    assert found.left_out["__index_level_0__"] == "it is a pandas index"
    assert found.forms == {"size": "number"}


def test_a_missing_date_is_no_number():
    cells = pd.Series([pd.Timestamp("2026-01-01"), pd.NaT])
    assert numbers(cells).isna().tolist() == [False, True]


def test_a_missing_label_is_named(file):
    assert refused(changed(file, y_2=" ")) == "t.csv: row 102, column 'y': the label is missing; fix it"


def test_a_table_that_says_nothing_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("y\n0\n1\n")
    with pytest.raises(bvfim.DataError, match="no usable column besides the label"):
        columns(tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text("a,y\n0,1\n")
    with pytest.raises(bvfim.DataError, match="expected at least 2 rows, got 1"):
        columns(tmp_path / "t.csv")
