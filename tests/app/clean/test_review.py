"""The page for reviewing labels as a file, and the decisions that come back from it."""

from __future__ import annotations

import csv
import io
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings

from bvfim.app.clean.review import COLUMNS, read_decisions, write
from bvfim.status import DataError
from tests.reviews import PIXEL, csv_text, decided, embedded, hostile, pets, records_of, review

# What is written.


def test_the_rows_come_by_probability_up_to_the_limit_and_the_rest_is_counted(tmp_path):
    data = embedded(write(tmp_path / "deep" / "r.html", pets(), limit=3))
    assert [entry["row"] for entry in data["entries"]] == [9, 8, 7]
    assert data["leftOut"] == 6  # row 0 is not wrong at all
    assert sum(data["histogram"]) == 10
    assert data["entries"][0]["picture"] == PIXEL
    assert data["entries"][1]["values"] == ["pet 8", "2.0"]


def test_the_page_holds_nothing_that_could_end_its_data_or_ask_for_something(tmp_path):
    path = write(tmp_path / "r.html", hostile())
    text = path.read_text()
    inside = re.search(r'<script id="data"[^>]*>(.*?)</script>', text, re.S)[1]
    assert inside.isascii()
    assert not re.search("[<>&]", inside)
    assert text.count("<script") == text.count("</script>") == 2
    assert "<b>" not in text
    assert "pets &lt;b&gt;.csv" in text
    assert not re.search(r"https?:|@import|url\(|innerHTML|eval\(", text.replace(inside, ""))
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
    assert f'<meta http-equiv="Content-Security-Policy" content="{policy}">' in text


def test_of_many_classes_the_most_noisy_are_drawn(tmp_path):
    transition = np.eye(40)
    transition[35:, 35:] = 0.2
    names = [f"c{i:02}" for i in range(40)]
    noise = embedded(write(tmp_path / "r.html", review([0.5], ["c00"], ["c01"], names, transition=transition)))["noise"]
    assert noise["classes"] == [*range(25), *range(35, 40)]
    assert noise["matrix"][29][25:] == [0.2] * 5


def test_values_of_any_type_and_missing_ones_are_shown_as_they_print(tmp_path):
    values = pd.DataFrame({"a": [np.nan, 0.1], "b": [None, [1, 2]], "c": pd.array([None, 3], dtype="Int64")})
    values["d"] = np.array([0.1, 0.2], dtype=np.float32)
    values[0] = pd.Categorical(["x", None])
    data = embedded(write(tmp_path / "r.html", review([0.9, 0.8], [1, 2], [2, 1], ["1", "2"], values)))
    assert data["columns"] == ["a", "b", "c", "d", "0"]
    assert [entry["values"] for entry in data["entries"]] == [
        ["", "", "", "0.1", "x"],
        ["0.1", "[1, 2]", "3", "0.2", ""],
    ]


def test_a_write_that_fails_leaves_the_old_page_and_nothing_else(tmp_path):
    path = write(tmp_path / "r.html", pets())
    before = path.read_bytes()
    with pytest.raises(DataError, match="the label 'cat' is not among the classes"):
        write(path, review([0.5], ["cat"], ["cat"], ["dog"]))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"values": pd.DataFrame({"a": [1]}, index=[5])}, "row 0 is up for review but has no values"),
        ({"transition": np.eye(3)}, "2 classes but a matrix of shape"),
        ({"classes": ["a", ""]}, "must be distinct and non-empty"),
        ({"classes": ["a", "a"]}, "must be distinct and non-empty"),
        ({"pictures": {0: "https://example.org/x.png"}}, "row 0: the image is not a data URI"),
    ],
)
def test_what_does_not_belong_together_is_refused(tmp_path, bad, words):
    with pytest.raises(DataError, match=words):
        write(tmp_path / "r.html", review(**{"p_wrong": [0.5], "given": ["a"], "suggested": ["b"], **bad}))


# What is read.

HEADER = "row,decision,given_label,label\n"


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        ("", 1, "the columns must be row,decision,given_label,label, not ''"),
        ("row;decision;given_label;label\n", 1, "the columns must be"),
        ("row,decision,label\n", 1, "the columns must be"),
        (HEADER.encode() + b"1,accept,a,b\n2,accept,\xff,b\n", 3, ": not UTF-8"),
        (HEADER + "one,accept,a,b\n", 2, "row must be a non-negative whole number, not 'one'"),
        (HEADER + "-1,accept,a,b\n", 2, "row must be a non-negative whole number, not '-1'"),
        (HEADER + "1.0,accept,a,b\n", 2, ": row must be a non-negative whole number"),
        (HEADER + "\u0661,accept,a,b\n", 2, ": row must be a non-negative whole number"),
        (HEADER + "9" * 5000 + ",accept,a,b\n", 2, ": row must be a non-negative whole number"),
        (HEADER + "1,maybe,a,b\n", 2, ": decision must be one of accept, reject, relabel, not 'maybe'"),
        (HEADER + '1,accept,"a\n\n",b\n1,accept,a,b\n', 5, "row 1 already has a decision on line 2"),
        (HEADER + "1,accept,a,\n", 2, "label is empty"),
        (HEADER + "1,accept,,b\n", 2, "given_label is empty"),
        (HEADER + "1,reject,a,b\n", 2, "reject keeps the label 'a', but label is 'b'"),
        (HEADER + "1,accept,a\n", 2, "expected 4 fields, got 3"),
        (HEADER + '1,accept,a,"b\n', 2, "not valid CSV"),
        (HEADER + '1,accept,a,"b"c\n', 2, "not valid CSV"),
        (HEADER + "1,accept,a,b,", 2, "expected 4 fields, got 5"),
        (HEADER + "1,accept,a,", 2, "label is empty"),
    ],
)
def test_a_file_that_is_no_export_is_refused_with_its_line(tmp_path, content, line, words):
    path = tmp_path / "decisions.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError) as raised:
        read_decisions(path)
    message = str(raised.value)
    assert message.startswith(f"{path}, line {line}: ")
    assert words in message
    assert "\n" not in message


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(DataError, match="can't read the file"):
        read_decisions(tmp_path / "decisions.csv")


def test_no_decisions_and_a_spreadsheet_that_saved_the_file_are_read(tmp_path):
    path = tmp_path / "decisions.csv"
    path.write_text(HEADER)
    assert read_decisions(path).dtypes["row"] == np.int64
    assert list(read_decisions(path).columns) == COLUMNS
    path.write_bytes(b"\xef\xbb\xbf" + HEADER.encode() + b"3,relabel,'=1,'a\r\n\r\n")
    assert records_of(read_decisions(path)) == [(3, "relabel", "=1", "'a")]


@given(records=decided)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_labels_survive_the_file(tmp_path, records):
    path = tmp_path / "decisions.csv"
    text = csv_text(records)
    path.write_bytes(text.encode())
    assert records_of(read_decisions(path)) == records
    for _, _, *cells in list(csv.reader(io.StringIO(text, newline="")))[1:]:
        assert not [cell for cell in cells if cell[0] in "=+-@\t\r"], "a spreadsheet takes none for a formula"
