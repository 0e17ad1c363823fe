"""The loops that the speed benchmark times."""

from __future__ import annotations

import pytest

from bvfim.reproduce.bench import speed
from bvfim.reproduce.bench.loops import Solving

CONFIG = speed.Config(
    data="digits", T=8, J=4, train=60, validation=60, hidden=5, peers=False, only=("BVFIM",), rounds=1
)


@pytest.fixture(scope="module")
def task():
    return speed.problem(CONFIG)


def test_a_compiled_loop_is_compiled_and_one_that_fell_back_says_so(task):
    method = speed.methods(8, 4)["BVFIM, printed"]
    for way in ("compile", "none"):
        loop = Solving(task, method, CONFIG.budget, way)
        for _ in range(3):
            loop.step()
        assert loop.accelerated
        loop.run.following.estimate.compile = False  # as after a warning that it could not be
        assert loop.accelerated == (way == "none")
        loop.stop()


def test_a_row_that_is_not_what_its_name_says_is_left_out(monkeypatch):
    monkeypatch.setattr(Solving, "accelerated", False)
    found = speed.run(CONFIG)
    assert set(found.summary["absent"]) == {"bvfim BVFIM, printed", "bvfim BVFIM, barrier"}
    assert not [name for name in found.tables["speed"].index if name.startswith("bvfim")]
