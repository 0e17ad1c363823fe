"""Why a label is suspected: what each column of a row, by itself, says for another class, and trusted rows nearby.

The mixture that judges labels weighs all columns together and gives no reasons. These are of a simpler model of the
same rows: with m and s the mean and the spread of a column of numbers in a class, a value v speaks for class k against
class j by log N(v; m_k, s_k) - log N(v; m_j, s_j); a word, and a word of a sentence, by the logarithm of how much more
frequent it is in class k.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.feature_extraction.text import CountVectorizer

from bvfim.labels.arrays import Array, Labels
from bvfim.labels.naive_bayes import NaiveBayes

LEAST = 0.7
"""What makes another class less than twice as probable is not named."""
SMOOTHING = 0.5
"""How often every word is counted in every class beforehand."""
SPREAD = 0.05
"""The least spread of a class, as a share of that of the column: five equal values don't make a sixth impossible."""
BLOCK = 500
"""Rows that are compared with all trusted ones at once."""


@dataclass(frozen=True)
class Reason:
    """What speaks for another class than the given one.

    Attributes:
        column: where it stands.
        strength: the logarithm of how much more probable it makes the other class.
        text: the reason in words.
    """

    column: str
    strength: float
    text: str


Judge = Callable[[int, int, int], list[Reason]]
"""(row, the given class, the other one) -> what a column says."""


