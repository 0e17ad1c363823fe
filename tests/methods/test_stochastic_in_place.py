"""The single loop moves x, y and z where they are: what optimisers, objectives, callbacks and failures make of that."""

from __future__ import annotations

import math

import pytest
import torch

import bvfim

ZERO = torch.zeros(1, dtype=torch.float64)


class Rebinding(torch.optim.Optimizer):
    """Gives its parameters new memory at every step."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr})

    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.data = p.data - group["lr"] * p.grad


class Bare(Rebinding):
    """Changes its parameters without a no_grad of its own."""

    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(group["lr"] * p.grad)


def shifted(one=lambda y: y.sum()):
    return bvfim.Problem(lambda x, y, e: ((y - 1 - e) ** 2).sum(), lambda x, y, e: one(y - x - e) ** 2)


@pytest.mark.parametrize("optimizer", [Rebinding, Bare])
def test_optimisers_of_any_kind_move_what_they_are_given(optimizer):
    options = {"steps": 60, "batches": [0.01, -0.01], "refit": False}
    expected = bvfim.solve(shifted(), ZERO, ZERO, optimizer=lambda p: torch.optim.SGD(p, 0.1), **options)
    found = bvfim.solve(shifted(), ZERO, ZERO, optimizer=optimizer, **options)
    assert expected.x.item() > 0.1
    assert torch.equal(found.x, expected.x)
    assert bvfim.refit(shifted(), ZERO + 1, ZERO, batches=[0.0], steps=80, optimizer=optimizer).y.item() > 0.1


def test_an_objective_that_is_a_part_of_y_is_read_before_y_moves():
    def run(one):
        problem = bvfim.Problem(
            lambda x, y, e: one(y), lambda x, y, e: ((y - x - 1 - e) ** 2).sum(), y_set=bvfim.Box(0, 1)
        )
        return bvfim.solve(problem, ZERO, ZERO + 0.5, steps=40, batches=[0.01, -0.01], refit=False)

    view, copied = run(lambda y: y[0]), run(lambda y: y.sum())
    assert view.history.drop(columns="seconds").equals(copied.history.drop(columns="seconds"))
    assert torch.equal(view.y, copied.y)


@pytest.mark.parametrize("move", [lambda x: x.data.fill_(5.0), lambda x: x.numpy().fill(5.0), lambda x: x.fill_(5.0)])
def test_a_callback_may_move_x_in_any_way(move):
    seen = []

    def callback(run):
        seen.append(run.x.item())
        if run.k == 30:
            move(run.x)

    bvfim.solve(shifted(), ZERO, ZERO, steps=32, batches=[0.01, -0.01], refit=False, callbacks=[callback])
    assert abs(seen[30] - 5.0) < 0.5


def test_a_step_that_broke_off_is_taken_from_where_it_began():
    def sgd(parameters):
        return torch.optim.SGD(parameters, 0.05)

    def run(fails):
        left = [math.inf]

        def lower(x, y, e):
            left[0] -= 1
            if left[0] == 0:
                raise RuntimeError("once")
            return ((y - x - e) ** 2).sum()

        problem = bvfim.Problem(lambda x, y, e: ((y - 1 - e) ** 2).sum(), lower)
        stepper = bvfim.Stepper(problem, ZERO, ZERO, bvfim.StochasticBVFIM(sgd, inner_steps=3), sgd, steps=20)
        for k in range(8):
            if fails and k == 4:
                left[0] = 5  # f is asked for three times in each inner step
                with pytest.raises(RuntimeError, match="once"):
                    stepper.step(0.01)
            stepper.step(0.01 * (-1) ** k)
        return stepper

    assert torch.equal(run(fails=True).y, run(fails=False).y)
