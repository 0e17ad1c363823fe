"""StochasticBVFIM with constraints: known optima and multipliers, units, batches, checkpoints, what it refuses."""

from __future__ import annotations

import math

import pytest
import torch

import bvfim
from bvfim.core.multipliers import first

DOUBLE = torch.float64
ZERO = torch.zeros(1, dtype=DOUBLE)


def capped(of_g=1.0, of_F=1.0, of_f=1.0):
    """F = |x - 2|^2 + |y - 2|^2 where y is x, but at most 1: x = 2, y = 1, F = 1, and the multiplier of f is 2."""
    return bvfim.Problem(
        upper=lambda x, y: of_F * ((x - 2) ** 2 + (y - 2) ** 2).sum(),
        lower=lambda x, y: of_f * ((y - x) ** 2).sum(),
        lower_constraints=lambda x, y: of_g * (y - 1),
    )


def solved(problem, steps=300, x=ZERO, y=ZERO, **options):
    return bvfim.solve(problem, x, y, bvfim.StochasticBVFIM(), steps=steps, progress=False, **options)


def stepped(problem):
    stepper = bvfim.Stepper(problem, ZERO, ZERO, bvfim.StochasticBVFIM(), steps=2)
    stepper.step()
    return stepper.state.multipliers


def test_the_optimum_where_a_constraint_holds_y_back():
    found = solved(capped())
    torch.testing.assert_close(found.x, ZERO + 2, rtol=0, atol=1e-3)
    torch.testing.assert_close(found.y, ZERO + 1, rtol=0, atol=1e-3)
    assert found.rows[-1]["violation"] <= 1e-4
    assert found.rows[-1]["upper"] == pytest.approx(found.upper, abs=1e-6)
    assert abs(found.lower_gap) < 1e-3  # f without its constraint falls by one more
    assert found.upper_refit == pytest.approx(1.0, abs=1e-3)


def test_the_multiplier_is_that_of_the_lower_level_as_it_is_stated():
    stepper = bvfim.Stepper(capped(of_g=8.0), ZERO, ZERO, bvfim.StochasticBVFIM(), steps=300)
    for _ in range(300):
        stepper.step()
    found = stepper.solution().multipliers["lower_constraints"]
    torch.testing.assert_close(found, ZERO + 2 / 8, rtol=0, atol=1e-2)


@pytest.mark.long
def test_an_equality_and_its_multiplier():
    """y_1 + y_2 = x, nearest to (1, 0): y = ((x + 1) / 2, (x - 1) / 2). F is least where y_1 = 2: x = 3."""
    problem = bvfim.Problem(
        upper=lambda x, y: (y[0] - 2) ** 2,
        lower=lambda x, y: (y[0] - 1) ** 2 + y[1] ** 2,
        lower_equalities=lambda x, y: y.sum() - x,
    )
    found = solved(problem, 600, y=torch.zeros(2, dtype=DOUBLE))
    assert abs(found.x.item() - 3) < 1e-2
    torch.testing.assert_close(found.multipliers["lower_equalities"], ZERO - 2, rtol=0, atol=0.1)
    torch.testing.assert_close(found.y, torch.tensor([2.0, 1.0], dtype=DOUBLE), rtol=0, atol=1e-2)
    assert found.rows[-1]["violation"] <= 1e-3


@pytest.mark.long
def test_a_constraint_of_the_upper_level_leaves_the_lower_one_alone():
    """y = x and F = |y - 2|^2, where x + y <= 2: x = y = 1."""
    problem = bvfim.Problem(
        upper=lambda x, y: ((y - 2) ** 2).sum(),
        lower=lambda x, y: ((y - x) ** 2).sum(),
        upper_constraints=lambda x, y: x + y - 2,
    )
    found = solved(problem, 1000)
    assert abs(found.x.item() - 1) < 1e-2
    assert found.lower_gap < 1e-4
    assert len(stepped(problem).u) == 0


@pytest.mark.parametrize("changed", [{"of_g": 2.0**-13}, {"of_g": 2.0**13}, {"of_F": 8.0}, {"of_f": 2.0**-4}])
def test_units_change_nothing(changed):
    """Powers of two are exact, so that the paths agree to rounding."""
    plain, other = (solved(problem, 100, refit=False) for problem in (capped(), capped(**changed)))
    torch.testing.assert_close(other.x, plain.x, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(other.y, plain.y, rtol=1e-9, atol=1e-9)
    assert other.rows[-1]["violation"] == pytest.approx(plain.rows[-1]["violation"], rel=1e-6, abs=1e-12)


def test_without_constraints_there_is_no_place_for_them():
    problem = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum())
    stepper = bvfim.Stepper(problem, ZERO, ZERO, bvfim.StochasticBVFIM(), steps=10)
    assert "violation" not in stepper.step()
    assert stepper.state.multipliers == ()


def noise(count, size):
    return list(size * torch.randn(count, dtype=DOUBLE, generator=torch.Generator().manual_seed(0)))


def with_noise():
    return bvfim.Problem(
        upper=lambda x, y: ((x - 2) ** 2 + (y - 2) ** 2).sum(),
        lower=lambda x, y: ((y - x) ** 2).sum(),
        lower_constraints=lambda x, y, e: y - 1 - e,
    )


