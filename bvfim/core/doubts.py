"""What the course of a run says against its result, in sentences."""

from __future__ import annotations

from statistics import median

from bvfim import tree
from bvfim.core.draw import Draw
from bvfim.core.run import Run
from bvfim.distributed.mesh import count

UNTRAINED = (
    "networks given as bvfim.Twins are not trained again, so the lower-level gap and F after a refit are not known"
)
FALLEN = 1e-3
"""F that has fallen to less than this share of what it was may know its rows by heart: rows that y has not seen are
hardly ever predicted so well."""
LAST = 10
"""F at the end is the median of so many steps, whose batches differ."""
MOSTLY = 0.9
"""x that waited in more than this share of the steps has hardly been optimised. Where the gap has closed its sign is
noise: x that arrived on small problems had waited in up to 0.85 of the steps; x that stood still, in 0.93 and more."""


def doubts_of_course(run: Run) -> tuple[str, ...]:
    """Whether x has waited for most of the run, and whether y may know the rows of F by heart.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(lambda x, y, b: (y**2).sum(), lambda x, y, b: ((y - x - b) ** 2).sum())
        >>> start = torch.ones(1)
        >>> seen = []
        >>> look = lambda run: seen.append(bvfim.core.doubts.doubts_of_course(run))
        >>> _ = bvfim.solve(problem, start, start, steps=3, batches=[0.0], callbacks=[look])
        >>> seen[-1]
        ()
    """
    return (*_waited(run.rows), *_by_heart(run))


def _waited(rows: list[dict[str, float]]) -> list[str]:
    waited = sum(row.get("moves") == 0 for row in rows)
    if waited <= MOSTLY * len(rows):
        return []
    return [
        f"x waited in {waited} of {len(rows)} steps, while f at y was below f at z: a multiplier= of your own lets it "
        "move"
    ]


def _by_heart(run: Run) -> list[str]:
    """Only a y of at least as many entries as a batch of F has rows can know them by heart, where there are rows."""
    F = [row["upper"] for row in run.rows if "upper" in row]
    batch = run.drawn.upper if isinstance(run.drawn, Draw) else run.drawn
    held_out = any("holdout" in row for row in run.rows)
    if not F or not run.draws.given or held_out or not 1 < count(batch) <= tree.size(run.y):
        return []
    share = median(F[-LAST:]) / F[0] if F[0] > 0 else 1.0
    if not 0 <= share < FALLEN:
        return []
    return [
        f"F has fallen to {share:.1g} of what it was at the start: y may know the rows of F by heart; look at rows "
        "that neither level sees (holdout=)"
    ]
