"""The model that knows of a label only how frequent it is: all there is where the rows tell nothing of the labels.

Without trusted rows nothing else shows that a mixture is at fault. Fitted to rows that tell nothing, it finds as good a
reason to call most labels wrong as to call all of them right. Of the two this model has the second: the least noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bvfim.labels import noise_matrix
from bvfim.labels.arrays import Array
from bvfim.labels.mixture import Member, Mixture, TrainingRows


@dataclass(frozen=True)
class Constant:
    """The same scores for every row."""

    scores: Array

    def __call__(self, inputs: Array) -> Array:
        """The scores of new rows."""
        return np.tile(self.scores, (len(inputs), 1))


def informative(rows: TrainingRows, found: Mixture) -> bool:
    """Whether rows tell more of the given labels than how frequent these are, beyond two standard errors.

    Two things must show: the mixture makes the labels more likely than their frequencies do, and the class of a label
    is more probable in its own row than in any row. The first alone also holds of a mixture that swaps classes.

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
    p, own = found.p[:n], (np.arange(n), rows.given)
    shares = _shares(rows)[rows.given]
    likelier = np.log(np.maximum((p @ found.T)[own], noise_matrix.TINY)) - np.log(shares)
    return _positive(likelier) and _positive(p[own] - p.mean(0)[rows.given])


def frequencies(rows: TrainingRows) -> Mixture:
    """The model of rows that tell nothing, all of them noisy: every label may be right."""
    shares = _shares(rows)
    p = np.tile(shares, (len(rows.given), 1))
    T = noise_matrix.shrunk(np.diag(shares * len(rows.given)))
    q, likelihood = noise_matrix.posterior(p, T, rows.given)
    member = Member(Constant(np.log(shares)), np.empty((0, rows.classes)), 1.0, T, likelihood)
    return Mixture((member,), np.ones(1), T, p, q, likelihood)


def _shares(rows: TrainingRows) -> Array:
    return np.bincount(rows.given, minlength=rows.classes) / len(rows.given)


def _positive(gain: Array) -> bool:
    return bool(gain.mean() > 2.0 * gain.std() / np.sqrt(len(gain)) + 1e-9)
