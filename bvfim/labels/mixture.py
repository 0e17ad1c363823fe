"""Class probabilities from labels of which some are wrong and a few are trusted.

The model of the data is p(given label j | row) = Σ_k p_k(row) T[k, j] for the noisy rows and p_y(row) for the trusted
ones, with p = softmax(Σ_m w_m s_m f_m) over scores f_m of models that have not seen the row: kernel ridge regressions,
naive Bayes where the rows hold texts, and the bilevel network of :mod:`bvfim.labels.network`. Everything that is chosen
(the width γ of a kernel, its penalty λ, the smoothing α of naive Bayes, the rounds r of self-training, the scales s,
the weights w, T and where it begins) is chosen by the likelihood of the labels under this model. So nothing has to be
known about the noise beforehand, and every noisy row helps to calibrate the probabilities, not the trusted ones alone.

A round of self-training replaces the targets of the noisy rows by their posterior probabilities. It is done separately
without each fold, and the fold is scored by what was trained without it: no row is judged by a model that its own label
has reached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count as count_from
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.spatial.distance import pdist
from scipy.special import log_softmax, softmax

from bvfim.labels import beginning, network, noise_matrix
from bvfim.labels.arrays import Array, Labels
from bvfim.labels.naive_bayes import NaiveBayes
from bvfim.labels.ridge import Features, Ridge, folded

PUBLISHED = network.Config()


@dataclass(frozen=True)
class Config:
    """What the models are chosen from.

    Args:
        widths: γ, in units of one over the median squared distance of two rows.
        penalties: λ.
        rounds: of self-training, at most.
        smoothings: α of naive Bayes on the terms of texts.
        scales: of the scores inside the softmax.
        trust: what a trusted row weighs in a regression beside a noisy one.
        landmarks: how many rows the kernels are expanded in, at most.
        folds: how many parts of the rows are left out in turn.
        members: how many of the best models are mixed.
        rate: the share of wrong labels that the first round assumes.
        bilevel: the network; None leaves it out.
    """

    widths: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0)
    penalties: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0, 10.0)
    rounds: int = 2
    smoothings: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0)
    scales: tuple[float, ...] = tuple(np.geomspace(0.3, 30.0, 13))
    trust: float = 3.0
    landmarks: int = 600
    folds: int = 5
    members: int = 8
    rate: float = 0.3
    bilevel: network.Config | None = PUBLISHED

    def short(self) -> Config:
        """Enough to compare two ways of scaling the rows."""
        return replace(self, widths=(1.0,), smoothings=(), rounds=0, members=1, bilevel=None)


@dataclass(frozen=True)
class TrainingRows:
    """The training rows: the noisy ones first, then the trusted ones.

    Attributes:
        inputs: of all of them.
        given: the labels of the noisy rows.
        trusted: the labels of the trusted rows.
        classes: how many there are.
        words: the terms of texts in all of them, a sparse matrix of non-negative numbers; None where there are none.
    """

    inputs: Array
    given: Labels
    trusted: Labels
    classes: int
    words: Any = None

    def targets(self, noisy: Array) -> Array:
        """Targets of the noisy rows, and under them the trusted labels."""
        return np.concatenate([noisy, np.eye(self.classes)[self.trusted]])

    def posterior(self, log_p: Array, T: Array) -> tuple[Array, float]:
        """The probabilities of the noisy rows' true classes, and the logarithm of the probability of all labels."""
        n = len(self.given)
        q, likelihood = noise_matrix.posterior(np.exp(log_p[:n]), T, self.given)
        return q, likelihood + float(log_p[n:][np.arange(len(self.trusted)), self.trusted].sum())

    def likelihood(self, logits: Array, T: Array, rounds: int = 3) -> tuple[float, Array]:
        """The logarithm of the probability of all labels, at the matrix after some rounds from T; and that matrix."""
        log_p = log_softmax(logits, 1)
        T = noise_matrix.estimate(np.exp(log_p[: len(self.given)]), T, self.given, rounds)
        return self.posterior(log_p, T)[1], T


@dataclass(frozen=True)
class Kernel:
    """A kernel ridge regression on all rows, with the λ and the rounds of self-training that it was made by."""

    features: Features
    coefficients: Array
    penalty: float
    rounds: int

    def __call__(self, inputs: Array) -> Array:
        """The scores of new rows."""
        return self.features(inputs) @ self.coefficients


