"""The history of a run: what a step reports as numbers, and how it is saved."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

FORMER = {"upper_gradients": "upper_evaluations", "lower_gradients": "lower_evaluations"}
FORMER |= {kind: f"{kind}_evaluations" for kind in ("forward", "hvp", "jvp")}
"""What older checkpoints call the columns of the history."""


def floats(info: Mapping[str, Tensor | float]) -> dict[str, float]:
    """Scalars as floats, with one wait for the device."""
    tensors = {name: value for name, value in info.items() if isinstance(value, Tensor)}
    found = torch.stack([t.detach().double().reshape(()) for t in tensors.values()]).tolist() if tensors else []
    return {
        **{name: float(v) for name, v in info.items() if name not in tensors},
        **dict(zip(tensors, found, strict=True)),
    }


def columns(rows: list[dict[str, float]]) -> dict[str, Tensor]:
    """The history as one tensor a column; NaN where a row lacks it."""
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name, math.nan) for row in rows] for name in names}
    return {
        name: torch.tensor(column, dtype=torch.int64 if all(isinstance(v, int) for v in column) else torch.float64)
        for name, column in columns.items()
    }


def rows_of(columns: dict[str, Tensor]) -> list[dict[str, float]]:
    """The rows of a history that was saved by its columns."""
    lists = {FORMER.get(name, name): column.tolist() for name, column in columns.items()}
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
