"""The noise matrix: T[k, j] is the probability that a row of class k was given the label j.

With class probabilities p of a row, a given label j has probability Σ_k p_k T[k, j], and the true class is k with the
posterior probability q_k = p_k T[k, j] / Σ_l p_l T[l, j]. The matrix that makes the given labels most likely is found
by expectation maximisation (Dawid and Skene, Maximum likelihood estimation of observer error-rates, 1979).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
TINY = 1e-300
PRIOR = 2.0
"""How many rows of each class the prior counts for: half of them rightly labelled, half anyhow."""


def flat(classes: int, rate: float) -> Array:
    """The matrix of symmetric noise.

    Example:
        >>> from bvfim.cleaning.noise_matrix import flat
        >>> flat(3, 0.4).round(3).tolist()
        [[0.6, 0.2, 0.2], [0.2, 0.6, 0.2], [0.2, 0.2, 0.6]]
    """
    other = rate / max(classes - 1, 1)
    return np.full((classes, classes), other) + (1.0 - rate - other) * np.eye(classes)


def posterior(p: Array, T: Array, given: Labels) -> tuple[Array, float]:
    """The probabilities q of the true classes, and the logarithm of the probability of the given labels.

    Example:
        >>> import numpy as np
        >>> from bvfim.cleaning.noise_matrix import flat, posterior
        >>> q, _ = posterior(np.array([[0.5, 0.5]]), flat(2, 0.2), np.array([1]))
        >>> q.round(3).tolist()
        [[0.2, 0.8]]
    """
    both = p * T.T[given]
    total = np.maximum(both.sum(1), TINY)
    return both / total[:, None], float(np.log(total).sum())


def estimate(p: Array, T: Array, given: Labels, rounds: int) -> Array:
    """The matrix after some rounds of expectation maximisation from T, with a prior for right labels."""
    classes = len(T)
    labelled = sparse.csr_matrix((np.ones(len(given)), (given, np.arange(len(given)))), (classes, len(given)))
    prior = PRIOR * (0.5 * np.eye(classes) + 0.5 / classes)
    for _ in range(rounds):
        counts = (labelled @ posterior(p, T, given)[0]).T + prior
        T = counts / counts.sum(1, keepdims=True)
    return T


def unbiased(given: Labels, T: Array) -> Array:
    """Targets whose mean is the one-hot true class where the labels come from T: rows of its inverse.

    Example:
        >>> import numpy as np
        >>> from bvfim.cleaning.noise_matrix import flat, unbiased
        >>> T = flat(3, 0.4)
        >>> np.allclose(T @ unbiased(np.arange(3), T), np.eye(3))
        True
    """
    inverse: Array = np.linalg.inv(T).astype(np.float64)
    return inverse[given]
