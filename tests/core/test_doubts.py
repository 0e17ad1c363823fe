"""What the course of a run says against its result."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

import bvfim
from bvfim.core.doubts import doubts_of_course

HEART = "know the rows of F by heart"
STILL = "a multiplier= of your own lets it move"


def course(upper, moves=(), rows=4, size=10, given=True, **more):
    """A run with this history, whose batches have so many rows and whose y has so many entries."""
    history = [{"upper": F, **more} for F in upper] + [{"moves": float(m)} for m in moves]
    return SimpleNamespace(
        rows=history, drawn=torch.zeros(rows, 2), draws=SimpleNamespace(given=given), y=torch.zeros(size)
    )


@pytest.mark.parametrize(
    ("run", "doubted"),
    [
        (course([2.0, *[1e-4] * 20]), True),
        (course([2.0, *[1e-2] * 20]), False),
        (course([2.0, *[1.0] * 15, *[1e-4] * 4]), False),
        (course([2.0, *[1e-4] * 20], size=3), False),
        (course([2.0, *[1e-4] * 20], rows=1), False),
        (course([2.0, *[1e-4] * 20], given=False), False),
        (course([2.0, *[1e-4] * 20], holdout=0.5), False),
        (course([-2.0, *[-1e-4] * 20]), False),
        (course([]), False),
    ],
)
def test_f_that_fell_to_nothing(run, doubted):
    assert any(HEART in doubt for doubt in doubts_of_course(run)) is doubted


def test_x_that_waited():
    assert doubts_of_course(course([], [1] + 19 * [0])) == (
        f"x waited in 19 of 20 steps, while f at y was below f at z: {STILL}",
    )
    assert doubts_of_course(course([], 4 * [1] + 16 * [0])) == ()


def rows_of(labels, seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(len(labels), 8, generator=g) + 2 * torch.eye(8)[labels]


def mixed(**method):
    """A network of two layers that AdamW hardly trains, on three sources of labels, one of them random."""
    g = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 8, (600,), generator=g)
    inputs, source = rows_of(labels, 1), torch.randint(0, 3, (600,), generator=g)
    given = torch.where(source == 1, torch.randint(0, 8, (600,), generator=g), labels)
    loss = torch.nn.functional.cross_entropy

    def upper(x, net, rows):
        return loss(net(inputs[400 + rows]), labels[400 + rows])

    def lower(x, net, rows):
        return (3 * torch.softmax(x, 0)[source[rows]] * loss(net(inputs[rows]), given[rows], reduction="none")).mean()

    torch.manual_seed(0)
    make = lambda: torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 8))  # noqa: E731
    batches = bvfim.Batches(upper=bvfim.Shuffled(200, 32, seed=1), lower=bvfim.Shuffled(400, 32, seed=2))
    chosen = bvfim.StochasticBVFIM(y_optimizer=lambda p: torch.optim.AdamW(p, 1e-3), **method)
    twins = bvfim.Twins(make(), make())
    return bvfim.solve(bvfim.Problem(upper, lower), torch.zeros(3), twins, chosen, batches=batches, steps=60)


def test_a_mixture_that_stood_still_says_why():
    """y learns from F too, so that f falls faster at y than at z, and x waits."""
    still, moved = mixed(), mixed(multiplier=10.0)
    assert any(STILL in doubt for doubt in still.doubts)
    assert still.history["moves"].sum() < 0.1 * still.steps
    assert not any(STILL in doubt for doubt in moved.doubts)
    assert (moved.history["moves"] == 1).all()
    assert moved.x.abs().max() > 10 * still.x.abs().max()
