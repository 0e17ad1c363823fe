"""StochasticBVFIM: known optima with and without noise, invariances, what moves y and z, and what it accepts."""

from __future__ import annotations

import copy
import math

import pytest
import torch

import bvfim
from bvfim.methods.stochastic import Tracking

DOUBLE = torch.float64
ZERO = torch.zeros(1, dtype=DOUBLE)


def quadratic(c=1.0, d=0.0, scale=1.0):
    """F = |x - 2|^2 + |y - 2|^2 with y = x - 1: the optimum is x = 2.5, y = 1.5."""
    return bvfim.Problem(
        upper=lambda x, y, e=None: c * ((x - 2) ** 2 + (y - 2 - (0 if e is None else e)) ** 2).sum(),
        lower=lambda x, y, e=None: scale * ((y - x + 1 - (0 if e is None else e)) ** 2).sum() + d,
    )


def noise(count, size=0.5, seed=0):
    return list(size * torch.randn(count, dtype=DOUBLE, generator=torch.Generator().manual_seed(seed)))


def test_it_finds_the_optimum_of_a_quadratic_without_noise():
    found = bvfim.solve(quadratic(), ZERO, ZERO, bvfim.StochasticBVFIM(), steps=2000)
    assert abs(found.x.item() - 2.5) < 0.01
    assert abs(found.y.item() - 1.5) < 0.01
    assert abs(found.z.item() - (found.x.item() - 1)) < 0.01


@pytest.mark.long
@pytest.mark.parametrize("start", [-3.0, 5.0])
def test_without_noise_it_converges(start):
    found = bvfim.solve(quadratic(), ZERO + start, ZERO, bvfim.StochasticBVFIM(), steps=5000)
    assert abs(found.x.item() - 2.5) < 1e-4
    assert found.upper_refit == pytest.approx(0.5, abs=1e-6)


def error_under_noise(steps, seeds):
    runs = [
        bvfim.solve(quadratic(), ZERO, ZERO, steps=steps, batches=noise(20_000, 0.05, seed), refit=False)
        for seed in range(seeds)
    ]
    return math.sqrt(sum((run.x.item() - 2.5) ** 2 for run in runs) / seeds)


def test_under_noise_more_steps_bring_it_closer():
    assert error_under_noise(2000, 1) < 0.65 * error_under_noise(500, 1)


@pytest.mark.long
def test_under_noise_the_error_falls_with_the_square_root_of_the_steps():
    errors = [error_under_noise(steps, 3) for steps in (500, 2000, 8000)]
    for longer, shorter in zip(errors[1:], errors, strict=False):
        assert 0.35 < longer / shorter < 0.65
    assert errors[-1] < 0.08


@pytest.mark.parametrize("changed", [{"c": 8.0}, {"c": 0.25}, {"d": 64.0}, {"scale": 16.0}, {"scale": 0.125}])
def test_scales_and_shifts_of_the_objectives_change_nothing(changed):
    """Powers of two are exact, so that the paths agree to rounding."""
    batches = noise(50)
    plain = bvfim.solve(quadratic(), ZERO, ZERO, steps=100, batches=batches)
    other = bvfim.solve(quadratic(**changed), ZERO, ZERO, steps=100, batches=batches)
    torch.testing.assert_close(other.x, plain.x, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(other.y, plain.y, rtol=1e-9, atol=1e-9)


def test_the_step_of_x_is_along_the_hypergradient_of_the_penalty():
    """x follows the gradient of F + l (f(x, y) - (1 - rho) f(x, z) - rho f(x, y0)), which is reported."""
    problem, x = quadratic(), torch.tensor([0.7], dtype=DOUBLE)
    stepper = bvfim.Stepper(problem, x, ZERO, bvfim.StochasticBVFIM(), lambda p: torch.optim.SGD(p, 1e-3), steps=10**9)
    for _ in range(3):
        (y, z, start, tracking, _), x = stepper.state, stepper.x
        info = stepper.step(torch.zeros(()))

    def value(x):
        F, f = (g(x, y) for g in (problem.upper, problem.lower))
        rho = Tracking(*tracking.tolist()).weights(relative=True)["rho"]
        return F + info["multiplier"] * (f - (1 - rho) * problem.lower(x, z) - rho * problem.lower(x, start))

    expected = torch.func.grad(value)(x)
    torch.testing.assert_close(x - stepper.x, 1e-3 * expected, rtol=1e-9, atol=1e-12)
    assert info["value"] == pytest.approx(value(x).item(), rel=1e-12)


def test_z_trains_as_its_optimiser_alone_would_on_f():
    """With x held, z follows SGD on f exactly, whatever y and the multiplier do."""
    problem, z = quadratic(), ZERO.clone().requires_grad_()
    how = {"y_optimizer": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)}
    how["y_scheduler"] = lambda o: torch.optim.lr_scheduler.StepLR(o, 3)
    still = bvfim.StochasticBVFIM(**how)
    stepper = bvfim.Stepper(problem, ZERO, ZERO, still, lambda p: bvfim.OneScale(p, wait=100))
    optimizer = how["y_optimizer"]([z])
    scheduler = how["y_scheduler"](optimizer)
    for _ in range(8):
        stepper.step(torch.zeros(()))
        (z.grad,) = torch.autograd.grad(problem.lower(ZERO, z), z)
        optimizer.step()
        scheduler.step()
    torch.testing.assert_close(stepper.state.z, z.detach(), rtol=1e-12, atol=1e-12)
    assert torch.equal(stepper.x, ZERO)


