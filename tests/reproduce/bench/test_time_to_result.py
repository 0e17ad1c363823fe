from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import bvfim
from bvfim.reproduce.bench import time_to_result, time_to_result_watch
from bvfim.reproduce.bench import time_to_result_report as report
from bvfim.reproduce.bench.peers import betty_, boat_, torchopt_
from bvfim.reproduce.bench.peers.base import Budget, OnBatches
from bvfim.reproduce.bench.time_to_result import Config
from bvfim.reproduce.bench.time_to_result_rivals import OURS, Plain, Setting, Watch, ours, rivals
from bvfim.reproduce.experiments import cleaning
from bvfim.reproduce.experiments.cleaning_baselines import ALONE
from bvfim.reproduce.experiments.resumable import How
from bvfim.status import DataError

SMALL = replace(Config(only=("RHG", ALONE)).quick(), splits=1, tries=2, steps=40)
PEERS = {
    "Betty finite differences": (betty_, "betty"),
    "BOAT RAD": (boat_, "boat_torch"),
    "TorchOpt unrolled": (torchopt_, "torchopt"),
    "TorchOpt CG": (torchopt_, "torchopt"),
}


@pytest.fixture(scope="module")
def task() -> cleaning.Task:
    sizes = {"train": 60, "validation": 80, "held": 20, "test": 50, "hidden": 8}
    return cleaning.problem("digits", **sizes, activation="relu", centred=True)


def looked(method: str, seconds: list[float], scores: list[float], split: int = 1, tuned: str = "both", **more):
    """The looks of a made-up run, with the same accuracy, F1 and held accuracy."""
    own = {"seconds": seconds, "epochs": seconds, "accuracy": scores, "F1": scores, "held": scores}
    about = {"data": "digits", "method": method, "split": split, "lower": 0.1, "upper": 0.1, report.TUNED: tuned}
    return pd.DataFrame(own).assign(**{**about, **more})


# -- batches for other libraries --


def test_objectives_on_batches_see_what_was_drawn_last(task):
    on = OnBatches(task, 16)
    problem, batches = cleaning.on_batches(task, 16)
    first, second = next(batches.lower), next(batches.lower)
    assert torch.equal(on.task.problem.lower(task.x, task.y), problem.lower(task.x, task.y, first))
    on.renew("upper")
    assert torch.equal(on.task.problem.lower(task.x, task.y), problem.lower(task.x, task.y, first))
    on.renew("lower")
    assert torch.equal(on.task.problem.lower(task.x, task.y), problem.lower(task.x, task.y, second))


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_on_batches_moves_x_and_y_and_draws_for_every_lower_step(task, name):
    module, package = PEERS[name]
    pytest.importorskip(package, reason=f"{package} is not installed")
    on, drawn = OnBatches(task, 16), []

    def renew(level: str) -> None:
        drawn.append(level)
        on.renew(level)

    loop = module.loops(on.task, Budget(T=3, J=2, lr=0.1), renew)[name]()
    loop.step()
    logged = name.startswith("BOAT")  # it evaluates both once more, for its log
    assert drawn.count("lower") == 3 + logged
    assert drawn.count("upper") == 1 + logged
    loop.step()
    assert (loop.x != 0).float().mean() < 1, "only rows that were drawn have moved"
    assert loop.x.abs().max() > 0
    assert all(not torch.equal(t, task.y[key]) for key, t in loop.y.items())


def test_the_unrolled_peer_on_batches_has_the_gradient_of_our_method(task):
    pytest.importorskip("torchopt", reason="torchopt is not installed")
    problem, batches = cleaning.on_batches(task, 16)
    on = OnBatches(task, 16)  # has drawn the first batches already, and the step draws the next ones
    loop = torchopt_.loops(on.task, Budget(T=1, lr=0.1), on.renew)["TorchOpt unrolled"]()
    draws = [bvfim.Draw(next(batches.upper), next(batches.lower)) for _ in range(2)]
    y = {key: t.clone().requires_grad_() for key, t in task.y.items()}
    x = task.x.clone().requires_grad_()
    slopes = torch.autograd.grad(problem.lower(x, y, draws[1].lower), list(y.values()), create_graph=True)
    moved = {key: t - 0.1 * g for (key, t), g in zip(y.items(), slopes, strict=True)}
    (expected,) = torch.autograd.grad(problem.upper(x, moved, draws[1].upper), x)
    assert torch.allclose(loop.step(), expected, atol=1e-7)


# -- the watch --


