"""Rows of a matrix behave as the trees that they stand for: against bvfim.sets, one row at a time."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bvfim import sets, tree
from bvfim.interior.space import Space
from bvfim.sets import Ball, Box, Simplex

quick = settings(max_examples=12, deadline=None, derandomize=True)
inf = math.inf


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


class Orthant(Box):
    """A box by inheritance, whose projection may be its own."""


LIKE = {
    "a": tensor(1, 2),
    "b": [torch.tensor(3.0, dtype=torch.float64), torch.arange(6.0, dtype=torch.float64).view(2, 3)],
}
N = 9
BOXES = {
    "none": None,
    "number": Box(-1, 1),
    "pinned": Box(0.5, 0.5),
    "below": Box(lower=0),
    "above": Box(upper=0.25),
    "tensor": {"a": Box(tensor(-1, 0), tensor(0.5, 0)), "b": [Box(-2, 2), Box(tensor(-1, 0, -inf), tensor(1, inf, 0))]},
    "column": {"a": None, "b": [None, Box(tensor(0, -1)[:, None], 1)]},
    "some": {"a": Box(0, 1), "b": [None, None]},
}
OTHERS = {
    "ball": Ball(1.5),
    "off-centre": {"a": Ball(0.5, tensor(1, -1)), "b": [None, Ball(2.0, 0.5)]},
    "simplex": {"a": Simplex(), "b": [None, Simplex(2.0)]},
    "mixed": {"a": Ball(1.0), "b": [Box(-1, 1), Simplex()]},
    "inherited": {"a": Orthant(0, 1), "b": [None, None]},
}
SETS = BOXES | OTHERS
by_name = pytest.mark.parametrize("name", SETS)


def flat(name):
    return Space(LIKE, sets.per_leaf(SETS[name], LIKE))


seeds = st.integers(0, 2**32)


def matrix(seed, *shape):
    """Numbers about zero, half of them whole, so that they meet the bounds exactly."""
    generator = torch.Generator().manual_seed(seed)
    found = 2 * torch.randn(*shape, generator=generator, dtype=torch.float64)
    return torch.where(torch.rand(*shape, generator=generator) < 0.5, found.round(), found)


@by_name
@quick
@given(seed=seeds)
def test_rows_and_trees_round_trip(name, seed):
    rows, space = matrix(seed, 3, N), flat(name)
    assert space.size == N
    together = space.trees(rows)
    assert tree.same_structure(together, LIKE)
    for i, row in enumerate(rows):
        alone = space.tree(row)
        assert [t.shape for t in tree.leaves(alone)] == [t.shape for t in tree.leaves(LIKE)]
        assert torch.equal(tree.flatten(alone), row)
        assert torch.equal(tree.flatten(tree.map(lambda t: t[i], together)), row)  # noqa: B023


@by_name
@quick
@given(seed=seeds)
def test_each_row_is_projected_as_its_tree(name, seed):
    rows, space = matrix(seed, 3, N), flat(name)
    before = rows.clone()
    expected = torch.stack([tree.flatten(sets.project(SETS[name], space.tree(row))) for row in rows])
    assert torch.equal(space.project(rows), expected)
    assert torch.equal(rows, before)


@by_name
@quick
@given(seed=seeds)
def test_free_directions_are_those_of_the_tangent(name, seed):
    space = flat(name)
    rows, gradient, *many = matrix(seed, 4, 3, N)
    rows, many = space.project(rows), torch.stack(many, 1)
    free = space.free(rows, gradient)

    def expected(i, v):
        return tree.flatten(
            sets.tangent(SETS[name], space.tree(rows[i]), space.tree(gradient[i]))[0](space.tree(v)),
        )

    one = torch.stack([expected(i, v) for i, v in enumerate(many[:, 0])])
    several = torch.stack([torch.stack([expected(i, v) for v in own]) for i, own in enumerate(many)])
    torch.testing.assert_close(free(many[:, 0]), one, rtol=0, atol=1e-14)
    torch.testing.assert_close(free(many), several, rtol=0, atol=1e-14)


@by_name
@quick
@given(seed=seeds)
def test_samples_of_the_region_lie_in_its_boxes_and_around_the_rows_elsewhere(name, seed):
    space = flat(name)
    rows, u = space.project(matrix(seed, 3, N)), torch.rand(3, N, dtype=torch.float64)
    low, high = space.region(rows)
    assert low.shape == high.shape == rows.shape
    assert ((low <= rows) & (rows <= high)).all()
    unbounded = (space.low.isinf() & space.high.isinf()).expand_as(rows)
    torch.testing.assert_close((high - low)[unbounded], 6 * (1 + rows[unbounded].abs()))
    sampled = low + (high - low) * u
    assert (sampled >= space.low).all()
    assert (sampled <= space.high).all()


@pytest.mark.parametrize("name", BOXES)
def test_boxes_need_no_loop_over_rows(name):
    assert flat(name).only_boxes
    assert flat(name).bounded == (name != "none")


@pytest.mark.parametrize("name", OTHERS)
def test_other_sets_have_projections_of_their_own(name):
    assert not flat(name).only_boxes


def test_no_set_changes_nothing():
    rows, space = torch.randn(2, N, dtype=torch.float64), flat("none")
    assert torch.equal(space.project(rows), rows)
    assert torch.equal(space.free(rows, rows)(rows), rows)


@by_name
def test_rows_keep_their_dtype(name):
    like = tree.map(torch.Tensor.float, LIKE)
    space = Space(like, sets.per_leaf(SETS[name], like))
    rows = space.project(torch.randn(2, N))
    assert rows.dtype == space.low.dtype == space.region(rows)[0].dtype == torch.float32
    assert space.free(rows, rows)(rows).dtype == torch.float32


@pytest.mark.parametrize("box", [Box(-0.1, 0.1), Box(0.3, 0.7), Box(-1e300, 1e300)], ids=str)
def test_bounds_that_float32_rounds_stay_exact(box):
    space = Space(tensor(0, 0), [box])
    rows = tensor(-9, 9)[None]
    assert torch.equal(space.project(rows), box.project(rows))
    assert space.low.tolist() == [box.lower] * 2
