"""The hyper-cleaning experiment on digits: its choices, its numbers, its resumption."""

from __future__ import annotations

import pandas as pd
import pytest
import torch

import bvfim
from bvfim.reproduce.experiments import cleaning_report, hypercleaning
from bvfim.reproduce.experiments.cleaning_baselines import ALONE, baselines, fit
from bvfim.reproduce.experiments.cleaning_settings import DATA, FEW, TABLE, Config, cost, grid, method, methods, task
from bvfim.reproduce.experiments.resumable import How

pytestmark = pytest.mark.long

SMALL = Config(
    data=("digits-few",), methods=("RHG", "BVFIM", *FEW), activations=("relu",), seeds=2, steps=3, grid=(0.1, 0.3)
)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return hypercleaning.run(SMALL, How(tmp_path_factory.mktemp("cleaning")))


def test_every_method_and_baseline_has_a_row(results):
    found = results.tables["cleaning"]
    expected = ["RHG", "BVFIM", "FHG", "AdaptiveBVFIM", ALONE, "no cleaning", "true labels"]
    assert found.index.get_level_values("method").tolist() == expected
    assert found["accuracy"].between(0, 100).all()
    assert found.loc[("digits-few", "relu", "RHG"), "ended"] == "max_steps"


def test_fhg_is_rhg(results):
    found = results.tables["cleaning"]
    for score in ("accuracy", "F1", "AUROC"):
        assert found.loc[("digits-few", "relu", "FHG"), score] == found.loc[("digits-few", "relu", "RHG"), score]


def test_the_held_out_rows_are_in_neither_level_nor_the_test():
    own = task("digits", "relu", 0, Config())
    assert (len(own.held.labels), len(own.trusted.labels), len(own.noisy.labels)) == (40, 360, 400)
    rows = {
        part: {tuple(r) for r in getattr(own, part).inputs.tolist()} for part in ("held", "trusted", "noisy", "test")
    }
    for part in ("trusted", "noisy", "test"):
        assert not rows["held"] & rows[part]
    with torch.no_grad():
        F, f = own.problem.joint(own.x, own.y)
    assert float(F) == pytest.approx(float(own.problem.upper(own.x, own.y)), rel=1e-5)
    assert float(f) == pytest.approx(float(own.problem.lower(own.x, own.y)), rel=1e-5)


def frame(**columns):
    about = {"problem": "digits", "activation": "relu", "method": "RHG", "seed": 0}
    return pd.DataFrame({**about, "status": "max_steps", "lr": 0.1, **columns})


def test_steps_are_chosen_by_the_held_out_rows_alone():
    good = frame(step=[4, 8, 12], held=[0.5, 0.9, 0.9], accuracy=[0.9, 0.2, 0.1])
    other = frame(step=[4, 8, 12], held=[0.6, 0.8, 0.7], accuracy=[0.99, 0.99, 0.99]).assign(lr=0.3)
    assert hypercleaning.best(pd.concat([good, other])) == (0.1, 12)


def test_a_run_that_swings_is_not_chosen_for_its_highest_point():
    swings = frame(step=[4, 8, 12, 16], held=[0.5, 0.95, 0.5, 0.95]).assign(lr=0.3)
    steady = frame(step=[4, 8, 12, 16], held=[0.7, 0.8, 0.8, 0.8])
    assert hypercleaning.best(pd.concat([swings, steady])) == (0.1, 16)


def test_a_run_that_broke_off_is_chosen_only_if_all_did():
    broken = frame(step=[4], held=[0.95]).assign(lr=0.3, status="non_finite")
    fine = frame(step=[4], held=[0.5])
    assert hypercleaning.best(pd.concat([broken, fine])) == (0.1, 4)
    assert hypercleaning.best(broken) == (0.3, 4)


def test_steps_that_are_too_large_end_in_a_status_with_advice(tmp_path):
    config = Config(data=("digits-few",), methods=("BVFIM",), activations=("identity",), seeds=1, steps=4, grid=(1e6,))
    found = hypercleaning.run(config, How(tmp_path))
    row = found.tables["cleaning"].loc[("digits-few", "identity", "BVFIM")]
    assert row["ended"] == "non_finite"
    assert "digits-few, identity, BVFIM ended with status non_finite" in found.sections[0].ours
    assert "nan" not in found.sections[0].ours


def test_a_killed_run_goes_on_where_it_was(tmp_path, monkeypatch):
    done, trace = [], hypercleaning.trace

    def counted(*args):
        done.append(args)
        return trace(*args)

    def stopping(*args):
        if len(done) == 3:
            raise KeyboardInterrupt
        return counted(*args)

    monkeypatch.setattr(hypercleaning, "trace", stopping)
    with pytest.raises(KeyboardInterrupt):
        hypercleaning.run(SMALL, How(tmp_path))
    done.clear()
    monkeypatch.setattr(hypercleaning, "trace", counted)
    again = hypercleaning.run(SMALL, How(tmp_path, resume=True))
    assert len(done) == 3 * 2 + 1 + 4 - 3, "lower steps of the four methods, one more seed; three were there"
    assert len(again.tables["traces"]["seed"].unique()) == 2


