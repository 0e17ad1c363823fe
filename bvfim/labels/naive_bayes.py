r"""Naive Bayes on the terms of texts, trained on labels of which some are wrong.

For non-negative term weights x_w of a row (counts, or TF-IDF) the scores of the classes are
:math:`\log \pi_k + \sum_w x_w \log \theta_{kw}` with :math:`\theta_{kw} \propto \alpha + \sum_i y_{ik} x_{iw}`, where
y are the weights with which a row belongs to each class. With few rows and many terms it ranks texts better than what
is trained to discriminate (Ng and Jordan, On discriminative vs. generative classifiers, 2001). Its rounds of
self-training are expectation maximisation (Nigam et al., Text classification from labeled and unlabeled documents using
EM, 2000), which here knows of the noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bvfim.labels.arrays import Array


@dataclass(frozen=True)
class NaiveBayes:
    """The scores of new rows, from their terms.

    Attributes:
        terms: log θ, a row a term; classes: log π.

    Example:
        >>> import numpy as np
        >>> from bvfim.labels.naive_bayes import NaiveBayes
        >>> words = np.array([[1.0, 0.0], [0.0, 1.0]])
        >>> NaiveBayes.of(words, np.eye(2), 1.0)(words).argmax(1).tolist()
        [0, 1]
    """

    terms: Array
    classes: Array

    @classmethod
    def of(cls, words: Any, targets: Array, smoothing: float) -> NaiveBayes:
        """Trained on rows that belong to each class with these weights; what is below zero counts as zero."""
        targets = np.maximum(targets, 0.0)
        counts = smoothing + words.T @ targets
        shares = targets.sum(0) + 1.0
        return cls(np.log(counts / counts.sum(0)), np.log(shares / shares.sum()))

    def __call__(self, words: Any) -> Array:
        """The scores of rows."""
        found: Array = words @ self.terms + self.classes
        return found
