import json
import math
import random
import time

import pandas as pd
import pytest
import torch

import bvfim
from bvfim import Problem
from bvfim.methods import ALL
from bvfim.reproduce.bench import contest, contest_report, contest_run
from bvfim.reproduce.bench.contest_figures import curves, profiles
from bvfim.reproduce.bench.contest_run import CUT, FAILED, NO_STEP, REFUSED, CutOff, Limit, Watch, rows
from bvfim.reproduce.bench.contest_settings import DEFAULTS, Setting, fitted, settings
from bvfim.reproduce.bench.jobs import Job, Posed, excess, is_near, jobs
from bvfim.status import DataError
from tests.command import command

BY_NAME = {job.name: job for job in jobs()}
A, B = "ridge, diabetes", "cleaning"
"""Two jobs, by name alone."""


def posed(upper=lambda x, y: ((x - 2) ** 2 + (y - 2) ** 2).sum(), lower=lambda x, y: ((y - x) ** 2).sum(), **options):
    zero = torch.zeros(1, dtype=torch.float64)
    return Posed(Problem(upper, lower, **options), zero, zero, lambda x: float((x - 2) ** 2))


def job(**options):
    return Job("small", "small", 0.2, lambda seed: posed(**options))


def row(method, value, **about):
    given = {"job": A, "family": "kind", "setting": DEFAULTS, "as": DEFAULTS, "seed": 1, "start": 10.0}
    end = {"seconds": 1.0, "gradients": 10.0, "status": "stopped", "said": ""}
    return {**given, **end, "method": method, "value": value, **about}


@pytest.fixture
def started(monkeypatch):
    monkeypatch.setattr(contest_run, "start", lambda name, seed: 4.0)
    contest_run.loaded([bvfim.RHG, bvfim.CG])


# The rule


def test_near_is_five_per_cent_of_the_best_or_a_thousandth_of_the_fall():
    draw = random.Random(0)
    for _ in range(1000):
        best, fall, over = draw.gauss(0, 1), draw.expovariate(1), 10 ** draw.uniform(-6, 0)
        stated = over <= 0.05 * abs(best) or over <= 1e-3 * fall
        if abs(over - 0.05 * abs(best)) > 1e-9 and abs(over - 1e-3 * fall) > 1e-9:
            assert is_near(best + over, best, best + fall) == stated


def test_who_moved_nowhere_is_not_near_and_what_is_lower_is():
    assert excess(math.inf, 1.0, 2.0) == math.inf
    assert not is_near(math.inf, 1.0, 2.0)
    assert is_near(0.9, 1.0, 2.0)
    assert not is_near(1e-9, 0.0, 0.0)


# The settings


@pytest.mark.parametrize("kind", ALL)
def test_every_method_begins_with_its_defaults_and_has_four_settings_at_most(kind):
    found = settings(kind, 4)
    assert found[0] == Setting(DEFAULTS, kind())
    assert len({setting.name for setting in found}) == len(found) == (1 if kind is bvfim.SiPBA else 4)
    assert [setting.name for setting in settings(kind, 2)] == [setting.name for setting in found[:2]]


def test_saba_is_told_its_rows_and_gets_blocks():
    own = BY_NAME["distillation"].build(0)
    method, batches = fitted(settings(bvfim.SABA, 1)[0], own)
    assert (method.lower_rows, method.upper_rows, method.size) == (1200, 1200, 100)
    assert batches is own.blocks
    assert fitted(settings(bvfim.SOBA, 1)[0], own) == (bvfim.SOBA(), own.batches)


# One run


def test_the_watch_looks_when_it_is_due_and_ends_the_run(monkeypatch):
    clock = iter([0.0, 0.1, 0.3, 0.35, 0.9, 1.1])
    monkeypatch.setattr(time, "process_time", lambda: next(clock))
    watch = Watch(1.0, (0.25, 0.5, 0.75))

    class Run:
        problem, x = posed().problem, torch.zeros(1)

    assert [watch(Run) for _ in range(5)] == [False] * 4 + [True]
    assert [look.seconds for look in watch.looks] == [0.3, 0.9]  # at the second, two were due
    assert watch.first == 0.1
    assert watch.last.seconds == 1.1


@pytest.mark.usefixtures("started")
def test_a_run_ends_in_time_and_its_last_row_is_what_it_returned():
    found = rows(job(), Setting("Adam", bvfim.RHG(10, 0.3), lambda p: torch.optim.Adam(p, 0.1)), 0, 0.2, looked=True)
    assert found[-1]["status"] == "stopped"
    assert 0.2 <= found[-1]["seconds"] < 0.4
    assert found[-1]["value"] < 0.1 < found[0]["value"]
    assert [r["seconds"] for r in found] == sorted(r["seconds"] for r in found)
    assert [r["gradients"] for r in found] == sorted(r["gradients"] for r in found)
    assert [r["status"] for r in found[:-1]] == [""] * (len(found) - 1)


