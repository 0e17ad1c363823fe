"""The benchmark of constrained problems judges what a run claims, and multiplies constraints by what it says."""

import json
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

import bvfim

SCRIPTS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.delitem(sys.modules, "constrained", raising=False)
    yield import_module("constrained")
    monkeypatch.delitem(sys.modules, "constrained", raising=False)


@pytest.fixture
def test(script):
    return script.named("constrained", "LamparielloSagratella2017Ex31")


CONVERGED = bvfim.Status.CONVERGED


@pytest.mark.parametrize(
    ("dx", "dy", "status", "solved", "wrong", "elsewhere"),
    [
        (0.0, 0.0, CONVERGED, True, False, False),
        (0.0, 0.0, bvfim.Status.STUCK, True, False, False),
        (0.0, -1e-3, CONVERGED, False, True, False),  # violated
        (0.0, 0.2, CONVERGED, False, True, False),  # y does not follow
        (0.0, 0.2, bvfim.Status.GAP_OPEN, False, False, False),  # the same, but it says so
        (0.5, -0.5, CONVERGED, False, False, True),  # feasible, and not the best
        (-0.5, 0.5, CONVERGED, False, True, False),  # outside of the box of x, where F is below the optimum
    ],
)
def test_a_claim_is_wrong_where_the_judge_says_so(script, test, dx, dy, status, solved, wrong, elsewhere):
    found = script.verdict(test, test.x + dx, test.y + dy, status)
    assert (found["solved"], found["wrong"], found["elsewhere"]) == (solved, wrong, elsewhere)


def test_constraints_are_multiplied_and_nothing_else(script, test):
    other = script.scaled(test.problem, 1e4)
    x, y = test.x - 0.3, test.y + 0.1
    torch.testing.assert_close(other.call("lower_constraints", x, y, None), 1e4 * (1 - x - y)[0])
    assert other.call("upper", x, y, None) == test.problem.call("upper", x, y, None)
    assert other.stated == test.problem.stated


def test_the_first_difference_is_told(script):
    rows = [{"step": k, "upper": float(k)} for k in range(3)]
    assert script.first_difference(rows, rows) is None
    assert script.first_difference(rows, [*rows[:2], {"step": 2, "upper": 2.5}]) == 2
    assert script.first_difference(rows, rows[:2]) == 2


def test_totals_count_problems_starts_and_wrong_claims(script):
    def start(solved, wrong=False, gradients=10):
        return {"solved": solved, "wrong": wrong, "elsewhere": False,
                "F grads": gradients, "f grads": 5 * gradients, "values": 1}  # fmt: skip

    rows = [
        {"collection": "coupled", "problem": "p", "seed": 1, "solved": True, "wrong": False, "seconds": 1.0,
         "starts": [start(True), start(False, wrong=True, gradients=30)]},
        {"collection": "coupled", "problem": "p", "seed": 2, "solved": False, "wrong": True, "seconds": 2.0,
         "starts": [start(False), start(False, gradients=50)]},
    ]  # fmt: skip
    [found] = script.totals(rows)
    assert found["solved at each seed"] == {1: "1 of 1", 2: "0 of 1"}
    assert found["unsolved"] == found["wrong claims, chosen"] == ["p/2"]
    assert found["wrong claims, single"] == ["p/1"]
    assert (found["single starts"], found["share of single starts"]) == ("1 of 4", 0.25)
    assert (found["median F grads"], found["median f grads"]) == (20, 100)


def test_what_is_not_finite_is_written_as_json(script):
    written = script.writable({"gap": float("inf"), "rows": [float("-inf"), 1.0, "a", None]})
    assert written == {"gap": script.LOST, "rows": [-script.LOST, 1.0, "a", None]}


@pytest.mark.long
def test_a_short_run_is_judged_and_written(script, monkeypatch, tmp_path):
    out = tmp_path / "out.json"
    chosen = ["--problem", "LamparielloSagratella2017Ex31", "--seeds", "3", "--starts", "2", "--workers", "1"]
    monkeypatch.setattr("sys.argv", ["constrained.py", *chosen, "--out", str(out)])
    script.main()
    written = json.loads(out.read_text())
    [row] = written["runs"]
    assert row["solved"]
    assert len(row["starts"]) == 2
    assert written["totals"][0]["solved at each seed"] == {"3": "1 of 1"}
    assert written["command"].startswith("python benchmarks/constrained.py --problem")