def test_one_draw_a_step_and_the_counts_of_the_work():
    drawn = []

    def lower(x, y, e):
        drawn.append(float(e))
        return ((y - x - e) ** 2).sum()

    problem = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum(), lower)
    found = bvfim.solve(problem, ZERO, ZERO, steps=20, batches=noise(20), refit=False)
    first = found.history[["upper_evaluations", "lower_evaluations"]].iloc[0]
    assert found.evaluations["upper"] - first.iloc[0] == 19
    assert found.evaluations["lower"] - first.iloc[1] == 2 * 19
    assert found.evaluations["forward"] == 20 + 2  # f(x, y0) of each step, and F and f of the solution
    late = drawn[-58:-1]  # three calls a step; the very last one gives f of the solution
    assert len(set(late)) == 19
    assert found.evaluations["hvp"] == found.evaluations["jvp"] == 0


def test_inner_steps_track_better():
    lags = []
    for inner in (1, 5):
        method = bvfim.StochasticBVFIM(inner_steps=inner)
        found = bvfim.solve(quadratic(), ZERO, ZERO, method, steps=300, batches=[torch.zeros(())])
        lags.append(abs(found.z.item() - found.x.item() + 1))
    assert lags[1] < lags[0]


def test_sets_hold():
    boxed = bvfim.Problem(quadratic().upper, quadratic().lower, x_set=bvfim.Box(-1, 1), y_set=bvfim.Box(-0.5, 0.5))
    seen = []

    def watch(run):
        seen.append((run.x.item(), run.y.item(), run.state.z.item()))

    found = bvfim.solve(boxed, ZERO, ZERO, steps=400, batches=noise(400, 0.1), callbacks=[watch])
    assert all(abs(x) <= 1 and abs(y) <= 0.5 and abs(z) <= 0.5 for x, y, z in seen)
    assert found.x.item() == pytest.approx(1.0, abs=1e-6)


def test_a_start_that_solves_both_levels_is_not_left():
    """f falls nowhere from there, and neither does F."""
    problem = bvfim.Problem(lambda x, y: (x**2 + y**2).sum(), lambda x, y: ((y - x) ** 2).sum())
    found = bvfim.solve(problem, ZERO, ZERO, steps=50, batches=[None])
    assert found.x.item() == 0
    assert found.y.item() == 0


def test_a_lower_start_at_its_minimiser_still_moves():
    """From y = argmin f(x, .) a range test on f alone would say that y is there."""
    start = torch.tensor([-1.0], dtype=DOUBLE)
    found = bvfim.solve(quadratic(), ZERO, start, bvfim.StochasticBVFIM(), steps=2000)
    assert abs(found.x.item() - 2.5) < 0.1


# -- checkpoints --


@pytest.mark.parametrize("options", [{}, {"y_optimizer": lambda p: torch.optim.AdamW(p, 1e-2)}, {"multiplier": 100.0}])
def test_a_resumed_run_is_the_run_bit_for_bit(tmp_path, options):
    method = bvfim.StochasticBVFIM(**options)
    problem, batches = quadratic(), noise(7)
    whole = bvfim.solve(problem, ZERO, ZERO, method, steps=60, batches=batches)
    path = tmp_path / "run"
    halt = [bvfim.callbacks.Checkpoint(path, every=25), lambda run: run.k == 37]
    bvfim.solve(problem, ZERO, ZERO, method, steps=60, batches=batches, callbacks=halt)
    resumed = bvfim.solve(problem, ZERO, ZERO, method, steps=60, batches=batches, resume=path)
    for name in ("x", "y", "z"):
        assert torch.equal(getattr(resumed, name), getattr(whole, name)), name
    assert resumed.evaluations == whole.evaluations
    assert resumed.history["multiplier"].tolist() == whole.history["multiplier"].tolist()


def test_a_stepper_is_saved_before_its_first_step():
    saved = bvfim.Stepper(quadratic(), ZERO, ZERO, bvfim.StochasticBVFIM(), steps=9).state_dict()
    again = bvfim.Stepper(quadratic(), ZERO, ZERO, bvfim.StochasticBVFIM(), steps=9)
    again.load_state_dict(copy.deepcopy(saved))
    fresh = bvfim.Stepper(quadratic(), ZERO, ZERO, bvfim.StochasticBVFIM(), steps=9)
    for _ in range(5):
        again.step()
        fresh.step()
    assert torch.equal(again.x, fresh.x)


