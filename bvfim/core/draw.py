"""What a draw of batches gives the objectives."""

from __future__ import annotations

from typing import Any, NamedTuple


class Draw(NamedTuple):
    """The pair of batches drawn by :class:`bvfim.Batches`: one for each objective.

    Example:
        >>> import bvfim
        >>> bvfim.Draw(upper="validation rows", lower="training rows").lower
        'training rows'
    """

    upper: Any
    lower: Any


class Several(NamedTuple):
    """The batches of f for one upper step: one for each inner step, and a last one for its values.

    Example:
        >>> import bvfim
        >>> from bvfim.core.draw import Several
        >>> bvfim.Draw(upper="validation rows", lower=Several(("rows 0", "rows 1"))).lower.draws[-1]
        'rows 1'
    """

    draws: tuple[Any, ...]
