"""Torch modules as classifiers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.base import clone

import bvfim
from bvfim.labels.modules import TorchClassifier, paper_network

X = np.array([[-1.0], [-0.8], [0.9], [1.1]])
Y = np.array(["no", "no", "yes", "yes"])


def test_a_weight_of_zero_is_a_row_that_is_not_there():
    wrong = np.array(["no", "yes", "yes", "yes"])
    model = TorchClassifier(torch.nn.Linear(1, 2), epochs=100, lr=0.1)
    assert model.fit(X, wrong, sample_weight=[1, 0, 1, 1]).predict(X).tolist() == Y.tolist()


def test_the_module_that_was_given_stays_as_it_is():
    module = torch.nn.Linear(1, 2)
    before = module.weight.detach().clone()
    model = clone(TorchClassifier(module, epochs=3)).fit(X, Y)
    assert torch.equal(module.weight, before)
    assert not torch.equal(model.module_.weight, before)


def test_probabilities_sum_to_one():
    found = TorchClassifier(paper_network(1, 2, hidden=4), epochs=2).fit(X, Y).predict_proba(X)
    assert found.sum(1) == pytest.approx(np.ones(4))


def test_a_module_with_other_outputs_is_refused():
    with pytest.raises(bvfim.DataError, match=r"must return 2 logits per row, not \(3,\)"):
        TorchClassifier(torch.nn.Linear(1, 3)).fit(X, Y)
