"""A small problem to spoil, and what a spoilt one must end in."""

from __future__ import annotations

import pytest
import torch

import bvfim
from bvfim.status import BvfimError

D = torch.float64
ZERO = torch.zeros(1, dtype=D)


def upper(x, y):
    return ((x - 2) ** 2 + (y - 2) ** 2).sum()


def lower(x, y):
    return ((y - x + 1) ** 2).sum()


def shifted(x, y, shift):
    """f with data."""
    return ((y - x + shift) ** 2).sum()


PLAIN = bvfim.Problem(upper, lower)
WITH_DATA = bvfim.Problem(upper, shifted)


def solve(problem=PLAIN, x=ZERO, y=ZERO, method=bvfim.RHG, **options):
    return bvfim.solve(problem, x, y, method, **{"steps": 2, **options})


def refused(case, sentence):
    """The case ends in one sentence of ours."""
    with pytest.raises(BvfimError) as caught:
        case()
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
