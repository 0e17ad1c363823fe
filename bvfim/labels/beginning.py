"""Where expectation maximisation begins: the noise matrix that the trusted rows alone speak for.

Begun at symmetric noise, EM takes the class that most rows of a label belong to for the one that the label names. Where
more than half of a class are given another label, that is wrong, and no round of EM leads away from it: with the
classes renamed, the given labels are as likely as before. The trusted rows tell the names. A regression on them alone
gives p for the noisy rows, and with p held fixed the likelihood is concave in T, so that EM finds its maximum.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import log_softmax, softmax

from bvfim.labels import noise_matrix
from bvfim.labels.arrays import Array, Labels
from bvfim.labels.ridge import Features, Ridge

ROUNDS = 100
"""Of EM with p held fixed: a round is quick, and where p is vague it takes many."""


def from_trusted(
    kernels: Sequence[Features],
    inputs: Array,
    given: Labels,
    trusted: Labels,
    start: Array,
    penalties: Sequence[float],
    scales: Sequence[float],
) -> Array:
    """The noise matrix under the class probabilities of a regression on the trusted rows alone.

    Args:
        kernels: of the regressions that are tried.
        inputs: of the noisy rows, then of the trusted ones.
        given: the labels of the noisy rows; trusted: of the others.
        start: the matrix that EM starts from.
        penalties: of the regressions; scales: of the scores inside the softmax. These and the kernel are chosen by the
            likelihood of the trusted labels, each row left out.

    Example:
        >>> import numpy as np
        >>> from bvfim.labels.beginning import from_trusted
        >>> from bvfim.labels.noise_matrix import flat
        >>> from bvfim.labels.ridge import Features
        >>> truth, trusted = np.arange(300) % 3, np.arange(30) % 3
        >>> given = np.where(np.arange(300) % 10 < 6, (truth + 1) % 3, truth)  # six of ten go to the next class
        >>> rows = np.eye(3)[np.concatenate([truth, trusted])]
        >>> kernels = [Features.of(np.eye(3), 1.0)]
        >>> from_trusted(kernels, rows, given, trusted, flat(3, 0.3), [0.1], [10.0]).argmax(1).tolist()
        [1, 2, 0]
    """
    n, own, targets = len(given), np.arange(len(trusted)), np.eye(len(start))[trusted]
    most, best = -np.inf, (kernels[0], np.empty(0), 1.0)
    for kernel in kernels:
        phi = kernel(inputs[n:])
        ridge = Ridge(phi, np.ones(len(phi)), phi.T @ phi, np.array(penalties))
        for j in range(len(penalties)):
            scores = ridge.scores(targets, j)
            for scale in scales:
                likelihood = float(log_softmax(scale * scores, 1)[own, trusted].sum())
                if likelihood > most:
                    most, best = likelihood, (kernel, ridge.coefficients(targets, j), scale)
    kernel, coefficients, scale = best
    return noise_matrix.estimate(softmax(scale * (kernel(inputs[:n]) @ coefficients), 1), start, given, ROUNDS)


def others(
    kernels: Sequence[Features],
    inputs: Array,
    given: Labels,
    trusted: Labels,
    start: Array,
    penalties: Sequence[float],
    scales: Sequence[float],
) -> list[Array]:
    """What to begin from beside start: the matrix of the trusted rows where a class mostly has the label of another.

    Elsewhere EM finds the way from symmetric noise. The arguments are those of :func:`from_trusted`.

    Example:
        >>> import numpy as np
        >>> from bvfim.labels.beginning import others
        >>> from bvfim.labels.noise_matrix import flat
        >>> from bvfim.labels.ridge import Features
        >>> truth, trusted = np.arange(300) % 3, np.arange(30) % 3
        >>> rows, kernels = np.eye(3)[np.concatenate([truth, trusted])], [Features.of(np.eye(3), 1.0)]
        >>> for six in (4, 6):
        ...     given = np.where(np.arange(300) % 10 < six, (truth + 1) % 3, truth)
        ...     len(others(kernels, rows, given, trusted, flat(3, 0.3), [0.1], [10.0]))
        0
        1
    """
    found = from_trusted(kernels, inputs, given, trusted, start, penalties, scales)
    return [found] if names_another(found) else []


def names_another(T: Array) -> bool:
    """Whether a class is most often given the label of another.

    Example:
        >>> from bvfim.labels.beginning import names_another
        >>> from bvfim.labels.noise_matrix import flat
        >>> names_another(flat(3, 0.5)), names_another(flat(2, 0.6))
        (False, True)
    """
    return bool((T.argmax(1) != np.arange(len(T))).any())
