"""Seven kinds of jobs, each with its own judge, by which methods are compared and by which advice is tested.

They were written before any method was run on them: none is shaped to a method.
"""

from __future__ import annotations

from bvfim.reproduce.bench.jobs import cleaning, digits, fewshot, known, penalties
from bvfim.reproduce.bench.jobs.base import Job, Posed, excess, is_near, judged


def jobs() -> list[Job]:
    """All of them, kind by kind.

    Example:
        >>> from bvfim.reproduce.bench.jobs import jobs
        >>> len(jobs()), len({job.family for job in jobs()})
        (23, 7)
    """
    return [*known.jobs(), *penalties.jobs(), *cleaning.jobs(), *fewshot.jobs(), *digits.jobs()]


__all__ = ["Job", "Posed", "excess", "is_near", "jobs", "judged"]
