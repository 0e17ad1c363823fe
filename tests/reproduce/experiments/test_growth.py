from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from bvfim.reproduce.experiments import growth
from bvfim.reproduce.experiments.resumable import How

pytestmark = pytest.mark.long

SMALL = growth.Config(n=(800, 1600), samples=(20, 40), T=(4, 8), fixed=(800, 20, 4), validation=20, J=2, repeats=1)


def test_the_network_has_about_n_parameters():
    problem, x, y = growth.task(100_000, 30, SMALL)
    assert sum(t.numel() for t in y.values()) == pytest.approx(100_000, rel=0.01)
    assert len(x) == 30
    values = problem.joint(x, y)
    assert float(values[0]) == pytest.approx(float(problem.upper(x, y)), rel=1e-5)
    assert float(values[1]) == pytest.approx(float(problem.lower(x, y)), rel=1e-5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("growth")


@pytest.fixture(scope="module")
def results(folder):
    return growth.run(SMALL, How(folder))


def test_a_resumed_run_reads_what_it_wrote(folder, results, monkeypatch):
    monkeypatch.setattr(growth, "measure", None)
    again = growth.run(SMALL, How(folder, resume=True))
    pd.testing.assert_frame_equal(again.tables["growth"], results.tables["growth"])


def test_every_method_is_measured_at_every_size(results):
    raw = results.tables["measurements"]
    assert len(raw) == 7 * 3 * 2
    assert raw["fits"].all()
    assert (raw["ms"] > 0).all()
    assert set(results.tables["growth"].index) == set(growth.methods(4, 2))


def test_memory_grows_with_the_steps_of_unrolled_methods_alone(results):
    slopes = results.tables["growth"]["MiB ~ T"]
    assert slopes["RHG, one graph"] > 0.5
    assert slopes["RHG"] > 0.1
    assert slopes[["CG", "Neumann"]].tolist() == pytest.approx([0, 0], abs=0.01)


def test_a_size_that_does_not_fit_ends_the_sweep_and_is_closed_in_on(monkeypatch):
    def step(label, n, samples, T, config):
        if n > 5000:
            raise torch.OutOfMemoryError("no room")
        return {"n": n, "ms": 1.0, "MiB": 1.0}

    monkeypatch.setattr(growth, "_step", step)
    config = growth.Config(n=(1000, 2000, 8000, 16000))
    rows = growth.sweep("BVFIM", "n", config)
    assert rows["n"].tolist() == [1000, 2000, 8000, 4000, 5657, 4757]
    assert rows["fits"].tolist() == [True, True, False, True, False, True]
    found = growth._slopes("BVFIM", rows)
    assert (found["largest n"], found["out of memory at n"]) == (4757, 5657)


def test_a_precision_switch_is_put_back():
    before = torch.backends.cuda.matmul.allow_tf32
    growth.measure("BVFIM", 800, 20, 4, growth.Config(validation=20, tf32=not before, repeats=1))
    assert torch.backends.cuda.matmul.allow_tf32 == before


def test_slopes_need_two_sizes():
    assert np.isnan(growth.slope(np.array([1]), np.array([1])))
    assert growth.slope(np.array([1, 2, 4]), np.array([3, 12, 48])) == 2.0
