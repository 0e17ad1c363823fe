"""Spectral projected gradients: the minimiser over any closed convex set that can be projected onto."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

REMEMBERED = 10
"""A step may rise above the last value, but not above all of so many: the number of the paper."""
ARMIJO = 1e-4
"""The share of the decrease along the gradient that a step has to bring."""
SHORTER, ATTEMPTS = 0.25, 20
"""The factor by which a step is shortened, and how often: 1e-12 of a step that follows the curvature changes nothing
but rounding."""
LONGER = 10.0
"""By how much the next step is stretched where the function does not curve up along the last."""


def spectral_descent(
    function: Callable[[Tensor], tuple[float, Tensor]],
    project: Callable[[Tensor], Tensor],
    start: Tensor,
    limit: int,
    tol: float,
    target: float = -math.inf,
) -> tuple[Tensor, float]:
    r"""Minimise a function over a closed convex set C from its gradients g and the projection P onto C.

    .. math:: w_{k+1} = P(w_k - \sigma^j t_k g_k), \qquad
              t_{k+1} = \frac{|s|^2}{s^\top c}, \quad s = w_{k+1} - w_k, \; c = g_{k+1} - g_k,

    with the least j for which the function falls below the largest of its last ten values by a share of
    :math:`g_k^\top (w_k - w_{k+1})` (Birgin, Martinez and Raydan, 2000). All entries share the step, so that w stays
    where it is only where :math:`w = P(w - t g)`: the first-order condition, which holds for one t > 0 as for all.

    Args:
        function: a point to its value and gradient.
        project: a point to the nearest one of the set.
        start: a vector; its projection is the first point.
        limit: the most evaluations.
        tol: stop when a step promises to lower the value by no more than this, relative to max(\|value\|, 1).
        target: stop as soon as the value is at most this.

    Returns:
        The lowest point that was seen, and its value.

    Example:
        >>> import torch, bvfim
        >>> from bvfim.core.projected import spectral_descent
        >>> far = torch.tensor([3.0, 4.0], dtype=torch.float64)
        >>> w, value = spectral_descent(
        ...     lambda w: (float(((w - far) ** 2).sum()), 2 * (w - far)), bvfim.Ball(1.0).project, 0 * far, 100, 1e-16
        ... )
        >>> [round(entry, 6) for entry in w.tolist()], round(value, 6)
        ([0.6, 0.8], 16.0)
    """
    w = project(start)
    value, g = function(w)
    values, lowest, count = [value], (w, value), 1
    t = 1 / max(float(g.abs().amax()), torch.finfo(g.dtype).tiny)
    while lowest[1] > target:
        for attempt in range(ATTEMPTS):
            trial = project(w - t * g)
            slope = float(g.double() @ (trial - w).double())
            if count >= limit or (attempt == 0 and -slope <= tol * max(abs(value), 1.0)):
                return lowest
            found, gradient = function(trial)
            count += 1
            if found <= max(values[-REMEMBERED:]) + ARMIJO * slope:
                break
            t *= SHORTER
        else:
            return lowest
        s, c = (trial - w).double(), (gradient - g).double()
        curved = float(s @ c)
        t = float(s @ s) / curved if curved > 0 else LONGER * t
        w, value, g = trial, found, gradient
        values.append(value)
        if value < lowest[1]:
            lowest = w, value
    return lowest
