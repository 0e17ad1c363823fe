from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import bvfim
from bvfim.reproduce.bench import speed
from bvfim.reproduce.bench.loops import Bare, Solving
from bvfim.reproduce.bench.peers.base import Budget
from bvfim.reproduce.experiments import cleaning

SIZES = {"train": 60, "validation": 60, "hidden": 8}
CONFIG = speed.Config(data="digits", **SIZES, T=8, J=3, steps=1, rounds=2, peers=False)


@pytest.fixture(scope="module")
def task():
    return cleaning.problem("digits", **SIZES, test=50, dtype=torch.float64)


def test_the_bare_loop_is_the_printed_recipe(task):
    """Otherwise the ratio compares two different things."""
    by_hand = Bare(task, Budget(T=8))
    for _ in range(3):
        by_hand.step()
    method = speed.methods(8, 3)["BVFIM, printed"]
    solution = bvfim.solve(task.problem, task.x, task.y, method, steps=3)
    assert torch.allclose(by_hand.x, solution.x, atol=1e-9)
    assert torch.allclose(by_hand.y["hidden"], solution.y["hidden"], atol=1e-9)
    assert solution.evaluations["upper"] == 3 * (2 + 1)
    assert solution.evaluations["lower"] == 3 * (4 + 2 + 2)


@pytest.mark.parametrize("name", speed.methods(8, 3))
def test_a_paused_solve_is_a_solve(task, name):
    method = speed.methods(8, 3)[name]
    loop = Solving(task, method, Budget(T=8))
    gradients = [loop.step().clone() for _ in range(3)]
    x, y = loop.x.clone(), loop.y["weight"].clone()
    loop.stop()
    assert not loop.thread.is_alive()
    whole = bvfim.solve(task.problem, task.x, task.y, method, steps=3)
    assert torch.equal(x, whole.x)
    assert torch.equal(y, whole.y["weight"])
    assert torch.linalg.vector_norm(gradients[2]) == pytest.approx(whole.history["grad_norm"].iloc[2])


def test_an_error_in_a_paused_solve_reaches_whoever_steps(task):
    class Failing(bvfim.RHG):
        def estimate(self, *_):
            raise RuntimeError("in the thread")

    with pytest.raises(RuntimeError, match="in the thread"):
        Solving(task, Failing(), Budget()).step()


def test_a_paused_solve_that_has_ended_says_how(task):
    blowing_up = bvfim.RHG(steps=50, lr=1e6)
    loop = Solving(task, blowing_up, Budget())
    steps = (loop.step() for _ in range(50))
    with pytest.raises(RuntimeError, match="non_finite"):
        list(steps)


@pytest.fixture(scope="module")
def results():
    return speed.run(CONFIG)


def test_every_method_of_ours_is_timed_beside_the_bare_loop_and_the_floor(results):
    table = results.tables["speed"]
    assert set(table.index) == {"bare loop", "matrix products alone", *(f"bvfim {n}" for n in speed.methods(8, 3))}
    assert table.loc["bare loop", "ratio to the bare loop"] == 1.0
    assert table.loc["matrix products alone", "ratio to the products"] == 1.0
    assert (table["ms per upper step"] > 0).all()
    assert list(results.tables["rounds"].columns) == list(dict.fromkeys([*results.tables["rounds"].columns]))
    assert len(results.tables["rounds"]) == 2


def test_the_first_gradient_is_held_against_the_exact_one(results):
    table = results.tables["speed"]
    assert table.loc["bvfim RHG", "relative error"] < 1e-5, "float32 against float64"
    assert table.loc["bvfim RHG", "cosine"] == pytest.approx(1, abs=1e-6)
    assert table.loc["bvfim TRHG", "relative error"] > 1e-3, "truncated"


def test_absent_peers_are_told(monkeypatch, task):
    monkeypatch.setattr(speed, "PEERS", {"nosuchlibrary": "nosuch_"})
    found, absent = speed.contestants(speed.Config(**SIZES, data="digits"), task)
    assert list(absent) == ["nosuchlibrary"]
    assert "bare loop" in found


def test_only_some_loops_can_be_asked_for(task):
    config = speed.Config(**SIZES, data="digits", only=("CG", "Neumann"), peers=False)
    assert list(speed.contestants(config, task)[0]) == ["bare loop", "bvfim CG", "bvfim Neumann"]
    with pytest.raises(bvfim.DataError, match="no loop has 'GD' in its name"):
        speed.contestants(replace(config, only=("GD",)), task)


def test_accuracy_and_f1_after_equal_seconds(task):
    found = speed._trained(lambda: Bare(task, Budget(T=8, lr=0.5)), task, speed.Config(seconds=0.3))
    assert found["steps in 0.3 s"] >= 1
    assert 0 <= found["accuracy"] <= 1
    assert 0 <= found["F1"] <= 1
