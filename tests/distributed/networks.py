"""A network of modules on digits, whose rows can be shared by several ranks."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

import bvfim
from tests.distributed.jobs import D, mesh_of


class Network(nn.Module):
    """Two blocks and a head; with a dropout where that is wanted."""

    def __init__(self, dropout=0.0, checkpoints=False):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(64, 13, dtype=D), nn.Linear(13, 7, dtype=D)])
        self.head = nn.Linear(7, 10, dtype=D)
        self.dropout, self.checkpoints = dropout, checkpoints

    def forward(self, inputs):
        for block in self.blocks:
            one = partial(self.block, block)
            inputs = checkpoint(one, inputs, use_reentrant=False) if self.checkpoints else one(inputs)
        return self.head(inputs)

    def block(self, block, inputs):
        return nn.functional.dropout(torch.tanh(block(inputs)), self.dropout)


def network(seed=0, **options):
    torch.manual_seed(seed)
    return Network(**options)


def digits(count):
    """A weight for each class, and batches of ten rows: four ranks share them as 3, 3, 2, 2."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    inputs, labels = torch.tensor(pixels[:200], dtype=D) / 16, torch.tensor(labels[:200])

    def losses(net, rows):
        return cross_entropy(net(inputs[rows]), labels[rows], reduction="none")

    def lower(x, net, rows):
        return (len(x) * torch.softmax(x, 0)[labels[rows]] * losses(net, rows)).mean()

    problem = bvfim.Problem(lambda x, net, rows: losses(net, rows + 100).mean(), lower)
    stream = partial(bvfim.Shuffled, 100, mesh=mesh_of(count))
    return problem, torch.zeros(10, dtype=D), bvfim.Batches(upper=stream(9, seed=1), lower=stream(10, seed=2))


def trained(count, shard=False, method=None, steps=25, networks=None, **options):
    """A solution of it, in numbers."""
    problem, x, batches = digits(count)
    twins = bvfim.Twins(*(network(seed, **(networks or {})) for seed in (0, 1)))
    if shard:
        twins.shard(mesh_of(count), parts=lambda net: net.blocks)
    method = method or bvfim.StochasticBVFIM()
    found = bvfim.solve(problem, x, twins, method, steps=steps, batches=batches, mesh=mesh_of(count), **options)
    y = [t.full_tensor() if hasattr(t, "full_tensor") else t for t in found.y.values()]
    return {
        "x": found.x.tolist(),
        "y": torch.cat([t.flatten() for t in y]).tolist(),
        "values": [found.upper, found.lower],
        "history": found.history[["upper", "lower", "gap", "multiplier", "grad_norm"]].to_numpy().tolist(),
    }
