"""Hostile problems: a result that is called converged is right, and none is worse than a start that was feasible."""

from __future__ import annotations

import pytest
import torch

import bvfim
from tests.adversarial.battery import UNITS, solved
from tests.adversarial.hostile import ALL, D

NUMBERS = range(len(ALL))


@pytest.mark.long
@pytest.mark.parametrize("number", NUMBERS, ids=[hostile.name for hostile in ALL])
def test_converged_is_right_in_any_units(number):
    for i in (0, 1 + number % (len(UNITS) - 1)):
        found = solved(number, number % 5, UNITS[i])
        assert not (found["status"] == "CONVERGED" and found["fault"]), found
        assert not found["worse than the start"]


def test_a_start_that_is_the_optimum_is_kept():
    """At x = 0 both wells are equally low, and for x > 0 the other one is lower: F = 0.25 can't be improved."""
    problem = bvfim.Problem(
        lambda x, y: ((x - 0.5) ** 2 + (y - 1) ** 2).sum(), lambda x, y: ((y**2 - 1) ** 2 + 0.5 * x * y).sum()
    )
    found = bvfim.solve(problem, torch.zeros(1, dtype=D), torch.ones(1, dtype=D))
    assert found.upper <= 0.25 + 1e-6
    assert found.certificate.gap <= found.certificate.gap_allowed


@pytest.mark.parametrize("seed", range(4))
def test_the_lower_of_two_wells_is_found(seed):
    problem = bvfim.Problem(
        lambda x, y: ((x - 1) ** 2 + y**2).sum(), lambda x, y: ((y**2 - 9) ** 2 / 81 + 0.2 * x * y).sum()
    )
    start = torch.rand(2, 1, dtype=D, generator=torch.Generator().manual_seed(seed)) * 6 - 3
    found = bvfim.solve(problem, *start, bvfim.AdaptiveBVFIM(seed=seed))
    ys = torch.linspace(-6, 6, 20_001, dtype=D)
    lowest = float(((ys**2 - 9) ** 2 / 81 + 0.2 * found.x * ys).min())
    assert found.lower <= lowest + 1e-3
