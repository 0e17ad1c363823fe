"""Ways to find wrong labels: the label cleaner, the cleaner without each of its parts, and what else is used.

Each is a function of a task and a seed. All see the same rows; where one needs a classifier, it is :func:`learner`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import torch
from scipy.special import expit, softmax

import bvfim
from bvfim.labels import decisions, mixture, network
from bvfim.labels.arrays import Array, Labels, Mask
from bvfim.reproduce.bench.label_columns import Task
from bvfim.reproduce.experiments import cleaning
from bvfim.reproduce.experiments.resumable import finished

FOLDS = 5
ROUNDS = 3
"""Of self-training."""
SCALE = 10.0
"""Of scores that nothing calibrates: near what the mixture chooses on digits (12 to 15), where rows are easy."""


@dataclass(frozen=True, eq=False)
class Found:
    """What was found about the labels of the noisy rows.

    Attributes:
        p_wrong: how probably each is wrong; None where nothing is said about single rows.
        flags: which of them are to be looked at; None likewise.
        labels: those that the rows are trained with after cleaning.
        weights: of the rows in this training; 0 leaves a row out.
    """

    p_wrong: Array | None
    flags: Mask | None
    labels: Labels
    weights: Array


def learner() -> Any:
    """The classifier of all rivals, and the one that is trained after every cleaning: a logistic regression.

    A penalty ten times that of scikit-learn's default: with as many wrong labels as here it ranks rows better.
    """
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=0.1, tol=1e-3, max_iter=2000)


def cleaner(task: Task, seed: int, **options: Any) -> Found:
    """The label cleaner; its most probable labels, weighted by how probable they are."""
    n = len(task.given)
    own = bvfim.LabelCleaner(random_state=seed, **options)
    issues = own.find_label_issues(task.inputs[:n], task.given, X_trusted=task.inputs[n:], y_trusted=task.trusted)
    return Found(
        issues["p_wrong"].to_numpy(),
        issues["is_label_issue"].to_numpy(),
        issues["suggested_label"].to_numpy(),
        issues["suggested_probability"].to_numpy(),
    )


def no_self_training(task: Task, seed: int) -> Found:
    """The cleaner whose kernels are trained once, on the labels as they are."""
    q = _mixed(task, seed, replace(mixture.Config(), rounds=0)).q
    p_wrong = 1.0 - q[np.arange(len(q)), task.given]
    return Found(p_wrong, decisions.review(p_wrong), q.argmax(1), q.max(1))


def no_calibration(task: Task, seed: int) -> Found:
    """The cleaner's mean score in a softmax of fixed scale, with no noise matrix."""
    found = _mixed(task, seed, mixture.Config())
    logits = np.log(np.maximum(found.p[: len(task.given)], 1e-300)) / found.weights.sum()
    p = softmax(SCALE * logits, 1)
    p_wrong = 1.0 - p[np.arange(len(p)), task.given]
    return Found(p_wrong, p_wrong > 0.5, p.argmax(1), p.max(1))


def _mixed(task: Task, seed: int, config: mixture.Config) -> mixture.Mixture:
    """The mixture as the cleaner makes it, with another config."""
    from bvfim.labels.cleaner import best

    codes = np.concatenate([task.given, task.trusted])
    return best(task.inputs, codes, len(task.given), seed, config)[2]


def bilevel_weights(task: Task, seed: int) -> Found:
    """The paper's own way: the weights of one bilevel network, flagged where x <= 0 and kept as sample weights."""
    from bvfim.labels.inputs import numbers_of

    config, n = network.Config(), len(task.given)
    scaled = network.LENGTH * numbers_of(task.inputs, standard=False)
    inputs = torch.from_numpy(np.concatenate([scaled[n:], scaled[:n]])).float()
    problem = cleaning.objectives(inputs, torch.from_numpy(task.trusted), torch.from_numpy(task.given), "relu")
    start = cleaning.start(inputs.shape[1], config.hidden, task.classes, seed)
    adam = partial(torch.optim.Adam, lr=config.x_lr)
    found = bvfim.solve(problem, torch.zeros(n), start, network.method(config), adam, steps=config.steps)
    finished(found)
    x = found.x.detach().double().numpy()
    return Found(expit(-x), x <= 0, task.given, expit(x))


