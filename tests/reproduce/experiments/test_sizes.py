from __future__ import annotations

import pytest

from bvfim.reproduce.experiments import sizes

pytestmark = pytest.mark.long


def test_adaptive_needs_no_more_gradients_for_a_longer_y():
    results = sizes.run(sizes.Config(sizes=(1, 100), steps=2))
    table = results.tables["sizes"].xs("AdaptiveBVFIM", level="method")
    assert (table["|x - x*|"] < 1e-3).all()
    assert (table["|y - y*|, largest"] < 1e-3).all()
    assert results.summary["growth of the gradients"] == pytest.approx(
        table["gradients"].iloc[1] / table["gradients"].iloc[0]
    )
    assert results.summary["growth of the gradients"] < 1.8


def test_the_printed_recipe_depends_on_the_scale_of_f():
    results = sizes.run(sizes.Config(sizes=(1000,), steps=5))
    assert results.tables["sizes"].loc[("BVFIM, printed", 1000), "status"] == "slack_lost"
    assert "BVFIM as printed runs out of slack at n = 1000." in results.sections[0].ours
