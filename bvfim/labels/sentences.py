"""Columns of sentences as numbers: the pieces of their words, weighted by TF-IDF."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer

from bvfim.core.extras import MissingExtraError
from bvfim.labels.arrays import Array
from bvfim.status import DataError

DIFFERENT, SHARE = 200, 4
"""A column of words repeats them: it has at most so many different values, or a fourth as many as it has rows."""
LONG, MOSTLY = 3, 0.5
"""A column of sentences has so many words in most of its rows; names and keys have fewer."""
LENGTHS = (2, 5)
"""Of the pieces of words, in letters. Where rows are few they tell more than whole words do, of endings, stems and the
signs around words, and they need no language."""
RARE, FEW = 3, 200
"""A piece that occurs in fewer rows says nothing; where there are few rows, each one counts."""
MOST = 50_000
"""Pieces that are kept, the most frequent ones."""
Embed = Callable[[list[str]], Any]
"""A model that embeds sentences: a row of numbers for each of them."""


def repeats(different: int, rows: int) -> bool:
    """Whether so many different values in so many rows are words that come again, each of which may tell something."""
    return different <= min(DIFFERENT, max(2, rows // SHARE))


def are_sentences(different: int, rows: int, long: int) -> bool:
    """Whether a column with so many different values, and so many long ones, is one of sentences.

    Example:
        >>> from bvfim.labels.sentences import are_sentences, is_long
        >>> is_long("the cat purrs"), is_long("Tom")
        (True, False)
        >>> are_sentences(different=900, rows=1000, long=800), are_sentences(different=900, rows=1000, long=20)
        (True, False)
    """
    return not repeats(different, rows) and long > MOSTLY * rows


def is_long(text: str) -> bool:
    """Whether a text has as many words as a sentence."""
    return len(text.split(maxsplit=LONG)) >= LONG


class Terms:
    """What turns sentences into rows of numbers, learned from some of them.

    Args:
        texts: the sentences.

    Example:
        >>> from bvfim.labels.sentences import Terms
        >>> seen = Terms(["a cat purrs", "the dog barks", "cats purr"])
        >>> rows = seen(["one cat purrs", "the dogs bark"])
        >>> rows.shape[0], bool(rows.min() >= 0)
        (2, True)
    """

    def __init__(self, texts: list[str]) -> None:
        rare = RARE if len(texts) >= FEW else 1
        self._terms = TfidfVectorizer(
            analyzer="char_wb", ngram_range=LENGTHS, min_df=rare, max_features=MOST, sublinear_tf=True
        )
        try:
            self._terms.fit(texts)
        except ValueError as error:  # not a word in it
            raise DataError("a column of sentences has no word that occurs more than once or twice") from error

    def __call__(self, texts: list[str]) -> sparse.csr_matrix:
        """A row for each sentence."""
        return self._terms.transform(texts).tocsr()


def embedded(embed: Embed, texts: list[str]) -> Array:
    """The rows of numbers that a model gives for sentences, with an error for anything else.

    Example:
        >>> from bvfim.labels.sentences import embedded
        >>> embedded(lambda texts: [[len(text)] for text in texts], ["a cat purrs"]).tolist()
        [[11.0]]
    """
    found = np.asarray(embed(texts), np.float64)
    if found.ndim != 2 or len(found) != len(texts) or not np.isfinite(found).all():
        raise DataError(f"a model of sentences must give a row of finite numbers for each, not shape {found.shape}")
    return found


def model_of(name: str) -> Embed:
    """The model of this name or in this folder, as the package sentence-transformers runs it.

    Raises:
        MissingExtraError: where the package is not installed.
        DataError: where there is no such model.
    """
    try:
        package: Any = import_module("sentence_transformers")
    except ImportError as error:
        raise MissingExtraError(
            "a model of sentences needs a package that is not installed: pip install sentence-transformers"
        ) from error
    try:
        embed: Embed = package.SentenceTransformer(name).encode
    except (OSError, ValueError, RuntimeError) as error:
        raise DataError(f"no model of sentences in {name!r}: {str(error).splitlines()[0]}") from error
    return embed
