"""The hyper-cleaning problem on digits; the real MNIST where its files are."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import bvfim
from bvfim.reproduce.experiments import cleaning

pytestmark = pytest.mark.long


def test_centred_rows_have_no_mean_and_the_same_labels():
    plain, own = (cleaning.problem("digits", train=200, validation=200, centred=c) for c in (False, True))
    both = torch.cat([own.noisy.inputs, own.trusted.inputs])
    torch.testing.assert_close(both.mean(0), torch.zeros(64), atol=1e-6, rtol=0)
    shift = plain.test.inputs - own.test.inputs
    torch.testing.assert_close(shift, shift[:1].expand_as(shift))
    assert torch.equal(plain.noisy.labels, own.noisy.labels)


@pytest.fixture(scope="module")
def task():
    return cleaning.problem("digits", train=300, validation=300, test=300, hidden=32, seed=1)


def test_the_objectives_are_the_papers_with_means(task):
    y = task.y
    x = torch.randn(300)
    at_zero = float(task.problem.lower(torch.zeros(300), y))
    assert float(task.problem.lower(torch.full((300,), 50.0), y)) == pytest.approx(2 * at_zero, rel=1e-5)
    assert float(task.problem.upper(x, y)) == pytest.approx(float(task.problem.upper(-x, y)))
    assert y["hidden"].shape == (32, 64)
    assert y["weight"].shape == (10, 32)


def test_half_of_the_labels_are_wrong_and_always_different(task):
    assert task.wrong.sum() == 150
    assert task.f1(torch.from_numpy(np.where(task.wrong, -1.0, 1.0))) == 1.0
    assert task.f1(torch.ones(300)) == 0.0
    assert task.f1(torch.zeros(300)) == pytest.approx(2 / 3)


def test_the_same_seed_is_the_same_problem():
    one, other = (cleaning.problem("digits", train=100, validation=100, test=50, hidden=8, seed=3) for _ in range(2))
    assert (one.wrong == other.wrong).all()
    assert torch.equal(one.y["hidden"], other.y["hidden"])
    third = cleaning.problem("digits", train=100, validation=100, test=50, hidden=8, seed=4)
    assert not (one.wrong == third.wrong).all()


def test_bvfim_finds_wrong_labels_and_learns(task):
    method = bvfim.BVFIM(20, 10, z_lr=0.5, y_lr=0.5, mu1=1e-3, theta=1e-3, mu2=0.1, tau=0.1)
    solution = bvfim.solve(task.problem, task.x, task.y, method, lambda p: torch.optim.Adam(p, 0.1), steps=40)
    assert (solution.history["slack"] > 0).all()
    assert task.f1(solution.x) > 0.8
    assert task.accuracy(solution.y) > 0.85
    assert task.accuracy(task.y) < 0.3


def test_an_unknown_activation_is_refused():
    with pytest.raises(bvfim.DataError, match="activation must be one of identity, relu"):
        cleaning.problem("digits", activation="gelu")


def test_the_papers_problem_on_real_mnist(mnist):
    task = cleaning.problem(mnist, seed=0)
    assert task.x.shape == (5000,)
    assert task.y["hidden"].shape == (300, 784)
    assert task.wrong.sum() == 2500
    assert len(task.test.labels) == 10000
    gradient = bvfim.hypergradient(task.problem, task.x, task.y, bvfim.BVFIM(1, 1))
    assert torch.isfinite(gradient).all()
    assert gradient.abs().max() > 0