@pytest.mark.usefixtures("started")
def test_only_the_end_is_judged_where_settings_are_chosen():
    assert len(rows(job(), settings(bvfim.CG, 1)[0], 0, 0.05, looked=False)) == 1


@pytest.mark.usefixtures("started")
def test_a_method_that_cant_take_a_problem_says_so():
    (found,) = rows(job(lower_constraints=lambda x, y: y - x), settings(bvfim.RHG, 1)[0], 0, 0.1, looked=True)
    assert found["status"] == REFUSED
    assert "lower_constraints" in found["said"]
    assert found["value"] == math.inf


@pytest.mark.usefixtures("started")
def test_an_error_and_a_run_that_breaks_off_are_worth_nothing():
    def broken(x, y):
        raise ZeroDivisionError("here")

    (found,) = rows(job(lower=broken), settings(bvfim.CG, 1)[0], 0, 0.1, looked=True)
    assert (found["status"], found["said"], found["value"]) == (FAILED, "ZeroDivisionError: here", math.inf)
    (*_, found) = rows(job(), Setting("far", bvfim.CG(lr=1e30)), 0, 0.5, looked=True)
    assert (found["status"], found["value"]) == ("non_finite", math.inf)


@pytest.mark.usefixtures("started")
def test_a_step_that_does_not_end_is_cut_off_where_the_run_was():
    def endless(x, y):
        while y.requires_grad:
            pass
        return (y**2).sum()

    (found,) = rows(job(lower=endless), settings(bvfim.CG, 1)[0], 0, 0.1, looked=True)
    assert (found["status"], found["said"], found["value"]) == (CUT, NO_STEP, 4.0)
    assert 0.1 <= found["seconds"] < 0.5


@pytest.mark.usefixtures("started")
def test_what_is_cut_off_after_some_steps_ends_where_they_led():
    calls = []

    def slow(x, y):
        calls.append(1)
        while len(calls) > 2000 and time.process_time() < began + 1.0:
            pass
        return ((y - x) ** 2).sum()

    began = time.process_time()
    setting = Setting("Adam", bvfim.RHG(10, 0.3), lambda p: torch.optim.Adam(p, 0.1))
    (found,) = rows(job(lower=slow), setting, 0, 0.3, looked=False)
    assert (found["status"], found["said"]) == (CUT, "")
    assert found["value"] < 4.0


@pytest.mark.usefixtures("started")
def test_a_cut_that_is_caught_and_raised_as_another_error_is_a_cut():
    def endless(x, y):
        try:
            while y.requires_grad:
                pass
        except CutOff:
            raise bvfim.MethodError("no forward mode") from None
        return (y**2).sum()

    (found,) = rows(job(lower=endless), settings(bvfim.CG, 1)[0], 0, 0.1, looked=True)
    assert (found["status"], found["said"]) == (CUT, NO_STEP)


def test_a_timer_that_runs_ahead_of_the_clock_cuts_nothing(monkeypatch):
    limit = Limit(10.0)
    with limit:
        limit._due(0, None)
    assert not limit.over


def test_what_loads_a_module_is_not_cut_off_in_the_middle():
    spin = "import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass"
    with Limit(0.05):
        exec(compile(spin, "<frozen importlib._fake>", "exec"), {})
    with pytest.raises(CutOff), Limit(0.05):
        exec(compile(spin, "<elsewhere>", "exec"), {})


def test_the_steps_of_the_single_loop_are_those_that_fit():
    steps = contest_run.planned(posed(), settings(bvfim.StochasticBVFIM, 1)[0], 0.5)
    watch = Watch(10.0)
    contest_run.solved(posed(), bvfim.StochasticBVFIM(), settings(bvfim.StochasticBVFIM, 1)[0], steps, None, watch)
    assert 0.1 < watch.seconds < 2.0


# The contest


def test_a_config_refuses_what_there_is_not():
    for wrong in ({"only": ("chess",)}, {"seeds": 0}, {"tries": 5}, {"budget_scale": 0.0}):
        with pytest.raises(DataError):
            contest.Config(**wrong)
    assert [j.name for j in contest.Config(only=("few",)).jobs()] == ["few-shot, 1 image", "few-shot, 5 images"]
    assert contest.Config(methods=("meha", "rhg")).kinds() == [bvfim.RHG, bvfim.MEHA]


