"""The columns of the benchmark of label cleaning: data, noise, and how many rows are trusted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bvfim import data
from bvfim.data.embedded import embedded
from bvfim.labels.arrays import Array, Labels, Mask
from bvfim.status import DataError, require_known

TEST, DIRECTIONS, LEARNED = 3000, 50, 10_000
"""Test rows at most, and of MNIST's images the main directions and how many of the images they are learned from."""
SYNTHETIC: dict[str, Callable[..., tuple[Labels, Mask]]] = {
    "symmetric 0.2": partial(data.symmetric, rate=0.2),
    "symmetric 0.4": partial(data.symmetric, rate=0.4),
    "symmetric 0.5": partial(data.symmetric, rate=0.5),
    "pair flip 0.3": partial(data.pair_flip, rate=0.3),
}
HUMAN = ("worse", "aggregate")


@dataclass(frozen=True)
class Source:
    """Where rows come from.

    Attributes:
        images: the name of the data set.
        noises: the kinds of wrong labels it is measured with.
        noisy, trusted: how many rows of a kind there are at most.
    """

    images: str
    noises: tuple[str, ...]
    noisy: int = 2000
    trusted: int = 5000


SOURCES = {
    # 1797 rows in all: 1000 noisy and 500 trusted ones leave 297 to test by
    "digits": Source("digits", tuple(SYNTHETIC), 1000, 500),
    "mnist": Source("mnist", tuple(SYNTHETIC)),
    "fashion-mnist": Source("fashion-mnist", tuple(SYNTHETIC)),
    "cifar10n": Source("cifar10", HUMAN),
}


@dataclass(frozen=True)
class Column:
    """One column.

    Args:
        data: a name of :data:`SOURCES`.
        noise: a name of :data:`SYNTHETIC` or :data:`HUMAN`.
        trusted: how many rows have labels that can be trusted.

    Example:
        >>> from bvfim.reproduce.bench.label_columns import Column
        >>> column = Column("cifar10n", "worse", 200)
        >>> str(column), column.group
        ('cifar10n, worse, 200 trusted', 'human')
    """

    data: str
    noise: str
    trusted: int

    @property
    def group(self) -> str:
        """Whether the wrong labels were made on purpose or by people."""
        return "human" if self.noise in HUMAN else "synthetic"

    def __str__(self) -> str:
        return f"{self.data}, {self.noise}, {self.trusted} trusted"


def columns(names: tuple[str, ...], noises: tuple[str, ...], trusted: tuple[int, ...]) -> list[Column]:
    """Every data set with each of its noises and sizes of the trusted set.

    Args:
        names: of the data sets.
        noises: those that are wanted; all where there are none.
        trusted: the sizes; a data set is left out of those that are too large for it.

    Example:
        >>> from bvfim.reproduce.bench.label_columns import columns
        >>> [str(column) for column in columns(("digits",), ("pair flip 0.3",), (50, 5000))]
        ['digits, pair flip 0.3, 50 trusted']
    """
    require_known("data set of the benchmark", names, SOURCES)
    require_known("noise of the benchmark", noises, (*SYNTHETIC, *HUMAN))
    found = [
        Column(name, noise, size)
        for name in dict.fromkeys(names)
        for noise in SOURCES[name].noises
        for size in dict.fromkeys(trusted)
        if (noise in noises or not noises) and size <= SOURCES[name].trusted
    ]
    if not found:
        raise DataError("no columns left: these data sets lack this kind of noise or have too few rows")
    return found


@dataclass(frozen=True, eq=False)
class Pool:
    """The rows of a data set as all contestants see them.

    Attributes:
        inputs: of all rows; labels: the true ones.
        train: how many of the rows, from the first on, may be learned from. The others are test rows; where there are
            none, the test rows are those that were not drawn.
        classes: how many there are.
        note: in what the data set's files differ from the published ones.
    """

    inputs: Array
    labels: Labels
    train: int
    classes: int
    note: str = ""


@cache
def pool(name: str) -> Pool:
    """The rows of a data set: pixels of the digits, main directions of MNIST's, an embedding of CIFAR's.

    Example:
        >>> from bvfim.reproduce.bench.label_columns import pool
        >>> pool("digits").inputs.shape, pool("digits").train
        ((1797, 64), 1797)
    """
    images = data.load(name)
    both: tuple[NDArray[Any], NDArray[Any]] = (images.train.inputs, images.test.inputs)
    if name == "cifar10":
        both = embedded(images)
    elif name != "digits":
        both = projected(*both)
    labels = np.concatenate([images.train.labels, images.test.labels])
    train = len(labels) if name == "digits" else len(images.train)
    return Pool(np.concatenate(both).astype(np.float64), labels, train, len(images.classes), images.note)


def projected(train: NDArray[np.float32], test: NDArray[np.float32]) -> tuple[Array, Array]:
    """Rows along the main directions of the first of them.

    Example:
        >>> import numpy as np
        >>> from bvfim.reproduce.bench.label_columns import projected
        >>> rows = np.random.default_rng(0).random((100, 60), np.float32)
        >>> projected(rows, rows[:3])[1].shape
        (3, 50)
    """
    learned = train[:LEARNED].astype(np.float64)
    centre = learned.mean(0)
    directions = np.linalg.eigh(np.cov(learned.T))[1][:, : -DIRECTIONS - 1 : -1]
    return (train - centre) @ directions, (test - centre) @ directions


@dataclass(frozen=True, eq=False)
class Task:
    """What a contestant is given, and what judges it.

    Attributes:
        inputs: the noisy rows, then the trusted ones.
        given: the labels of the former; trusted: of the latter.
        truth: the true labels of the noisy rows.
        test_inputs, test: rows that no contestant sees, and their labels.
        classes: how many there are.
    """

    inputs: Array
    given: Labels
    trusted: Labels
    truth: Labels
    test_inputs: Array
    test: Labels
    classes: int

    @property
    def wrong(self) -> Mask:
        """Which of the given labels are."""
        found: Mask = self.given != self.truth
        return found


def task(column: Column, noisy: int, seed: int) -> Task:
    """The rows of a column, drawn by a seed; each class has as many noisy and trusted rows as another.

    The noisy rows of a seed are the same for every number of trusted ones, and a larger trusted set holds the smaller.

    Example:
        >>> from bvfim.reproduce.bench.label_columns import Column, task
        >>> drawn = task(Column("digits", "symmetric 0.4", 50), 1000, 0)
        >>> drawn.inputs.shape, len(drawn.test), float(drawn.wrong.mean())
        ((1050, 64), 747, 0.4)
    """
    source = SOURCES[column.data]
    rows = pool(source.images)
    sizes = [min(noisy, source.noisy), column.trusted]
    chosen, sure = data.balanced_split(rows.labels[: rows.train], sizes, rows.classes, seed)
    left = np.setdiff1d(np.arange(len(rows.labels)), [*chosen, *sure])
    apart = left[left >= rows.train]
    test = np.random.default_rng(seed).permutation(apart if len(apart) else left)[:TEST]
    truth = rows.labels[chosen]
    if column.noise in HUMAN:
        given = data.human(column.noise)[chosen]
    else:
        given, _ = SYNTHETIC[column.noise](truth, classes=rows.classes, seed=seed)
    inputs = rows.inputs[np.concatenate([chosen, sure])]
    return Task(inputs, given, rows.labels[sure], truth, rows.inputs[test], rows.labels[test], rows.classes)