def test_looking_is_not_counted_and_steps_are(task, monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr(time_to_result_watch.time, "perf_counter", lambda: float(next(clock)))
    watch = Watch(task, ours=1000.0, limit=6.0)  # begins at 0
    assert not watch(task, 10.0)  # at 1, and looks until 2: a first step
    assert not watch(task, 20.0)  # at 3, which is second 2
    for _ in range(3):
        assert not watch(task, 30.0)
    assert watch(task, 50_000.0)
    assert [look["seconds"] for look in watch.looks] == [0.0, 1.0, 6.0]
    assert [look["epochs"] for look in watch.looks] == [0.0, 0.001, 5.0]
    assert [look["steps"] for look in watch.looks] == [0, 1, 6]


def test_looks_are_even_until_our_end_and_rarer_later(task):
    watch = Watch(task, ours=20.0, limit=1e9)
    assert watch._after(0.5) == 1.0
    assert watch._after(19.7) == 20.0
    assert watch._after(40.0) == pytest.approx(46.0)


def test_our_run_takes_its_steps_and_counts_its_rows(task):
    watch = Watch(task, 1.0, float("inf"), every=10, steps=25)
    ours(task, 16, watch)
    assert [look["steps"] for look in watch.looks] == [0, 1, 10, 20, 25]
    rows = np.diff([look["epochs"] for look in watch.looks]) * 10_000
    assert rows[1:].round().tolist() == [9 * 4 * 16, 10 * 4 * 16, 5 * 4 * 16]
    assert rows[0] > 4 * 16, "the range test counts"


# -- those who take part --


@pytest.mark.parametrize(
    ("name", "gradients"),
    [
        ("RHG", 4 + 8 + 1),  # four steps, a product each, F
        ("CG", 4 + 1 + 1 + 2 * 3),  # four steps, f and F at the end, two of CG's products and one in x
        ("Neumann", 4 + 1 + 1 + 2 * 3),
        ("one-step unrolling", 1 + 2 + 1),
        ("Betty finite differences", 4),
        ("BOAT RAD", 4 + 8 + 1),
        ("TorchOpt unrolled", 4 + 8 + 1),
        (ALONE, 1),
    ],
)
def test_every_rival_learns_and_counts_its_rows(task, name, gradients):
    rival = rivals("digits")[name]
    pytest.importorskip(rival.library, reason=f"{rival.library} is not installed")
    watch = Watch(task, 1.0, float("inf"), every=1, steps=2)
    rival.run(task, Budget(T=4, J=2, lr=rival.lower[1], x_lr=rival.upper[1]), 16, watch)
    assert watch.looks[-1]["steps"] == 2
    assert np.diff([look["epochs"] for look in watch.looks]) * 10_000 == pytest.approx([16 * gradients] * 2)


def test_nested_bvfim_counts_all_rows(task):
    watch = Watch(task, 1.0, float("inf"), every=1, steps=1)
    rivals("digits")["nested BVFIM"].run(task, Budget(lr=0.1, x_lr=0.1), 16, watch)
    assert watch.looks[-1]["epochs"] * 10_000 == pytest.approx(60 * (25 + 1) + 60 * (50 + 25 + 2))


def test_each_rival_has_nine_settings_with_the_middle_first():
    for data in ("mnist", "cifar10", "digits"):
        for rival in rivals(data).values():
            assert len(set(rival.grid)) == 9
            assert rival.grid[0] == (rival.lower[1], rival.upper[1])


def test_the_plain_network_flags_where_it_disagrees(task):
    plain = Plain(task, 16, 0.01, 0.0)
    for _ in range(100):
        plain.step()
    found = cleaning.network(plain.y, task.noisy.inputs, "relu").argmax(1)
    assert torch.equal(plain.x <= 0, found != task.noisy.labels)
    assert task.accuracy(plain.y, task.trusted) > 0.9


def test_a_missing_library_is_told_in_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchopt", None)
    taking, absent = time_to_result.present(replace(SMALL, only=("one-step", "TorchOpt")))
    assert taking == ["one-step unrolling"]
    assert absent["TorchOpt unrolled"].startswith("torchopt is not installed")


def test_what_can_not_be_run_is_refused():
    with pytest.raises(DataError, match="no rival has 'GD' in its name"):
        Config(only=("GD",))
    with pytest.raises(DataError, match="budget must be at least 1"):
        Config(budget=0.5)
    with pytest.raises(DataError, match="did you mean 'mnist'"):
        Config(data=("minst",))


# -- what is chosen and said --


def test_settings_are_chosen_on_held_rows_at_two_moments():
    quick = looked("RHG", [0, 1, 10], [0.1, 0.8, 0.7], lower=1.0)
    slow = looked("RHG", [0, 1, 10], [0.1, 0.5, 0.9], lower=0.1)
    found = time_to_result._best(pd.concat([quick, slow]), end=1.0)
    assert found == {Setting(0.1, 0.1): report.BUDGET, Setting(1.0, 0.1): report.OUR_END}
    assert time_to_result._best(quick, end=1.0) == {Setting(1.0, 0.1): report.BOTH}


def verdict(*tables: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    own = [looked(OURS, [0, 0.1, 2], [0.5, 0.6, 0.9], s, report.DEFAULTS) for s in (1, 2)]
    looks = pd.concat([*own, *tables])
    ends = report.ends(looks[looks["method"] == OURS])
    leads, table = report.leading(looks, ends), report.summarised(looks, ends)
    return table, f"{report.said(leads, ['RHG'])} {report.later(table, ['RHG'])}"


def test_one_that_is_ahead_early_is_named_with_the_time():
    _, words = verdict(looked("RHG", [0, 0.2, 20], [0.5, 0.8, 0.8], 1), looked("RHG", [0, 0.2, 20], [0.5, 0.8, 0.8], 2))
    assert "lead it in accuracy on digits (1 until 1.3 s, most RHG by 0.184; none at its end), F1 on" in words
    assert words.endswith("With more time no bilevel method goes beyond what it has at its end.")


def test_one_that_is_ahead_at_last_is_named_too():
    table, words = verdict(
        looked("RHG", [0, 1, 20], [0.5, 0.5, 0.95], 1), looked("RHG", [0, 1, 20], [0.5, 0.5, 0.95], 2)
    )
    assert words.startswith(f"No bilevel method leads {OURS}")
    assert "in accuracy on digits (1, most RHG with 0.950 against 0.900), F1" in words
    row = table.loc[("digits", "RHG", "both")]
    assert row["accuracy at our end"] == pytest.approx(0.5 + 0.45 / 19)
    assert row["best F1 later"] == row["F1 at last"] == pytest.approx(0.95)
    assert row["seconds"] == 20


def test_a_lead_of_the_plain_network_is_told_apart():
    _, words = verdict(
        looked(ALONE, [0, 0.1, 20], [0.5, 0.95, 0.95], 1), looked(ALONE, [0, 0.1, 20], [0.5, 0.95, 0.95], 2)
    )
    assert words.startswith("No bilevel method")
    assert f"not bilevel leads it in accuracy on digits (1 until 2 s, most {ALONE} by 0.350" in words
    assert f"at its end still {ALONE})" in words


def test_nobody_leads_before_the_first_step_has_ended():
    _, words = verdict(looked("RHG", [0, 1.9, 20], [0.5, 0.8, 0.8], 1), looked("RHG", [0, 1.9, 20], [0.5, 0.8, 0.8], 2))
    assert words.startswith("No bilevel method")


def test_a_method_that_broke_off_at_once_is_left_out_of_the_picture():
    _, words = verdict(looked("RHG", [0], [0.5], 1), looked("RHG", [0], [0.5], 2))
    assert words.startswith("No bilevel method")
    looks = pd.concat([looked(OURS, [0, 0.1, 2], [0.5, 0.6, 0.9]), looked("RHG", [0], [0.5])])
    assert len(report.drawn(looks, "seconds").axes[0].lines) == 2, "ours, and the line at its end"


# -- all of it --


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("race")
    return folder, time_to_result.run(SMALL, How(folder))


def test_the_table_has_a_row_for_each(measured):
    table = measured[1].tables["results"]
    assert list(dict.fromkeys(table.index.get_level_values("method"))) == [OURS, "RHG", ALONE]
    assert table["accuracy at our end"].between(0, 1).all()
    lasting = table[table.index.get_level_values(report.TUNED) != report.OUR_END]["seconds"]
    assert (lasting.iloc[1:] >= SMALL.budget * lasting.iloc[0]).all()
    settings = measured[1].tables["settings"]
    assert len(settings) == 2 * SMALL.tries


def test_the_pictures_have_two_rows_and_the_seconds_are_on_a_log_scale(measured):
    for unit in ("seconds", "epochs"):
        figure = measured[1].figures[unit]
        assert len(figure.axes) == 2
        assert all(axes.get_xscale() == "log" for axes in figure.axes)
        assert [text.get_text() for text in figure.legends[0].get_texts()] == [OURS, "RHG", ALONE]


def test_a_resumed_run_takes_its_parts_over(measured, monkeypatch):
    folder, first = measured
    for part in ("own_part", "rival_part"):
        monkeypatch.setattr(time_to_result, part, lambda *_: pytest.fail("a part was measured again"))
    again = time_to_result.run(SMALL, How(folder, resume=True))
    pd.testing.assert_frame_equal(again.tables["results"], first.tables["results"])
    assert again.summary == first.summary


@pytest.mark.long
def test_ours_is_ahead_at_its_end_and_cleans(measured):
    config = replace(Config(data=("digits",), only=("RHG", "one-step")).quick(), tries=9)
    table = time_to_result.run(config).tables["results"].droplevel("data")
    own = table.loc[(OURS, report.DEFAULTS)]
    assert own["F1 at our end"] > 0.9
    assert (table["accuracy at our end"] <= own["accuracy at our end"] + 0.02).all()
