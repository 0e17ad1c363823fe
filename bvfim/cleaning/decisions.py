"""What to do about labels that may be wrong: which to look at, and which to leave out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


def review(p_wrong: Array) -> Mask:
    """The rows to look at: those with the highest probabilities, as many as make the expected F1 score highest.

    With k rows flagged, whose probabilities sum to c, and s the sum over all rows, it is about 2 c / (k + s) (Lipton,
    Elkan and Naryanaswamy, Optimal thresholding of classifiers to maximize F1 measure, 2014).

    Example:
        >>> import numpy as np
        >>> from bvfim.cleaning.decisions import review
        >>> review(np.array([0.9, 0.1, 0.5, 0.2])).tolist()
        [True, False, True, False]
    """
    order = np.argsort(-p_wrong, kind="stable")
    caught = np.cumsum(p_wrong[order])
    expected = 2.0 * caught / (np.arange(1, len(p_wrong) + 1) + p_wrong.sum())
    flagged = np.zeros(len(p_wrong), dtype=bool)
    if len(p_wrong) and p_wrong.max() > 0.0:
        flagged[order[: int(np.argmax(expected)) + 1]] = True
    return flagged


def drop(p_wrong: Array, surely: float = 0.9) -> Mask:
    """The rows that can be left out without a look: those that are wrong so surely.

    Example:
        >>> import numpy as np
        >>> from bvfim.cleaning.decisions import drop
        >>> drop(np.array([0.95, 0.6])).tolist()
        [True, False]
    """
    return p_wrong >= surely
