"""Weights of rows, on as many processes as torchrun starts: half of the labels are wrong, and rows lie where they are.

python examples/several_gpus.py
torchrun --nproc-per-node 2 examples/several_gpus.py
"""

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import bvfim

mesh = None
if "RANK" in os.environ:  # set by torchrun
    mesh = init_device_mesh("cuda" if torch.cuda.is_available() else "cpu", (int(os.environ["WORLD_SIZE"]),))
rank, ranks = (0, 1) if mesh is None else (mesh.get_rank(), mesh.size())

torch.manual_seed(0)
inputs = torch.randn(1000, 5, dtype=torch.float64)
truth = (inputs @ torch.ones(5, dtype=torch.float64) > 0).double()
wrong = torch.rand(1000) < 0.5
labels = torch.where(wrong & (torch.arange(1000) >= 200), 1 - truth, truth)  # the first 200 are trusted
own = torch.arange(200, 1000).chunk(ranks)[rank]  # the noisy rows of this process: their weights are here alone


def losses(y, rows):
    """Of a linear classifier, a row each."""
    return torch.nn.functional.binary_cross_entropy_with_logits(inputs[rows] @ y, labels[rows], reduction="none")


problem = bvfim.Problem(
    upper=lambda x, y, rows: losses(y, rows).mean(),
    lower=lambda x, y, rows: (torch.sigmoid(x[rows]) * losses(y, own[rows])).mean(),
)
x = torch.zeros(800, dtype=torch.float64)
batches = bvfim.Batches(
    upper=bvfim.Shuffled(200, 64, mesh=mesh),  # each process has its share of every batch
    lower=bvfim.Shuffled(len(own), max(1, 64 // ranks), seed=rank),  # and draws from its own rows
)
if mesh is not None:
    x = distribute_tensor(x, mesh, [Shard(0)])
solution = bvfim.solve(problem, x, torch.zeros(5, dtype=torch.float64), batches=batches, steps=400, mesh=mesh)

weights = torch.sigmoid(solution.x if mesh is None else solution.x.full_tensor())
if rank == 0:
    print(f"weight of right labels {weights[~wrong[200:]].mean():.2f}, of wrong ones {weights[wrong[200:]].mean():.2f}")
if mesh is not None:
    dist.destroy_process_group()