def test_the_baselines_are_in_order():
    found = {row["method"]: row for row in baselines(task("digits", "relu", 0, Config()))}
    assert found["true labels"]["accuracy"] > found["no cleaning"]["accuracy"]
    assert found[ALONE]["F1"] > 0.9
    assert found[ALONE]["AUROC"] > 0.95


def test_a_fit_starts_at_the_start_and_leaves_it_alone():
    own = task("digits-few", "relu", 0, Config())
    before = {key: t.clone() for key, t in own.y.items()}
    assert own.accuracy(fit(own, own.trusted)) > own.accuracy(own.y)
    assert all(torch.equal(before[key], own.y[key]) for key in before)


@pytest.mark.parametrize("label", [*TABLE, "FHG", "BVFIM-barrier", "BVFIM-adaptive"])
def test_the_lower_gradients_of_an_upper_step_are_T(label):
    """BDA asks for as many of F besides, and second derivatives are counted apart."""
    own = task("digits-few", "relu", 0, Config())
    problem = own.problem.counted_anew()
    chosen = method(label, 0.1, Config(T=20, J=4))
    chosen.estimate(problem, own.x, chosen.init(problem, own.x, own.y), 0, None)
    count = problem.evaluations
    lower_steps = 10 + 2 * 5 if label.startswith("BVFIM") else 20
    gradients = count.lower + (count.upper if label.startswith("BVFIM") or label == "BDA" else 0)
    assert gradients - lower_steps in ((0, 1, 2, 3) if label != "BDA" else (20, 21))


def test_fhg_is_left_out_where_x_is_long():
    assert methods("digits", Config(methods=("RHG", "FHG"))) == ("RHG",)
    assert methods("digits-few", Config(methods=("RHG", "FHG", "RHG"))) == ("RHG", "FHG")
    with pytest.raises(bvfim.DataError, match="digits has too many weights for FHG"):
        Config(data=("digits",), methods=("FHG",))
    config = Config()
    assert cost("cifar10", "RHG", config) > cost("mnist", "RHG", config) > cost("mnist", "BVFIM", config)
    quick = config.quick()
    assert cost("mnist", "BVFIM", quick) < cost("mnist", "BVFIM", config), "fewer upper steps"
    assert cost("mnist", "baselines", quick) == cost("mnist", "baselines", config), "these train as long as ever"


def test_unknown_names_are_refused():
    with pytest.raises(bvfim.DataError, match="no problem is called 'cifar'"):
        Config(data=("cifar",))
    with pytest.raises(bvfim.DataError, match="no method is called 'ADAM'"):
        Config(methods=("ADAM",))


def test_the_papers_numbers_stand_beside_ours():
    own = frame(accuracy=[0.9, 0.8], F1=[0.7, 0.7])
    row = cleaning_report._row(("mnist", "relu", "BVFIM"), own)
    assert (row["accuracy"], row["± accuracy"], row["F1"]) == (85.0, 7.07, 70.0)
    assert (row["paper's accuracy"], row["paper's F1"]) == (90.41, 91.19)
    assert set(DATA) >= set(cleaning_report.CLEANING)
    broken = cleaning_report._row(("mnist", "relu", "BVFIM"), own.assign(status=["max_steps", "non_finite"]))
    assert "accuracy" not in broken, "no mean over the runs that were lucky"


def test_a_run_that_ends_between_two_looks_is_seen_at_its_end():
    own = task("digits-few", "relu", 0, Config())
    watch = hypercleaning.Watch(own, every=4)
    bvfim.solve(own.problem, own.x, own.y, bvfim.RHG(2), steps=6, callbacks=[watch])
    assert [row["step"] for row in watch.rows] == [4, 6]


def test_what_the_data_differ_in_is_told(results):
    others = pd.DataFrame(
        {"problem": ["mnist"], "activation": ["relu"], "method": [ALONE], "accuracy": [0.9], "F1": [0.9]}
    )
    own = results.tables["traces"]
    told = cleaning_report.results(SMALL, own, others.assign(note="cut", seed=0), own)
    assert "mnist: cut." in told.sections[0].text


def test_the_single_loop_has_a_row_and_nothing_to_choose():
    config = Config(data=("digits",), methods=("StochasticBVFIM",), activations=("relu",), seeds=1, grid=(0.1, 0.3))
    rows = hypercleaning.trace("digits", "relu", "StochasticBVFIM", 0.1, 0, config)
    assert rows["step"].iloc[-1] == DATA["digits"][1].draws
    assert rows["F1"].iloc[-1] > 0.9
    assert rows["accuracy"].iloc[-1] > 0.85
    assert grid("digits", "StochasticBVFIM", config) == (0.1,)
