r"""Multipliers of constraints that move while x, y and z do: one small step of ascent for each step of theirs.

z minimises the augmented :math:`\psi(x, \cdot)` of :mod:`bvfim.core.augmented`, and y is held to
:math:`\psi(x, y) \le \psi(x, z)` and to the constraints. With a rate :math:`\eta`, the part of a full step of the
augmented Lagrangian method (Hestenes, 1969; Powell, 1969),

.. math::

    u \leftarrow \max\big(0, u + \eta\, c\, \hat g(x, z)\big), \qquad
    v \leftarrow \max\big(0, v + \eta\, k\, \hat g(x, y)\big),

without the bounds for equalities. A weight c is as large as the slope of f over the size of y, and k likewise, and
:math:`\hat g` is a distance: so F, c F, f, c f, g and c g give the same path.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

import torch
from torch import Tensor

from bvfim import tree
from bvfim.core.augmented import Augmented, Terms, moved, term, violation
from bvfim.core.constraints import Layout, layout
from bvfim.core.evaluator import At
from bvfim.core.problem import Problem
from bvfim.status import MethodError
from bvfim.tree import Tree

S = TypeVar("S")

SAMPLES, SIGNS = 4, 32
"""The points around at which gradients are looked at, and the directions that tell the size of a constraint's: that of
a constraint of up to 32 neighbouring entries is exact."""
STEP = 0.3
"""A difference is taken over this power of the dtype's precision, relative to the size of w."""
LEAST_LOCAL, LEAST_SIZE = 1e-2, 1e-6
"""A constraint counts as changing at least by this share of its mean around, and by this share of the fastest."""
LOWER_WEIGHT, UPPER_WEIGHT = 10.0, 10.0
"""c and k: a violation of the size of w costs that many times what f, and F, change by over that distance."""
RATE = 0.3
"""The part of a full step of the augmented Lagrangian method that multipliers take while x, y and z take one."""
STABLE = 0.5
"""The curvature of the terms, as a share of the inverse of a gradient step: it is stable up to 2, with that of f."""
TURNS = 10
"""Steps of the power method for the curvature of the terms."""
SPREAD = 12.9898, 43758.5453
"""The hash frac(b sin(a t)), whose numbers look random: with a generator, starts could not be mapped over."""


class Multipliers(NamedTuple):
    """What the constraints are multiplied with, those of the lower level first; u and c of these alone.

    Attributes:
        equal: whether each is an equality; sigma: how fast it changes with x and y.
        u, c: the multipliers and the weights in psi; v, k: those in the upper level.
        crowd: the largest curvature in y of the terms of the lower level, and of all, with weights of one.

    Example:
        >>> import torch, bvfim
        >>> from bvfim.core.multipliers import first
        >>> problem = bvfim.Problem(
        ...     upper=lambda x, y: (x + y).sum(), lower=lambda x, y: (y**2).sum(), lower_constraints=lambda x, y: x - y
        ... )
        >>> one = torch.ones(1, dtype=torch.float64)
        >>> found = first(problem, one, 0 * one)
        >>> print(f"{found.sigma.item():.4f} {found.u.item():.1f}")
        1.4142 0.0
    """

    equal: Tensor
    sigma: Tensor
    u: Tensor
    c: Tensor
    v: Tensor
    k: Tensor
    crowd: Tensor

    @property
    def augmented(self) -> Augmented:
        """The terms of F and f."""
        none = self.v.new_zeros(0)
        terms = Terms(
            self.sigma, self.u, self.c, self.v, self.k, violated=none, cap=self.v.new_full((1,), torch.inf),
            slope=none, origin=none,
        )  # fmt: skip
        return Augmented(Layout((), self.equal, len(self.u)), terms)

    def within(self, of_z: float | Tensor, of_y: float | Tensor) -> Multipliers:
        """With weights that gradient steps of these lengths on z and y are stable with."""
        lower, every = self.crowd.unbind()
        return self._replace(
            c=self.c.clamp_max(STABLE / (of_z * lower).double()), k=self.k.clamp_max(STABLE / (of_y * every).double())
        )

    def distances(self, at: At, y: Tree) -> Tensor:
        """The constraints at y, as distances."""
        with torch.no_grad():
            return at.constraints(at.u, y).double() / self.sigma

    def followed(self, at_y: Tensor, at_z: Tensor, rate: float | Tensor) -> Multipliers:
        """After a step, from the distances at y and z."""
        lower = len(self.u)
        u = moved(at_z[:lower], self.u, rate * self.c, self.equal[:lower])
        return self._replace(u=u, v=moved(at_y, self.v, rate * self.k, self.equal))

    def report(self, at_y: Tensor, upper: Tensor, lower: Tensor) -> dict[str, Tensor]:
        """F and f without the terms, which are in the values given, and the largest distance from holding."""
        F = upper.double() - term(at_y, self.v, self.k, self.equal)
        m = len(self.u)
        f = lower.double() - term(at_y[:m], self.u, self.c, self.equal[:m])
        return {"upper": F, "lower": f, "violation": violation(at_y, self.equal).amax()}


