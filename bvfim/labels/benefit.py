"""Whether cleaning helps: the mixed model beside one that takes the labels as they are, on rows that can be trusted.

Both are judged on the trusted rows, out of sample.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bvfim.labels.mixture import Config, Kernel, Mixture, TrainingRows
from bvfim.labels.ridge import Ridge


@dataclass(frozen=True)
class Benefit:
    """Accuracies on the trusted rows.

    Attributes:
        cleaned: accuracy with cleaning.
        plain: accuracy of a model trained on the labels as given.
        error: standard error of the difference if the true difference is zero.
        rows: number of trusted rows.

    Example:
        >>> from bvfim.labels.benefit import Benefit
        >>> verdict = Benefit(cleaned=0.9, plain=0.8, error=0.02, rows=200)
        >>> verdict.recommended
        True
        >>> print(verdict)
        Cleaning helps: 90.0 % of the 200 trusted rows are classified correctly, against 80.0 % with the given labels.
    """

    cleaned: float
    plain: float
    error: float
    rows: int

    @property
    def gain(self) -> float:
        """How much cleaning adds to the accuracy."""
        return self.cleaned - self.plain

    @property
    def recommended(self) -> bool:
        """Whether cleaning does no visible harm: harm is a loss of more than two standard errors."""
        return self.rows > 0 and not self._seen(-self.gain)

    def _seen(self, gain: float) -> bool:
        return gain > 2 * self.error + 1e-9  # a tie is none, however it is rounded

    def __str__(self) -> str:
        if not self.rows:
            return "Without trusted rows there is no way to tell whether cleaning helps."
        against = f"against {self.plain:.1%} with the given labels"
        if self._seen(abs(self.gain)):
            what = "helps" if self.gain > 0 else "does harm"
            rows = f"{self.cleaned:.1%} of the {self.rows} trusted rows are classified correctly"
            return f"Cleaning {what}: {rows}, {against}.".replace("%", " %")
        few = f"The {self.rows} trusted rows are too few, or too easy, to show whether cleaning helps"
        return f"{few}: {self.cleaned:.1%} of them are classified correctly, {against}.".replace("%", " %")


def benefit(rows: TrainingRows, found: Mixture, config: Config) -> Benefit:
    """Compare a mixture with the labels as they are.

    The regression has a kernel and a penalty of the mixture's choice of kernels, those that agree best with all labels.
    """
    n, trusted = len(rows.given), rows.trusted
    if not len(trusted):
        return Benefit(np.nan, np.nan, np.nan, 0)
    labels = np.concatenate([rows.given, trusted])
    kernels = {
        member.model.features.gamma: member.model for member in found.members if isinstance(member.model, Kernel)
    }
    guesses = [guess for model in kernels.values() for guess in _as_given(rows, labels, model, config)]
    plain = max(guesses, key=lambda guess: int((guess == labels).sum()))[n:] == trusted
    cleaned = found.p[n:].argmax(1) == trusted
    difference = cleaned.astype(float) - plain
    error = float(np.sqrt((difference**2).sum()) / len(trusted))
    return Benefit(float(cleaned.mean()), float(plain.mean()), error, len(trusted))


def _as_given(rows: TrainingRows, labels: np.ndarray, model: Kernel, config: Config) -> list[np.ndarray]:
    """What regressions on the given labels, each without the row itself, make of the rows; one for each penalty."""
    phi = model.features(rows.inputs)
    weights = np.concatenate([np.ones(len(rows.given)), np.full(len(rows.trusted), config.trust)])
    ridge = Ridge(phi, weights, (phi * weights[:, None]).T @ phi, np.array(config.penalties))
    targets = np.eye(rows.classes)[labels]
    return [ridge.scores(targets, j).argmax(1) for j in range(len(config.penalties))]
