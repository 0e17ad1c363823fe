r"""The probes: curvatures, other minima, the noise of the batches, and how far x has to go to matter.

Curvatures are Ritz values of a few Lanczos steps on :math:`f_{yy}`, with products from differences of first gradients:
:math:`f_{yy} v \approx (f_y(y + t v) - f_y(y - t v)) / 2t`, so they are had where f can't be differentiated twice, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bvfim import tree
from bvfim.core.evaluator import At
from bvfim.core.lower_minimum import lower_minimum
from bvfim.core.problem import Problem
from bvfim.core.range_test import size_of
from bvfim.status import ProblemError
from bvfim.tree import Tree

NOTHING = 1e-3
"""A product below this share of the gradient may be the rounding of differences."""
GENTLE = 5
"""Iterations of L-BFGS on a single draw."""
LANCZOS = 12
"""Steps of Lanczos, each for two gradients: the largest curvature is then known to a few per cent."""
SCATTERED, FAR = 8, 2.0
"""Descents of f from scattered starts that look for other minima, and how far these lie, relative to the first one's
way."""
APART = 1e-6
"""Minima of f differ where their values do by this share of what f falls by from the highest start, which may be far
up; descents end far more accurately."""
CHANGED = 0.1
"""x has gone far enough to tell its length once a gradient has changed by this share."""
FIRST, LONGER, TRIALS = 2.0**-12, 4.0, 16
"""The first length that is tried, relative to the size of x, how much longer the next one is, and how many are."""


class Lower(NamedTuple):
    """What a descent of f, and others from scattered starts, tell of it: fields of :class:`bvfim.adviser.Facts`."""

    largest: float
    smallest: float
    fall: float
    descent: int
    reached: bool
    minima: int
    flat: float


NOT_PROBED = Lower(math.nan, math.nan, math.nan, 0, False, 1, math.nan)
"""Under constraints f alone tells little: it may have no minimum without them."""


def differentiable_twice(at: At, y: Tree) -> bool:
    """Whether products with the Hessian of f can be computed.

    A function that forbids a second derivative may give zero for it, where differences of its gradient say otherwise.
    """
    v = torch.ones_like(tree.flatten(y))
    try:
        with torch.enable_grad():
            *_, found = at.lower_product(y, tree.unravel(v, y))
    except (ProblemError, RuntimeError, NotImplementedError):
        return False
    size = float(tree.flatten(found).norm())
    return size > 0 or float(product(at, y, v).norm()) <= NOTHING * float(tree.flatten(at.lower_grad(y)[1]).norm())


def lower_level(at: At, y: Tree, iterations: int, whole: bool) -> Lower:
    """What a descent of so many iterations of L-BFGS tells of f(x, .), and others from scattered starts.

    Where f is not ``whole``, but that of one draw, the descent is short and nothing is asked of its end: a network
    learns a draw by heart, and there every curvature vanishes.
    """
    before = at.problem.evaluations.lower
    z, low = lower_minimum(at, y, iterations if whole else GENTLE)
    taken = at.problem.evaluations.lower - before
    high = float(at.lower(y))
    at_start, at_end = (ritz(partial(product, at, there), tree.flatten(y)) for there in (y, z))
    largest = float(torch.cat([at_start, at_end]).abs().max())
    reached = whole and taken < iterations
    return Lower(
        largest=largest,
        smallest=float(at_end[0]) if whole else math.nan,
        fall=high - low,
        descent=taken,
        reached=reached,
        minima=minima(at, y, z, iterations) if reached else 1,
        flat=flatness(at, z, largest) if whole else math.nan,
    )


def minima(at: At, y: Tree, z: Tree, iterations: int) -> int:
    """How many different values the descents of f end at: from y, at z, and from around y, as far away as z is."""
    highest, ends = float(at.lower(y)), [float(at.lower(z))]
    for start, end in scattered(at, y, z, iterations):
        highest = max(highest, float(at.lower(start)))
        ends.append(float(at.lower(end)))
    gaps = torch.tensor(sorted(ends), dtype=torch.float64).diff()
    return 1 + int((gaps > APART * (highest - min(ends))).sum())


def scattered(at: At, y: Tree, z: Tree, iterations: int) -> Iterator[tuple[Tree, Tree]]:
    """Starts around y, as far away as z is, and where descents of f from them end.

    A descent that was cut off ends anywhere, and is left out.
    """
    generator = torch.Generator().manual_seed(0)
    far = max(float(tree.norm(tree.sub(z, y))) / math.sqrt(tree.size(y)), size_of(y))
    for _ in range(SCATTERED):
        start = tree.map(lambda t: t + FAR * far * torch.randn(t.shape, generator=generator).to(t), y)
        start = at.problem.project_y(start)
        before = at.problem.evaluations.lower
        _, end = found = lower_minimum(at, start, iterations)
        if math.isfinite(end) and at.problem.evaluations.lower - before < iterations:
            yield start, found[0]


def product(at: At, y: Tree, v: Tensor) -> Tensor:
    """The Hessian of f times a unit vector, by a central difference of gradients."""
    t = torch.finfo(v.dtype).eps ** (1 / 3) * max(1.0, float(tree.flatten(y).abs().max()))
    there, back = (tree.flatten(at.lower_grad(tree.axpy(s * t, tree.unravel(v, y), y))[1]) for s in (1, -1))
    return (there - back) / (2 * t)


def ritz(hessian: Callable[[Tensor], Tensor], like: Tensor) -> Tensor:
    """Ritz values of a few Lanczos steps from a random vector, in order; not a number where a product is not finite."""
    q = torch.randn(like.shape, generator=torch.Generator().manual_seed(0)).to(like)
    basis, T = [q / q.norm()], torch.zeros(0, 0, dtype=torch.float64)
    for k in range(min(LANCZOS, like.numel())):
        w = hessian(basis[-1])
        Q = torch.stack(basis)
        column = (Q @ w).double().cpu()
        grown = torch.zeros(k + 1, k + 1, dtype=torch.float64)
        grown[:k, :k], grown[:, k], grown[k] = T, column, column
        T = grown
        for _ in range(2):
            w = w - Q.T @ (Q @ w)
        size = float(w.norm())
        if not bool(T.isfinite().all()):
            return T.new_full((1,), math.nan)
        if size <= torch.finfo(like.dtype).eps ** 0.5 * float(T.abs().max()):
            break
        basis.append(w / size)
    return torch.linalg.eigvalsh(T)


def flatness(at: At, z: Tree, largest: float) -> float:
    """The curvature of f along F_y at z, relative to the largest."""
    slope = tree.flatten(at.upper_grads(z)[2])
    size = float(slope.norm())
    if not (size > 0 and math.isfinite(size) and largest > 0):
        return math.nan
    v = slope / size
    return abs(float(v @ product(at, z, v))) / largest


def common(gradients: list[Tree]) -> float:
    r"""What gradients on different draws have in common.

    .. math:: \frac{\langle g_i \cdot g_j \rangle_{i \ne j}}{\langle |g_i|^2 \rangle}

    It is 1 where all are equal, estimates the share of the squared gradient that is not noise, and is about zero where
    each draw has a lower level of its own.

    Example:
        >>> import torch
        >>> from bvfim.adviser.probes import common
        >>> round(common([torch.tensor([3.0, 1.0]), torch.tensor([3.0, -1.0])]), 2)
        0.8
    """
    rows = torch.stack([tree.flatten(g) for g in gradients]).double()
    total, squares = float(rows.sum(0).square().sum()), float(rows.square().sum())
    return (total - squares) / (len(rows) - 1) / squares if squares > 0 else 1.0


def length_of_x(problem: Problem, x: Tree, y: Tree, batch: Any) -> float:
    r"""How far x goes, root mean square, until a gradient is another: the smallest :math:`t |g| / |g(x + t s) - g|`.

    g is F_x, F_y or f_y, s are random signs, and t is the first length at which one of them has changed by a tenth. It
    is the size of x where nothing changes.
    """
    signs = torch.Generator().manual_seed(0)
    way = tree.map(lambda t: (2 * torch.randint(0, 2, t.shape, generator=signs) - 1).to(t), x)

    def slopes(x: Tree) -> list[Tensor]:
        at = problem.at(x, batch)
        _, in_u, in_y = at.upper_grads(y)
        return [tree.flatten(g).double() for g in (at.pull(in_u), in_y, at.lower_grad(y)[1])]

    here, size = slopes(x), size_of(x)
    for t in (FIRST * LONGER**i * size for i in range(TRIALS)):
        there = slopes(problem.project_x(tree.axpy(t, way, x)))
        changes = [float((b - a).norm() / a.norm()) for a, b in zip(here, there, strict=True) if float(a.norm()) > 0]
        if (most := max((c for c in changes if math.isfinite(c)), default=0.0)) > CHANGED:
            return t / most
    return size
