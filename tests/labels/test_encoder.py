from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from bvfim import data
from bvfim.labels import encoder

FROZEN = [0.27807, 0.4671, 3.1151, 0.37469]


def test_a_row_is_the_same_whatever_is_encoded_with_it(monkeypatch):
    pictures = np.random.default_rng(0).random((7, 32, 32, 3), np.float32)
    whole = encoder.encoded(pictures)
    assert whole.dtype == np.float32
    monkeypatch.setattr(encoder, "BATCH", 3)
    np.testing.assert_allclose(encoder.encoded(pictures), whole, atol=1e-5)


def test_what_comes_with_the_package_fits_the_network():
    network = encoder.learned()
    assert not network.training
    assert all(torch.isfinite(weight).all() for weight in network.state_dict().values())
    assert encoder.learned() is network, "read once"


def test_the_weights_are_those_that_were_measured():
    picture = np.random.default_rng(0).random((1, 32, 32, 3), np.float32)
    np.testing.assert_allclose(encoder.encoded(picture)[0, [0, 1, 64, 65]], FROZEN, rtol=1e-3)


def test_no_pictures_are_no_rows():
    assert encoder.encoded(np.zeros((0, 32, 32, 3), np.float32)).shape == (0, 192)


@pytest.mark.long
def test_photographs_of_other_classes_are_told_apart(real):
    photographs = data.load(real("cifar10")).train
    rows = encoder.encoded(photographs.inputs[:1500].reshape(-1, 32, 32, 3))
    rows, labels = (rows - rows.mean(0)) / rows.std(0), photographs.labels[:1500]
    told = LogisticRegression(C=0.01, max_iter=300).fit(rows[:1000], labels[:1000])
    assert told.score(rows[1000:], labels[1000:]) > 0.6, "patches give about 0.5, chance is 0.1"
