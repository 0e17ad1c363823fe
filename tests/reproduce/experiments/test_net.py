from __future__ import annotations

import pandas as pd
import pytest

from bvfim.reproduce.experiments import growth, net
from bvfim.reproduce.experiments.resumable import How

pytestmark = pytest.mark.long


def fake(label, varied, config):
    """BVFIM fits everywhere; RHG does not fit at the last size."""
    rows = [(n, n * (1 if label == "BVFIM" else 2) / 1e3, label != "RHG" or n < config.n[-1]) for n in config.n]
    table = pd.DataFrame(rows, columns=["n", "ms", "fits"]).assign(varied=varied, method=label, MiB=1.0)
    return table


def test_slopes_sizes_and_limits_are_told(monkeypatch, tmp_path):
    monkeypatch.setattr(growth, "sweep", fake)
    found = net.run(net.Config(), How(tmp_path))
    table = found.tables["net"]
    assert len(table) == 8
    assert table.loc[("CIFAR-10", "BVFIM"), "ms ~ n"] == pytest.approx(1)
    assert table.loc[("CIFAR-10", "RHG"), "out of memory at n"] == 1_000_000
    assert table.loc[("CIFAR-10", "RHG"), "largest n"] == 100_000
    assert "CIFAR-10: BVFIM's largest network, 1e+06 parameters, takes 1000 ms" in found.sections[0].ours


def test_the_sizes_follow_the_device():
    assert max(net.Config(device="cuda").sizes(784).n) == 100_000_000
    assert max(net.Config().sizes(784).n) == 1_000_000
    assert max(net.Config().quick().sizes(784).n) == 100_000


def test_it_measures(tmp_path, monkeypatch):
    monkeypatch.setattr(net, "METHODS", ("BVFIM",))
    tiny = growth.Config(n=(800, 4000), samples=(20,), T=(4,), fixed=(800, 20, 4), validation=20, J=2, repeats=1)
    monkeypatch.setattr(net.Config, "sizes", lambda self, inputs: tiny)
    assert (net.run(net.Config(), How(tmp_path)).tables["measurements"]["ms"] > 0).all()
