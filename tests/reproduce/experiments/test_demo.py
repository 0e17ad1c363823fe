from __future__ import annotations

from dataclasses import replace

import pytest

from bvfim.reproduce.experiments import demo

pytestmark = pytest.mark.long


def test_the_demo_shows_a_path_and_a_map_of_each_method():
    results = demo.run(replace(demo.Config(), side=2, steps=2))
    table = results.tables["demo"]
    assert list(table.index) == ["RHG", "CG", "BVFIM, printed", "AdaptiveBVFIM"]
    assert table.loc["AdaptiveBVFIM", "|x - x*|"] < 1e-3
    assert table.loc["AdaptiveBVFIM", "starts that find the optimum"] == "4 of 4"
    assert table.loc["RHG", "starts that find the optimum"] == "0 of 4"
    assert results.summary["optimum"]["F"] == pytest.approx(0.253749, abs=1e-6)
    assert len(results.figures["demo"].axes) == 6