def test_the_best_of_the_grid_is_chosen_on_a_seed_that_is_not_shown(monkeypatch):
    worth = {(DEFAULTS, 0): 2.0, ("Adam 0.1", 0): 1.0, (DEFAULTS, 1): 1.0, ("Adam 0.1", 1): 5.0}

    def told(job, setting, seed, budget, looked):
        return [row("RHG", worth[setting.name, seed], setting=setting.name, seed=seed)]

    monkeypatch.setattr(contest, "rows", told)
    monkeypatch.setattr(contest, "loaded", lambda kinds: None)
    looks = contest.looks(contest.Config(("ridge",), ("rhg",), tries=2))
    shown = {(r["as"], r["setting"], r["seed"]): r["value"] for r in looks.to_dict("records")}
    assert shown == {
        ("tried", DEFAULTS, 0): 2.0,
        ("tried", "Adam 0.1", 0): 1.0,
        (DEFAULTS, DEFAULTS, 1): 1.0,
        (contest.BEST, "Adam 0.1", 1): 5.0,
    }


def test_what_refuses_or_takes_no_step_is_tried_once(monkeypatch):
    calls = []

    def told(job, setting, seed, budget, looked):
        calls.append(setting.name)
        return [row("FHG", 1.0, status=CUT, said=NO_STEP)]

    monkeypatch.setattr(contest, "rows", told)
    contest.tried(contest.Config(), jobs()[0], bvfim.FHG)
    assert calls == [DEFAULTS]


# The report


@pytest.fixture
def looks():
    both = [row(*end, **about, **{"as": kind}) for kind in (DEFAULTS, contest.BEST) for end, about in ENDS]
    return pd.DataFrame([*both, row("RHG", 1.0, seed=0, **{"as": "tried"})])


ENDS = [
    (("RHG", 2.0), {"status": "", "seconds": 0.1}),
    (("RHG", 1.0), {}),
    (("CG", 1.04), {}),
    (("SiPBA", math.inf), {"status": REFUSED, "gradients": math.nan, "said": "no"}),
    (("RHG", 3.0), {"job": B}),
    (("CG", 1.0), {"job": B}),
    (("SiPBA", math.inf), {"job": B, "status": "non_finite"}),
]


def test_ends_near_the_best_are_counted(looks):
    measured = contest_report.measured_against(looks, contest_report.lowest(looks, {}))
    ends = measured[(measured["status"] != "") & (measured["as"] != "tried")]
    found = contest_report.shares(ends)
    assert list(found.index) == ["CG", "RHG", "SiPBA"]
    assert list(found["near, best of grid"]) == [2, 1, 0]
    assert list(found["lowest of all"]) == [1, 1, 0]
    assert list(found["refused"]) == [0, 0, 1]
    assert list(found["broke off, failed or cut off"]) == [0, 0, 1]
    assert contest_report.by_kind(ends).loc["CG"].tolist() == ["2, 2"]
    assert "CG 2 (2), RHG 1 (1), SiPBA 0 (0)" in contest_report.said(found)


def test_a_known_optimum_is_the_best_even_if_nobody_found_it(looks):
    assert contest_report.lowest(looks, {A: -1.0}) == {(A, 0): -1.0, (A, 1): -1.0, (B, 1): 1.0}


def test_what_is_kept_is_json_without_infinities(looks):
    results = contest_report.results(looks, 1.0, 2)
    kept = json.loads(json.dumps(contest_report.recorded(results, "bvfim bench rivals", {}), allow_nan=False))
    assert len(kept["runs"]) == 12  # all ends that are compared, no looks on the way
    assert len(kept["tried"]) == 1
    assert [run["value"] for run in kept["runs"] if run["method"] == "SiPBA"] == [None] * 4


def test_every_picture_shows_those_who_took_part(looks):
    measured = contest_report.measured_against(looks, contest_report.lowest(looks, {}))
    compared = measured[measured["as"] != "tried"]
    ends = contest_report.ended(compared, {A: 1.0, B: 1.0})
    for figure in (profiles(ends), curves(compared, "seconds"), curves(compared, "gradients")):
        labels = {text.get_text() for text in figure.legends[0].get_texts()}
        assert labels == {"RHG", "CG"}
    lines = {line.get_label(): line.get_ydata()[-1] for line in profiles(ends).axes[0].lines}
    assert lines["CG"] == lines["RHG"] == 1.0


@pytest.mark.long
def test_the_command_runs_resumes_and_keeps_its_ends(tmp_path):
    words = ["bench", "rivals", "--quick", "--methods", "rhg,meha,sipba", "--only", "ridge", "--out", str(tmp_path)]
    assert command(*words).returncode == 0
    kept = json.loads((tmp_path / "rivals.json").read_text())
    assert kept["command"].startswith("bvfim bench rivals --seeds 1")
    assert {run["method"] for run in kept["runs"]} == {"RHG", "MEHA", "SiPBA"}
    before = (tmp_path / "looks.csv").read_text()
    assert command(*words, "--resume").returncode == 0
    assert (tmp_path / "looks.csv").read_text() == before
    assert "SiPBA does not solve" in (tmp_path / "index.html").read_text()
