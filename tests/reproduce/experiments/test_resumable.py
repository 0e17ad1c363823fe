"""Parts: every measurement is kept, and a resumed run gives what an uninterrupted one does."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

import pandas as pd
import pytest

import bvfim
from bvfim.reproduce.experiments import assumptions
from bvfim.reproduce.experiments.resumable import How, measured

pytestmark = pytest.mark.long


@dataclass(frozen=True)
class Config:
    size: int = 3
    names: tuple[str, ...] = ("a", "b")


def numbers(size):
    columns = {"n": range(size), "root": [i**0.5 / 3 for i in range(size)], "label": ["x, y"] * size}
    return pd.DataFrame({**columns, "missing": [float("nan")] * size})


def never():
    raise AssertionError("this part was measured already")


def interrupted():
    raise KeyboardInterrupt


def test_a_resumed_run_measures_only_what_is_missing_and_gives_the_same(tmp_path):
    parts = {"first": partial(numbers, 3), "second": partial(numbers, 5)}
    whole = measured(Config(), parts, How())
    with pytest.raises(KeyboardInterrupt):
        measured(Config(), {"first": parts["first"], "second": interrupted}, How(tmp_path))
    resumed = measured(Config(), {"first": never, "second": parts["second"]}, How(tmp_path, resume=True))
    for name, table in whole.items():
        pd.testing.assert_frame_equal(resumed[name], table, check_exact=True)


def test_without_resume_everything_is_measured_anew(tmp_path):
    measured(Config(), {"first": partial(numbers, 3)}, How(tmp_path))
    with pytest.warns(bvfim.BvfimWarning, match="parts of an earlier run"):
        found = measured(Config(), {"first": partial(numbers, 4)}, How(tmp_path))
    assert len(found["first"]) == 4


def test_another_config_is_not_resumed(tmp_path):
    measured(Config(), {"first": partial(numbers, 3)}, How(tmp_path))
    with pytest.raises(bvfim.DataError, match="the run to resume used a different size"):
        measured(Config(size=4), {"first": partial(numbers, 3)}, How(tmp_path, resume=True))
    assert json.loads((tmp_path / "config.json").read_text())["size"] == 3


def test_resuming_what_was_never_begun_begins_it(tmp_path):
    assert list(measured(Config(), {"first": partial(numbers, 2)}, How(tmp_path / "new", resume=True))) == ["first"]


def test_a_damaged_part_is_named(tmp_path):
    measured(Config(), {"first": partial(numbers, 3)}, How(tmp_path))
    (tmp_path / "first.csv").write_text("")
    with pytest.raises(bvfim.DataError, match=r"first\.csv is damaged"):
        measured(Config(), {"first": partial(numbers, 3)}, How(tmp_path, resume=True))


def test_other_files_in_the_folder_are_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    measured(Config(), {"first": partial(numbers, 3)}, How(tmp_path))
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_several_workers_give_what_one_gives(tmp_path):
    parts = {str(i): partial(numbers, i) for i in (4, 2, 3)}
    told = []

    def track(done, work, ahead):
        for part in done:
            told.append(work[part[0]] + ahead)
            yield part

    found = measured(Config(), parts, How(tmp_path, workers=2, track=track), {"4": 0.4, "2": 0.2, "3": 0.3}, 3)
    assert list(found) == ["4", "2", "3"], "in the order that was asked for"
    assert sorted(told) == [3.2, 3.3, 3.4]
    for i in (4, 2, 3):
        pd.testing.assert_frame_equal(found[str(i)], numbers(i))
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "2.csv", "3.csv", "4.csv"}


def test_a_solve_that_was_interrupted_is_no_measurement(tmp_path, monkeypatch):
    def quietly(*_, **__):
        return SimpleNamespace(status=bvfim.Status.INTERRUPTED, x=0.0, upper=0.0, lower=0.0)

    monkeypatch.setattr(bvfim, "solve", quietly)
    with pytest.raises(KeyboardInterrupt):
        assumptions.run(assumptions.Config().quick(), How(tmp_path))
    assert list(tmp_path.glob("*.csv")) == []


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_a_damaged_config_is_named(tmp_path, text):
    measured(Config(), {"first": partial(numbers, 3)}, How(tmp_path))
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(bvfim.DataError, match=r"damaged|used a different"):
        measured(Config(), {"first": partial(numbers, 3)}, How(tmp_path, resume=True))


def test_a_part_without_rows_is_named(tmp_path):
    measured(Config(), {"first": partial(numbers, 3)}, How(tmp_path))
    (tmp_path / "first.csv").write_text("n,root\n")
    with pytest.raises(bvfim.DataError, match="it has no rows"):
        measured(Config(), {"first": partial(numbers, 3)}, How(tmp_path, resume=True))


def test_later_parts_of_a_run_leave_its_first_and_take_nothing_from_others(tmp_path):
    how = How(tmp_path)
    measured(Config(), {"one": partial(numbers, 1)}, how)
    (tmp_path / "two.csv").write_text("a\n99\n")  # as another process may leave it there
    found = measured(Config(), {"two": partial(numbers, 2)}, how, first=False)
    pd.testing.assert_frame_equal(found["two"], numbers(2))
    assert (tmp_path / "one.csv").exists()
