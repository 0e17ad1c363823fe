"""Problems whose rows can be shared by several ranks, each with the solution that one process finds."""

from __future__ import annotations

from functools import partial

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.nn import functional

import bvfim
from bvfim import tree

D = torch.float64
ROWS = 24
METHODS = {
    "StochasticBVFIM": bvfim.StochasticBVFIM(),
    "inner steps": bvfim.StochasticBVFIM(inner_steps=2),
    "BVFIM": bvfim.BVFIM(z_steps=5, y_steps=5),
    "printed": bvfim.BVFIM.printed(),
    "RHG": bvfim.RHG(steps=5, lr=0.05),
    "RHG in segments": bvfim.RHG(steps=5, lr=0.05, segment=2),
    "TRHG": bvfim.TRHG(steps=5, keep=2, lr=0.05),
    "BDA": bvfim.BDA(steps=5, lr=0.05),
    "CG": bvfim.CG(steps=5, lr=0.05, cg_steps=3),
    "Neumann": bvfim.Neumann(steps=5, lr=0.05, terms=3),
    "F2SA": bvfim.F2SA(2, steps=5, lr=0.05),
    "SOBA": bvfim.SOBA(lr=0.05),
    "momentum": bvfim.RHG(steps=4, dynamics=bvfim.dynamics.Momentum(0.05)),
}


def mesh_of(count):
    return init_device_mesh("cpu", (count,)) if count > 1 else None


def shares(rows, rank, count):
    """The rows of a rank."""
    return rows.tensor_split(count)[rank]


def quadratic(rank, count):
    """Least squares whose target x shifts: whole data, equal shares."""
    g = torch.Generator().manual_seed(1)
    A, V, B = (shares(torch.randn(ROWS, n, generator=g, dtype=D), rank, count) for n in (4, 4, 3))
    t, u = (shares(torch.randn(ROWS, generator=g, dtype=D), rank, count) for _ in range(2))
    problem = bvfim.Problem(
        lambda x, y: ((V @ y - u) ** 2).mean() + 0.1 * (x**2).sum(),
        lambda x, y: ((A @ y - B @ x - t) ** 2).mean(),
    )
    return problem, torch.zeros(3, dtype=D), torch.zeros(4, dtype=D), None


def digits(rank, count, seed=0):
    """A weight for each class of digits, a small network, batches of ten rows: four ranks share them as 3, 3, 2, 2."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    inputs, labels = torch.tensor(pixels[:200], dtype=D) / 16, torch.tensor(labels[:200])
    g = torch.Generator().manual_seed(seed)
    y = {"in": 0.1 * torch.randn(8, 64, generator=g, dtype=D), "out": 0.1 * torch.randn(10, 8, generator=g, dtype=D)}

    def losses(y, rows):
        return functional.cross_entropy(
            torch.tanh(inputs[rows] @ y["in"].T) @ y["out"].T, labels[rows], reduction="none"
        )

    def lower(x, y, rows):
        return (torch.sigmoid(x)[labels[rows]] * losses(y, rows)).mean() + 1e-3 * sum((v**2).sum() for v in y.values())

    problem = bvfim.Problem(lambda x, y, rows: losses(y, rows + 100).mean(), lower)
    stream = partial(bvfim.Shuffled, 100, mesh=mesh_of(count))
    return problem, torch.zeros(10, dtype=D), y, bvfim.Batches(upper=stream(9, seed=1), lower=stream(10, seed=2))


def sharded(rank, count):
    """A weight for each of ten rows, which lies where its row does: four ranks have three, three, three and one."""
    g = torch.Generator().manual_seed(2)
    A, t = torch.randn(10, 3, generator=g, dtype=D), torch.randn(10, generator=g, dtype=D)
    V, u = torch.randn(6, 3, generator=g, dtype=D), torch.randn(6, generator=g, dtype=D)
    x = torch.zeros(10, dtype=D)
    own = torch.arange(10).chunk(count)[rank]  # as DTensors are
    if count > 1:
        x = distribute_tensor(x, mesh_of(count), [Shard(0)])

    def lower(x, y, rows):
        return (torch.sigmoid(x) * (A[rows] @ y - t[rows]) ** 2).mean() + 0.1 * (y**2).sum()

    problem = bvfim.Problem(lambda x, y, rows: ((V[rows] @ y - u[rows]) ** 2).mean(), lower)
    batches = bvfim.Batches(upper=[shares(torch.arange(6), rank, count)], lower=[own])
    return problem, x, torch.zeros(3, dtype=D), batches


JOBS = {"quadratic": quadratic, "digits": digits, "sharded": sharded}


def taken(job, method, rank, count, steps=40, **options):
    """A solution and what there is to compare of it."""
    problem, x, y, batches = JOBS[job](rank, count)
    found = bvfim.solve(problem, x, y, method, steps=steps, batches=batches, mesh=mesh_of(count), **options)
    whole = tree.map(lambda t: t.full_tensor() if hasattr(t, "full_tensor") else t, found.x)
    history = found.history[[c for c in ("upper", "lower", "grad_norm", "x_norm") if c in found.history]]
    return {
        "x": tree.flatten(whole).tolist(),
        "y": tree.flatten(found.y).tolist(),
        "status": found.status.value,
        "history": history.to_numpy().tolist(),
        "upper": [found.upper, found.lower, found.lower_gap, found.upper_refit],
    }
