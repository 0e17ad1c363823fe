"""Table 2: the fitted exponents are the paper's."""

from __future__ import annotations

import pytest

from bvfim.reproduce.experiments import complexity
from bvfim.reproduce.experiments.paper import COMPLEXITY

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def results():
    return complexity.run(complexity.Config(n=512, m=8, T=64, doublings=2))


def test_every_method_agrees_with_its_order(results):
    table = results.tables["complexity"]
    assert list(table.index) == list(COMPLEXITY) == list(complexity.methods(2))
    assert table["agrees"].all(), table.to_string()


def test_the_numbers_that_matter(results):
    table = results.tables["complexity"]
    assert table.loc["FHG", "time ~ m"] == pytest.approx(1, abs=0.05)
    assert table.loc["FHG", "memory ~ m"] == pytest.approx(1, abs=0.1)
    assert table.loc["RHG", "memory ~ T"] == pytest.approx(1, abs=0.1)
    assert table.loc["BVFIM", "memory ~ T"] == pytest.approx(0, abs=0.01)
    raw = results.tables["measurements"]
    assert (raw.loc[raw["method"] == "BVFIM", ["hvp", "jvp"]] == 0).all(axis=None)


def test_a_method_with_another_order_would_not_agree(results):
    """The check can fail: RHG's measurements are not those of an implicit method."""
    raw = results.tables["measurements"]
    rhg = raw[raw["method"] == "RHG"]
    assert not complexity._exponents("BVFIM", rhg)["agrees"]
    assert set(results.figures) == {"complexity"}
