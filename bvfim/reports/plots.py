"""How figures look: panels with light grids, in colours that read on white and on black."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

COLOURS = {
    "RHG": "#d9822b",
    "CG": "#8f6fd1",
    "BVFIM, printed": "#3f8fd2",
    "BVFIM, barrier": "#d65f8a",
    "AdaptiveBVFIM": "#2e9e62",
    "FHG": "#a0772c",
    "TRHG": "#c95f3f",
    "BDA": "#b94fa8",
    "Neumann": "#6f7fd1",
    "BVFIM": "#3f8fd2",
    "BVFIM-barrier": "#d65f8a",
    "BVFIM-adaptive": "#1fa3a3",
    "RHG, one graph": "#808a94",
}
"""One colour for each method, on every page."""
CYCLE = ("#2e9e62", "#3f8fd2", "#d9822b", "#8f6fd1", "#d65f8a", "#808a94")
"""Colours for anything but methods."""


def panels(rows: int, columns: int, *, width: float = 4.2, height: float = 3.0) -> tuple[Figure, np.ndarray]:
    """A figure with a grid of panels, each of a width and height in inches.

    Example:
        >>> from bvfim.reports.plots import panels
        >>> panels(2, 3)[1].shape
        (2, 3)
    """
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for one in axes.flat:
        tidy(one)
    return figure, axes


def tidy(axes: Any) -> Any:
    """The panel itself, with a light grid and two spines.

    Example:
        >>> from matplotlib.figure import Figure
        >>> from bvfim.reports.plots import tidy
        >>> tidy(Figure().subplots()).spines["top"].get_visible()
        False
    """
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def legend(figure: Figure, columns: int = 4, source: Any = None) -> None:
    """One legend above all panels, from the first of them that has labels."""
    sources: Sequence[Any] = figure.axes if source is None else [source]
    found = (axes.get_legend_handles_labels() for axes in sources)
    handles, labels = next((both for both in found if both[0]), ([], []))
    figure.legend(handles, labels, loc="outside upper center", ncols=columns, frameon=False)
