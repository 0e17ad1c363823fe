"""The scripts on labels draw what they say, and tell nobody the truth."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import mostly_wrong, text_cleaning


def test_sentences_are_neither_headings_nor_tables():
    long = "It opens a file and reads what there is in it, to the end."
    text = f"NAME\n\n{long} {long}\nNext.\n\n{'word ' * 80}.\n\n| 1.0 | 2.0 | 3.0 | 4.0 | 5.0 | 6.0 | 7.0 | 8.0 |"
    assert list(text_cleaning.sentences(text)) == [long, long]


@pytest.fixture
def letters(monkeypatch):
    own = {kind: [f"{kind} {k}" for k in range(400)] for kind in "abc"}
    monkeypatch.setitem(text_cleaning.SETS, "letters", lambda: own)


def test_a_larger_trusted_set_holds_the_smaller_and_no_row_to_be_judged(letters):
    small, large = (text_cleaning.drawn("letters", size, 0, 300) for size in (20, 60))
    n = len(small.given)
    assert n == len(large.given) == 300
    assert small.rows["text"][:n].tolist() == large.rows["text"][:n].tolist()
    sure = [set(task.rows["text"][n:]) for task in (small, large)]
    assert sure[0] < sure[1]
    assert [len(task.trusted) for task in (small, large)] == [20, 60]
    assert not sure[1] & set(large.rows["text"][:n])
    for task in (small, large):
        kinds = np.array(["abc".index(text[0]) for text in task.rows["text"]])
        assert (np.concatenate([task.truth, task.trusted]) == kinds).all()
        assert (task.given != task.truth).mean() == pytest.approx(text_cleaning.RATE, abs=0.01)
        assert np.bincount(task.truth).tolist() == [100, 100, 100]


@pytest.mark.parametrize(("noise", "rate"), [("symmetric", 0.8), ("pair flip", 0.6)])
def test_more_than_half_of_each_class_is_wrong(noise, rate):
    task = mostly_wrong.drawn(noise, rate, 50, 0)
    for k in range(10):
        assert (task.given[task.truth == k] != k).mean() == pytest.approx(rate, abs=0.1)
    if noise == "pair flip":
        others = [np.bincount(task.truth[task.given == k]).argmax() for k in range(10)]
        assert others == [(k - 1) % 10 for k in range(10)], "most rows of a label belong to another class"
