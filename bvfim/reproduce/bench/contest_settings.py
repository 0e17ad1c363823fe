"""What each method is tried with: its defaults, and a few more pairs of steps, fixed before anything was run.

The step of x and the inner steps are each as they are by default, or another size: ten times as long where the default
is a hundredth, as of all nested methods, else as the table has it. Methods that choose their own steps are tried with
other numbers of starts or of inner steps instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

import bvfim
from bvfim.core.batches import Shuffled
from bvfim.reproduce.bench.jobs import Posed

ADAM = 0.1
"""The longer step of x for the methods that leave x to an optimiser; by default `solve` has Adam with 0.01."""
DEFAULTS = "defaults"

Changes = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """A method as it is run.

    Args:
        name: what is not as by default.
        method: the method; optimizer: that of x, or None.
    """

    name: str
    method: Any
    optimizer: Callable[[list[Tensor]], torch.optim.Optimizer] | None = None


class Change(NamedTuple):
    """What differs from the defaults: fields of the method, and the step of Adam for x where there is one."""

    fields: Changes
    adam: float | None = None


def _nested(**inner: float) -> tuple[Change, ...]:
    """The step of x, both steps, the inner steps."""
    return Change({}, ADAM), Change(inner, ADAM), Change(inner)


OTHERS: dict[type[Any], tuple[Change, ...]] = {
    **dict.fromkeys((bvfim.FHG, bvfim.RHG, bvfim.TRHG, bvfim.BDA, bvfim.CG, bvfim.Neumann), _nested(lr=0.1)),
    bvfim.BVFIM: _nested(z_lr=0.1, y_lr=0.1),
    bvfim.F2SA: _nested(lr=0.1),
    bvfim.SOBA: _nested(lr=0.01),
    bvfim.SABA: _nested(lr=0.01),
    bvfim.VPBGD: (
        Change({"x_lr": 1.0}),
        Change({"x_lr": 0.01, "y_lr": 0.01}),
        Change({"z_lr": 0.1}),
    ),
    bvfim.BOME: (
        Change({"x_lr": 0.1}),
        Change({"x_lr": 0.1, "y_lr": 0.1, "lr": 0.1}),
        Change({"y_lr": 0.1, "lr": 0.1}),
    ),
    bvfim.MEHA: (
        Change({"alpha": 1.0}),
        Change({"alpha": 0.01, "beta": 0.01, "eta": 0.01}),
        Change({"beta": 0.01, "eta": 0.01}),
    ),
    bvfim.BiCGAFFA: (
        Change({"alpha": 0.01, "beta": 0.01}),
        Change({"alpha": 0.01, "beta": 0.01, "eta": 0.1}),
        Change({"eta": 0.1}),
    ),
    bvfim.AdaptiveBVFIM: (Change({"starts": 8}), Change({"starts": 8, "scouts": 2}), Change({"scouts": 2})),
    bvfim.StochasticBVFIM: (Change({}, ADAM), Change({"inner_steps": 5}, ADAM), Change({"inner_steps": 5})),
}
"""Beside the defaults, in the order in which they are tried; SiPBA, which is for pessimists, has none."""


def settings(kind: type[Any], count: int) -> list[Setting]:
    """The first so many settings of a method, the defaults before all others.

    Example:
        >>> import bvfim
        >>> from bvfim.reproduce.bench.contest_settings import settings
        >>> [setting.name for setting in settings(bvfim.RHG, 3)]
        ['defaults', 'Adam 0.1', 'lr 0.1, Adam 0.1']
    """
    found = [Setting(DEFAULTS, kind())]
    for fields, adam in OTHERS.get(kind, ()):
        said = [f"{name} {number:g}" for name, number in fields.items()] + ([f"Adam {adam:g}"] if adam else [])
        optimizer = partial(torch.optim.Adam, lr=adam) if adam else None
        found.append(Setting(", ".join(said), kind(**fields), optimizer))
    return found[:count]


def fitted(setting: Setting, posed: Posed) -> tuple[Any, Any]:
    """The method and the batches of a problem: SABA is told how many rows its blocks have.

    Example:
        >>> import bvfim
        >>> from bvfim.reproduce.bench.contest_settings import fitted, settings
        >>> from bvfim.reproduce.bench.jobs import jobs
        >>> [posed] = [job.build(0) for job in jobs() if job.name == "cleaning"]
        >>> method, batches = fitted(settings(bvfim.SABA, 1)[0], posed)
        >>> method.lower_rows, method.upper_rows, method.size
        (500, 200, 100)
    """
    if not isinstance(setting.method, bvfim.SABA) or posed.blocks is None:
        return setting.method, posed.batches
    streams: list[Shuffled] = [getattr(posed.blocks, side, posed.blocks) for side in ("lower", "upper")]
    lower, upper = (stream.rows for stream in streams)
    return replace(setting.method, lower_rows=lower, upper_rows=upper, size=streams[0].size), posed.blocks