def cleanlab(task: Task, seed: int, trusted: bool = False) -> Found:
    """Confident learning with cleanlab's default workflow; flagged rows are dropped.

    Args:
        task: the rows; seed: of the folds.
        trusted: whether the trusted rows are among those of its folds.

    Raises:
        ImportError: where cleanlab is not installed.
    """
    learning: Any = import_module("cleanlab.classification").CleanLearning
    n = len(task.given)
    count = len(task.inputs) if trusted else n
    labels = np.concatenate([task.given, task.trusted])[:count]
    own = learning(learner(), seed=seed, cv_n_folds=FOLDS, find_label_issues_kwargs={"n_jobs": 1})
    issues = own.find_label_issues(task.inputs[:count], labels)[:n]
    return _dropped(task, 1.0 - issues["label_quality"].to_numpy(), issues["is_label_issue"].to_numpy())


def disagreement(task: Task, seed: int) -> Found:
    """Where a classifier of the trusted rows alone would give another label; these are dropped."""
    n = len(task.given)
    p = _probabilities(learner().fit(task.inputs[n:], task.trusted), task.inputs[:n], task.classes)
    return _dropped(task, 1.0 - p[np.arange(n), task.given], p.argmax(1) != task.given)


def self_training(task: Task, seed: int) -> Found:
    """A classifier of all rows that relabels the noisy ones and is trained again, some times.

    This is done without each fold, whose rows are then judged, and given new labels, by a classifier that their own
    labels have not reached.
    """
    n = len(task.given)
    fold = np.random.default_rng(seed).permutation(n) % FOLDS
    p = np.empty((n, task.classes))
    for k in range(FOLDS):
        kept = np.flatnonzero(fold != k)
        inputs, labels = task.inputs[[*kept, *range(n, len(task.inputs))]], task.given[kept]
        for _ in range(ROUNDS):
            model = learner().fit(inputs, np.concatenate([labels, task.trusted]))
            labels = model.predict(inputs[: len(kept)])
        p[fold == k] = _probabilities(model, task.inputs[:n][fold == k], task.classes)
    return Found(1.0 - p[np.arange(n), task.given], p.argmax(1) != task.given, p.argmax(1), np.ones(n))


def no_cleaning(task: Task, seed: int) -> Found:
    """All labels as they are."""
    return Found(None, None, task.given, np.ones(len(task.given)))


def oracle(task: Task, seed: int) -> Found:
    """The true labels: what no cleaning can be better than, but for chance."""
    return Found(None, None, task.truth, np.ones(len(task.given)))


def _dropped(task: Task, p_wrong: Array, flags: Mask) -> Found:
    return Found(p_wrong, flags, task.given, np.where(flags, 0.0, 1.0))


def _probabilities(model: Any, inputs: Array, classes: int) -> Array:
    """Of all classes, also of those that the model has not seen."""
    p = np.zeros((len(inputs), classes))
    p[:, model.classes_] = model.predict_proba(inputs)
    return p


OURS, NONE, ORACLE = "LabelCleaner", "no cleaning", "true labels"
CLEANLAB = ("cleanlab", "cleanlab, trusted rows too")
CONTESTANTS: dict[str, Callable[[Task, int], Found]] = {
    OURS: cleaner,
    "without the bilevel network": partial(cleaner, bilevel=False),
    "without self-training": no_self_training,
    "without calibration": no_calibration,
    "bilevel weights alone": bilevel_weights,
    CLEANLAB[0]: cleanlab,
    CLEANLAB[1]: partial(cleanlab, trusted=True),
    "trusted rows alone": disagreement,
    "self-training": self_training,
    NONE: no_cleaning,
    ORACLE: oracle,
}
"""All of them by name."""