@dataclass(frozen=True)
class Member:
    """One model.

    Attributes:
        model: scores new rows.
        scores: of the training rows, none of which the scoring model has seen.
        scale: by which the scores are multiplied; T: the noise matrix; likelihood: of the labels.
        of_words: whether it scores rows by their terms.
    """

    model: Callable[[Any], Array]
    scores: Array
    scale: float
    T: Array
    likelihood: float
    of_words: bool = False


def self_trained(
    rows: TrainingRows, features: Features, fold: Labels, start: Array, config: Config
) -> Iterator[Member]:
    """The models of one kernel: every penalty, after each round of self-training; the noise matrix begins at start."""
    n = len(rows.given)
    weights = np.concatenate([np.ones(n), np.full(len(rows.trusted), config.trust)])
    whole, without = folded(features(rows.inputs), weights, fold, np.array(config.penalties))
    first = rows.targets(noise_matrix.unbiased(rows.given, start))
    for j, penalty in enumerate(config.penalties):
        models, targets, T = [whole, *without], [first] * (1 + len(without)), start
        scores = whole.scores(first, j)  # the first targets hold no row but their own
        for r in range(config.rounds + 1):
            model = Kernel(features, whole.coefficients(targets[0], j), penalty, r)
            member = scaled(rows, model, scores, T, config)
            scale, T = member.scale, member.T
            yield member
            if r < config.rounds:
                targets = [
                    rows.targets(_believed(rows, model, own, j, scale, T))
                    for model, own in zip(models, targets, strict=True)
                ]
                scores = _spliced([model.scores(y, j) for model, y in zip(without, targets[1:], strict=True)], fold)


def reading(rows: TrainingRows, fold: Labels, start: Array, config: Config) -> Iterator[Member]:
    """The models of the rows' terms: every smoothing, after each round of self-training; none without terms."""
    if rows.words is None:
        return
    n = len(rows.given)
    weights = np.concatenate([np.ones(n), np.full(len(rows.trusted), config.trust)])
    parts = range(int(fold.max()) + 1)
    kept = [weights, *(np.where(fold == k, 0.0, weights) for k in parts)]
    for smoothing in config.smoothings:
        targets, T = [rows.targets(start.T[rows.given])] * len(kept), start
        for _ in range(config.rounds + 1):
            models = [
                NaiveBayes.of(rows.words, own[:, None] * y, smoothing) for own, y in zip(kept, targets, strict=True)
            ]
            scores = [model(rows.words) for model in models]
            unseen = _spliced(scores[1:], fold)
            member = replace(scaled(rows, models[0], unseen, T, config), of_words=True)
            yield member
            scale, T = member.scale, member.T
            targets = [rows.targets(rows.posterior(log_softmax(scale * own, 1), T)[0]) for own in scores]


def _spliced(parts: Sequence[Array], fold: Labels) -> Array:
    """Of each row what was found without its fold."""
    found = np.empty_like(parts[0])
    for k, own in enumerate(parts):
        found[fold == k] = own[fold == k]
    return found


def scaled(rows: TrainingRows, model: Callable[[Any], Array], scores: Array, T: Array, config: Config) -> Member:
    """A model at the scale that makes the labels most likely, with the noise matrix that belongs to it."""
    tried = [(*rows.likelihood(scale * scores, T), scale) for scale in config.scales]
    likelihood, T, scale = max(tried, key=lambda one: one[0])
    return Member(model, scores, scale, T, likelihood)


def _believed(rows: TrainingRows, model: Ridge, targets: Array, penalty: int, scale: float, T: Array) -> Array:
    """What a model makes of the labels of the noisy rows."""
    scores = model.scores(targets, penalty)[: len(rows.given)]
    return noise_matrix.posterior(softmax(scale * scores, 1), T, rows.given)[0]


@dataclass(frozen=True)
class Mixture:
    """The mixed model.

    Attributes:
        members: the models; weights: of their scores, scales included.
        T: the noise matrix.
        p: the class probabilities of the training rows, out of sample; q: of the noisy ones given their labels.
        likelihood: the logarithm of the probability of all labels.
    """

    members: tuple[Member, ...]
    weights: Array
    T: Array
    p: Array
    q: Array
    likelihood: float

    def predict(self, inputs: Array, words: Any = None) -> Array:
        """The class probabilities of new rows, and of their terms where there were some."""
        logits = 0.0
        for member, weight in zip(self.members, self.weights, strict=True):
            logits = logits + weight * member.model(words if member.of_words else inputs)
        return softmax(logits, 1)


