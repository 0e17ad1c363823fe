r"""A penalty for every feature of a linear model: breast cancer (log loss) and diabetes (squared error, standardised).

.. math:: f(x, (w, b)) = \frac1N \sum_{i \in \mathrm{train}} \ell(u_i w + b, t_i) + \sum_j e^{x_j} w_j^2, \qquad
          F(x, (w, b)) = \frac1M \sum_{i \in \mathrm{val}} \ell(u_i w + b, t_i)

Half of the rows train, a quarter validates, a quarter is left (seeded, stratified where there are classes); columns are
standardised by the training rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.model_selection import train_test_split
from torch import Tensor
from torch.nn import functional

LOWEST, HIGHEST, START = -10.0, 5.0, -3.0
"""The box of x, and where it starts."""
TOL = 1e-12
"""The largest component of the gradient of f at its minimiser."""


class Rows(NamedTuple):
    """Inputs with a last column of ones, and targets."""

    inputs: Tensor
    targets: Tensor


class Task(NamedTuple):
    """A data set in three parts."""

    classes: bool
    train: Rows
    validation: Rows
    test: Rows

    @property
    def features(self) -> int:
        """The length of x."""
        return self.train.inputs.shape[1] - 1

    def loss(self, y: Tensor, rows: Rows) -> Tensor:
        """The mean loss."""
        p, t = rows.inputs @ y, rows.targets
        return (functional.softplus(p) - t * p if self.classes else (p - t).square()).mean()

    def slopes(self, y: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        """The first two derivatives of the loss of each row in its prediction, divided by the number of rows."""
        p, t = rows.inputs @ y, rows.targets
        s = torch.sigmoid(p)
        first, second = (s - t, s * (1 - s)) if self.classes else (2 * (p - t), torch.full_like(p, 2.0))
        return first / len(t), second / len(t)

    def upper(self, x: Tensor, y: Tensor) -> Tensor:
        """F."""
        return self.loss(y, self.validation)

    def lower(self, x: Tensor, y: Tensor) -> Tensor:
        """f."""
        return self.loss(y, self.train) + (x.exp() * y[:-1].square()).sum()


def load(name: str, seed: int = 0) -> Task:
    """One of the two data sets, split."""
    classes = name == "breast cancer"
    inputs, targets = (load_breast_cancer if classes else load_diabetes)(return_X_y=True)

    def halved(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        strata = targets[rows] if classes else None
        first, second = train_test_split(rows, test_size=0.5, random_state=seed, stratify=strata)
        return first, second

    train, rest = halved(np.arange(len(targets)))
    inputs = (inputs - inputs[train].mean(0)) / inputs[train].std(0)
    if not classes:
        targets = (targets - targets[train].mean()) / targets[train].std()
    inputs = np.concatenate([inputs, np.ones((len(inputs), 1))], 1)
    parts = [Rows(*(torch.from_numpy(a[rows]).double() for a in (inputs, targets))) for rows in (train, *halved(rest))]
    return Task(classes, *parts)


def minimiser(task: Task, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The minimiser of f(x, .) by damped Newton steps from y, and the Hessian there."""
    twice = torch.cat([2 * x.exp().expand(task.features), x.new_zeros(1)])
    rows = task.train.inputs
    for _ in range(200):
        first, second = task.slopes(y, task.train)
        gradient = rows.T @ first + twice * y
        hessian = rows.T @ (second[:, None] * rows) + twice.diag()
        if gradient.abs().max() <= TOL:
            return y, hessian
        step = torch.linalg.solve(hessian, gradient)
        decrease, now, size = gradient @ step, task.lower(x, y), 1.0
        while decrease > 1e-12 and task.lower(x, y - size * step) > now - 1e-4 * size * decrease:
            size /= 2
        y = y - size * step
    raise ArithmeticError("Newton's method did not converge")
