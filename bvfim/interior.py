"""The barrier problem of one stage, on flat vectors w = (x, y); :class:`bvfim.AdaptiveBVFIM` has the mathematics."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from bvfim import tree
from bvfim.lbfgs import Function, Memory, Point, Space, minimise
from bvfim.problem import At, Problem
from bvfim.tree import Tree


class Product:
    """The set X x Y on flat vectors w = (x, y)."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def project(self, w: Tensor) -> Tensor:
        """The nearest w in the product."""
        x, y = self.stage.split(w)
        return torch.cat([self.stage.xs.project(x), self.stage.ys.project(y)])

    def free(self, w: Tensor, gradient: Tensor) -> Callable[[Tensor], Tensor]:
        """Free directions of both parts."""
        pairs = zip((self.stage.xs, self.stage.ys), self.stage.split(w), self.stage.split(gradient), strict=True)
        own = [space.free(part, g) for space, part, g in pairs]
        return lambda v: torch.cat([free(part) for free, part in zip(own, self.stage.split(v), strict=True)])


class Kept(NamedTuple):
    """What a trial of B found out about its point."""

    at: At
    z: Tensor
    f_z: float
    F: float
    f: float


class Stage:
    """One barrier problem on flat vectors w = (x, y)."""

    def __init__(self, problem: Problem, x: Tree, y: Tree, *, scouts: int, seed: int, precision: float = 0.1) -> None:
        self.problem, self.scout_count, self.precision = problem, scouts, precision
        self.xs, self.ys = Space(x, problem.x_set), Space(y, problem.y_set)
        self.generator = torch.Generator().manual_seed(seed)
        self.z_memory = Memory()

    def split(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """x and y of w."""
        m = tree.size(self.xs.like)
        return w[:m], w[m:]

    def scouts(self, y: Tree) -> list[Tree]:
        """Around y at random scales, with one entry resampled, and far off, in turn."""
        centre = tree.flatten(y)
        low, high = self._range(centre)
        found = []
        for i in range(self.scout_count):
            far = low + (high - low) * self._random(centre)
            if i % 3 == 0:
                scale = 10 ** (-2 * float(torch.rand((), generator=self.generator)))
                far = centre + (high - low) * scale * 0.5 * self._random(centre, normal=True)
            elif i % 3 == 1:
                entry = int(torch.randint(len(centre), (), generator=self.generator))
                far = torch.cat([centre[:entry], far[entry : entry + 1], centre[entry + 1 :]])
            found.append(self.ys.tree(self.ys.project(far)))
        return found

    def _random(self, like: Tensor, normal: bool = False) -> Tensor:
        draw = torch.randn if normal else torch.rand
        return draw(len(like), generator=self.generator, dtype=torch.float64).to(like)

    def _range(self, centre: Tensor) -> tuple[Tensor, Tensor]:
        """Where scouts are sent: the box where there is one, else three times the size of y around it."""
        far = 3 * (1 + centre.abs())
        low, high = (self.ys.project(torch.full_like(centre, s * 1e30)) for s in (-1, 1))
        boxed = (low > -1e29) & (high < 1e29)
        return torch.where(boxed, low, centre - far), torch.where(boxed, high, centre + far)

    def lowest(self, at: At, candidates: list[Tree], tol: float) -> tuple[Tensor, float]:
        """z: the best of the candidates, then L-BFGS on f(x, .) until it can fall by no more than ``tol``."""
        values = at.lower_many(candidates)
        best = int(torch.where(values.isfinite(), values, torch.inf).argmin())
        if best != 0:
            self.z_memory = Memory()
        return self._descend(at, tree.flatten(candidates[best]), tol, self.z_memory, 60)

    def _descend(self, at: At, z: Tensor, tol: float, memory: Memory, max_steps: int) -> tuple[Tensor, float]:
        def value_and_gradient(v: Tensor) -> tuple[float, Tensor]:
            f, gradient = at.lower_grad(self.ys.tree(v))
            return float(f), tree.flatten(gradient)

        def trial(v: Tensor, first: bool) -> tuple[float, Tensor | None]:
            return value_and_gradient(v) if first else (float(at.lower(self.ys.tree(v))), None)

        def gradient(v: Tensor, kept: Tensor | None) -> Tensor:
            return value_and_gradient(v)[1] if kept is None else kept

        function = Function(trial, gradient, unit, lambda point, reduced, decrease: decrease <= tol)
        value, kept = value_and_gradient(z)
        point, _ = minimise(function, Point(z, value, kept, None), self.ys, memory, max_steps)
        return point.w, point.value

    def run(self, x: Tensor, y: Tensor, z: Tensor, mu2: float, tau: float) -> tuple[Point, float, bool]:
        """Minimise B from (x, y); mu2 is raised where a lower z shows that y is outside."""
        z_tol = 1e-7 * mu2
        w, memory = torch.cat([x, y]), Memory()
        for _ in range(4):
            w, kept, mu2 = self._enter(w, z, mu2, z_tol)
            barrier = Barrier(self, mu2, tau, z_tol)
            point = Point(w, barrier.value(kept), barrier.gradient(w, kept), kept)
            point, settled = minimise(barrier.function(), point, Product(self), memory, 40)
            w, kept, alternative = point.w, point.kept, barrier.alternative
            if settled or alternative is None:
                break
            if not float(kept.at.lower(self.ys.tree(alternative))) < kept.f_z - 10 * z_tol:
                break
            z, memory = alternative, Memory()
        return point, mu2, settled

    def _enter(self, w: Tensor, z: Tensor, mu2: float, z_tol: float) -> tuple[Tensor, Kept, float]:
        """A feasible first point: y descends f in its own basin if it is outside, or mu2 is raised."""
        x, y = self.split(w)
        at = self.problem.at(self.xs.tree(x))
        y_tree = self.ys.tree(y)
        z, f_z = self.lowest(at, [self.ys.tree(z), y_tree, *self.scouts(y_tree)], z_tol)
        f = float(at.lower(y_tree))
        if f - f_z >= mu2:
            inner, f_inner = self._descend(at, y, 0.1 * mu2, Memory(), 60)
            if f_inner - f_z < 0.5 * mu2:
                y, f = inner, f_inner
            else:
                mu2 = 1.25 * (f - f_z)
        return torch.cat([x, y]), Kept(at, z, f_z, float(at.upper(self.ys.tree(y))), f), mu2

    def judge(self, y: Tensor, end: Kept, mu2: float, settled: bool, tol: float) -> tuple[int, Tensor, float]:
        """Whether the run has ended, with which y and F.

        F(x, y) and F(x, y'), y' the end of a descent of f from y, bracket the optimum locally. Where the lower solution
        jumps at the optimum they never meet; there a gap far below the tolerance has to do.
        """
        size, gap = 1 + abs(end.f_z), end.f - end.f_z
        if min(end.F, end.f_z) < -1e15:
            return 3, y, end.F
        if mu2 > 10 * tol * size:
            return 0, y, math.nan
        polished, f = self._descend(end.at, y, 1e-3 * max(gap, 1e-16), Memory(), 30)
        F = float(end.at.upper(self.ys.tree(polished)))
        if settled and abs(F - end.F) <= tol * (1 + abs(F)) and f - end.f_z <= tol * size:
            return 1, polished, F
        if gap <= 1e-5 * tol * size and mu2 <= 1e-4 * tol * size:
            return 1, y, end.F
        return (2 if mu2 <= 1e-13 * size else 0), y, F


class Barrier:
    """B as a function of w.

    It remembers of the last point that was taken its z and the size of F's gradient (``pull``), and the z that the
    trials rejected since then found.
    """

    z: Tensor
    pull: float
    alternative: Tensor | None

    def __init__(self, stage: Stage, mu2: float, tau: float, z_tol: float) -> None:
        self.stage, self.mu2, self.tau, self.z_tol = stage, mu2, tau, z_tol

    def function(self) -> Function:
        """B, as :func:`minimise` wants it."""
        return Function(self.trial, self.gradient, self.scale, self.enough)

    def trial(self, w: Tensor, first: bool) -> tuple[float, Kept | None]:
        """B at w, with z solved for; infinite where the slack is not positive."""
        x, y = self.stage.split(w)
        at, y_tree = self.stage.problem.at(self.stage.xs.tree(x)), self.stage.ys.tree(y)
        F, f = (float(v) for v in at.values(y_tree))
        if not (math.isfinite(F) and math.isfinite(f)):
            return math.inf, None
        others = self.stage.scouts(y_tree) if self.alternative is None else [self.stage.ys.tree(self.alternative)]
        z, f_z = self.stage.lowest(at, [self.stage.ys.tree(self.z), y_tree, *others], self.z_tol)
        self.alternative = z
        kept = Kept(at, z, f_z, F, f)
        return self.value(kept), kept

    def slack(self, kept: Kept) -> float:
        """s."""
        return self.mu2 + (kept.f_z - kept.f)

    def value(self, kept: Kept) -> float:
        """B, infinite where the slack is not positive."""
        slack = self.slack(kept)
        return kept.F - self.tau * math.log(slack) if slack > 0 else math.inf

    def gradient(self, w: Tensor, kept: Kept) -> Tensor:
        """The gradient of B at a point that is taken."""
        self.z, self.alternative = kept.z, None
        _, y = self.stage.split(w)
        at, y_tree = kept.at, self.stage.ys.tree(y)
        _, F_u, F_y = at.upper_grads(y_tree)
        _, f_u, f_y = at.lower_grads(y_tree)
        _, z_u, _ = at.lower_grads(self.stage.ys.tree(kept.z))
        lam = self.tau / self.slack(kept)
        self.pull = float(tree.norm([at.pull(F_u), F_y]))
        in_x, in_y = at.pull(tree.axpy(lam, tree.sub(f_u, z_u), F_u)), tree.axpy(lam, f_y, F_y)
        return tree.flatten([in_x, in_y])

    def scale(self, reduced: Tensor) -> Tensor:
        """A unit first step in x and in y, each by itself."""
        return torch.cat([unit(part) for part in self.stage.split(reduced)])

    def enough(self, point: Point, reduced: Tensor, decrease: float) -> bool:
        """B can fall by little against tau, and its gradient is small against that of F: one alone may mislead."""
        return decrease < 0.05 * self.tau and float(reduced.norm()) <= self.stage.precision * self.pull


def unit(reduced: Tensor) -> Tensor:
    """The scale that makes a first step of unit length."""
    length = float(reduced.norm())
    return torch.full_like(reduced, 1 / length if length > 0 else 1.0)
