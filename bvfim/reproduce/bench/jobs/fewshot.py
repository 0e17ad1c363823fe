"""Jobs of few-shot learning: a small network learns features from the digits 0 to 6, turned by right angles or not.

Judged by the cross-entropy of heads that are fitted anew, in always the same way, to episodes of the digits 7 to 9.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bvfim import data
from bvfim.core.descent import descend
from bvfim.data.episodes import Episodes, Shape
from bvfim.data.fewshot import ClassImages
from bvfim.dynamics import GradientDescent
from bvfim.reproduce.bench.jobs.base import Job, Posed
from bvfim.reproduce.experiments.fewshot_model import ON_FEATURES, embedded, heads, network, problem

WAYS, TASKS, QUERIES, WIDTH, TURNS = 3, 4, 5, 12, 4
"""Classes of a task, tasks of a draw, queries of a class, channels of the network, and the turns of a class."""
LEARNED = 7
"""The first so many digits are learned from, the others judge."""
JUDGED = Shape(WAYS, 1, 15, 50)
"""The draw of tasks that judges."""
FIT_STEPS, FIT_LR = 20, 0.3
"""Of gradient descent from zero on each head that judges."""
SHOTS = {"few-shot, 1 image": 1, "few-shot, 5 images": 5}
SECONDS = 6.0
"""CPU seconds for one of these."""


def jobs() -> list[Job]:
    """With one and with five images of a class."""
    return [Job(name, "few-shot", SECONDS, partial(_posed, shots)) for name, shots in SHOTS.items()]


def classes(first: int, last: int) -> ClassImages:
    """The images of the digits from ``first`` to before ``last``.

    Example:
        >>> from bvfim.reproduce.bench.jobs.fewshot import classes
        >>> classes(7, 10).names
        ('7', '8', '9')
    """
    rows = data.load("digits").train
    order = [np.flatnonzero(rows.labels == digit) for digit in range(first, last)]
    pixels = np.rint(255 * rows.inputs[np.concatenate(order)]).astype(np.uint8).reshape(-1, 1, *rows.shape)
    return ClassImages(pixels, np.array([len(own) for own in order]), tuple(map(str, range(first, last))))


def _posed(shots: int, seed: int) -> Posed:
    x = network(1, WIDTH, seed)
    shape = Shape(WAYS, shots, QUERIES, TASKS)
    stream = Episodes(classes(0, LEARNED), shape, symmetries=TURNS, seed=seed)
    asked = Shape(WAYS, shots, JUDGED.queries, JUDGED.tasks)
    tasks = next(Episodes(classes(LEARNED, 10), asked, seed=seed))

    def judge(x: Any) -> float:
        at = ON_FEATURES.counted_anew().at(x, embedded(x, tasks))
        start = heads(x, asked.tasks, WAYS)
        y = descend(at, lambda at, y: at.lower_grad(y)[1], start, FIT_STEPS, GradientDescent(FIT_LR))
        return float(at.upper(y)) / asked.tasks

    return Posed(problem(), x, heads(x, TASKS, WAYS), judge, stream)
