"""The bilevel member: the paper's network, trained on noisy rows by weights that are learned on the trusted ones.

For each fold, without whose rows its network is trained,

    F(x, y) = mean over the trusted rows of the cross-entropy of y,
    f(x, y) = mean over the noisy rows of sigmoid(x_i) times the cross-entropy of y,

all folds in one problem, solved by BVFIM with the published recipe. What it gives is y, a network that ranks rows well.
The signs of x, by which the paper flags labels, judge single rows far worse.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from bvfim.core.problem import Problem
from bvfim.core.solve import solve
from bvfim.labels.arrays import Array, Labels
from bvfim.methods import BVFIM, LowerValue
from bvfim.schedules import geometric
from bvfim.status import BvfimWarning

LENGTH = 4.0
"""Of an average row, as the network sees it: what the lower step is made for."""
ENTRIES = 500_000
"""Rows times classes that the network is trained on at most."""


@dataclass(frozen=True)
class Config:
    """The network and its training.

    Args:
        hidden: units.
        steps: upper steps.
        lower: gradients an upper step, half of them for z.
        lr: of the lower level; x_lr: of Adam, which moves x.
        regulariser, tau: mu1 and theta, and tau, at first; they fall by 1.01 a step.
    """

    hidden: int = 64
    steps: int = 40
    lower: int = 40
    lr: float = 0.1
    x_lr: float = 0.1
    regulariser: float = 0.01
    tau: float = 1.0


@dataclass(frozen=True)
class Network:
    """The networks of all folds; the scores of a row are the mean of theirs."""

    y: dict[str, Tensor]

    def __call__(self, inputs: Array) -> Array:
        """The scores of new rows."""
        return self.by_fold(inputs).mean(0)

    def by_fold(self, inputs: Array) -> Array:
        """The scores of rows by each network, over the classes summing to zero."""
        with torch.no_grad():
            scores = _logits(self.y, _columns(inputs)).double().numpy().transpose(0, 2, 1)
        centred: Array = scores - scores.mean(-1, keepdims=True)
        return centred


def trained(
    inputs: Array, given: Labels, trusted: Labels, classes: int, fold: Labels, seed: int, config: Config
) -> tuple[Network, Array] | None:
    """The networks, and the score of each row by the one that was trained without its fold.

    Args:
        inputs: of the noisy rows, then of the trusted ones.
        given: the labels of the former; trusted: of the latter.
        classes: how many there are.
        fold: of each row.
        seed: of the start, and of the rows that are used where there are very many.
        config: the network.

    Returns:
        None where the training broke off, which is said.
    """
    rng, most = np.random.default_rng(seed), max(500, min(5000, ENTRIES // classes))
    n = len(given)
    noisy, sure = (np.sort(rng.permutation(len(labels))[:most]) for labels in (given, trusted))
    problem = _problem(inputs, given, trusted, fold, noisy, sure + n)
    folds = int(fold.max()) + 1
    start = _start(inputs.shape[1], config.hidden, classes, folds, seed)
    x = torch.zeros(folds, len(noisy))
    found = solve(
        problem, x, start, method(config, folds), partial(torch.optim.Adam, lr=config.x_lr), steps=config.steps
    )
    if not found.status.ok:
        advice = f"the bilevel network was left out: its training ended with status {found.status.value}"
        warnings.warn(advice, BvfimWarning, stacklevel=2)
        return None
    network = Network({key: t.detach() for key, t in found.y.items()})
    return network, network.by_fold(inputs)[fold, np.arange(len(inputs))]


def falling(regulariser: float, tau: float) -> dict[str, Any]:
    """The schedules of BVFIM for networks: mu1 and theta, and tau, at first; they fall by 1.01 a step."""
    first = {"mu1": regulariser, "theta": regulariser, "tau": tau}
    return {name: geometric(value, 1 / 1.01) for name, value in first.items()}


def method(config: Config, folds: int = 1) -> BVFIM:
    """BVFIM by the published recipe, for so many networks whose losses are summed."""
    half, quarter = config.lower // 2, config.lower // 4
    schedules = falling(config.regulariser, config.tau * folds)
    return BVFIM(half, quarter, config.lr, config.lr, mu2=LowerValue(), **schedules)


def _problem(inputs: Array, given: Labels, trusted: Labels, fold: Labels, noisy: Labels, sure: Labels) -> Problem:
    """F and f of the module's docstring, summed over the folds; of the rows that are named."""
    n, count = len(given), len(noisy)
    both = np.concatenate([noisy, sure])
    columns = _columns(inputs[both])
    labels = torch.from_numpy(np.concatenate([given[noisy], trusted[sure - n]]))
    left_in = torch.from_numpy(np.stack([fold[both] != k for k in range(int(fold.max()) + 1)])).float()
    shares = [part / part.sum(1, keepdim=True).clamp(min=1) for part in (left_in[:, :count], left_in[:, count:])]

    def losses(y: dict[str, Tensor], rows: slice) -> Tensor:
        logits = _logits(y, columns[:, rows])
        return functional.cross_entropy(logits, labels[rows].expand(len(logits), -1), reduction="none")

    def upper(x: Tensor, y: dict[str, Tensor]) -> Tensor:
        return (shares[1] * losses(y, slice(count, None))).sum()

    def lower(x: Tensor, y: dict[str, Tensor]) -> Tensor:
        return (torch.sigmoid(x) * shares[0] * losses(y, slice(count))).sum()

    def joint(x: Tensor, y: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        each = losses(y, slice(None))
        return (shares[1] * each[:, count:]).sum(), (torch.sigmoid(x) * shares[0] * each[:, :count]).sum()

    return Problem(upper, lower, joint=joint)


def _logits(y: dict[str, Tensor], columns: Tensor) -> Tensor:
    """Of each fold's network: (folds, classes, rows)."""
    inside = torch.relu(y["hidden"] @ columns + y["shift"])
    return y["weight"] @ inside + y["bias"]


def _columns(inputs: Array) -> Tensor:
    return torch.from_numpy(LENGTH * inputs.T).float()


def _start(inputs: int, hidden: int, classes: int, folds: int, seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "hidden": torch.randn(folds, hidden, inputs, generator=generator) / inputs**0.5,
        "shift": torch.zeros(folds, hidden, 1),
        "weight": torch.randn(folds, classes, hidden, generator=generator) / hidden**0.5,
        "bias": torch.zeros(folds, classes, 1),
    }
