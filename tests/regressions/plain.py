"""A problem so plain that what is wrong is not the problem."""

from __future__ import annotations

import torch

import bvfim

D = torch.float64


def vector(*values):
    return torch.tensor(values, dtype=D)


PLAIN = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum())
