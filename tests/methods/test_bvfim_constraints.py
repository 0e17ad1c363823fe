"""BVFIM with constraints: known optima and multipliers, its hypergradient, units, many starts, checkpoints."""

from __future__ import annotations

import pytest
import torch

import bvfim
from bvfim.core.multipliers import Multipliers
from bvfim.schedules import geometric

DOUBLE = torch.float64
ZERO = torch.zeros(1, dtype=DOUBLE)


def capped(of_g=1.0):
    """F = |x - 2|^2 + |y - 2|^2 where y is x, but at most 1: x = 2, y = 1, F = 1, and the multiplier of f is 2."""
    return bvfim.Problem(
        upper=lambda x, y: ((x - 2) ** 2 + (y - 2) ** 2).sum(),
        lower=lambda x, y: ((y - x) ** 2).sum(),
        lower_constraints=lambda x, y: of_g * (y - 1),
    )


def method(steps, **changed):
    """Schedules that end at 1e-4."""
    falling, small = geometric(1.0, 1e-4 ** (1 / steps)), geometric(1e-3, 1e-4 ** (1 / steps))
    given = {"z_steps": 10, "y_steps": 10, "z_lr": 0.1, "y_lr": 0.1, "mu1": small, "theta": small}
    return bvfim.BVFIM(**{**given, "mu2": falling, "tau": falling, **changed})


def solved(problem, steps=200, **options):
    own = options.pop("own", None) or method(steps)
    adam = {"optimizer": lambda p: torch.optim.Adam(p, 0.1)}
    return bvfim.solve(problem, ZERO, ZERO, own, steps=steps, progress=False, **adam, **options)


@pytest.mark.long
@pytest.mark.parametrize("mu2", [None, bvfim.methods.LowerValue(1.0)])
def test_the_optimum_where_a_constraint_holds_y_back(mu2):
    changed = {} if mu2 is None else {"mu2": mu2}
    found = solved(capped(), 400, own=method(400, **changed))
    torch.testing.assert_close(found.x, ZERO + 2, rtol=0, atol=0.05)
    torch.testing.assert_close(found.y, ZERO + 1, rtol=0, atol=0.02)
    assert found.rows[-1]["violation"] <= 1e-3
    assert found.rows[-1]["upper"] == pytest.approx(found.upper, rel=0.02)


def test_the_multiplier_is_that_of_the_lower_level():
    stepper = bvfim.Stepper(capped(), ZERO + 2, ZERO, method(60), lambda p: torch.optim.SGD(p, 0.0))
    for _ in range(60):
        stepper.step()
    assert stepper.state.multipliers.u.item() == pytest.approx(2.0, abs=1e-3)
    torch.testing.assert_close(stepper.state.z, ZERO + 1, rtol=0, atol=1e-3)


def test_the_hypergradient_is_the_derivative_of_its_value_at_fixed_multipliers():
    problem, own = capped(), method(1, z_steps=150, y_steps=150, mu1=0.1, mu2=0.5, theta=0.1, tau=0.1)
    x, h = ZERO + 1.5, 1e-4
    state = own.init(problem, x, ZERO + 0.5)
    held = state.multipliers
    state = state._replace(multipliers=held._replace(u=held.u + 0.4, v=held.v + 0.2))

    def found(x):
        return own.estimate(problem, x, state, 0, None)

    difference = (found(x + h)[2]["value"] - found(x - h)[2]["value"]) / (2 * h)
    assert found(x)[0].item() == pytest.approx(difference.item(), rel=1e-4)


@pytest.mark.parametrize("of_g", [2.0**-13, 2.0**13])
def test_units_of_a_constraint_change_nothing(of_g):
    """Powers of two are exact, so that the paths agree to rounding."""
    plain, other = (solved(problem, 30, refit=False) for problem in (capped(), capped(of_g)))
    torch.testing.assert_close(other.x, plain.x, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(other.y, plain.y, rtol=1e-9, atol=1e-9)


def test_without_constraints_there_is_no_place_for_them():
    problem = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum())
    stepper = bvfim.Stepper(problem, ZERO, ZERO, method(10))
    assert "violation" not in stepper.step()
    assert stepper.state.multipliers == ()


def test_many_starts_each_have_their_multipliers():
    starts = torch.tensor([[0.0], [3.0]], dtype=DOUBLE)
    many = bvfim.solve_many(capped(), starts, 0 * starts, method(20), steps=20)
    alone = [bvfim.solve(capped(), x, 0 * x, method(20), steps=20, refit=False) for x in starts]
    for one, other in zip(many, alone, strict=True):
        torch.testing.assert_close(one.x, other.x, rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(one.y, other.y, rtol=1e-8, atol=1e-10)


def test_a_run_resumes_bit_for_bit(tmp_path):
    path = tmp_path / "run.safetensors"

    def save(run):
        if run.k == 5:
            run.save(path)

    whole = solved(capped(), 10, callbacks=[save], refit=False, own=method(10))
    resumed = solved(capped(), 10, resume=path, refit=False, own=method(10))
    assert torch.equal(whole.x, resumed.x)
    assert [row["violation"] for row in whole.rows] == [row["violation"] for row in resumed.rows]


def test_constraints_may_depend_on_the_batch_and_the_context():
    problem = bvfim.Problem(
        upper=lambda x, y, c: ((y - 2) ** 2).sum() * c,
        lower=lambda x, y, c: ((y - x) ** 2).sum(),
        context=lambda x, batch: batch + 0 * x.sum(),
        lower_constraints=lambda x, y, c: y - c,
    )
    found = solved(problem, 5, batches=[torch.tensor(1.0, dtype=DOUBLE)])
    assert found.rows[-1]["violation"] >= 0
    stepper = bvfim.Stepper(problem, ZERO, ZERO, method(5), batch=torch.tensor(1.0, dtype=DOUBLE))
    assert isinstance(stepper.state.multipliers, Multipliers)
