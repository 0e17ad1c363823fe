"""AdaptiveBVFIM under constraints: multipliers, their response to x, certificates, and problems with known answers."""

from __future__ import annotations

import pytest
import torch

import bvfim

D = torch.float64


def at(*entries):
    return torch.tensor(entries, dtype=D)


def projection(**given):
    """F = (x - 1)^2 + (y - 2)^2 where y = x is the largest y that g allows: x = y = 3/2, and u = 1."""
    stated = {"lower_constraints": lambda x, y: y - x} | given
    return bvfim.Problem(lambda x, y: ((x - 1) ** 2 + (y - 2) ** 2).sum(), lambda x, y: -y.sum(), **stated)


def tolls():
    """Two parallel arcs, twice in a row; the leader owns the first of each. Six travellers; tolls of 2.5 and 3."""
    free, jam = at(1, 3, 1, 4), 0.5
    return bvfim.Problem(
        lambda x, y: -(x[0] * y[0] + x[1] * y[2]),
        lambda x, y: ((free + jam * y / 2) * y).sum() + x[0] * y[0] + x[1] * y[2],
        x_set=bvfim.Box(0, 10),
        y_set=bvfim.Box(0, 6),
        lower_equalities=lambda x, y: torch.stack([y[0] + y[1] - 6, y[0] + y[1] - y[2] - y[3]]),
    )


@pytest.mark.parametrize("first", [0.0, 1.0, 6.0])
def test_multipliers_that_follow_x_let_a_stage_go_far(first):
    solution = bvfim.solve(tolls(), at(first, first), torch.zeros(4, dtype=D), bvfim.AdaptiveBVFIM())
    assert solution.status is bvfim.Status.CONVERGED
    assert solution.upper == pytest.approx(-15.25, abs=1e-2)
    assert solution.evaluations["upper"] < 200


def test_the_multipliers_of_both_levels():
    given = projection(upper_constraints=lambda x, y: (x - 1.2)[0])
    solution = bvfim.solve(given, at(0.0), at(0.0), bvfim.AdaptiveBVFIM())
    assert torch.allclose(solution.x, at(1.2), atol=1e-3)
    u, v = (solution.multipliers[f"{level}_constraints"] for level in ("lower", "upper"))
    assert (u.shape, v.shape) == ((1,), ())
    assert u.item() == pytest.approx(1.0, abs=1e-3)
    assert v.item() == pytest.approx(1.2, abs=1e-2)  # d/dx of (x - 1)^2 + (x - 2)^2 is -1.2 there
    assert solution.violation < 1e-5
    assert solution.certificate.complementarity < 1e-5


@pytest.mark.parametrize("factor", [1e-4, 1e4])
def test_the_units_of_constraints_change_nothing(factor):
    plain, scaled = (
        bvfim.solve(projection(lower_constraints=lambda x, y, k=k: k * (y - x)), at(0.0), at(0.0))
        for k in (1.0, factor)
    )
    assert torch.allclose(plain.x, scaled.x, atol=1e-6)
    assert scaled.multipliers["lower_constraints"].item() * factor == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(
    "stated",
    [
        {"lower_constraints": lambda x, y: torch.cat([y - x, x - y])},
        {"lower_constraints": lambda x, y: torch.cat([1e6 * (y - x), 1e-6 * (y - 5), y - x])},
        {"lower_equalities": lambda x, y: y - x, "lower_constraints": None},
    ],
    ids=["a pair of inequalities", "of many units, and twice", "an equality"],
)
def test_other_ways_to_state_it(stated):
    solution = bvfim.solve(projection(**stated), at(0.0), at(0.0), bvfim.AdaptiveBVFIM())
    assert solution.status is bvfim.Status.CONVERGED
    assert torch.allclose(solution.x, at(1.5), atol=2e-3)


def test_what_the_constraints_leave_of_y():
    point = projection(lower_constraints=lambda x, y: torch.cat([y - x, x - y]))
    assert bvfim.solve(point, at(0.0), at(0.0)).certificate.lower_set == "a point"
    assert bvfim.solve(projection(), at(0.0), at(0.0)).certificate.lower_set == ""
    empty = projection(lower_constraints=lambda x, y: y**2 + 1)
    assert bvfim.solve(empty, at(0.0), at(0.0)).certificate.lower_set == "empty"


def test_single_precision_claims_nothing_that_it_does_not_reach():
    solution = bvfim.solve(projection(), torch.zeros(1), torch.zeros(1), bvfim.AdaptiveBVFIM())
    right = torch.allclose(solution.x, torch.full((1,), 1.5), atol=2e-2)
    assert right or solution.status is not bvfim.Status.CONVERGED
    assert solution.violation < 1e-3