Place: TypeAlias = "Multipliers | tuple[()]"
"""The place of multipliers in the state of a method: empty where there are no constraints, or as long as none were
counted."""


def begun(problem: Problem, x: Tree, y: Tree) -> Place:
    """What a state begins with: nothing where it takes data to count the constraints."""
    return first(problem, x, y) if problem.stated and not problem.takes_data else ()


def counted(problem: Problem, x: Tree, state: S, batch: object) -> S:
    """The state with multipliers, where there is a place for them that is still empty."""
    if not problem.stated or getattr(state, "multipliers", None) != ():
        return state
    found: S = cast(Any, state)._replace(multipliers=first(problem, x, cast(Any, state).y, batch))
    return found


def augmented(problem: Problem, place: Place) -> Augmented | None:
    """The terms of F and f, if there are constraints."""
    if isinstance(place, Multipliers):
        return place.augmented
    if problem.stated:
        raise MethodError("with constraints, a bvfim.Stepper needs its first batch at once, to count them: pass batch=")
    return None


@torch.no_grad()
def told(problem: Problem, x: Tree, y: Tree, place: Place) -> dict[str, Tensor]:
    """The multipliers as they are stated: the lower level's in f, the upper's in F; none where that takes data."""
    if not isinstance(place, Multipliers) or problem.takes_data:
        return {}
    like = {name: problem.call(name, x, y, None) for name in problem.stated}
    each = torch.cat([place.u, place.v[len(place.u) :]]) / place.sigma
    parts = each.split([t.numel() for t in like.values()])
    return {name: part.reshape(t.shape).to(t) for (name, t), part in zip(like.items(), parts, strict=True)}


def first(problem: Problem, x: Tree, y: Tree, batch: object = None) -> Multipliers:
    """Zero, with sizes and weights from gradients around (x, y)."""
    own = problem.differentiated_by(problem.backend)
    at = own.at(x, batch)
    noise = at.random_state()
    inside, data = at.inputs()
    shape = layout(own, inside, y, data)
    around = list(_around(own, x, y))
    with torch.no_grad():
        slopes = torch.stack([_slopes(own, w, v, batch) for w, v in around]).nan_to_num(0.0, 0.0, 0.0)
    mean = slopes.mean(0)
    mean = torch.maximum(mean, LEAST_SIZE * mean.amax()).clamp_min(torch.finfo(torch.float64).tiny)
    sigma = torch.minimum(mean, torch.maximum(slopes[0], LEAST_LOCAL * mean))
    F, f = (_slope(at, [v for _, v in around], upper) / _size(x, y) for upper in (True, False))
    at.restore_random_state(noise)
    ones = torch.ones_like(sigma)
    c, k = LOWER_WEIGHT * f * ones[: shape.lower], UPPER_WEIGHT * F * ones
    crowd = torch.stack([_crowd(at, y, sigma, only) for only in (shape.lower, len(sigma))])
    return Multipliers(shape.equal.to(sigma.device), sigma, 0 * c, c, 0 * k, k, crowd)


