"""A plain training loop in which one more line learns how much each training row counts."""

import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

import bvfim

torch.manual_seed(0)
rows, clean = torch.randn(400, 5), torch.randn(100, 5)
truth, clean_labels = (rows.sum(1) > 0).long(), (clean.sum(1) > 0).long()
labels = torch.where(torch.rand(400) < 0.3, 1 - truth, truth)  # three in ten are wrong
network = torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))

problem = bvfim.Problem(
    lambda x, y, i: cross_entropy(torch.func.functional_call(network, y, clean), clean_labels),
    lambda x, y, i: (x[i].sigmoid() * cross_entropy(torch.func.functional_call(network, y, rows[i]), labels[i],
                                                    reduction="none")).mean(),
)  # fmt: skip
adam = lambda tensors: torch.optim.Adam(tensors, 0.1)  # noqa: E731
stepper = bvfim.Stepper(problem, torch.zeros(400), bvfim.parameters(network), bvfim.RHG(5, 0.5), adam)
for _ in range(20):
    for batch in DataLoader(range(400), batch_size=100, shuffle=True):
        info = stepper.step(batch)
print(f"F {info['upper']:.3f}; of the rows that count, {(labels == truth)[stepper.x > 0].float().mean():.0%} are right")