def mixed(rows: TrainingRows, best: Sequence[Member], alternations: int = 4) -> Mixture:
    """Members, with weights and a noise matrix that make the labels likely.

    The weights are positive, w_m = e^(a_m) s_m, and a_m is drawn to an equal share by a standard normal prior. The
    derivative of the likelihood by the logits of a row is q - p, or e_y - p where the row is trusted.
    """
    scores = np.stack([member.scale * member.scores for member in best])
    equal, T = -np.log(len(best)), best[0].T

    def loss(a: Array) -> tuple[float, Array]:
        shares = np.exp(a)
        log_p = log_softmax(np.tensordot(shares, scores, 1), 1)
        q, likelihood = rows.posterior(log_p, T)
        slope = shares * np.tensordot(scores, rows.targets(q) - np.exp(log_p), ((1, 2), (0, 1)))
        return 0.5 * float((a - equal) @ (a - equal)) - likelihood, a - equal - slope

    a = np.full(len(best), equal)
    for _ in range(alternations):
        a = minimize(loss, a, jac=True, method="L-BFGS-B", options={"maxiter": 30}).x
        logits = np.tensordot(np.exp(a), scores, 1)
        likelihood, T = rows.likelihood(logits, T, rounds=10)
    log_p = log_softmax(logits, 1)
    weights = np.exp(a) * [member.scale for member in best]
    kept = tuple(replace(member, scores=np.empty((0, rows.classes))) for member in best)
    return Mixture(kept, weights, T, np.exp(log_p), rows.posterior(log_p, T)[0], likelihood)


def fit(
    rows: TrainingRows, seed: int, config: Config, progress: Callable[[float], object] = lambda share: None
) -> Mixture:
    """Fit and mix the models of every kernel.

    Args:
        rows: the data; their inputs should be scaled so that distances mean something.
        seed: of the landmarks and the folds.
        config: what is chosen from.
        progress: is told which share is done.

    Example:
        >>> import numpy as np
        >>> from bvfim.labels.mixture import Config, TrainingRows, fit
        >>> inputs = np.repeat([[-1.0], [1.0]], 30, 0) + 0.1 * np.random.default_rng(0).normal(size=(60, 1))
        >>> given = np.repeat([0, 1], 30)
        >>> given[:6] = 1
        >>> found = fit(TrainingRows(inputs, given, np.array([], int), 2), 0, Config())
        >>> (found.q.argmax(1) != given).nonzero()[0].tolist()
        [0, 1, 2, 3, 4, 5]
    """
    rng = np.random.default_rng(seed)
    count, noisy = len(rows.inputs), len(rows.given)
    landmarks = rows.inputs[rng.permutation(count)[: config.landmarks]]
    folds = max(2, min(config.folds, noisy))
    fold = np.concatenate([rng.permutation(size) % folds for size in (noisy, count - noisy)])
    distances = pdist(landmarks[:1000], "sqeuclidean")
    unit = 1.0 / max(float(np.median(distances[distances > 0])) if (distances > 0).any() else 1.0, 1e-12)
    kernels = [Features.of(landmarks, width * unit) for width in config.widths]
    flat = noise_matrix.flat(rows.classes, config.rate)
    starts = [flat]
    if len(rows.trusted):
        starts += beginning.others(
            kernels, rows.inputs, rows.given, rows.trusted, flat, config.penalties, config.scales
        )
    ticks, steps = count_from(1), len(starts) * len(kernels) * (2 if config.bilevel else 1)
    begun = [_members(rows, kernels, fold, start, config, lambda: progress(next(ticks) / steps)) for start in starts]
    best = max(begun, key=lambda members: max(member.likelihood for member in members))
    return mixed(rows, [*best, *_bilevel(rows, fold, seed, best[0].T, config)])


def _members(
    rows: TrainingRows,
    kernels: Sequence[Features],
    fold: Labels,
    start: Array,
    config: Config,
    tell: Callable[[], object],
) -> list[Member]:
    """The best kernels, then the best models of terms, where the noise matrix begins at start; tells of each kernel."""
    members: list[Member] = []
    for features in kernels:
        members += self_trained(rows, features, fold, start, config)
        tell()
    words = reading(rows, fold, start, config)
    ranked = [sorted(some, key=lambda member: -member.likelihood) for some in (members, words)]
    return [member for some in ranked for member in some[: config.members]]


def _bilevel(rows: TrainingRows, fold: Labels, seed: int, T: Array, config: Config) -> list[Member]:
    """The bilevel network, where there are trusted rows for its upper level."""
    if config.bilevel is None or not len(rows.trusted):
        return []
    found = network.trained(rows.inputs, rows.given, rows.trusted, rows.classes, fold, seed, config.bilevel)
    return [] if found is None else [scaled(rows, *found, T, config)]
