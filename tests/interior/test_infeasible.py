"""Problems that nothing satisfies end as infeasible, and the certificate names the constraints that conflict."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

import bvfim

D = torch.float64


def F(x, y):
    return ((x - 1) ** 2).sum() + (y**2).sum()


def f(x, y):
    return ((y - x) ** 2).sum()


@dataclass(frozen=True)
class Conflict:
    """What is stated, the constraints that can't hold together, and how many entries x and y have."""

    stated: dict[str, Any]
    names: set[str]
    size: int = 1
    sets: dict[str, Any] = field(default_factory=lambda: {"x_set": bvfim.Box(-10, 10), "y_set": bvfim.Box(-10, 10)})


INFEASIBLE = {
    "the lower level against itself": Conflict(
        {"lower_constraints": lambda x, y: torch.cat([2 - y, y - 1, y - 50])},
        {"lower_constraints[0]", "lower_constraints[1]"},
    ),
    "the lower level against the sets": Conflict(
        {"lower_constraints": lambda x, y: torch.cat([x + y, y - 50])},
        {"lower_constraints[0]"},
        sets={"x_set": bvfim.Box(1, 3), "y_set": bvfim.Box(0, 10)},
    ),
    "the upper level against itself, in x alone": Conflict(
        {"upper_constraints": lambda x, y: torch.cat([3 - x, y - 50, x - 1])},
        {"upper_constraints[0]", "upper_constraints[2]"},
    ),
    "the upper level against the set of x": Conflict(
        {"upper_constraints": lambda x, y: 5 - x, "lower_constraints": lambda x, y: y - 50},
        {"upper_constraints[0]"},
        sets={"x_set": bvfim.Box(-2, 2)},
    ),
    "one level against the other": Conflict(
        {
            "lower_constraints": lambda x, y: torch.cat([x + 2 - y, y - 50]),
            "upper_constraints": lambda x, y: torch.cat([x - 50, y - x - 1]),
        },
        {"lower_constraints[0]", "upper_constraints[1]"},
    ),
    "an equality against an inequality": Conflict(
        {"lower_equalities": lambda x, y: x + y - 1, "upper_constraints": lambda x, y: torch.cat([2 - x - y, x - 50])},
        {"lower_equalities[0]", "upper_constraints[0]"},
    ),
    "a disc against a line": Conflict(
        {"lower_constraints": lambda x, y: x**2 + y**2 - 1, "upper_equalities": lambda x, y: x + y - 3},
        {"lower_constraints[0]", "upper_equalities[0]"},
    ),
    "what no number meets": Conflict(
        {"lower_constraints": lambda x, y: torch.cat([y - x - 50, y**2 + 1])},
        {"lower_constraints[1]"},
    ),
    "two equalities": Conflict(
        {"lower_equalities": lambda x, y: torch.stack([y.sum() - 1, y.sum() - 3])},
        {"lower_equalities[0]", "lower_equalities[1]"},
        size=2,
    ),
    "three together, of which any two can hold": Conflict(
        {"lower_constraints": lambda x, y: x - y, "upper_constraints": lambda x, y: torch.cat([2 - x, x - 50, y - 1])},
        {"lower_constraints[0]", "upper_constraints[0]", "upper_constraints[2]"},
    ),
}


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "units"), [(name, units) for i, name in enumerate(INFEASIBLE) for units in (1.0, (1e-4, 1e4)[i % 2])]
)
def test_the_status_is_infeasible_and_the_conflict_is_named(name, units):
    conflict = INFEASIBLE[name]
    given = {kind: (lambda x, y, g=g: units * g(x, y)) for kind, g in conflict.stated.items()}
    problem = bvfim.Problem(F, f, **given, **conflict.sets)
    start = torch.full((conflict.size,), 0.3, dtype=D)
    solution = bvfim.solve(problem, problem.project_x(start), problem.project_y(-start), bvfim.AdaptiveBVFIM(starts=2))
    assert solution.status is bvfim.Status.INFEASIBLE
    assert set(solution.certificate.conflict) == conflict.names
    for constraint in conflict.names:
        assert constraint in solution.certificate.advice


def test_ten_are_tried():
    assert len(INFEASIBLE) == 10


@pytest.mark.long
def test_a_follower_who_never_does_as_required_is_named():
    """Both can hold together, but y = 0 is what follows at every x."""
    problem = bvfim.Problem(
        lambda x, y: ((x - 1) ** 2).sum() + (y**2).sum(),
        lambda x, y: (y**2).sum() + 0 * x.sum(),
        upper_constraints=lambda x, y: torch.cat([1 - y, x - 50]),
    )
    start = torch.zeros(1, dtype=D)
    solution = bvfim.solve(problem, start, start + 2, bvfim.AdaptiveBVFIM(starts=2))
    assert solution.status is bvfim.Status.INFEASIBLE
    assert "upper_constraints[0]" in solution.certificate.conflict
    assert "upper_constraints[1]" not in solution.certificate.conflict
