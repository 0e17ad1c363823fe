"""The terms of constraints: their derivatives, and multipliers that reach those of the KKT conditions."""

from __future__ import annotations

import torch

from bvfim.core.augmented import Terms, blank, moved, none_for, term, violation
from bvfim.core.constraints import Layout

T = torch.tensor([-2.0, -0.1, 0.0, 0.3, -0.4], dtype=torch.float64)
EQUAL = torch.tensor([False, False, False, False, True])
U, C = torch.full_like(T, 0.5), torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0], dtype=torch.float64)


def test_the_next_multiplier_is_the_derivative_of_the_term():
    t = T.clone().requires_grad_()
    (slope,) = torch.autograd.grad(term(t, U, C, EQUAL), t)
    assert torch.allclose(slope, moved(T, U, C, EQUAL))
    assert torch.allclose(moved(T, U, C, EQUAL), torch.tensor([0.0, 0.3, 0.5, 1.7, -1.5], dtype=torch.float64))


def test_a_term_is_smooth_where_it_ends():
    edge = -U / C
    for side in (-1e-9, 1e-9):
        assert torch.allclose(moved(edge + side, U, C, EQUAL & False), torch.zeros_like(U), atol=1e-8)


def test_violation_counts_what_is_above_zero_and_both_sides_of_an_equality():
    assert torch.equal(violation(T, EQUAL), torch.tensor([0, 0, 0, 0.3, 0.4], dtype=torch.float64))


def test_repeated_moves_reach_the_multiplier_of_a_quadratic():
    """min (y - 3)^2 / 2 with y <= 1: y = 1 and u = 2, whatever the weight."""
    for c in (0.1, 1.0, 10.0):
        u = torch.zeros(1, dtype=torch.float64)
        for _ in range(400):
            y = torch.where(1 - u / c < 3.0, (3 + c - u) / (1 + c), 3.0)  # the minimiser of the augmented function
            u = moved(y - 1, u, torch.full_like(u, c), torch.tensor([False]))
        assert torch.allclose(u, torch.full_like(u, 2.0), atol=1e-9)


def test_multipliers_follow_x_to_first_order():
    x = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    layout = Layout(("lower_constraints[0]",), torch.tensor([False]), 1)
    slope = torch.tensor([[[0.5, -1.0]]], dtype=torch.float64)
    terms = blank(layout, x)._replace(slope=slope)
    assert torch.allclose(terms.at(x + 0.1).u, torch.tensor([[1 + 0.05 - 0.1]], dtype=torch.float64))


def test_some_starts_are_taken_and_put_back():
    x = torch.randn(3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    layout = Layout(("lower_constraints[0]", "upper_constraints[0]"), torch.tensor([False, False]), 1)
    terms, rows = blank(layout, x), torch.tensor([2, 0])
    part = terms.take(rows)._replace(u=torch.tensor([[7.0], [8.0]], dtype=torch.float64))
    assert terms.put(rows, part).u[:, 0].tolist() == [8.0, 1.0, 7.0]
    assert all(field.shape == (3, 0) for field in none_for(x))
    assert isinstance(none_for(x), Terms)
