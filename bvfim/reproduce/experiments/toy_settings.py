"""The settings of :mod:`bvfim.reproduce.experiments.toy`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import bvfim
from bvfim.methods import Chosen
from bvfim.reports.describe import slug
from bvfim.schedules import geometric

FAR = 3.0
"""The start that is far from the optimum of a = 0, where Figures 2 to 4 begin."""


@dataclass(frozen=True)
class Config:
    """The settings of the paper's figures.

    Args:
        steps: K, the updates of x of the methods that estimate a hypergradient.
        a: the toy's parameter.
        starts: x and y both start here.
        lengths: L of Figure 4.
        taus: the first tau of Figure A1.
        seed: of AdaptiveBVFIM's scouts.
        device: where the tensors are.
    """

    steps: int = 500
    a: tuple[float, ...] = (0.0, 2.0)
    starts: tuple[float, ...] = (0.0, FAR)
    lengths: tuple[int, ...] = (1, 5, 10, 20)
    taus: tuple[float, ...] = (0.1, 1.0, 10.0, 100.0)
    seed: int = 0
    device: str = "cpu"

    def quick(self) -> Config:
        """Smaller, to see that it runs."""
        return replace(self, steps=60, lengths=(1, 10), taus=(1.0, 10.0))


def methods(seed: int = 0) -> dict[str, Any]:
    """RHG, CG and BVFIM with the paper's settings, and AdaptiveBVFIM, which has none."""
    return {
        "RHG": bvfim.RHG(steps=100, lr=0.01, segment=100),
        "CG": bvfim.CG(steps=100, lr=0.01, cg_steps=20),
        "BVFIM, printed": bvfim.BVFIM.printed(),
        "AdaptiveBVFIM": bvfim.AdaptiveBVFIM(seed=seed),
    }


def regularisers() -> dict[str, bvfim.BVFIM]:
    """Figure 3: (mu1, theta, tau) of the printed recipe, and the theorem's barrier with steps of the same size.

    The barrier starts with mu2 = 4, above the whole range of the sine, so that its feasible set is connected.
    """
    printed = bvfim.BVFIM.printed()
    return {
        "zero": replace(printed, mu1=0.0, theta=0.0, tau=0.0),
        "fixed at 1": replace(printed, mu1=1.0, theta=1.0, tau=1.0),
        "decreasing": printed,
        "barrier": bvfim.BVFIM(
            mu1=geometric(0.01, 0.99), mu2=geometric(4.0, 0.98), theta=geometric(0.01, 0.99), tau=geometric(1.0, 0.985)
        ),
    }


def updates(method: Chosen, steps: int) -> int:
    """How many steps a method may take: AdaptiveBVFIM ends by itself."""
    return 500 if isinstance(method, bvfim.AdaptiveBVFIM) else steps


def name(figure: str, label: Any, a: float | None = None) -> str:
    """The name of a part, which its file has too."""
    return slug(f"{figure} {label}") + ("" if a is None else f"-a{a:g}")
