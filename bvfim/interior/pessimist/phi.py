r"""The value of x for a leader whose follower breaks ties against it, as a function for the line search.

.. math::

    \varphi(x) = \max_y \Big\{ F(x, y) + \tau \ln \frac{\mu_2 + f^*(x) - f(x, y)}{\mu_2} \Big\}, \qquad
    \nabla \varphi = F_x + \lambda \big( f_x(x, z) - f_x(x, y) \big), \qquad \lambda = \tau / s.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bvfim.interior import tolerances as tol
from bvfim.interior.lbfgs import ARMIJO, Points, dot, unit
from bvfim.interior.lower import Interior
from bvfim.interior.pessimist.ascent import Settings
from bvfim.interior.pessimist.response import Response, followed, verified

FIRST_STEP = 0.3
"""The first step of x, in units."""
LEAST = 1e-4
"""A fall of phi below this share of |F| is none: at a kink, or beside a jump, steps only become shorter."""
IN_SIGHT = 0.3
"""A step is not made shorter where the gradient promises less than this multiple of it."""


class Phi:
    """phi at each row's x; the follower is solved for at every trial, and again more widely before one is taken.

    Args:
        interior: the problem.
        members: which starts the rows are.
        settings: mu2, tau and how fine f is minimised.
        x, known: the first points, and the response there.
        size: what a fall is measured by.

    Attributes:
        points: the first points with their values and gradients.
        known: the response at the points that were taken last.
        pull: the size of F's gradient there.
    """

    def __init__(
        self, interior: Interior, members: Tensor, settings: Settings, x: Tensor, known: Response, size: Tensor
    ) -> None:
        self.interior, self.members, self.settings = interior, members, settings
        self.little = torch.maximum(tol.LITTLE * settings.tau, LEAST * size)
        self.known, self.tried = known, known
        self.draws = 1
        self.pull, self.fallen = torch.zeros_like(settings.mu2), torch.zeros_like(settings.mu2)
        everyone = torch.arange(len(x), device=x.device)
        self.points = Points(x, known.phi, self.gradient(everyone, x))
        self.fallen = torch.full_like(self.fallen, torch.inf)

    def trial(self, rows: Tensor, w: Tensor, attempt: int, ceiling: Tensor) -> Tensor:
        """phi at x, where a fall is in sight: infinity will do elsewhere."""
        value = torch.full_like(ceiling, torch.inf)
        in_sight = (self.known.phi[rows] - ceiling) / ARMIJO  # to first order
        going = ((attempt == 0) | (in_sight > IN_SIGHT * self.little[rows])).nonzero()[:, 0]
        if len(going):
            value[going] = self._phi(rows[going], w[going], ceiling[going])
        return value

    def _phi(self, rows: Tensor, x: Tensor, ceiling: Tensor) -> Tensor:
        """phi from the responses that are known; where that is below the ceiling, after a search for others."""
        at = self.interior.batch.at(x, self.members[rows])
        settings = self.settings.take(rows)
        found = followed(self.interior, at, self.known.take(rows), settings, ceiling)
        hopeful = (found.phi <= ceiling).nonzero()[:, 0]
        if len(hopeful):
            self.draws += 1
            own, going = settings.take(hopeful), rows[hopeful]
            sure = verified(self.interior, at.take(hopeful), found.take(hopeful), own, self.draws, ceiling[hopeful])
            found = found.put(hopeful, sure)
            self.known = self.known.put(going, self.known.take(going).reminded(sure))
        self.tried = self.tried.put(rows, found)
        return found.phi

    def gradient(self, rows: Tensor, w: Tensor) -> Tensor:
        """The gradient of phi at points that are taken."""
        tried = self.tried.take(rows)
        self.fallen[rows] = self.known.phi[rows] - tried.phi
        self.known = self.known.put(rows, tried)
        weight = self.settings.tau[rows] / tried.slack(self.settings.mu2[rows])
        at = self.interior.batch.at(w, self.members[rows])
        of_F, of_f = (self.interior.split(g)[0] for g in at.barrier_grads(tried.y, tried.z, weight))
        self.pull[rows] = dot(of_F, of_F).sqrt()
        return of_F - of_f

    def scale(self, reduced: Tensor) -> Tensor:
        """A first step."""
        return FIRST_STEP * unit(reduced)

    def enough(self, rows: Tensor, reduced: Tensor, decrease: Tensor) -> Tensor:
        """phi can fall, or has fallen in the last step, by little."""
        return torch.minimum(decrease, self.fallen[rows]) < self.little[rows]