class Evidence:
    """What each column says for and against a class, learned from rows with their most probable labels.

    Args:
        frame: the rows.
        codes: their classes; weights: how probable these are.
        classes: their names.
        sentences: the columns of sentences.

    Example:
        >>> import numpy as np, pandas as pd
        >>> from bvfim.labels.evidence import Evidence
        >>> rows = pd.DataFrame({"weight": [4.0, 5.0, 30.0, 31.0], "sound": ["meow", "meow", "woof", "woof"]})
        >>> evidence = Evidence(rows, np.array([0, 0, 1, 1]), np.ones(4), ["cat", "dog"], sentences=())
        >>> for reason in evidence.against(rows[:1], np.array([1]), np.array([0]))[0]:
        ...     print(reason.text)
        4: usual for cat (4.5 ± 0.65), not for dog (30.5 ± 0.65)
        'meow': in 83 % of cat, 17 % of dog
    """

    def __init__(
        self, frame: pd.DataFrame, codes: Labels, weights: Array, classes: list[str], sentences: tuple[str, ...]
    ) -> None:
        self.classes, self.sentences = classes, sentences
        self._targets = np.eye(len(classes))[codes] * weights[:, None]
        self._known = {str(name): self._learned(frame[name], str(name) in sentences) for name in frame.columns}

    def against(self, frame: pd.DataFrame, given: Labels, other: Labels, most: int = 6) -> list[list[Reason]]:
        """For each row the columns and words that speak for the other class, the strongest first."""
        judges = [self._judge(name, frame[name]) for name in self._known]
        found = []
        for row, (own, better) in enumerate(zip(given.tolist(), other.tolist(), strict=True)):
            reasons = [] if own == better else [reason for judge in judges for reason in judge(row, own, better)]
            strong = [reason for reason in reasons if reason.strength > LEAST]
            found.append(sorted(strong, key=lambda reason: -reason.strength)[:most])
        return found

    def _learned(self, cells: pd.Series, sentences: bool) -> Any:
        if sentences:
            words = CountVectorizer(binary=True, min_df=2)  # a word of this row alone says nothing
            try:
                return words, NaiveBayes.of(words.fit_transform(cells), self._targets, SMOOTHING)
            except ValueError:  # no word that comes again
                return None
        totals = self._targets.sum(0)
        if pd.api.types.is_numeric_dtype(cells):
            values = cells.to_numpy(np.float64)
            mean = self._targets.T @ values / np.maximum(totals, 1e-9)
            squares = (self._targets * (values[:, None] - mean) ** 2).sum(0)
            pooled = squares.sum() / totals.sum()  # counts as one more row of each class: some have hardly any
            least = SPREAD * float(values.std()) or 1.0
            return mean, np.maximum(np.sqrt((squares + pooled) / (totals + 1.0)), least)
        names, places = np.unique(cells.to_numpy(str), return_inverse=True)
        counts = SMOOTHING + np.eye(len(names))[places].T @ self._targets
        return dict(zip(names.tolist(), counts / counts.sum(0), strict=True))

    def _judge(self, name: str, cells: pd.Series) -> Judge:
        known = self._known[name]
        if known is None:
            return lambda row, own, better: []
        if name in self.sentences:
            return self._of_sentences(name, known[0], known[1], cells)
        return self._of_words(name, known, cells) if isinstance(known, dict) else self._of_numbers(name, known, cells)

    def _of_numbers(self, name: str, known: tuple[Array, Array], cells: pd.Series) -> Judge:
        values, (mean, spread) = cells.to_numpy(np.float64), known

        def judge(row: int, own: int, better: int) -> list[Reason]:
            off = ((values[row] - mean) / spread) ** 2 / 2 + np.log(spread)
            usual = [f"{self.classes[k]} ({mean[k]:.3g} ± {spread[k]:.2g})" for k in (better, own)]
            return [
                Reason(
                    name, float(off[own] - off[better]), f"{values[row]:.4g}: usual for {usual[0]}, not for {usual[1]}"
                )
            ]

        return judge

    def _of_words(self, name: str, known: dict[str, Array], cells: pd.Series) -> Judge:
        values = cells.to_numpy(str)

        def judge(row: int, own: int, better: int) -> list[Reason]:
            shares = known.get(str(values[row]))
            if shares is None:
                return []
            said = f"{values[row]!s:.40}"
            text = (
                f"{said!r}: in {shares[better]:.0%} of {self.classes[better]}, {shares[own]:.0%} of {self.classes[own]}"
            )
            return [Reason(name, float(np.log(shares[better] / shares[own])), text.replace("%", " %"))]

        return judge

    def _of_sentences(self, name: str, words: CountVectorizer, model: NaiveBayes, cells: pd.Series) -> Judge:
        rows, names = words.transform(cells).tocsr(), words.get_feature_names_out()

        def judge(row: int, own: int, better: int) -> list[Reason]:
            here = rows.indices[rows.indptr[row] : rows.indptr[row + 1]]
            gains = model.terms[here, better] - model.terms[here, own]
            pair = f"in {self.classes[better]} as in {self.classes[own]}"
            return [
                Reason(name, float(gain), f"{str(names[word])!r}: {_times(np.exp(gain))} as frequent {pair}")
                for word, gain in zip(here, gains, strict=True)
            ]

        return judge


def _times(ratio: float) -> str:
    return f"{ratio:.0f} times" if ratio >= 10 else f"{ratio:.1f} times"


def nearest(rows: Array, wanted: Labels, trusted: Array, classes: Labels, most: int = 3) -> list[NDArray[np.int64]]:
    """For each row the nearest trusted rows of the class that it is wanted to be of.

    Example:
        >>> import numpy as np
        >>> from bvfim.labels.evidence import nearest
        >>> trusted, classes = np.array([[0.0], [1.0], [2.0]]), np.array([0, 1, 1])
        >>> [own.tolist() for own in nearest(np.array([[0.1]]), np.array([1]), trusted, classes, most=1)]
        [[1]]
    """
    found: list[NDArray[np.int64]] = [np.array([], np.int64)] * len(rows)
    for k in np.unique(wanted):
        own, there = np.flatnonzero(wanted == k), np.flatnonzero(classes == k)
        for some in np.array_split(own, len(own) // BLOCK + 1):
            order = np.argsort(cdist(rows[some], trusted[there]), axis=1, kind="stable")[:, :most]
            for row, near in zip(some.tolist(), order, strict=True):
                found[row] = there[near]
    return found
