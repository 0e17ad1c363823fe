"""The noise matrix: T[k, j] is the probability that a row of class k was given the label j.

With class probabilities p of a row, a given label j has probability Σ_k p_k T[k, j], and the true class is k with the
posterior probability q_k = p_k T[k, j] / Σ_l p_l T[l, j]. The matrix that makes the given labels most likely is found
by expectation maximisation (Dawid and Skene, Maximum likelihood estimation of observer error-rates, 1979).

Left to itself the matrix also takes up what classes are confused with, which is not noise: a shirt that looks like a
coat. So its rows have a Dirichlet prior around the matrix of symmetric noise at the same rate, as strong as makes the
counts most probable: for symmetric noise it leaves one number to be found, for pair flips it stands aside.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.special import gammaln

from bvfim.labels.arrays import Array, Labels

TINY = 1e-300
PRIOR = 2.0
"""How many rows of each class are counted in any case: half of them rightly labelled, half anyhow."""
STRENGTHS = np.array([0.0, 10.0, 30.0, 100.0, 300.0, 1000.0])
"""For how many rows of each class the prior around symmetric noise may count."""
MANY = 100
"""Classes from which on the matrix has too many entries to be found, and that prior counts for as many rows."""


def flat(classes: int, rate: float) -> Array:
    """The matrix of symmetric noise.

    Example:
        >>> from bvfim.labels.noise_matrix import flat
        >>> flat(3, 0.4).round(3).tolist()
        [[0.6, 0.2, 0.2], [0.2, 0.6, 0.2], [0.2, 0.2, 0.6]]
    """
    other = rate / max(classes - 1, 1)
    return np.full((classes, classes), other) + (1.0 - rate - other) * np.eye(classes)


def posterior(p: Array, T: Array, given: Labels) -> tuple[Array, float]:
    """The probabilities q of the true classes, and the logarithm of the probability of the given labels.

    Example:
        >>> import numpy as np
        >>> from bvfim.labels.noise_matrix import flat, posterior
        >>> q, _ = posterior(np.array([[0.5, 0.5]]), flat(2, 0.2), np.array([1]))
        >>> q.round(3).tolist()
        [[0.2, 0.8]]
    """
    both = p * T.T[given]
    total = np.maximum(both.sum(1), TINY)
    return both / total[:, None], float(np.log(total).sum())


def estimate(p: Array, T: Array, given: Labels, rounds: int) -> Array:
    """The matrix after some rounds of expectation maximisation from T."""
    classes = len(T)
    labelled = sparse.csr_matrix((np.ones(len(given)), (given, np.arange(len(given)))), (classes, len(given)))
    for _ in range(rounds):
        T = shrunk((labelled @ posterior(p, T, given)[0]).T)
    return T


def shrunk(counts: Array) -> Array:
    """The matrix that counts of (class, label) speak for, under the prior of the most probable strength.

    With a the prior's own counts and c the others, the probability of c is, for each class, the Dirichlet-multinomial
    Γ(Σa) / Γ(Σ(a + c)) · Π Γ(a + c) / Γ(a).

    Example:
        >>> import numpy as np
        >>> from bvfim.labels.noise_matrix import shrunk
        >>> shrunk(np.array([[80.0, 9, 11], [12, 80, 8], [10, 10, 80]]))[0].round(2).tolist()
        [0.8, 0.1, 0.1]
        >>> shrunk(np.array([[70.0, 30, 0], [0, 70, 30], [30, 0, 70]]))[0].round(2).tolist()
        [0.7, 0.3, 0.0]
    """
    classes = len(counts)
    rate = 1.0 - (np.trace(counts) + 1.0) / (counts.sum() + 2.0)
    strengths = STRENGTHS if classes <= MANY else np.array([float(MANY)])
    priors = PRIOR * (0.5 * np.eye(classes) + 0.5 / classes) + strengths[:, None, None] * flat(classes, rate)
    chosen = 0
    if len(priors) > 1:
        totals = gammaln(priors.sum(2)) - gammaln(priors.sum(2) + counts.sum(1))
        chosen = int((totals.sum(1) + (gammaln(priors + counts) - gammaln(priors)).sum((1, 2))).argmax())
    both = counts + priors[chosen]
    found: Array = both / both.sum(1, keepdims=True)
    return found


def unbiased(given: Labels, T: Array) -> Array:
    """Targets whose mean is the one-hot true class where the labels come from T: rows of its inverse.

    Example:
        >>> import numpy as np
        >>> from bvfim.labels.noise_matrix import flat, unbiased
        >>> T = flat(3, 0.4)
        >>> np.allclose(T @ unbiased(np.arange(3), T), np.eye(3))
        True
    """
    inverse: Array = np.linalg.inv(T).astype(np.float64)
    return inverse[given]
