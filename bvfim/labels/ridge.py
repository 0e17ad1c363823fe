"""Kernel ridge regression with leave-one-out and out-of-fold scores in closed form.

Rows become features φ whose inner products are about exp(-γ |a - b|²) (Williams and Seeger, Using the Nyström method to
speed up kernel machines, 2001). For targets Y the scores are φ A⁻¹ Φᵀ V Y with A = Φᵀ V Φ + λ I; the score of a
training row without itself is (f - h y) / (1 - h) with h = v φ A⁻¹ φᵀ. One eigendecomposition of Φᵀ V Φ serves every λ
and every Y, so that targets that change from round to round cost two thin products.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from bvfim.labels.arrays import Array

FLAT = 1e-6
"""Directions of the kernel matrix of the landmarks that are smaller than this share of its largest are left out."""


@dataclass(frozen=True)
class Features:
    """The map from rows to φ, with a constant as the last feature.

    Attributes:
        landmarks: the rows that the kernel is expanded in.
        gamma: γ.
        whiten: from the kernel values at the landmarks to the features.
    """

    landmarks: Array
    gamma: float
    whiten: Array

    @classmethod
    def of(cls, landmarks: Array, gamma: float) -> Features:
        """The features of a kernel at some landmarks.

        Example:
            >>> import numpy as np
            >>> from bvfim.labels.ridge import Features
            >>> rows = np.array([[0.0], [1.0]])
            >>> phi = Features.of(rows, 1.0)(rows)[:, :-1]
            >>> (phi @ phi.T).round(3).tolist()
            [[1.0, 0.368], [0.368, 1.0]]
        """
        sizes, directions = np.linalg.eigh(np.exp(-gamma * cdist(landmarks, landmarks, "sqeuclidean")))
        kept = sizes > FLAT * sizes[-1]
        return cls(landmarks, gamma, directions[:, kept] / np.sqrt(sizes[kept]))

    def __call__(self, rows: Array) -> Array:
        """φ of each row."""
        kernel = np.exp(-self.gamma * cdist(rows, self.landmarks, "sqeuclidean"))
        return np.column_stack([kernel @ self.whiten, np.ones(len(rows))])


class Ridge:
    """Ridge regression on the rows that have a weight, for several λ.

    Args:
        phi: the features of all rows.
        weights: v of each row; 0 leaves it out of the training.
        gram: Φᵀ V Φ.
        penalties: the λ.
    """

    def __init__(self, phi: Array, weights: Array, gram: Array, penalties: Array) -> None:
        self.phi, self.weights, self.penalties = phi, weights, penalties
        sizes, self.directions = np.linalg.eigh(gram)
        self.sizes = np.maximum(sizes, 0.0)
        shrunk = 1.0 / (self.sizes[:, None] + penalties)
        self.leverage = np.minimum(weights[:, None] * ((phi @ self.directions) ** 2 @ shrunk), 1.0 - 1e-6)

    def coefficients(self, targets: Array, penalty: int) -> Array:
        """A⁻¹ Φᵀ V Y, at one of the λ."""
        inner = self.directions.T @ (self.phi.T @ (self.weights[:, None] * targets))
        return self.directions @ (inner / (self.sizes + self.penalties[penalty])[:, None])

    def scores(self, targets: Array, penalty: int) -> Array:
        """The scores of all rows, of those in training as if they had been left out."""
        own = self.leverage[:, penalty, None]
        return (self.phi @ self.coefficients(targets, penalty) - own * targets) / (1.0 - own)


def folded(phi: Array, weights: Array, fold: NDArray[np.int64], penalties: Array) -> tuple[Ridge, list[Ridge]]:
    """Ridge regression on all rows, and without each fold."""
    own = [fold == k for k in range(int(fold.max()) + 1)]
    grams = [(phi[rows] * weights[rows, None]).T @ phi[rows] for rows in own]
    total = np.sum(grams, axis=0)
    without = [
        Ridge(phi, np.where(rows, 0.0, weights), total - gram, penalties) for rows, gram in zip(own, grams, strict=True)
    ]
    return Ridge(phi, weights, total, penalties), without
