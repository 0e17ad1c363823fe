"""How a solution looks: a table for a notebook, and its course as curves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bvfim.core.extras import MissingExtraError

if TYPE_CHECKING:
    import pandas as pd

WIDTH, HEIGHT = 4.2, 3.0
"""Of a panel, in inches."""


class Chart(NamedTuple):
    """What one panel shows: columns of a history with their labels, and whether on a logarithmic axis."""

    columns: dict[str, str]
    log: bool = False


def charts(history: pd.DataFrame) -> tuple[list[Chart], list[Chart]]:
    """The panels of a history: the objectives, and what the method says of its own course.

    Example:
        >>> import pandas as pd
        >>> from bvfim.core.shown import charts
        >>> charts(pd.DataFrame({"step": [0], "upper": [1.0], "grad_norm": [0.1]}))[1]
        [Chart(columns={'grad_norm': 'grad_norm'}, log=True)]
    """
    objectives = [Chart({"polished": "F, y polished", "upper": "F"}), Chart({"lower": "f"})]
    if "mu2" in history:
        return objectives, [Chart({name: name for name in ("mu2", "gap", "slack", "violation")}, log=True)]
    own = [name for name in ("grad_norm", "slack", "violation") if name in history]
    return objectives, [Chart({name: name}, log=True) for name in own]


def draw(axes: Any, history: pd.DataFrame, chart: Chart) -> None:
    """Lines over the steps; on a logarithmic axis, where they are positive."""
    columns, log = {name: label for name, label in chart.columns.items() if name in history}, chart.log
    for name, label in columns.items():
        values = history[name].where(np.isfinite(history[name]) & ((history[name] > 0) | (not log)))
        axes.plot(history["step"], values, ".-", linewidth=1.4, markersize=4, label=label)
        log = log and bool(values.notna().any())
    over = "stage" if "mu2" in history else "update of x"
    single = next(iter(columns.values()), "")
    axes.set(xlabel=over, ylabel="" if len(columns) > 1 else single, yscale="log" if log else "linear")
    if len(columns) > 1:
        axes.legend(frameon=False)


def drawn(history: pd.DataFrame) -> Any:
    """The panels of a history side by side, in a new figure of pyplot."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise MissingExtraError(
            "Solution.plot needs matplotlib, which is not installed: pip install 'bvfim[app]'"
        ) from error
    panels = [chart for some in charts(history) for chart in some]
    size = (WIDTH * len(panels), HEIGHT)
    axes = pyplot.subplots(1, len(panels), figsize=size, layout="constrained", squeeze=False)[1][0]
    for one, chart in zip(axes, panels, strict=True):
        draw(one, history, chart)
        one.grid(alpha=0.3)
    return axes


def html(title: str, facts: Mapping[str, str], sentences: Iterable[str]) -> str:
    """A heading, a table of two columns, and sentences below it, as HTML without styles of its own.

    Example:
        >>> from bvfim.core.shown import html
        >>> html("RHG", {"F": "1 < 2"}, [])
        '<strong>RHG</strong><table><tr><th>F</th><td>1 &lt; 2</td></tr></table>'
    """
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in facts.items())
    below = "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)
    return f"<strong>{escape(title)}</strong><table>{rows}</table>{below}"
