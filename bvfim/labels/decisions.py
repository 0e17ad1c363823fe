"""What to do about labels that may be wrong: which to review, and which to drop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bvfim.labels.arrays import Array, Mask


def review(p_wrong: Array) -> Mask:
    """The rows to review: those with the highest probabilities, as many as maximise the expected F1 score.

    With k rows flagged, whose probabilities sum to c, and s the sum over all rows, it is about 2 c / (k + s) (Lipton,
    Elkan and Naryanaswamy, Optimal thresholding of classifiers to maximize F1 measure, 2014).

    Example:
        >>> import numpy as np
        >>> from bvfim.labels.decisions import review
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
    """The rows that can be dropped without review: those that are wrong with at least this probability.

    Example:
        >>> import numpy as np
        >>> from bvfim.labels.decisions import drop
        >>> drop(np.array([0.95, 0.6])).tolist()
        [True, False]
    """
    return p_wrong >= surely


@dataclass(frozen=True)
class Allowed:
    """Which decisions the data allow.

    Attributes:
        review: whether rows may be flagged for review; False if the rows say nothing about the labels.
        drop: whether rows may be dropped without review; False if no trusted rows confirm the probabilities.

    Example:
        >>> import numpy as np
        >>> from bvfim.labels.decisions import Allowed
        >>> Allowed(review=True, drop=False).columns(np.array([0.95]))
        {'is_label_issue': array([ True]), 'drop': array([False])}
    """

    review: bool = True
    drop: bool = True

    def columns(self, p_wrong: Array) -> dict[str, Mask]:
        """The columns of decisions."""
        return {"is_label_issue": review(p_wrong) & self.review, "drop": drop(p_wrong) & self.drop}


def table(classes: NDArray[Any], codes: NDArray[np.int64], p: Array, q: Array, allowed: Allowed) -> pd.DataFrame:
    """What is found of rows with class probabilities p, and q where their labels are taken into account."""
    p_wrong = 1.0 - q[np.arange(len(codes)), codes]
    return pd.DataFrame(
        {
            **allowed.columns(p_wrong),
            "label_quality": 1.0 - p_wrong,
            "p_wrong": p_wrong,
            "given_label": classes[codes],
            "predicted_label": classes[p.argmax(1)],
            "suggested_label": classes[q.argmax(1)],
            "suggested_probability": q.max(1),
            "sample_weight": 1.0 - p_wrong,
        }
    )
