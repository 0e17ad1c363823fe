"""What the ranks of a run send to each other in a step: as few all-reduces as there are points to agree at."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard, distribute_tensor

import bvfim
from bvfim.distributed.world import PIECES
from tests.distributed.jobs import mesh_of, shares
from tests.distributed.ranks import run_ranks

M, N = 12, 7
"""The entries of x and of y."""


class Counted:
    """all_reduce, with a list of what it was given: how many entries, of which type."""

    def __init__(self):
        self.real, self.calls = dist.all_reduce, []

    def __call__(self, t, *args, **options):
        self.calls.append((t.numel(), t.dtype))
        return self.real(t, *args, **options)


def sent(rank, count, method, dtype, by_rows=False, whole=False, **options):
    """What a step in the middle of a run sends, and the agreement after it."""
    x = torch.zeros(M, dtype=dtype)
    own = torch.arange(M).chunk(count)[rank]
    x = distribute_tensor(x, mesh_of(count), [Shard(0)]) if by_rows else x
    g = torch.Generator().manual_seed(0)
    A, t = (torch.randn(M, n, generator=g, dtype=dtype) for n in (N, 1))

    def lower(x, y, rows):
        weights = torch.sigmoid(x if by_rows else x[rows])
        return (weights * (A[rows] @ y - t[rows, 0]).square()).mean() + 0.1 * y.square().sum()

    def upper(x, y, rows):
        return (A[rows] @ y - 1).square().mean()

    problem, batches = bvfim.Problem(lambda x, y: upper(x, y, own), lambda x, y: lower(x, y, own)), None
    if not whole:
        problem = bvfim.Problem(upper, lower)
        batches = bvfim.Batches(upper=[shares(torch.arange(8), rank, count)], lower=[own])
    marks = []
    with pytest.MonkeyPatch.context() as patch:
        counted = Counted()
        patch.setattr(dist, "all_reduce", counted)
        options = {"batches": batches, "callbacks": [lambda run: marks.append(len(counted.calls))], "refit": False}
        bvfim.solve(problem, x, torch.zeros(N, dtype=dtype), method, steps=6, mesh=mesh_of(count), **options)
    steps = [counted.calls[begin:end] for begin, end in itertools.pairwise(marks)]
    assert all(step == steps[0] for step in steps)
    return steps[0]


def single_loop(ranks, dtype, inner_steps=1, by_rows=False, whole=False):
    """Rows; for each inner step F, f at y, z and y0 with all gradients; where x lies by rows, its scale and norms."""
    pieces = {torch.float64: 1, torch.float32: PIECES}[dtype]
    gradients = 2 * N + (0 if by_rows else M)
    inner = inner_steps * [(ranks * 4 * pieces + gradients, dtype)]
    return [AGREED] + ([] if whole else [ROWS]) + inner + (NORMS if by_rows else [])


def rhg(ranks, dtype):
    """T gradients in y, T products with their derivatives; F, the gradient in x, and f."""
    return [AGREED, ROWS, *2 * T * [(N, dtype)], values(ranks, 1), (M, dtype), values(ranks, 1)]


def cg(ranks, dtype):
    """T gradients in y; F and f with theirs; products with the Hessian; the gradient in x."""
    pieces = {torch.float64: 1, torch.float32: PIECES}[dtype]
    return [AGREED, ROWS, *(T + 2) * [(ranks * pieces + N, dtype)], *2 * [(N, dtype)], (M, dtype)]


def bvfim_steps(ranks, dtype):
    """T steps of z, and f there; before each gradient of the barrier F and f, which its weight depends on."""
    pieces = {torch.float64: 1, torch.float32: PIECES}[dtype]
    z, y, x = (ranks * pieces + N, dtype), [values(ranks, 2), (N, dtype)], [values(ranks, 2), (M, dtype)]
    return [AGREED, ROWS, *T * [z], values(ranks, 1), *2 * y, values(ranks, 2), *x]


def values(ranks, count):
    """Values alone travel in double precision."""
    return (ranks * count, torch.float64)


T = 3
AGREED, ROWS = (4, torch.float64), (2, torch.float64)
"""How a run ends; the rows of the batches of F and f."""
NORMS = [(2, torch.float64), (1, torch.float64), (1, torch.float64)]
"""The scale of the gradient in x, its norm, and that of x."""
DTYPES = torch.float64, torch.float32
LOOPS = [
    {},
    {"inner_steps": 2},
    {"by_rows": True},
    {"by_rows": True, "inner_steps": 2},
    {"whole": True, "inner_steps": 3},
]
OTHERS = {
    "RHG": (bvfim.RHG(steps=T, segment=T), rhg),
    "CG": (bvfim.CG(steps=T, cg_steps=2), cg),
    "BVFIM": (bvfim.BVFIM(z_steps=T, y_steps=2), bvfim_steps),
}


def all_sent(rank, count):
    found = {}
    for dtype in DTYPES:
        for i, options in enumerate(LOOPS):
            own = {name: given for name, given in options.items() if name != "inner_steps"}
            method = bvfim.StochasticBVFIM(inner_steps=options.get("inner_steps", 1))
            found[dtype, i] = sent(rank, count, method, dtype, **own)
        for name, (method, _) in OTHERS.items():
            found[dtype, name] = sent(rank, count, method, dtype)
    return found


@pytest.mark.long
@pytest.mark.parametrize("count", [2, 4])
def test_a_step_sends_as_much_as_it_has_to(count):
    for found in run_ranks(count, all_sent):
        for dtype in DTYPES:
            for i, options in enumerate(LOOPS):
                assert found[dtype, i] == single_loop(count, dtype, **options), (dtype, options)
            for name, (_, expected) in OTHERS.items():
                assert found[dtype, name] == expected(count, dtype), (dtype, name)
