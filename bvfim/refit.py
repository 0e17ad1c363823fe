"""The lower level solved at a fixed x, to judge what a method left open."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.optimize import fmin_l_bfgs_b
from torch import Tensor

from bvfim import tree
from bvfim.problem import At
from bvfim.sets import Box, per_leaf
from bvfim.tree import Tree


def refit(
    at: At, y: Tree, max_iterations: int = 1000, tol: float = 2e-16, target: float = -np.inf
) -> tuple[Tree, float] | None:
    """A local minimiser of f(x, .) near y by L-BFGS-B, and its value; ``None`` where Y is no box.

    It never returns a higher value than f(x, y).

    Args:
        at: the problem at x.
        y: where to start.
        max_iterations: of L-BFGS-B.
        tol: stop when f falls by less than this, relative to max(|f|, 1).
        target: stop as soon as f is no higher than this.

    Example:
        >>> import torch, bvfim
        >>> from bvfim.refit import refit
        >>> problem = bvfim.Problem(lambda x, y: (y**2).sum(), lambda x, y: ((y - x) ** 4).sum() + ((y - x) ** 2).sum())
        >>> x = torch.ones(2, dtype=torch.float64)
        >>> y, f = refit(problem.at(x), 0 * x)
        >>> bool((y - x).abs().max() < 1e-6)
        True
    """
    own = per_leaf(at.problem.y_set, y)
    if not all(s is None or isinstance(s, Box) for s in own):
        return None
    bounds = [pair for s, t in zip(own, tree.leaves(y), strict=True) for pair in _bounds(s, t)]

    def value_and_grad(vector: np.ndarray[Any, Any]) -> tuple[float, np.ndarray[Any, Any]]:
        f, gradient = at.lower_grad(_tree(vector, y))
        return float(f), tree.flatten(gradient).double().cpu().numpy()

    def stop_at_target(intermediate_result: Any) -> None:
        if intermediate_result.fun <= target:
            raise StopIteration

    start = tree.flatten(y).double().cpu().numpy()
    with np.errstate(all="ignore"):  # a cliff may overflow inside the line search; the result is judged below
        found, _, _ = fmin_l_bfgs_b(
            value_and_grad,
            start,
            bounds=bounds if any(s is not None for s in own) else None,
            factr=tol / np.finfo(float).eps,
            pgtol=0.0,
            maxiter=max_iterations,
            maxfun=2 * max_iterations,
            callback=stop_at_target,
        )
    best = _tree(found, y)
    f, f_best = float(at.lower(y)), float(at.lower(best))
    return (best, f_best) if f_best <= f else (y, f)


def _tree(vector: np.ndarray[Any, Any], like: Tree) -> Tree:
    first = tree.leaves(like)[0]
    return tree.unravel(torch.from_numpy(np.array(vector)).to(first), like)


def _bounds(s: Any, leaf: Tensor) -> list[tuple[float, float]]:
    if s is None:
        return [(-np.inf, np.inf)] * leaf.numel()
    sides = [torch.as_tensor(b, dtype=leaf.dtype).expand(leaf.shape).flatten().tolist() for b in (s.lower, s.upper)]
    return list(zip(*sides, strict=True))