def test_a_stepper_that_has_run_goes_back_to_a_saved_state():
    stepper = bvfim.Stepper(quadratic(), ZERO, ZERO, bvfim.StochasticBVFIM(), steps=40)
    batches = noise(40)
    for e in batches[:10]:
        stepper.step(e)
    saved = stepper.state_dict()
    ends = []  # of two runs from the same state
    for _ in range(2):
        for e in batches[10:]:
            stepper.step(e)
        ends.append(stepper.x)
        stepper.load_state_dict(copy.deepcopy(saved))
    assert torch.equal(*ends)


# -- networks --


def reweighting(module, rows=48):
    g = torch.Generator().manual_seed(1)
    inputs, targets = torch.randn(rows, 5, 6, generator=g), torch.randn(rows, generator=g)

    def loss(y, batch):
        out = torch.func.functional_call(module, y, (inputs[batch],)).mean((1, 2))
        return (out - targets[batch]) ** 2

    problem = bvfim.Problem(
        upper=lambda x, y, batch: loss(y, batch).mean(),
        lower=lambda x, y, batch: (torch.sigmoid(x[batch]) * loss(y, batch)).mean(),
    )
    batches = bvfim.Batches(upper=torch.arange(16).split(8), lower=torch.arange(16, rows).split(8))
    return problem, torch.zeros(rows), bvfim.parameters(module), batches


def test_dropout_draws_the_same_for_y_and_z_and_is_refused_elsewhere():
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Dropout(0.5), torch.nn.Linear(6, 4))
    problem, x, y, batches = reweighting(module)
    found = bvfim.solve(problem, x, y, steps=30, batches=batches)
    assert found.status is bvfim.Status.MAX_STEPS
    at = problem.at(x, bvfim.Draw(torch.arange(8), torch.arange(16, 24)))
    one = torch.ones(())
    seen = at.saddle_grad(y, y, y, one, one, 0.5 * one)
    assert seen.lower == seen.lower_z == seen.lower_start, "y = z has no gap, whatever the noise"
    with pytest.raises(bvfim.ProblemError, match="StochasticBVFIM"):
        bvfim.solve(problem, x, y, bvfim.RHG(steps=2), steps=2, batches=batches)


@pytest.mark.parametrize("autocast", [False, True])
def test_attention_trains_without_second_derivatives(autocast, recwarn):
    torch.manual_seed(0)
    module = torch.nn.TransformerEncoderLayer(6, 2, 8, batch_first=True)
    problem, x, y, batches = reweighting(module)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        found = bvfim.solve(problem, x, y, steps=40, batches=batches)
    assert found.status is bvfim.Status.MAX_STEPS
    assert found.history["lower"].tail(5).mean() < found.history["lower"].head(5).mean()
    assert not [w for w in recwarn if issubclass(w.category, bvfim.BvfimWarning)]


# -- what is refused --


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inner_steps": 0}, "inner_steps must be a whole number"),
        ({"y_optimizer": 0.1}, "y_optimizer must be a function"),
        ({"y_scheduler": "cosine"}, "y_scheduler must be a function"),
    ],
)
def test_bad_settings_are_refused(options, message):
    with pytest.raises(bvfim.MethodError, match=message):
        bvfim.StochasticBVFIM(**options)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        (bvfim.StochasticBVFIM(), {"tol": 0.1}, "takes no tol"),
        (bvfim.StochasticBVFIM(lambda p: torch.optim.LBFGS(p)), {}, "LBFGS"),
        (bvfim.StochasticBVFIM(lambda p: 3), {}, "returned a int"),
    ],
)
def test_what_a_run_can_not_take_is_refused(method, options, message):
    with pytest.raises(bvfim.MethodError, match=message):
        bvfim.solve(quadratic(), ZERO, ZERO, method, steps=2, **options)


@pytest.mark.long
def test_a_compiled_step_is_the_plain_one_up_to_rounding():
    problem, x, y, batches = reweighting(torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Tanh()))
    plain, compiled = (
        bvfim.solve(problem, x, y, steps=12, batches=batches, accelerate=way, refit=False)
        for way in ("none", "compile")
    )
    torch.testing.assert_close(compiled.x, plain.x, rtol=1e-3, atol=1e-4)
    assert compiled.evaluations == plain.evaluations


def test_a_scheduler_may_wait_for_a_plateau():
    plateau = lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(o, patience=0)  # noqa: E731
    method = bvfim.StochasticBVFIM(y_scheduler=plateau)
    found = bvfim.solve(quadratic(), ZERO, ZERO, method, steps=20, scheduler=plateau, batches=noise(20))
    assert found.steps == 20


def test_it_estimates_no_hypergradient_for_others():
    with pytest.raises(bvfim.MethodError, match="does not estimate a hypergradient"):
        bvfim.hypergradient(quadratic(), ZERO, ZERO, bvfim.StochasticBVFIM())