def _size(x: Tree, y: Tree) -> Tensor:
    """The size of an entry of x and y, at least one unit."""
    return torch.cat([tree.flatten(x).double(), tree.flatten(y).double()]).abs().amax().clamp_min(1.0)


def _numbers(like: Tensor, draw: int) -> Tensor:
    """Numbers in [-1, 1) that look random, a vector like this one."""
    a, b = SPREAD
    t = torch.arange(1, len(like) + 1, dtype=torch.float64, device=like.device) + draw * len(like)
    return 2 * ((a * t).sin() * b).frac().abs() - 1


def _around(problem: Problem, x: Tree, y: Tree) -> Iterator[tuple[Tree, Tree]]:
    """The point itself, and points around it in the sets."""
    yield x, y
    flat, size = tree.flatten((x, y)), _size(x, y)
    for draw in range(SAMPLES):
        w, v = tree.unravel(flat + size.to(flat) * _numbers(flat, draw).to(flat), (x, y))
        yield problem.project_x(w), problem.project_y(v)


def _slopes(problem: Problem, x: Tree, y: Tree, batch: object) -> Tensor:
    """The size of the gradient of each constraint, by differences along random signs."""
    flat = tree.flatten((x, y))
    step = torch.finfo(flat.dtype).eps ** STEP * _size(x, y)

    def values(flat: Tensor) -> Tensor:
        w, v = tree.unravel(flat, (x, y))
        at = problem.at(w, batch)
        return at.constraints(at.u, v).double()

    here = values(flat)
    signs = (_numbers(flat, SAMPLES).sign() * row for row in _orthogonal(flat))
    there = torch.stack([values(flat + (step * sign).to(flat)) for sign in signs])
    return ((there - here) / step).square().mean(0).sqrt()


def _crowd(at: At, y: Tree, sigma: Tensor, count: int) -> Tensor:
    """The largest eigenvalue of J'J at y, where J is the Jacobian in y of the first constraints, as distances."""
    flat = tree.flatten(y)
    step = torch.finfo(flat.dtype).eps ** STEP * flat.abs().amax().clamp_min(1.0)

    def values(flat: Tensor) -> Tensor:
        return (at.constraints(at.u, tree.unravel(flat, y)).double() / sigma)[:count]

    here, pull, _ = at.backend.vjp(values, flat)
    w, found = torch.ones_like(here), torch.zeros_like(sigma[0])
    tiny = torch.finfo(flat.dtype).tiny
    for _ in range(TURNS if count else 0):
        v = pull(w / w.norm().clamp_min(tiny), of=0, again=True)
        found = torch.maximum(found, v.double().square().sum())
        w = values(flat + (step / v.norm().clamp_min(tiny)) * v) - here
    return found.clamp_min(tiny)


def _orthogonal(like: Tensor) -> Tensor:
    """Rows of signs, of which any 32 neighbouring columns are orthogonal (Hadamard's)."""
    rows = torch.ones(1, 1, dtype=torch.float64, device=like.device)
    while len(rows) < SIGNS:
        rows = torch.cat([torch.cat([rows, rows], 1), torch.cat([rows, -rows], 1)])
    return rows[:, torch.arange(len(like), device=like.device) % SIGNS]


def _slope(at: At, ys: list[Tree], upper: bool) -> Tensor:
    """The root mean square of a gradient's entries, of F in x and y or of f in y, averaged over points."""
    found = []
    for y in ys:
        if upper:
            _, in_u, in_y = at.upper_grads(y)
            gradient = tree.flatten((at.pull(in_u), in_y))
        else:
            gradient = tree.flatten(at.lower_grad(y)[1])
        found.append(gradient.double().square().mean().sqrt())
    return torch.stack(found).nan_to_num(0.0, 0.0, 0.0).mean().clamp_min(torch.finfo(torch.float64).tiny)
