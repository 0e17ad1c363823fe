"""Table 1, shown: the problems are what they claim, and the methods fail and solve where they should."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bvfim.reproduce.experiments import assumptions

pytestmark = pytest.mark.long

CASES = assumptions.cases()


def grid_of(case, side):
    """Lower points on a grid: one axis for each entry of y."""
    axes = [torch.linspace(-3, 3, side, dtype=torch.float64)] * len(CASES[case].start[1])
    return torch.stack([t.flatten() for t in torch.meshgrid(*axes, indexing="ij")], dim=1)


@pytest.mark.parametrize("case", CASES)
def test_phi_and_the_optimum_are_those_of_a_grid(case):
    stated = CASES[case]
    points = grid_of(case, 6001 if len(stated.start[1]) == 1 else 241)
    xs = torch.linspace(-0.5, 2, 101, dtype=torch.float64)
    values = []
    for x in xs:
        f = torch.func.vmap(lambda y, x=x: stated.problem.lower(x[None], y))(points)
        assert float(f.min()) == pytest.approx(stated.lower(float(x)), abs=2e-3)
        near = points[f <= f.min() + 1e-6]
        values.append(float(torch.func.vmap(lambda y, x=x: stated.problem.upper(x[None], y))(near).min()))
    assert np.array(values) == pytest.approx(stated.phi(xs.numpy()), abs=0.06)
    grid = np.linspace(-3, 3, 60001)
    assert grid[stated.phi(grid).argmin()] == pytest.approx(stated.best, abs=1e-3)


def hessian(case, x, y):
    return torch.func.hessian(CASES[case].problem.lower, argnums=1)(x, y)


def test_each_problem_breaks_one_assumption_alone():
    well = assumptions._well()
    x = torch.tensor([0.3], dtype=torch.float64)
    points = grid_of("convexity", 61)
    curvature = torch.stack([hessian("convexity", x, y).min() for y in points])
    assert curvature.min() < 0, "not convex"
    assert hessian("convexity", x, x + well).item() > 1, "invertible at its one solution"
    for case, singular_at in (("singleton", [0.3, 0.7]), ("hessian", [0.3, 0.3])):
        spectra = torch.stack([torch.linalg.eigvalsh(hessian(case, x, y)) for y in grid_of(case, 9)])
        assert spectra.min() >= -1e-12, "convex"
        at = torch.tensor(singular_at, dtype=torch.float64)
        assert torch.linalg.eigvalsh(hessian(case, x, at))[0] == pytest.approx(0, abs=1e-12)


@pytest.fixture(scope="module")
def results():
    return assumptions.run(assumptions.Config().quick())


def test_adaptive_solves_all_and_each_method_fails_where_it_must(results):
    table = results.tables["assumptions"]
    assert table.loc["AdaptiveBVFIM"].all()
    for case in CASES:
        own = results.tables[case]
        assert not own.loc[own["needs it, by Table 1"], "solved"].any()
    assert results.summary["solved"]["AdaptiveBVFIM"] == 3


def test_every_problem_has_a_picture_and_a_section(results):
    assert set(results.figures) == set(CASES)
    assert len(results.sections) == 4
    assert "Solved by AdaptiveBVFIM" in results.sections[1].ours
