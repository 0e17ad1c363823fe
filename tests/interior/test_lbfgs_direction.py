"""The direction of the batched L-BFGS against the dense recursion, row by row."""

from __future__ import annotations

import pytest
import torch

from bvfim.interior.lbfgs import PAIRS, Memory, dot, unit
from bvfim.interior.space import Space
from bvfim.sets import Simplex
from tests.interior.matrices import D, spd, tensor


def whole(v):
    return v


def dense(pairs, scale):
    """The inverse Hessian of the BFGS recursion from a multiple of the diagonal ``scale``, the newest pair last."""
    s, c = pairs[-1]
    H = (s @ c) / (c @ (scale * c)) * torch.diag(scale)
    for s, c in pairs:
        V = torch.eye(len(s), dtype=D) - torch.outer(c, s) / (s @ c)
        H = V.T @ H @ V + torch.outer(s, s) / (s @ c)
    return H


def expected_direction(pairs, gradient, scale, projection):
    """-H g on the range of the projection, from the pairs whose curvature is positive there."""
    there = [(projection @ s, projection @ c) for s, c in pairs]
    there = [(s, c) for s, c in there if s @ c > 0]
    g = projection @ gradient
    return -projection @ (dense(there, scale) @ g if there else g * scale)


def filled(counts, n):
    """A memory with so many random pairs of positive curvature in each row, and these pairs."""
    memory, pairs = Memory.empty(torch.zeros(len(counts), n, dtype=D)), [[] for _ in counts]
    A = spd(len(counts), n)
    for k in range(max(counts)):
        rows = torch.tensor([i for i, count in enumerate(counts) if count > k])
        step = torch.randn(len(rows), n, dtype=D)
        change = (A[rows] @ step[..., None])[..., 0] + 0.1 * step * torch.rand(len(rows), n, dtype=D)
        assert memory.add(rows, step, change).all()
        for i, s, c in zip(rows.tolist(), step, change, strict=True):
            pairs[i].append((s, c))
    return memory, [own[-PAIRS:] for own in pairs]


COUNTS = [[8, 8, 8], [1, 1], [0, 3, 8, 1, 5], [13, 2, 9], [0, 0]]


@pytest.mark.parametrize("counts", COUNTS, ids=str)
def test_direction_is_that_of_the_dense_recursion(counts):
    n = 10
    memory, pairs = filled(counts, n)
    g, scale = torch.randn(len(counts), n, dtype=D), torch.rand(len(counts), n, dtype=D)
    expected = torch.stack(
        [expected_direction(*row, torch.eye(n, dtype=D)) for row in zip(pairs, g, scale, strict=True)]
    )
    torch.testing.assert_close(memory.direction(g, whole, scale), expected, rtol=1e-9, atol=1e-9)
    assert memory.known.tolist() == [count > 0 for count in counts]


@pytest.mark.parametrize("n", [3, 6])
@pytest.mark.parametrize("counts", COUNTS, ids=str)
def test_direction_on_free_entries_uses_the_pairs_that_curve_up_there(counts, n):
    memory, pairs = filled(counts, n)
    g, scale = torch.randn(len(counts), n, dtype=D), torch.rand(len(counts), n, dtype=D)
    mask = (torch.rand(len(counts), n) < 0.6).to(g)
    mask[0] = 0
    found = memory.direction(g, lambda v: v * (mask if v.dim() == 2 else mask[:, None]), scale)
    expected = torch.stack(
        [expected_direction(*row, torch.diag(m)) for m, *row in zip(mask, pairs, g, scale, strict=True)]
    )
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)
    assert not found[mask == 0].any()


def test_direction_on_a_face_of_the_simplex():
    n, counts = 5, [4, 0, 7]
    memory, pairs = filled(counts, n)
    space = Space(torch.zeros(n, dtype=D), [Simplex()])
    rows, g = space.project(torch.randn(3, n, dtype=D)), torch.randn(3, n, dtype=D)
    free, scale = space.free(rows, g), torch.ones(3, n, dtype=D)
    Pi = free(torch.eye(n, dtype=D).expand(3, n, n))
    expected = torch.stack([expected_direction(*row) for row in zip(pairs, g, scale, Pi, strict=True)])
    torch.testing.assert_close(memory.direction(g, free, scale), expected, rtol=1e-8, atol=1e-8)


def test_direction_descends_and_meets_the_newest_secant():
    memory, pairs = filled([8, 3, 1], 6)
    g = torch.randn(3, 6, dtype=D)
    ones = torch.ones_like(g)
    assert (dot(memory.direction(g, whole, ones), g) < 0).all()
    steps, changes = (torch.stack([own[-1][k] for own in pairs]) for k in (0, 1))
    torch.testing.assert_close(memory.direction(changes, whole, ones), -steps, rtol=1e-9, atol=1e-9)


def test_pairs_without_positive_curvature_are_not_kept():
    memory = Memory.empty(torch.zeros(4, 2, dtype=D))
    step = tensor(1, 0).expand(4, 2)
    change = torch.stack([tensor(1, 0), tensor(-1, 0), tensor(0, 1), tensor(0, 0)])
    assert memory.add(torch.arange(4), step, change).tolist() == [True, False, False, False]
    assert memory.known.tolist() == [True, False, False, False]
    memory.forget(torch.tensor([0]))
    assert not memory.known.any()


def test_a_part_of_a_memory_is_a_copy():
    memory, _ = filled([3, 3], 4)
    before, part = memory.steps.clone(), memory.take(torch.tensor([1]))
    part.add(torch.tensor([0]), torch.ones(1, 4, dtype=D), torch.ones(1, 4, dtype=D))
    assert torch.equal(memory.steps, before)
    memory.put(torch.tensor([1]), part)
    assert torch.equal(memory.steps[1, -1], torch.ones(4, dtype=D))
    assert torch.equal(memory.steps[0], before[0])


def test_the_unit_step_has_a_largest_entry_of_one():
    g = torch.stack([tensor(3, -4), tensor(0, 0)])
    assert torch.equal(g * unit(g), torch.stack([tensor(0.75, -1), tensor(0, 0)]))


@pytest.mark.parametrize("size", [1e-12, 1e12, 1e-24, 1e24])
def test_the_direction_in_float32_is_the_same_for_gradients_of_any_size(size):
    memory, _ = filled([5, 1], 4)
    g, ones = torch.randn(2, 4, dtype=D), torch.ones(2, 4)
    single = Memory(memory.steps.float(), size * memory.changes.float())
    found = single.direction(size * g.float(), whole, ones)
    torch.testing.assert_close(found, memory.direction(g, whole, ones).float(), rtol=1e-3, atol=1e-3)
