"""How the constraints stand at the end of a run: what the certificate says of them, and their multipliers."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from bvfim.core.augmented import violation
from bvfim.interior.feasible import SIZE_DRAW, all_pulled_in, reach
from bvfim.interior.lower import Interior
from bvfim.interior.multipliers import allowed_of, away
from bvfim.interior.starts import INFEASIBLE, TINIEST, Starts

ONE_POINT = 1e-3
"""The feasible y of the lower level are one point if they lie within this share of the size of w."""


class Standing(NamedTuple):
    """What is left of the constraints at one start: as in :class:`bvfim.interior.certificate.Certificate`."""

    violation: float = 0.0
    complementarity: float = 0.0
    conflict: tuple[str, ...] = ()
    lower_set: str = ""


def standing(interior: Interior, starts: Starts, chosen: Tensor) -> Standing:
    """How the constraints stand at one of the starts."""
    if not interior.constrained:
        return Standing()
    rows = chosen[None]
    w, layout = starts.w[rows], interior.layout
    x, y = interior.split(w)
    at = interior.batch.at(x, rows)
    values, slopes = at.jacobian(y)
    plain = (slopes / starts.unit[rows, None]).norm(dim=2).clamp_min(TINIEST)
    left = violation(values, layout.equal)
    count = layout.lower
    products = (interior.terms.take(rows).at(x.double()).u * values[:, :count]).abs()
    conflict = (away(interior, at, y) > allowed_of(w) * reach(w))[0] & (starts.ended[chosen] == INFEASIBLE)
    return Standing(
        violation=float(torch.where(left > 0, left / plain, 0.0).max()),
        complementarity=float(products.max()) if count else 0.0,
        conflict=tuple(name for name, apart in zip(layout.names, conflict.tolist(), strict=True) if apart),
        lower_set=lower_set(interior, rows, x, y, w) if count else "",
    )


def lower_set(interior: Interior, rows: Tensor, x: Tensor, y: Tensor, w: Tensor) -> str:
    """What the constraints of the lower level leave of y at x: "empty", "a point", or more, which is not said."""
    at = interior.batch.at(x, rows)
    found = all_pulled_in(interior, at, interior.around(rows, y, SIZE_DRAW + 4))[0]
    if len(found) == 0:
        return ""
    many = at.take(torch.zeros(len(found), dtype=torch.long, device=found.device))
    left = violation(many.distances(found), interior.layout.equal)[:, : interior.layout.lower].amax(1)
    inside = found[left <= allowed_of(w) * reach(w)]
    if len(inside) == 0:
        return "empty"
    wide = (inside - inside[:1]).abs().amax()
    return "a point" if bool(wide <= ONE_POINT * reach(w)) else ""


def multipliers(interior: Interior, starts: Starts, chosen: Tensor) -> dict[str, list[float]]:
    """By the kind of constraint: u of the lower level, v of the upper level, for the constraints as they are stated."""
    if not interior.constrained:
        return {}
    terms = interior.terms.take(chosen[None])
    x, _ = interior.split(starts.w[chosen[None]])
    u = terms.at(x.double()).u / terms.sigma[:, : interior.layout.lower]
    v = (terms.v / terms.sigma)[:, interior.layout.lower :]
    found: dict[str, list[float]] = {}
    for name, value in zip(interior.layout.names, torch.cat([u, v], 1)[0].tolist(), strict=True):
        found.setdefault(name.partition("[")[0], []).append(value)
    return found
