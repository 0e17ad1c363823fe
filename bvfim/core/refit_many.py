"""Solves the lower level again for many solutions at once: what the y of each is worth."""

from __future__ import annotations

import torch

from bvfim import tree
from bvfim.core.lower_minimum import EXACT
from bvfim.core.problem import Problem
from bvfim.core.refit import BROKEN, LONGEST, SHARE, VALUE, VALUES, gradients_of, is_held, worth
from bvfim.core.solution import Solution
from bvfim.interior.batch import KINDS, Batch
from bvfim.interior.lbfgs import Memory, Points, minimise
from bvfim.interior.lower import LowerFunction
from bvfim.interior.space import Space
from bvfim.sets import per_leaf


def judged_together(problem: Problem, solutions: list[Solution]) -> list[Solution]:
    """The solutions with their lower gaps and F after refits, in one batch, for at most a tenth of what they cost.

    Those without a step, and those that broke off, stay as they are; all do where the lower level has constraints.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum())
        >>> starts = torch.linspace(-1, 0, 3, dtype=torch.float64)[:, None]
        >>> found = bvfim.solve_many(problem, starts, starts, bvfim.RHG(2, 0.1), steps=20)
        >>> all(s.lower_gap > 0 for s in found)
        True
    """
    judged = [i for i, s in enumerate(solutions) if s.rows and s.status not in BROKEN]
    own = [solutions[i] for i in judged]
    spent = sum(gradients_of(s) for s in own) / max(len(own), 1)
    steps = min(int(SHARE * spent - VALUES * VALUE), LONGEST)
    if steps < 1 or is_held(problem):
        return solutions
    sides = zip(*((s.x, s.y, s.z) for s in own), strict=True)
    x, y, z = (torch.stack([tree.flatten(v) for v in side]) for side in sides)
    of_x, of_y = (Space(v, per_leaf(s, v)) for v, s in ((own[0].x, problem.x_set), (own[0].y, problem.y_set)))
    counts = torch.zeros(len(own), len(KINDS), dtype=torch.long, device=x.device)
    at = Batch(problem.counted_anew(), of_x, of_y, counts).at(x, torch.arange(len(own), device=x.device))
    f, gradient = at.lower_grad(y)
    function = LowerFunction(at, EXACT * f.abs().clamp_min(1.0))
    points, _ = minimise(function, Points(y, f, gradient), at.of_y, Memory.empty(y), steps)
    values = (torch.stack(at.values(v), 1).tolist() for v in (y, points.w, z))
    found = list(solutions)
    for i, at_y, refit, (F_z, _) in zip(judged, *values, strict=True):
        found[i] = worth(solutions[i], at_y, refit, F_z)
    return found
