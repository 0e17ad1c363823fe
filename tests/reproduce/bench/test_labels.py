from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from bvfim.reproduce.bench import label_columns, labels
from bvfim.reproduce.bench.label_columns import HUMAN, SOURCES, SYNTHETIC, Column, Pool, columns, task
from bvfim.reproduce.bench.labels import Config, calibration_error, measures
from bvfim.reproduce.bench.rivals import CLEANLAB, NONE, ORACLE, OURS, Found
from bvfim.reproduce.experiments.resumable import How
from bvfim.status import DataError

WRONG = np.array([True, False, True, False])
FAST = ("trusted rows alone", NONE)


def found(p: np.ndarray, flags: np.ndarray) -> Found:
    return Found(p, flags, np.zeros(len(p), int), np.ones(len(p)))


def numbered(monkeypatch, size: int, train: int) -> None:
    """A pool in which a row is its own number."""
    rows = Pool(np.arange(size, dtype=float)[:, None], np.arange(size) % 10, train, 10)
    monkeypatch.setattr(label_columns, "pool", lambda name: rows)


def test_the_calibration_error_by_hand():
    assert calibration_error(np.array([0.0, 1.0]), np.array([False, True])) == 0.0
    assert calibration_error(np.array([0.0, 1.0]), np.array([True, False])) == 1.0
    # one bin with mean 0.31 and frequency 1/2, one with 0.9 and 1, one with 0.35 and 0: 2 x 0.19 + 0.1 + 0.35 over 4
    p, happened = np.array([0.3, 0.32, 0.9, 0.35]), np.array([True, False, True, False])
    assert calibration_error(p, happened) == pytest.approx((2 * 0.19 + 0.1 + 0.35) / 4)
    # in two bins of width one half three of them are together
    assert calibration_error(p, happened, bins=2) == pytest.approx((abs(0.97 - 1) + 0.1) / 4)


def test_probabilities_that_are_frequencies_are_calibrated():
    rng = np.random.default_rng(0)
    p = rng.random(200_000)
    assert calibration_error(p, rng.random(200_000) < p) < 0.006


def test_perfect_flags_and_probabilities_have_perfect_measures():
    assert measures(WRONG, found(WRONG.astype(float), WRONG)) == {
        "F1": 1.0,
        "AUROC": 1.0,
        "AP": 1.0,
        "calibration error": 0.0,
    }


def test_the_measures_by_hand():
    own = measures(WRONG, found(np.array([0.9, 0.8, 0.7, 0.1]), np.array([True, True, False, False])))
    assert own["F1"] == pytest.approx(0.5)
    assert own["AUROC"] == pytest.approx(3 / 4)  # pairs in the right order
    assert own["AP"] == pytest.approx((1 + 2 / 3) / 2)


def test_who_says_nothing_about_rows_has_no_measures():
    own = measures(WRONG, Found(None, None, np.zeros(4, int), np.ones(4)))
    assert np.isnan(list(own.values())).all()


