"""What a short descent with growing steps tells about a function of y: a step for Adam, and a scale."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from bvfim import tree
from bvfim.core.evaluator import At
from bvfim.sets import entrywise
from bvfim.tree import Tree

SHORTEST = 1e-8
"""The first step, relative to the size of y: too short to matter in single precision."""
GROWTH, FAST = 1.5, 4.0
"""How much longer each step is than the one before, and a tiny one: the answer is known to within this factor."""
ENOUGH = 120
"""The test ends after this many steps, which reach from 1e-8 to 1e16."""
TURNED = 0.1
"""The test ends where the function has risen again by this share of what it had fallen."""
TINY, BLUR = 1e-4, 3.0
"""What the function changes by in a step shorter than this, relative to the size of y, may be rounding (TF32 and
bfloat16 round at 1e-3): a rise of up to three such changes ends nothing."""
SHARE = 0.5
"""The step of training, as a share of the longest that still went down: it is taken hundreds of times, on other
batches. Half or twice as much changes the outcome of hyper-cleaning by about a point. Chosen among five on the public
splits, their test rows in sight."""
AT_BOTTOM = 0.1
"""y starts close to a minimiser of f where f falls by less than this share of its rise along the descent of F. How far
y has to go is then told by F."""
UNKNOWN = 0.05
"""The step relative to the size of y where neither function falls from there."""


class Fall(NamedTuple):
    """The longest step that still went down (0 if none did), how far the function fell, and where to."""

    longest: float
    fall: float
    y: Tree


class Scales(NamedTuple):
    """The step for Adam on y, and the factor that makes F as large as f."""

    step: float
    upper: float


class Gradients(Protocol):
    """What the test needs of an evaluator."""

    @property
    def problem(self) -> Any:
        """With ``y_set`` and ``project_y``."""
        ...

    def lower_grad(self, y: Tree) -> tuple[Tensor, Tree]:
        """f and its gradient in y."""
        ...

    def upper_grads(self, y: Tree) -> tuple[Tensor, Any, Tree]:
        """F, anything, and the gradient of F in y."""
        ...

    def random_state(self) -> Tensor | None:
        """The state of the generator that objectives draw from."""
        ...

    def restore_random_state(self, state: Tensor | None) -> None:
        """Its inverse."""
        ...


@torch.no_grad()
def fall_of(gradient: Callable[[Tree], tuple[Tensor, Tree]], y: Tree, problem: Any, size: float) -> Fall:
    r"""Steps :math:`y \leftarrow y - t_j\, \mathrm{sign}(g)`, Adam's first ones, that grow until the function rises.

    In a set that is no box they have the direction of g, as those of :class:`bvfim.OneScale`, for a simplex would undo
    signs that are all the same; and they count as long as y has moved, for a ball would end steps of any length. The
    function may be multiplied by any positive number and shifted; ``size`` is that of y.
    """
    free = entrywise(problem.y_set)
    project, way = problem.project_y, signs if free else unit
    step = SHORTEST * size
    value, g = gradient(y)
    first = lowest = before = float(value)
    longest, blur, end = 0.0, 0.0, y
    for _ in range(ENOUGH):
        before_y, y = y, project(tree.map(lambda t, d, step=step: t - step * d, y, way(g)))
        value, g = gradient(y)
        found = float(value)
        if step <= TINY * size and math.isfinite(found):
            blur = max(blur, abs(found - before))
        if found < lowest:
            lowest, longest, end = found, step if free else max(longest, rms(tree.sub(y, before_y))), y
        elif not found - lowest <= TURNED * (first - lowest) + BLUR * blur:  # not a number ends it too
            break
        step, before = step * (FAST if step <= TINY * size else GROWTH), found
    return Fall(longest, first - lowest, end)


def signs(g: Tree) -> Tree:
    """Adam's first direction."""
    return tree.map(torch.sign, g)


def unit(g: Tree) -> Tree:
    """The direction of g, as long as its signs."""
    scale = rms(g)
    return tree.scale(1 / scale if scale > 0 else 0.0, g)


def adam_step(at: At, y: Tree) -> float:
    """The root mean square of a step on f(x, .) from y: for Adam, or for OneScale."""
    size = size_of(y)
    return _step(fall_of(at.lower_grad, y, at.problem, size).longest, size)


def scales(at: Gradients, y: Tree, size: float | None = None) -> Scales:
    """The step and the scale, from F and f along their own descents from y on one batch.

    f is as large as it falls, or as it rises where F falls: a start at its minimiser says nothing by itself. Random
    objectives draw the same numbers at every point, and the generator is left as it was. ``size`` is that of y, given
    where y is a part of something larger.
    """
    size = size_of(y) if size is None else size
    noise = at.random_state()

    def lower(y: Tree) -> tuple[Tensor, Tree]:
        at.restore_random_state(noise)
        return at.lower_grad(y)

    def upper(y: Tree) -> tuple[Tensor, Tree]:
        at.restore_random_state(noise)
        value, _, gradient = at.upper_grads(y)
        return value, gradient

    f, F = fall_of(lower, y, at.problem, size), fall_of(upper, y, at.problem, size)
    rise = abs(float(lower(F.y)[0] - lower(y)[0]))
    at.restore_random_state(noise)
    height = max(f.fall, rise)
    longest = f.longest if f.fall > AT_BOTTOM * rise else max(f.longest, F.longest)
    known = 0 < height < math.inf and 0 < F.fall < math.inf
    return Scales(_step(longest, size), height / F.fall if known else 1.0)


def _step(longest: float, size: float) -> float:
    return SHARE * longest if longest > 0 else UNKNOWN * size


def size_of(y: Tree) -> float:
    """The root mean square of y, or 1 at the origin."""
    size = rms(y)
    return size if size > 0 else 1.0


def rms(y: Tree) -> float:
    """The root mean square of the entries."""
    return float(tree.norm(y)) / math.sqrt(tree.size(y))
