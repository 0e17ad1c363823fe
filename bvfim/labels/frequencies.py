"""The model that knows of a label only how frequent it is: all there is where the rows tell nothing of the labels.

Fitted to rows that tell nothing, a mixture finds as good a reason to call most labels wrong as to call all of them
right, with trusted rows or without. Of the two this model has the second: the least noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bvfim.labels import noise_matrix
from bvfim.labels.arrays import Array, Labels
from bvfim.labels.mixture import Member, Mixture, TrainingRows

CHANCE, CHANCE_TRUSTED = 2.0, 3.0
"""Standard errors beyond which rows tell of the given and of the trusted labels. The models are chosen by all labels,
and the trusted ones are few: on columns of noise, 45 fits came to at most 1.5 and 2.7."""


@dataclass(frozen=True)
class Constant:
    """The same scores for every row."""

    scores: Array

    def __call__(self, inputs: Array) -> Array:
        """The scores of new rows."""
        return np.tile(self.scores, (len(inputs), 1))


def informative(rows: TrainingRows, found: Mixture) -> bool:
    """Whether rows tell more of the labels than how frequent these are: of the given ones, or of the trusted ones.

    Two things must show beyond chance: the mixture makes the labels more likely than their
    frequencies do, and the class of a label is more probable in its own row than in any row. The first alone also holds
    of a mixture that swaps classes. Given labels that are all noise say nothing, where the trusted ones may.

    Example:
        >>> import numpy as np
        >>> from bvfim.labels.frequencies import informative
        >>> from bvfim.labels.mixture import Config, TrainingRows, fit
        >>> rng = np.random.default_rng(0)
        >>> given = rng.integers(0, 2, 100)
        >>> noise, config = rng.normal(size=(100, 2)), Config(bilevel=None)
        >>> for inputs in (noise, noise + 4 * given[:, None]):
        ...     rows = TrainingRows(inputs, given, given[:0], 2)
        ...     informative(rows, fit(rows, 0, config))
        False
        True
    """
    n = len(rows.given)
    exact = np.eye(rows.classes)
    return _told(found.p[:n], found.T, rows.given, CHANCE) or _told(found.p[n:], exact, rows.trusted, CHANCE_TRUSTED)


def _told(p: Array, T: Array, labels: Labels, errors: float) -> bool:
    """Whether class probabilities p, with noise T, tell of these labels, beyond so many standard errors."""
    if not len(labels):
        return False
    own, shares = (np.arange(len(labels)), labels), np.bincount(labels, minlength=len(T)) / len(labels)
    likelier = np.log(np.maximum((p @ T)[own], noise_matrix.TINY)) - np.log(shares[labels])
    return _positive(likelier, errors) and _positive(p[own] - p.mean(0)[labels], errors)


def frequencies(rows: TrainingRows) -> Mixture:
    """The model of rows that tell nothing: every label may be right."""
    n = len(rows.given)
    shares = np.bincount(rows.given, minlength=rows.classes) / n
    p = np.tile(shares, (len(rows.inputs), 1))
    T = noise_matrix.shrunk(np.diag(shares * n))
    q, likelihood = noise_matrix.posterior(p[:n], T, rows.given)
    member = Member(Constant(np.log(shares)), np.empty((0, rows.classes)), 1.0, T, likelihood)
    return Mixture((member,), np.ones(1), T, p, q, likelihood)


def _positive(gain: Array, errors: float) -> bool:
    return bool(gain.mean() > errors * gain.std() / np.sqrt(len(gain)) + 1e-9)
