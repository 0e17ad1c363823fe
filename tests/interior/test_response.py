"""How multipliers follow x: pairs of steps, responses without bound, and stages that creep."""

from __future__ import annotations

import pytest
import torch

import bvfim
from bvfim.interior.response import secant

D = torch.float64


def at(*entries):
    return torch.tensor(entries, dtype=D)


def test_a_secant_pair_is_met_and_a_short_step_is_not_believed():
    slope = torch.zeros(1, 1, 2, dtype=D)
    step, change, size, quiet = at(1.0, 1.0)[None], at(3.0)[None], at(1.0), torch.zeros(1, 1, dtype=D)
    assert torch.allclose((secant(slope, step, change, size, quiet) @ step[..., None])[..., 0], change)
    assert secant(slope, 1e-7 * step, change, size, quiet).abs().max() < 1e2
    assert not secant(slope, step, change, size, quiet + 100.0).any()


@pytest.mark.long
def test_multipliers_without_bound_do_not_hold_x():
    # y = sqrt(x): at the optimum, x = 0, the lower feasible set is a point and has no multiplier.
    problem = bvfim.Problem(
        lambda x, y: ((x - 3.5) ** 2 + (y + 4) ** 2).sum(),
        lambda x, y: ((y - 3) ** 2).sum(),
        lower_constraints=lambda x, y: y**2 - x,
    )
    solution = bvfim.solve(problem, at(0.5), at(0.2), bvfim.AdaptiveBVFIM())
    assert solution.upper == pytest.approx(28.25, abs=1e-2 * 29.25)
    assert solution.violation < 1e-4


@pytest.mark.long
def test_a_start_at_the_edge_of_its_slack_does_not_creep():
    [test] = [t for t in bvfim.testproblems.constrained() if t.name == "MitsosBarton2006Ex322"]
    [(x, y)] = bvfim.testproblems.starts(test, 1, 41)
    solution = bvfim.solve(test.problem, x, y, bvfim.AdaptiveBVFIM(starts=4, seed=4100))
    assert solution.status is bvfim.Status.CONVERGED
    assert solution.steps < 60


@pytest.mark.parametrize(("low", "x"), [(0.0, 0.0), (0.3, 0.3)])
def test_a_start_where_f_has_no_slope_is_not_called_solved(low, x):
    # The weight of the equality comes from f's slope at the start, which is zero: u has to follow x all the same.
    problem = bvfim.Problem(
        lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: ((y - low) ** 2).sum(), lower_equalities=lambda x, y: y - x
    )
    solution = bvfim.solve(problem, at(x, x), at(x + 0.1, x + 0.1), bvfim.AdaptiveBVFIM())
    assert solution.upper < 1e-2 or solution.status is not bvfim.Status.CONVERGED


@pytest.mark.long
def test_starts_whose_curvature_is_known_are_not_looked_at_for_pairs():
    [test] = [t for t in bvfim.testproblems.constrained() if t.name == "LiuHart1994"]
    [(x, y)] = bvfim.testproblems.starts(test, 1, 42)
    solution = bvfim.solve(test.problem, x, y, bvfim.AdaptiveBVFIM(starts=2, seed=4200), steps=8, refit=False)
    assert solution.steps == 8  # it raised an error at the first start whose curvature was known
