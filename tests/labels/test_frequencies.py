"""Rows that say nothing about the labels: no label is called wrong, with trusted rows or without."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import bvfim
from tests.command import command

N = 240
NUMBERS = np.random.default_rng(3)
LABELS = np.array(["cat", "dog", "owl"])[NUMBERS.integers(0, 3, N)]
TRUSTED = np.arange(N) % 6 == 0
SILENT = {
    "noise": NUMBERS.normal(size=(N, 5)),
    "constant": np.ones((N, 3)),
    "noise in words": pd.DataFrame({"word": NUMBERS.choice(["a", "b", "c", "d"], N), "number": NUMBERS.normal(size=N)}),
}


@pytest.mark.parametrize("name", SILENT)
@pytest.mark.parametrize("trusted", [TRUSTED, np.arange(N) < 8, None], ids=["40 trusted", "8 trusted", "none"])
@pytest.mark.filterwarnings("ignore:no rows are trusted", "ignore:the trusted rows do not cover")
def test_rows_that_say_nothing_flag_nothing(name, trusted):
    cleaner = bvfim.LabelCleaner(bilevel=False, random_state=0)
    with pytest.warns(bvfim.BvfimWarning, match="the rows say too little about the labels to call any label wrong"):
        issues = cleaner.find_label_issues(SILENT[name], LABELS, trusted=trusted)
    assert not issues["is_label_issue"].any()
    assert not issues["drop"].any()
    assert issues["p_wrong"].max() < 0.1
    assert cleaner.noise_rate_ < 0.1


def test_one_trusted_class_does_not_condemn_the_others_where_all_rows_are_alike():
    trusted = (LABELS == "cat") & TRUSTED
    with pytest.warns(bvfim.BvfimWarning):
        issues = bvfim.LabelCleaner(bilevel=False, random_state=0).find_label_issues(
            np.ones((N, 2)), LABELS, trusted=trusted
        )
    assert issues["p_wrong"].max() < 0.1


def test_given_labels_that_are_all_noise_are_still_found_by_trusted_ones():
    """The rows tell the classes apart; only the given labels do not."""
    truth = np.arange(300) % 3
    X = NUMBERS.normal(size=(300, 5)) + 3 * np.eye(5)[truth]
    trusted = np.arange(300) % 5 == 0
    given = np.where(trusted, truth, NUMBERS.integers(0, 3, 300))
    issues = bvfim.LabelCleaner(bilevel=False, random_state=0).find_label_issues(X, given, trusted=trusted)
    wrong = given != truth
    assert issues["is_label_issue"][wrong].mean() > 0.8
    assert issues["is_label_issue"][~wrong].mean() < 0.2


@pytest.mark.filterwarnings("always::bvfim.BvfimWarning")
def test_the_command_says_so_and_keeps_every_row(tmp_path):
    table = pd.DataFrame(SILENT["noise"]).assign(label=LABELS, sure=TRUSTED.astype(int))
    table.columns = table.columns.astype(str)
    table.to_csv(tmp_path / "pets.csv", index=False)
    done = command("clean", tmp_path / "pets.csv", "--trusted", "sure", "--no-bilevel")
    assert done.returncode == 0, done.stderr
    assert "too little about the labels to call any label wrong; provide columns that tell the classes" in done.stdout
    assert len(pd.read_csv(tmp_path / "pets-cleaned" / "cleaned.csv")) == N
