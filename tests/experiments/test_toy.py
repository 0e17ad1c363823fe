from __future__ import annotations

import math

import pytest
import torch

from bvfim.experiments import toy
from bvfim.testproblems import sine


def test_the_demo_table_and_picture():
    results = toy.run(toy.Config(steps=3))
    table = results.tables["toy"]
    assert list(table.index) == ["RHG", "CG", "BVFIM, printed", "BVFIM, barrier"]
    assert results.summary["optimum"]["F"] == pytest.approx(2 * (3 * math.pi / 4 - 2) ** 2)
    assert set(results.figures) == {"toy"}


@pytest.mark.parametrize("a", [0.0, 2.0, -1.0, 3.5])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_the_known_optimum_is_the_best_point_of_a_grid(a, n):
    problem = sine(a, n, c=0.3)
    x, y = problem.x, problem.y
    assert float(problem.problem.upper(x, y)) == pytest.approx(problem.upper, abs=1e-12)
    assert float(problem.problem.lower(x, y)) == pytest.approx(problem.lower)
    # Lower solutions at a grid x have every x + y_i - c in the wells -pi/2 + 2 k pi; by symmetry one well for all.
    grid = torch.linspace(-12, 12, 24001).double()
    for k in range(-6, 7):
        well = -math.pi / 2 + 2 * math.pi * k
        F = (grid - a) ** 2 + n * (well + 0.3 - grid - a - 0.3) ** 2
        assert float(F.min()) >= problem.upper - 1e-6