@pytest.mark.parametrize(("size", "train", "trusted"), [(1797, 1797, 500), (9000, 8000, 5000)])
def test_noisy_trusted_and_test_rows_are_disjoint_and_balanced(size, train, trusted, monkeypatch):
    numbered(monkeypatch, size, train)
    own = task(Column("digits", "symmetric 0.2", trusted), 1000, 3)
    drawn, test = own.inputs[:, 0].astype(int), own.test_inputs[:, 0].astype(int)
    assert len({*drawn, *test}) == len(drawn) + len(test)
    assert drawn.max() < train
    assert test.min() >= train or size == train
    assert len(test) == min(size - len(drawn) if size == train else size - train, label_columns.TEST)
    assert np.array_equal(np.concatenate([own.truth, own.trusted]), drawn % 10)
    assert np.array_equal(own.test, test % 10)
    assert set(np.bincount(own.truth)) == {100}
    assert set(np.bincount(own.trusted)) == {trusted // 10}


def test_columns_differ_only_in_what_they_say(monkeypatch):
    numbered(monkeypatch, 1797, 1797)
    few, many = (task(Column("digits", "symmetric 0.2", size), 1000, 0) for size in (50, 500))
    assert np.array_equal(few.inputs[:1000], many.inputs[:1000])
    assert np.array_equal(few.given, many.given)
    assert set(few.inputs[1000:, 0]) <= set(many.inputs[1000:, 0])
    other = task(Column("digits", "symmetric 0.2", 50), 1000, 1)
    assert not np.array_equal(few.inputs, other.inputs)


@pytest.mark.parametrize(("noise", "rate"), [("symmetric 0.2", 0.2), ("symmetric 0.5", 0.5), ("pair flip 0.3", 0.3)])
def test_the_noise_has_its_rate(noise, rate):
    own = task(Column("digits", noise, 50), 1000, 0)
    assert own.wrong.mean() == rate
    if noise.startswith("pair"):
        assert set((own.given - own.truth)[own.wrong] % 10) == {1}


@pytest.mark.parametrize("noise", HUMAN)
def test_people_gave_the_labels_of_cifar10n(noise, monkeypatch):
    given = np.random.default_rng(0).integers(0, 10, 9000)
    monkeypatch.setattr(label_columns.data, "human", lambda kind: {noise: given}[kind])
    numbered(monkeypatch, 9000, 8000)
    own = task(Column("cifar10n", noise, 200), 2000, 0)
    assert np.array_equal(own.given, given[own.inputs[:2000, 0].astype(int)])


def test_the_columns_of_the_brief():
    asked = columns(Config.data, Config.noises, Config.trusted)
    groups = pd.Series([column.group for column in asked]).value_counts()
    assert groups.to_dict() == {"synthetic": 4 * 3 + 4 * 4 + 4 * 4, "human": 2 * 4}
    assert max(column.trusted for column in asked if column.data == "digits") == 500


@pytest.mark.parametrize(
    "change", [{"data": ("imagenet",)}, {"noises": ("loud",)}, {"contestants": ("a coin",)}, {"trusted": (9000,)}]
)
def test_what_there_is_not_is_refused_before_the_work(change):
    with pytest.raises(DataError):
        labels.run(replace(Config().quick(), **change))


def test_a_quick_run_ends_in_tables_and_a_figure(tmp_path):
    config = replace(Config().quick(), contestants=FAST, seeds=2, noisy=300)
    results = labels.run(config, How(tmp_path))
    raw, table = results.tables["measurements"], results.tables["columns"]
    assert len(raw) == 2 * 2 * 2
    assert set(raw["noise rate"]) == {0.4}
    first = raw[(raw["trusted"] == 50) & (raw["contestant"] == FAST[0])]
    row = table.loc["digits", "symmetric 0.4", 50, FAST[0]]
    assert row["F1"] == pytest.approx(first["F1"].mean())
    assert row["± F1"] == pytest.approx(first["F1"].std())
    assert table["accuracy"].between(0.5, 1).all()
    assert list(results.figures) == ["labels"]
    again = labels.run(config, How(tmp_path, resume=True))
    pd.testing.assert_frame_equal(again.tables["measurements"], raw, check_dtype=False)


def made(rows: list[tuple[str, int, float, float]]) -> pd.DataFrame:
    """Measurements of the cleaner, cleanlab and no cleaning: contestant, seed, score, accuracy."""
    names = ["contestant", "seed", "F1", "accuracy"]
    about = {"data": "mnist", "noise": "symmetric 0.2", "trusted": 50, "group": "synthetic"}
    table = pd.DataFrame(rows, columns=names).assign(**about, seconds=1.0)
    return table.assign(AUROC=table["F1"], AP=table["F1"], **{"calibration error": 0.05})


def test_the_lines_are_stated():
    raw = made([(OURS, 0, 0.95, 0.9), (OURS, 1, 0.97, 0.9)])
    summary = labels._results(Config(), raw, {}).summary
    assert summary["synthetic F1"] == {"mean": 0.96, "line": 0.93, "met": True}
    assert summary["synthetic AUROC"] == {"mean": 0.96, "line": 0.99, "met": False}
    assert summary["synthetic calibration error"]["met"] is False
    assert "human F1" not in summary


@pytest.mark.parametrize(("ours", "named"), [(0.8, True), (0.9, True), (0.91, False)])
def test_columns_where_cleanlab_is_not_behind_are_named(ours, named):
    raw = made([(OURS, 0, ours, 0.9), (CLEANLAB[0], 0, 0.9, 0.9)])
    behind = labels._results(Config(), raw, {}).summary[f"not ahead of {CLEANLAB[0]}"]
    where = "mnist, symmetric 0.2, 50 trusted"
    assert behind == ([f"{where}: F1", f"{where}: AUROC"] if named else [])


@pytest.mark.parametrize(("losses", "named"), [((0.01, 0.03), True), ((-0.02, 0.03), False), ((-0.1, -0.1), False)])
def test_a_loss_of_accuracy_beyond_the_spread_of_the_draws_is_named(losses, named):
    rows = [(OURS, seed, 0.9, 0.9 - loss) for seed, loss in enumerate(losses)]
    raw = made([*rows, (NONE, 0, np.nan, 0.9), (NONE, 1, np.nan, 0.9)])
    lost = labels._results(Config(), raw, {}).summary["accuracy below no cleaning"]
    assert bool(lost) is named


def test_an_absent_cleanlab_is_said_and_no_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "cleanlab", None)
    monkeypatch.setitem(sys.modules, "cleanlab.classification", None)
    config = replace(Config().quick(), contestants=(*CLEANLAB, ORACLE), trusted=(50,), noisy=200)
    results = labels.run(config)
    assert "cleanlab" in results.summary["absent"]
    assert set(results.tables["measurements"]["contestant"]) == {ORACLE}
    assert "cleanlab was not run:" in results.sections[0].text


def test_cleanlab_is_not_imported_before_it_is_asked_for():
    asked = "import sys, bvfim.reproduce.bench.labels; print('cleanlab' in sys.modules, 'sklearn' in sys.modules)"
    output = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout
    assert output.split() == ["False", "False"]


def test_every_source_has_noise_that_is_known():
    assert all(noise in (*SYNTHETIC, *HUMAN) for source in SOURCES.values() for noise in source.noises)
