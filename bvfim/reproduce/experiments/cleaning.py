r"""Data hyper-cleaning: a weight for each training row, learnt so that the rows with wrong labels lose theirs.

.. math:: f(x, y) = \frac1N \sum_{i \in \mathrm{train}} \sigma(x_i)\, \mathrm{CE}(y; u_i, v_i), \qquad
          F(x, y) = \frac1M \sum_{i \in \mathrm{val}} \mathrm{CE}(y; u_i, v_i)

(Liu et al., 2021, Section 6.2. The paper prints sums; with its step sizes only means are stable.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from bvfim import data
from bvfim.core.batches import Batches, Shuffled
from bvfim.core.problem import Problem
from bvfim.status import DataError

ACTIVATIONS = {"identity": lambda h: h, "relu": torch.relu}


class LabelledRows(NamedTuple):
    """Examples, one a row, and their labels."""

    inputs: Tensor
    labels: Tensor


@dataclass(frozen=True)
class Task:
    """A hyper-cleaning problem, its start, and what judges the result.

    Attributes:
        problem: F and f.
        x: the start of the weights' logits, zero; y: the start of the network.
        activation: of the network.
        noisy: the training rows with the labels that f sees; truth: their true labels; wrong: where the two differ.
        trusted: the validation rows of F; held: those that are kept out of F, to choose steps by.
        test: clean data that no method sees.
        note: in what the data set's files differ from the published ones.
    """

    problem: Problem
    x: Tensor
    y: dict[str, Tensor]
    activation: str
    noisy: LabelledRows
    truth: Tensor
    wrong: np.ndarray
    trusted: LabelledRows
    held: LabelledRows
    test: LabelledRows
    note: str = ""

    def accuracy(self, y: dict[str, Tensor], rows: LabelledRows | None = None) -> float:
        """The share of rows that the network y gets right; of the test rows by default."""
        inputs, labels = self.test if rows is None else rows
        with torch.no_grad():
            found = network(y, inputs, self.activation).argmax(1)
        return float((found == labels).double().mean())

    def f1(self, x: Tensor) -> float:
        """The F1 score of "the label is wrong" where x_i <= 0."""
        return f1(self.wrong, (x <= 0).cpu().numpy())


def f1(wrong: np.ndarray, flagged: np.ndarray) -> float:
    """The F1 score of the flags; 0 where there is nothing to find and nothing flagged.

    Example:
        >>> import numpy as np
        >>> from bvfim.reproduce.experiments.cleaning import f1
        >>> f1(np.array([True, True, False]), np.array([True, False, False])).__round__(3)
        0.667
    """
    return 2 * float((flagged & wrong).sum()) / max(float(flagged.sum() + wrong.sum()), 1.0)


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
    held: int = 0,
    test: int = 10000,
    hidden: int = 300,
    activation: str = "identity",
    centred: bool = False,
    noise: float = 0.5,
    seed: int = 0,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Task:
    """The paper's hyper-cleaning problem on a data set, from one seed.

    Args:
        name: a data set of :mod:`bvfim.data`.
        train, validation: how many rows, each class balanced, from the training part.
        held: how many of the validation rows are kept out of F, each class balanced.
        test: how many rows of the test part, at most all.
        hidden: the width of the network.
        activation: ``"identity"`` (the paper's "2-layer linear network") or ``"relu"``.
        centred: take the mean of the training and validation rows from all rows; gradient descent then needs about a
            third of the steps.
        noise: the share of training labels that are replaced by a different one.
        seed: of the split, the noise and the network's start.
        device: where the tensors go; dtype: and what they are.

    Example:
        >>> from bvfim.reproduce.experiments import cleaning
        >>> task = cleaning.problem("digits", train=200, validation=200, test=100, hidden=20)
        >>> task.x.shape, int(task.wrong.sum())
        (torch.Size([200]), 100)
    """
    if activation not in ACTIVATIONS:
        raise DataError(f"activation must be one of {', '.join(ACTIVATIONS)}, not {activation!r}")
    dataset = data.load(name)
    if not len(dataset.test):
        raise DataError(f"{name}: the files contain no test set")
    classes, labels = len(dataset.classes), dataset.train.labels
    sizes = [train, validation - held, *([held] if held else [])]
    ours, theirs, *rest = data.balanced_split(labels, sizes, classes, seed)
    kept = rest[0] if rest else ours[:0]
    given, wrong = data.symmetric(labels[ours], noise, classes, seed)

    mean = dataset.train.inputs[np.concatenate([ours, theirs])].mean(0) if centred else np.float32(0)

    def rows(inputs: np.ndarray, labels: np.ndarray) -> LabelledRows:
        return LabelledRows(torch.from_numpy(inputs - mean).to(device, dtype), torch.from_numpy(labels).to(device))

    noisy = rows(dataset.train.inputs[ours], given)
    trusted, kept_out = (rows(dataset.train.inputs[r], labels[r]) for r in (theirs, kept))
    both = torch.cat([trusted.inputs, noisy.inputs])
    own = start(both.shape[1], hidden, classes, seed)
    return Task(
        problem=objectives(both, trusted.labels, noisy.labels, activation),
        x=torch.zeros(train, device=device, dtype=dtype),
        y={key: t.to(device, dtype) for key, t in own.items()},
        activation=activation,
        noisy=noisy,
        truth=torch.from_numpy(labels[ours]).to(device),
        wrong=wrong,
        trusted=trusted,
        held=kept_out,
        test=rows(dataset.test.inputs[:test], dataset.test.labels[:test]),
        note=dataset.note,
    )


def on_batches(task: Task, size: int, seed: int = 0) -> tuple[Problem, Batches]:
    """The same problem with F and f as means over batches of rows, for a single loop.

    Args:
        task: the problem.
        size: the rows of a batch, of each objective.
        seed: of their order.
    """
    trusted, noisy = task.trusted, task.noisy

    def upper(x: Tensor, y: dict[str, Tensor], i: Tensor) -> Tensor:
        return functional.cross_entropy(network(y, trusted.inputs[i], task.activation), trusted.labels[i])

    def lower(x: Tensor, y: dict[str, Tensor], i: Tensor) -> Tensor:
        losses = functional.cross_entropy(
            network(y, noisy.inputs[i], task.activation), noisy.labels[i], reduction="none"
        )
        return (torch.sigmoid(x.gather(0, i)) * losses).mean()  # x[i] would sort i to be differentiated

    streams = [
        Shuffled(len(rows.labels), size, 2 * seed + j, rows.labels.device) for j, rows in enumerate((trusted, noisy))
    ]
    return Problem(upper, lower), Batches(upper=streams[0], lower=streams[1])


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
