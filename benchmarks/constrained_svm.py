"""The penalties of a support vector machine, by cross-validation: see benchmarks/constrained_large.py."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.svm import SVC
from torch import Tensor
from torch.nn.functional import softplus

import bvfim

LOWEST, HIGHEST, START = -6.0, 6.0, 0.0
"""The bounds of an SVM's x, and where it starts."""
FOLDS, FOLD = 3, 142
"""Of the rows, three folds of so many are for cross-validation, and the others for a test."""
PRIOR = 0.01
"""The weight of the mean square of its x in F."""
JITTER = 1.0
"""How far the entries of a random search lie around their common weight."""


class Machine:
    """A penalty for each feature of an SVM, by cross-validation on one split of the data."""

    def __init__(self, seed: int) -> None:
        features, labels = load_breast_cancer(return_X_y=True)
        order = np.random.default_rng(seed).permutation(len(labels))
        learnt, tested = order[: FOLDS * FOLD], order[FOLDS * FOLD :]
        mean, deviation = features[learnt].mean(0), features[learnt].std(0)
        a, signs = torch.tensor((features - mean) / deviation), torch.tensor(2.0 * labels - 1.0)
        folds = learnt.reshape(FOLDS, FOLD)
        rest = np.stack([np.delete(folds, i, 0).reshape(-1) for i in range(FOLDS)])
        self.rest, self.held = (a[rest], signs[rest]), (a[folds], signs[folds])
        self.learnt, self.test = (a[learnt], signs[learnt]), (a[tested], signs[tested])
        self.features = a.shape[1]

    @staticmethod
    def margins(y: dict[str, Tensor], rows: tuple[Tensor, Tensor]) -> Tensor:
        """On which side of each row's border it is, and how far; for all folds."""
        a, signs = rows
        return signs * ((a @ y["w"][..., None])[..., 0] + y["b"][..., None])

    def upper(self, x: Tensor, y: dict[str, Tensor]) -> Tensor:
        """The logistic loss on the rows that a fold has not seen, and a prior."""
        return softplus(-self.margins(y, self.held)).mean() + PRIOR * x.square().mean()

    def lower(self, x: Tensor, y: dict[str, Tensor]) -> Tensor:
        """f, of all folds."""
        return (x.exp() * y["w"].square()).sum() / 2 + y["xi"].sum()

    def problem(self) -> bvfim.Problem:
        """With the margins as constraints."""
        return bvfim.Problem(
            self.upper,
            self.lower,
            lower_constraints=lambda x, y: 1 - y["xi"] - self.margins(y, self.rest),
            x_set=bvfim.Box(LOWEST, HIGHEST),
            y_set={"w": None, "b": None, "xi": bvfim.Box(0.0, float("inf"))},
        )

    def start(self) -> tuple[Tensor, dict[str, Tensor]]:
        """Machines that know nothing."""
        ones = torch.ones_like(self.rest[1])
        y = {"w": ones.new_zeros(FOLDS, self.features), "b": ones.new_zeros(FOLDS), "xi": ones}
        return torch.full((self.features,), START, dtype=torch.float64), y

    @staticmethod
    def trained(x: Tensor, rows: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
        """The exact machine on some rows; however many there are, a penalty counts as much beside each."""
        a, signs = rows
        each, C = (x / -2).exp(), (FOLDS - 1) * FOLD / len(signs)
        fitted = SVC(kernel="linear", C=C, tol=1e-5).fit((a * each).numpy(), signs.numpy())
        return {"w": each * torch.tensor(fitted.coef_[0]), "b": torch.tensor(fitted.intercept_[0])}

    def exact(self, x: Tensor) -> dict[str, Tensor]:
        """The exact machines of all folds."""
        folds = [self.trained(x, rows) for rows in zip(*self.rest, strict=True)]
        y = {name: torch.stack([fold[name] for fold in folds]) for name in ("w", "b")}
        return {**y, "xi": (1 - self.margins(y, self.rest)).clamp_min(0)}

    def judged(self, x: Tensor) -> dict[str, float]:
        """F with exact machines, and the loss on the test rows of one that is trained on all others."""
        test = softplus(-self.margins(self.trained(x, self.learnt), self.test)).mean()
        return {"F at the exact y": float(self.upper(x, self.exact(x))), "test": float(test)}

    def searched(self, seconds: float, around: bool, seed: int) -> dict[str, Any]:
        """A random search for so long."""
        generator = torch.Generator().manual_seed(seed)
        best, trials, began = (float("inf"), torch.zeros(self.features)), 0, time.process_time()
        while time.process_time() - began < seconds:
            x = LOWEST + (HIGHEST - LOWEST) * torch.rand(1 if around else self.features, generator=generator).double()
            if around:
                x = (x + JITTER * torch.randn(self.features, generator=generator)).clamp(LOWEST, HIGHEST)
            best = min(best, (float(self.upper(x, self.exact(x))), x), key=lambda found: found[0])
            trials += 1
        kind = "one number and entries around it" if around else "each entry"
        return {"method": f"random search: {kind}", "trials": trials, "seconds of CPU": seconds, **self.judged(best[1])}
