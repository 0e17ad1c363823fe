"""What a step on sharded networks sends: the calls and bytes of the page on several GPUs."""

from __future__ import annotations

import math

import pytest
import torch
import torch.distributed as dist

import bvfim
from tests.distributed.jobs import mesh_of
from tests.distributed.networks import digits, network
from tests.distributed.ranks import run_ranks

PASSES = 3
"""F and f at y, and f at z."""
FLOAT64 = 8
NAMES = {
    "gather": ("all_gather_single", "all_gather_into_tensor"),
    "scatter": ("reduce_scatter_single", "reduce_scatter_tensor"),
    "reduce": ("all_reduce",),
}
"""What FSDP2 calls, from torch 2.13 on and before."""


def padded(module, ranks):
    """The entries of a module's own parameters, when each has as many rows on every rank."""
    return sum(math.ceil(len(p) / ranks) * ranks * p[0].numel() for p in module.parameters())


def formula(net, m, ranks):
    """Calls and bytes of each collective, of one step in double precision."""
    blocks = [padded(block, ranks) for block in net.blocks]
    root = padded(net.head, ranks)
    gathered = PASSES * (2 * sum(blocks) + root)  # the root stays gathered for the way back
    scattered = PASSES * (sum(blocks) + root)
    summed = [2, 3 * ranks + m]  # the counts of rows; F, f at y and at z, with the gradient in x
    return {
        "gather": (PASSES * (2 * len(blocks) + 1), FLOAT64 * gathered),
        "scatter": (PASSES * (len(blocks) + 1), FLOAT64 * scattered),
        "reduce": (len(summed), FLOAT64 * sum(summed)),
    }


def counted(rank, count):
    """What a step sends, after the first."""
    problem, x, batches = digits(count)
    twins = bvfim.Twins(network(0), network(1)).shard(mesh_of(count), parts=lambda net: net.blocks)
    method = bvfim.StochasticBVFIM(y_optimizer=lambda p: torch.optim.AdamW(p, 1e-2))
    draw = lambda: bvfim.Draw(next(batches.upper), next(batches.lower))  # noqa: E731
    stepper = bvfim.Stepper(problem, x, twins, method, batch=draw(), mesh=mesh_of(count))
    stepper.step(draw())
    seen = {}

    def spied(kind, name):
        real = getattr(dist, name)

        def call(*args, **kwargs):
            tensors = [t for t in [*args, *kwargs.values()] if isinstance(t, torch.Tensor)]
            calls, size = seen.get(kind, (0, 0))
            seen[kind] = calls + 1, size + max(t.numel() * t.element_size() for t in tensors)
            return real(*args, **kwargs)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for kind, names in NAMES.items():
            name = next(name for name in names if hasattr(dist, name))
            patch.setattr(dist, name, spied(kind, name))
        stepper.step(draw())
    return seen


@pytest.mark.long
@pytest.mark.parametrize("count", [2, 4])
def test_a_step_sends_what_the_formula_says(count):
    for seen in run_ranks(count, counted):
        assert seen == formula(network(), 10, count)
