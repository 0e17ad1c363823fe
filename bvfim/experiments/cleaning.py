r"""Data hyper-cleaning: a weight for each training row, learnt so that the rows with wrong labels lose theirs.

.. math:: f(x, y) = \frac1N \sum_{i \in \mathrm{train}} \sigma(x_i)\, \mathrm{CE}(y; u_i, v_i), \qquad
          F(x, y) = \frac1M \sum_{i \in \mathrm{val}} \mathrm{CE}(y; u_i, v_i)

(Liu et al., 2021, Section 6.2. The paper prints sums; with its step sizes only means are stable.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from bvfim import data
from bvfim.problem import Problem
from bvfim.status import DataError

ACTIVATIONS = {"identity": lambda h: h, "relu": torch.relu}


@dataclass(frozen=True)
class Task:
    """A hyper-cleaning problem, its start, and what judges the result.

    Attributes:
        problem: F and f.
        x: the start of the weights' logits, zero; y: the start of the network.
        wrong: which training labels were changed.
        test_inputs, test_labels: clean data that no method sees.
    """

    problem: Problem
    x: Tensor
    y: dict[str, Tensor]
    wrong: np.ndarray
    test_inputs: Tensor
    test_labels: Tensor
    activation: str

    def accuracy(self, y: dict[str, Tensor]) -> float:
        """The share of test rows that the network y gets right."""
        with torch.no_grad():
            found = network(y, self.test_inputs, self.activation).argmax(1)
        return float((found == self.test_labels).double().mean())

    def f1(self, x: Tensor) -> float:
        """The F1 score of "the label is wrong" where x_i <= 0."""
        flagged = (x <= 0).cpu().numpy()
        hits = float((flagged & self.wrong).sum())
        return 2 * hits / max(float(flagged.sum() + self.wrong.sum()), 1.0)


def network(y: dict[str, Tensor], inputs: Tensor, activation: str = "identity") -> Tensor:
    """The paper's two layers: 300 x d without bias, then 10 x 300 with bias; logits.

    The rows are kept along the last dimension: in float32 the products of a gradient then take 13 ms instead of 18 on
    an H200 (100 gradients of 5000 rows), and no longer with TF32 or on a CPU.
    """
    inside = ACTIVATIONS[activation](y["hidden"] @ inputs.T)
    return (y["weight"] @ inside).T + y["bias"]


def objectives(inputs: Tensor, trusted: Tensor, noisy: Tensor, activation: str = "identity") -> Problem:
    """F and f of the module's docstring.

    Args:
        inputs: the rows of the validation set, then those of the training set.
        trusted: the labels of the former; noisy: of the latter.
        activation: of the network.
    """
    count = len(trusted)

    def F(logits: Tensor) -> Tensor:
        return functional.cross_entropy(logits, trusted)

    def f(x: Tensor, logits: Tensor) -> Tensor:
        return (torch.sigmoid(x) * functional.cross_entropy(logits, noisy, reduction="none")).mean()

    def upper(x: Tensor, y: dict[str, Tensor]) -> Tensor:
        return F(network(y, inputs[:count], activation))

    def lower(x: Tensor, y: dict[str, Tensor]) -> Tensor:
        return f(x, network(y, inputs[count:], activation))

    def joint(x: Tensor, y: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        logits = network(y, inputs, activation)
        return F(logits[:count]), f(x, logits[count:])

    return Problem(upper, lower, joint=joint)


def problem(
    name: str = "mnist",
    *,
    train: int = 5000,
    validation: int = 5000,
    test: int = 10000,
    hidden: int = 300,
    activation: str = "identity",
    noise: float = 0.5,
    seed: int = 0,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Task:
    """The paper's hyper-cleaning problem on a data set, from one seed.

    Args:
        name: a data set of :mod:`bvfim.data`.
        train, validation: how many rows, each class balanced, from the training part.
        test: how many rows of the test part, at most all.
        hidden: the width of the network.
        activation: ``"identity"`` (the paper's "2-layer linear network") or ``"relu"``.
        noise: the share of training labels that are replaced by a different one.
        seed: of the split, the noise and the network's start.
        device: where the tensors go; dtype: and what they are.

    Example:
        >>> from bvfim.experiments import cleaning
        >>> task = cleaning.problem("digits", train=200, validation=200, test=100, hidden=20)
        >>> task.x.shape, int(task.wrong.sum())
        (torch.Size([200]), 100)
    """
    if activation not in ACTIVATIONS:
        raise DataError(f"activation must be one of {', '.join(ACTIVATIONS)}, not {activation!r}")
    dataset = data.load(name)
    classes = len(dataset.classes)
    rows = data.balanced_split(dataset.train.labels, [train, validation], classes, seed)
    noisy, wrong = data.symmetric(dataset.train.labels[rows[0]], noise, classes, seed)

    def tensors(inputs: np.ndarray, labels: np.ndarray) -> tuple[Tensor, Tensor]:
        return torch.from_numpy(inputs).to(device, dtype), torch.from_numpy(labels).to(device)

    val_inputs, val_labels = tensors(dataset.train.inputs[rows[1]], dataset.train.labels[rows[1]])
    train_inputs, train_labels = tensors(dataset.train.inputs[rows[0]], noisy)
    inputs = torch.cat([val_inputs, train_inputs])
    test_inputs, test_labels = tensors(dataset.test.inputs[:test], dataset.test.labels[:test])

    own = start(inputs.shape[1], hidden, classes, seed)
    return Task(
        problem=objectives(inputs, val_labels, train_labels, activation),
        x=torch.zeros(train, device=device, dtype=dtype),
        y={key: t.to(device, dtype) for key, t in own.items()},
        wrong=wrong,
        test_inputs=test_inputs,
        test_labels=test_labels,
        activation=activation,
    )


def start(inputs: int, hidden: int, classes: int, seed: int) -> dict[str, Tensor]:
    """Uniform in 1/sqrt(fan-in), as torch.nn.Linear starts."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(fan_in: int, *shape: int) -> Tensor:
        return (2 * torch.rand(*shape, generator=generator) - 1) / fan_in**0.5

    return {
        "hidden": uniform(inputs, hidden, inputs),
        "weight": uniform(hidden, classes, hidden),
        "bias": uniform(hidden, classes),
    }