@pytest.mark.long
def test_constraints_may_depend_on_the_batch():
    found = solved(with_noise(), 1000, batches=noise(500, 0.1))
    assert abs(found.y.item() - 1) < 0.05
    assert abs(found.x.item() - 2) < 0.1
    assert math.isnan(found.lower_gap)
    assert "with batches" in found.doubts[0]


def test_a_stepper_needs_a_batch_to_count_constraints_with():
    stepper = bvfim.Stepper(with_noise(), ZERO, ZERO, bvfim.StochasticBVFIM(), steps=10)
    with pytest.raises(bvfim.MethodError, match="pass batch="):
        stepper.step(torch.zeros(()))
    stepper = bvfim.Stepper(with_noise(), ZERO, ZERO, bvfim.StochasticBVFIM(), steps=10, batch=torch.zeros(()))
    assert "violation" in stepper.step(torch.zeros(()))


@pytest.mark.parametrize("batches", [None, noise(30, 0.1)])
def test_a_run_resumes_bit_for_bit(tmp_path, batches):
    problem, options = (capped() if batches is None else with_noise()), {"refit": False, "batches": batches}
    path = tmp_path / "run.safetensors"

    def save(run):
        if run.k == 12:
            run.save(path)

    whole = solved(problem, 25, callbacks=[save], **options)
    resumed = solved(problem, 25, resume=path, **options)
    assert torch.equal(whole.x, resumed.x)
    assert torch.equal(whole.y, resumed.y)
    assert [row["violation"] for row in whole.rows] == [row["violation"] for row in resumed.rows]


@pytest.mark.long
def test_an_entry_at_a_bound_of_y_does_not_run_away():
    """y >= 0 holds y_2 back for hundreds of steps, until x is above 2; Rprop's steps must not grow meanwhile."""
    problem = bvfim.Problem(
        upper=lambda x, y: ((x - 3) ** 2).sum(),
        lower=lambda x, y: ((y - torch.cat([x, x - 2])) ** 2).sum(),
        lower_constraints=lambda x, y: y[0] - 2.5,
        y_set=bvfim.Box(0.0, math.inf),
    )
    found = solved(problem, 500, y=torch.zeros(2, dtype=DOUBLE), refit=False)
    assert max(row["lower"] for row in found.rows) < 100
    torch.testing.assert_close(found.y, torch.tensor([2.5, 1.0], dtype=DOUBLE), rtol=0, atol=1e-3)


def test_modules_are_refused():
    problem = bvfim.Problem(
        upper=lambda x, net, data: net(x).sum() ** 2,
        lower=lambda x, net, data: net(x).sum() ** 2,
        lower_constraints=lambda x, net, data: net(x),
    )
    twins = bvfim.Twins(torch.nn.Linear(1, 1), torch.nn.Linear(1, 1))
    with pytest.raises(bvfim.MethodError, match=r"bvfim\.Twins.*constraints"):
        bvfim.solve(problem, torch.zeros(1), twins, batches=[torch.zeros(1)], steps=2)


def test_sizes_of_gradients_are_exact_for_a_few_neighbours():
    def constraints(x, y):
        return torch.stack([3 * x[0] + 4 * y[0], y[1] ** 2 - 7, 1e6 * y[1]])

    problem = bvfim.Problem(lambda x, y: y.sum(), lambda x, y: (y**2).sum(), lower_constraints=constraints)
    found = first(problem, ZERO, torch.tensor([0.0, 2.0], dtype=DOUBLE))
    torch.testing.assert_close(found.sigma[[0, 2]], torch.tensor([5.0, 1e6], dtype=DOUBLE), rtol=1e-6, atol=0)
    assert 0 < found.sigma[1] < 8


@pytest.mark.long
def test_compiled_steps_take_the_same_path():
    plain, compiled = (solved(capped(), 30, refit=False, accelerate=way) for way in ("none", "compile"))
    torch.testing.assert_close(compiled.x, plain.x, rtol=1e-8, atol=1e-8)


def test_a_refit_keeps_the_constraints():
    found = bvfim.refit(capped(), ZERO + 2, ZERO)
    assert found.lower == pytest.approx(1.0, abs=1e-5)
    torch.testing.assert_close(found.y, ZERO + 1, rtol=0, atol=1e-5)
    with pytest.raises(bvfim.MethodError, match="no batches="):
        bvfim.refit(with_noise(), ZERO + 2, ZERO, batches=noise(3, 0.1))


def test_no_gap_is_told_where_no_y_meets_the_constraints():
    problem = bvfim.Problem(
        upper=lambda x, y: ((x - y) ** 2).sum(),
        lower=lambda x, y: ((y - x) ** 2).sum(),
        lower_constraints=lambda x, y: y**2 + 1,
    )
    found = solved(problem, 100)
    assert math.isnan(found.lower_gap)
    assert "could not be met" in found.doubts[0]
    with pytest.warns(bvfim.BvfimWarning, match="could not be met"):
        bvfim.refit(problem, ZERO, ZERO, steps=50)
