"""Torch modules as the classifier of :class:`bvfim.LabelCleaner`."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from torch import Tensor, nn
from torch.nn import functional

from bvfim.status import DataError


def paper_network(inputs: int, classes: int, hidden: int = 300) -> nn.Sequential:
    """The two-layer network of the paper's experiments, with ReLU.

    Example:
        >>> from bvfim.labels.modules import paper_network
        >>> sum(p.numel() for p in paper_network(784, 10).parameters())
        238510
    """
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, classes))


class TorchClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A torch module that returns class logits, wrapped as a scikit-learn classifier with sample weights.

    Args:
        module: maps a float32 batch to logits; a copy of it is trained.
        epochs, batch: number of epochs and batch size.
        lr, weight_decay: learning rate and weight decay of AdamW.
        seed: random seed for shuffling the rows.

    Example:
        >>> import torch
        >>> from bvfim.labels.modules import TorchClassifier
        >>> model = TorchClassifier(torch.nn.Linear(1, 2), epochs=200, lr=0.1).fit([[-1.0], [1.0]], ["no", "yes"])
        >>> model.predict([[2.0]]).tolist()
        ['yes']
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        epochs: int = 30,
        batch: int = 128,
        lr: float = 1e-3,
        weight_decay: float = 1e-2,
        seed: int = 0,
    ) -> None:
        self.module = module
        self.epochs = epochs
        self.batch = batch
        self.lr = lr
        self.weight_decay = weight_decay
        self.seed = seed

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> TorchClassifier:
        """Train a copy of the module by weighted cross-entropy."""
        rows = _rows(X)
        self.classes_, codes = np.unique(np.asarray(y), return_inverse=True)
        weights = torch.ones(len(rows)) if sample_weight is None else torch.tensor(np.asarray(sample_weight)).float()
        labels = torch.from_numpy(codes)
        self.module_ = copy.deepcopy(self.module)
        with torch.no_grad():
            outputs = self.module_(rows[:1]).shape
        if outputs != (1, len(self.classes_)):
            raise DataError(f"the module must return {len(self.classes_)} logits per row, not {tuple(outputs[1:])}")
        optimizer = torch.optim.AdamW(self.module_.parameters(), lr=self.lr, weight_decay=self.weight_decay)
        generator = torch.Generator().manual_seed(self.seed)
        self.module_.train()
        for _ in range(self.epochs):
            for own in torch.randperm(len(rows), generator=generator).split(self.batch):
                losses = functional.cross_entropy(self.module_(rows[own]), labels[own], reduction="none")
                optimizer.zero_grad()
                (weights[own] * losses).mean().backward()
                optimizer.step()
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probabilities of the classes."""
        self.module_.eval()
        with torch.no_grad():
            parts = [self.module_(part).double().softmax(1) for part in _rows(X).split(4096)]
        found: NDArray[np.float64] = torch.cat(parts).numpy()
        return found

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row."""
        found: NDArray[Any] = self.classes_[self.predict_proba(X).argmax(1)]
        return found


def _rows(X: Any) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(X, dtype=np.float32))
