from __future__ import annotations

import json
import math
from dataclasses import replace

import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import bvfim
from bvfim.app import cli_bench
from bvfim.app.cli import app
from bvfim.reproduce.bench import problems
from bvfim.testproblems import collection

pytestmark = pytest.mark.long

TESTS = {test.name: test for test in collection()}
SMALL = problems.Config(("adaptivebvfim", "rhg", "bvfim"), ("DempeEtal2012", "b_1998_02"), starts=2, steps=2, workers=1)


def test_every_method_runs_from_the_same_starts_and_is_counted():
    results = problems.run(SMALL)
    table, runs = results.tables["problems"], results.tables["runs"]
    assert list(results.tables) == ["problems", "totals", "runs"]
    assert len(table) == 2 * 3
    assert len(runs) == 2 * 3 * 2
    assert "2 Adam steps, lr 0.1" in table.attrs["title"]
    assert table.loc[("DempeEtal2012", "AdaptiveBVFIM"), "solved"] == "2 of 2"
    rhg = runs.xs("RHG", level="method")
    assert (rhg["F grads"] == 2).all()
    assert (rhg["f grads"] == 200).all(), "each lower gradient is asked for once"
    assert (rhg["hvp+jvp"] == 400).all()
    assert (rhg["gradients"] == 602).all()
    assert (runs.xs("BVFIM", level="method")["hvp+jvp"] == 0).all()
    assert results.summary["AdaptiveBVFIM"]["problems solved after choosing"] == "2 of 2"
    again = problems.run(SMALL).tables["runs"]
    pd.testing.assert_frame_equal(again.drop(columns="seconds"), runs.drop(columns="seconds"))


def test_the_choice_is_the_lowest_trusted_run():
    cost = dict.fromkeys(("F grads", "f grads", "values", "hvp+jvp", "seconds", "status", "violation", "lower gap"), 1)
    runs = pd.DataFrame(
        {"F": [0.0, 1.0, 2.0, math.nan], "trusted": [False, True, True, True], "solved": [False, True, False, False]}
    ).assign(**cost)
    assert problems._row(("p", "m"), runs)["after choosing"]
    assert problems._row(("p", "m"), runs)["solved"] == "1 of 4"
    assert not problems._row(("p", "m"), runs.assign(trusted=False))["after choosing"]
    assert not problems._row(("p", "m"), runs.assign(trusted=True))["after choosing"]


def test_the_profile_counts_what_nobody_solves():
    runs = pd.DataFrame(
        {
            "problem": "p",
            "start": [0, 1, 2] * 2,
            "method": ["A"] * 3 + ["B"] * 3,
            "gradients": [10, 10, 10, 30, 5, 30],
            "solved": [True, True, False] * 2,
        }
    )
    lines = problems._figure(runs, SMALL).axes[0].lines
    assert [list(line.get_xdata()) for line in lines] == [[1.0, 1.0, 2.0, 10.0], [1.0, 1.0, 3.0, 10.0]]
    assert [line.get_ydata()[-1] for line in lines] == [pytest.approx(2 / 3)] * 2


def test_the_command_shares_the_work_among_processes(tmp_path):
    chosen = [word for name in ("AdaptiveBVFIM", "rhg") for word in ("--method", name)]
    chosen += [word for name in SMALL.problems for word in ("--problem", name)]
    short = ["--starts", "2", "--steps", "2", "--workers", "2", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, ["bench", "problems", *chosen, *short])
    assert done.exit_code == 0, done.output
    assert {path.name for path in tmp_path.iterdir()} == {
        "problems.csv", "totals.csv", "runs.csv", "profile.png", "profile.svg", "summary.json", "index.html",
    }  # fmt: skip
    about = json.loads((tmp_path / "summary.json").read_text())
    assert about["config"]["methods"] == ["adaptivebvfim", "rhg"]
    assert about["summary"]["AdaptiveBVFIM"]["starts solved"] == "4 of 4"
    alone = problems.run(SMALL).tables["runs"]["F"]
    shared = pd.read_csv(tmp_path / "runs.csv", index_col=["problem", "method", "start"])["F"]
    assert shared.to_dict() == pytest.approx({key: alone[key] for key in shared.index}, rel=1e-4)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (problems.Config(methods=("rgh",)), "no method is called 'rgh'; did you mean 'rhg'"),
        (problems.Config(problems=("SMD2",)), "no test problem is called 'SMD2'; did you mean 'smd"),
        (problems.Config(collection="coupld"), "no collection is called 'coupld'; did you mean 'coupled'"),
        (problems.Config(("rhg",), collection="constrained"), "RHG takes sets, but no lower_constraints: these do"),
        (problems.Config(("adaptivebvfim", "cg"), collection="coupled"), "CG takes sets, but no lower_constraints"),
        (problems.Config(("rhg",), collection="pessimistic"), "RHG does not solve for a pessimistic follower: take"),
    ],
)
def test_unknown_names_are_refused_before_the_work(config, message):
    with pytest.raises(bvfim.BvfimError, match=message):
        problems.run(config)


def test_planted_problems_come_after_the_collection():
    names = [test.name for test in problems.problems(problems.Config(planted=3))]
    assert len(names) == len(TESTS) + 3
    assert names[-1].startswith("planted(")


@pytest.mark.parametrize("name", problems.COLLECTIONS)
def test_the_commands_know_the_collections(name):
    assert name in cli_bench.COLLECTIONS
    tests = problems.problems(problems.Config(collection=name))
    assert len(tests) == {"plain": 21, "constrained": 32}.get(name, 5)
    assert "adaptivebvfim" in problems.able(problems.Config.methods, name)
    assert ("rhg" in problems.able(problems.Config.methods, name)) == (name == "plain")


def test_constraints_and_the_lower_gap_are_judged():
    config = problems.Config(("adaptivebvfim",), ("LamparielloSagratella2017Ex31",), 0, 2, collection="constrained")
    results = problems.run(replace(config, workers=1))
    runs = results.tables["runs"]
    assert (runs["violation"] <= 1e-4).all()
    assert (runs["lower gap"] <= 1e-2).all()
    row = results.tables["problems"].loc[("LamparielloSagratella2017Ex31", "AdaptiveBVFIM")]
    assert (row["solved"], row["status"]) == ("2 of 2", "2 converged")


def test_what_violates_constraints_is_neither_trusted_nor_solved():
    test = {test.name: test for test in problems.COLLECTIONS["constrained"]()}["LamparielloSagratella2017Ex31"]
    other = replace(test, problem=replace(test.problem, lower_constraints=None, y_set=bvfim.Box(-1, 1)))
    y = torch.tensor([-1.0], dtype=torch.float64)
    found = bvfim.solve(other.problem, test.x, y, bvfim.CG(steps=2, lr=0.1), steps=1, refit=False)
    row = problems._judged(test, found)
    assert row["violation"] > 0.1
    assert not row["trusted"]
    assert not row["solved"]
