r"""How a pessimistic follower responds to x: the lower-level solutions, and the worst answers within the slack."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from bvfim.interior.batch import BatchAt
from bvfim.interior.lower import Interior
from bvfim.interior.pessimist.archive import distinct, first, ranked
from bvfim.interior.pessimist.ascent import Answers, Settings, ascended, descended, inside, valued, values_many

BRANCHES, ANSWERS = 4, 8
"""The number of minima of f that are followed, and of maximisers of the follower's barrier."""
RIVAL = 10
"""A minimum of f is followed if it lies within this many mu2 above the lowest."""


class Response(NamedTuple):
    """What is known of the follower at each row's x."""

    branches: Tensor
    """Minima of f, (B, BRANCHES, n), the lowest first."""
    f: Tensor
    """f there; infinite in free places."""
    answers: Tensor
    """Maximisers of F plus the barrier, (B, ANSWERS, n), the worst for the leader first."""
    cost: Tensor
    """The negative of what they maximise; infinite in free places."""
    F: Tensor
    """F and f at the first answer."""
    f_y: Tensor

    @property
    def z(self) -> Tensor:
        """The lowest minimum of f."""
        return self.branches[:, 0]

    @property
    def y(self) -> Tensor:
        """The worst answer."""
        return self.answers[:, 0]

    @property
    def lowest(self) -> Tensor:
        """f*."""
        return self.f[:, 0]

    @property
    def phi(self) -> Tensor:
        """The value of x; infinite where no answer is finite."""
        return torch.where(self.cost[:, 0].isfinite(), -self.cost[:, 0], torch.inf)

    def slack(self, mu2: Tensor) -> Tensor:
        """What is left of mu2 at the answer."""
        return mu2 + self.lowest - self.f_y

    def take(self, rows: Tensor) -> Response:
        """Some of the rows."""
        return Response(*(t[rows] for t in self))

    def put(self, rows: Tensor, part: Response) -> Response:
        """With some rows replaced."""
        return Response(*(t.index_copy(0, rows, new) for t, new in zip(self, part, strict=True)))

    def reminded(self, other: Response) -> Response:
        """With what was found elsewhere in free places: nothing is given up for a point that may not be taken."""
        return self._replace(
            **dict(zip(("branches", "f"), _filled(self.branches, self.f, other.branches, other.f), strict=True)),
            **dict(zip(("answers", "cost"), _filled(self.answers, self.cost, other.answers, other.cost), strict=True)),
        )


def _filled(points: Tensor, scores: Tensor, others: Tensor, of_others: Tensor) -> tuple[Tensor, Tensor]:
    """Points with free places filled by others."""
    every, found = torch.cat([points, others], 1), torch.cat([scores, of_others], 1)
    order = torch.arange(every.shape[1], device=points.device).expand_as(found)
    return first(every, found, points.shape[1], order)[:2]


def followed(interior: Interior, at: BatchAt, known: Response, settings: Settings, ceiling: Tensor) -> Response:
    """The response at x from what is known of it nearby: every branch is descended, and the two best answers ascend.

    Where an answer is worse than the ceiling as it is, none ascends.
    """
    branches, f = descended(interior, at, known.branches, known.f.isfinite(), settings.fine)
    branches, f, _ = ranked(branches, f, BRANCHES)
    level = f[:, 0] + settings.mu2
    y = inside(at, known.y, branches[:, 0], level)[:, None]
    points = torch.cat([y, known.answers[:, 1:], branches], 1)
    valid = torch.cat([torch.ones_like(f[:, :1]), known.cost[:, 1:], f], 1).isfinite()
    seen = valued(at, points, valid, level, settings)
    best = seen.cost.argmin(1, keepdim=True)
    starts = torch.cat([y, points.gather(1, best[..., None].expand_as(y))], 1)
    costs = torch.cat([seen.cost[:, :1], seen.cost.gather(1, best)], 1)
    among = distinct(starts, costs.isfinite()) & (-costs[:, 1:] <= ceiling[:, None])
    return _answered(branches, f, ascended(at, starts, among, level, settings).joined(seen))


def verified(
    interior: Interior,
    at: BatchAt,
    known: Response,
    settings: Settings,
    draw: int,
    ceiling: Tensor,
    more: Tensor | None = None,
) -> Response:
    """The response after a search for what was missed: a too low value of x would always be accepted.

    f is descended from the scout of the highest F, from another, and from more points if given: what ends near the
    lowest f leads into another part of the set that the follower may choose from. Then all answers ascend, unless
    one is worse than the ceiling.
    """
    extra = known.answers[:, :0] if more is None else more
    if interior.scouts:
        scouts = interior.around(at.members, known.y, draw)
        F, _ = values_many(at, scouts)
        worst = torch.where(F.isfinite(), F, -torch.inf).argmax(1)
        everyone = torch.arange(len(worst), device=worst.device)
        probes = torch.stack([scouts[everyone, worst], scouts[:, draw % interior.scouts]], 1)
        extra = torch.cat([probes, extra], 1)
    ends, found = descended(interior, at, extra, torch.ones_like(extra[..., 0], dtype=torch.bool), settings.fine)
    near = torch.where(found < known.f[:, :1] + RIVAL * settings.mu2[:, None], found, torch.inf)
    branches, f, _ = ranked(torch.cat([known.branches, ends], 1), torch.cat([known.f, near], 1), BRANCHES)
    extra = torch.cat([ends, scouts if interior.scouts else extra], 1)
    level = f[:, 0] + settings.mu2
    y = inside(at, known.y, branches[:, 0], level)[:, None]
    starts = torch.cat([y, known.answers[:, 1:], branches, extra], 1)
    valid = torch.cat([torch.ones_like(f[:, :1]), known.cost[:, 1:], f, torch.zeros_like(extra[..., 0])], 1).isfinite()
    seen = valued(at, starts, valid, level, settings)
    starts, costs, _ = ranked(starts, seen.cost, ANSWERS)
    among = costs.isfinite() & (-costs[:, :1] <= ceiling[:, None])
    return _answered(branches, f, ascended(at, starts, among, level, settings).joined(seen))


def _answered(branches: Tensor, f: Tensor, ends: Answers) -> Response:
    """The best of the answers."""
    answers, costs, order = ranked(ends.y, ends.cost, ANSWERS)
    best = order[:, :1]
    return Response(branches, f, answers, costs, ends.F.gather(1, best)[:, 0], ends.f.gather(1, best)[:, 0])
