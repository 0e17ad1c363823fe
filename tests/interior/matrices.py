"""Tensors in double precision, and matrices of a known condition."""

from __future__ import annotations

import math

import torch

D = torch.float64


def tensor(*values):
    return torch.tensor(values, dtype=D)


def spd(count, n, condition=10.0):
    Q = torch.linalg.qr(torch.randn(count, n, n, dtype=D)).Q
    return Q @ torch.diag(torch.logspace(0, math.log10(condition), n, dtype=D)) @ Q.mT
