"""AdaptiveBVFIM: the true barrier converges, from far starts, with first gradients only."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import bvfim
from bvfim.callbacks import Checkpoint
from bvfim.testproblems import collection, sine, solved, starts
from tests.methods.test_bvfim import OnlyOnce

D = torch.float64


@pytest.mark.parametrize(("a", "start"), [(0, 3.0), (0, -9.0), (2, 3.0), (2, -6.0), (-1, 8.0), (3.5, -2.0)])
def test_the_toy_is_solved_from_far_away(a, start):
    toy = sine(a)
    begin = torch.full((1,), start, dtype=D)
    solution = bvfim.solve(toy.problem, begin, begin, bvfim.AdaptiveBVFIM())
    assert solution.status is bvfim.Status.CONVERGED
    assert abs(solution.x - toy.x).item() < 2e-3
    assert solution.upper == pytest.approx(toy.upper, abs=5e-3)
    assert (solution.history["slack"] > 0).all()
    assert solution.evaluations["hvp"] == solution.evaluations["jvp"] == 0


def from_six_starts(test, seed=0):
    xs, ys = (torch.stack(t) for t in zip(*starts(test, 6, seed), strict=True))
    return bvfim.solve_many(test.problem, xs, ys, bvfim.AdaptiveBVFIM(seed=100 * seed))


@pytest.mark.long
@pytest.mark.parametrize("test", collection(), ids=lambda t: t.name)
def test_problems_of_the_literature_after_choosing_among_six_starts(test):
    ended = [s for s in from_six_starts(test) if s.certificate.solved]
    best = min(ended, key=lambda s: s.upper)
    assert solved(test, best.x, best.y), str(best)


def test_the_regularisers_obey_the_theorem():
    toy = sine(2)
    begin = torch.full((1,), 3.0, dtype=D)
    history = bvfim.solve(toy.problem, begin, begin, bvfim.AdaptiveBVFIM(tol=1e-6)).history
    product = (history["tau"] * np.log(history["mu2"])).abs()
    assert product.iloc[-1] < 0.1 * product.max()
    assert history["tau"].iloc[-1] < 0.1 * history["tau"].max()
    assert history["mu2"].is_monotonic_decreasing
    assert (history["gap"].iloc[-1]) < 1e-6


@pytest.mark.long
@pytest.mark.parametrize("a", [0, 2, -1, 3.5])
def test_the_toy_is_solved_from_a_grid_of_starts(a):
    toy, line = sine(a), torch.linspace(-10, 10, 20, dtype=D)
    starts_ = torch.cartesian_prod(line, line)
    found = bvfim.solve_many(toy.problem, starts_[:, :1], starts_[:, 1:])
    errors = torch.stack([torch.maximum((s.x - toy.x).abs(), (s.y - toy.y).abs()) for s in found])
    assert (errors <= 1e-3).double().mean() >= 0.99


@pytest.mark.long
@pytest.mark.parametrize("a", [2, -1])
def test_a_finer_tolerance_reaches_more_digits(a):
    """tol bounds the error of F; that of x is about its square root, times what luck leaves."""
    toy, errors = sine(a), []
    for start in (-6.0, 0.0, 3.0, 6.0, 9.0):
        begin = torch.full((1,), start, dtype=D)
        solution = bvfim.solve(toy.problem, begin, begin, bvfim.AdaptiveBVFIM(tol=1e-6))
        assert solution.status is bvfim.Status.CONVERGED
        assert abs(solution.upper - toy.upper) < 1e-6 * toy.upper
        errors.append(max(abs(solution.x - toy.x).item(), abs(solution.y - toy.y).item()))
    assert sorted(errors)[2] < 1e-5
    assert max(errors) < 1e-4


@pytest.mark.long
@pytest.mark.parametrize("start", [0.0, 3.0])
def test_a_thousand_dimensions_cost_no_more_gradients_than_one(start):
    counts = []
    for n in (1, 1000):
        toy = sine(2, n=n)
        solution = bvfim.solve(toy.problem, torch.full_like(toy.x, start), torch.full_like(toy.y, start))
        assert solved(toy, solution.x, solution.y)
        counts.append((solution.evaluations["upper"], solution.evaluations["lower"]))
    (small_F, small_f), (large_F, large_f) = counts
    assert large_F <= 1.5 * small_F
    assert large_f <= 2 * small_f  # z has L-BFGS alone where there is no room for its curvature


SCALES = [(1.0, 1.0, 100.0), (1.0, 1.0, -100.0), (7.0, 1.0, 0.0), (1.0, 3.0, 0.0), (1e8, 1e-8, 0.0), (1e-8, 1e8, 0.0)]


@pytest.mark.parametrize(("of_F", "of_f", "shift"), SCALES)
def test_scales_of_both_and_a_constant_in_f_leave_the_path_the_same(of_F, of_f, shift):
    toy = sine(2)
    moved = bvfim.Problem(
        lambda x, y: of_F * toy.problem.upper(x, y), lambda x, y: of_f * toy.problem.lower(x, y) + shift
    )
    begin = torch.full((1,), 3.0, dtype=D)
    one, other = (bvfim.solve(p, begin, begin) for p in (toy.problem, moved))
    assert other.status is one.status
    for kind, count in one.evaluations.items():  # the wells of the sine are equally low: rounding chooses among them
        assert other.evaluations[kind] == pytest.approx(count, rel=0.05)
    assert torch.allclose(one.x, other.x, atol=1e-4)
    first = slice(10)  # while mu2 is far above the rounding of f
    assert np.allclose(of_F * one.history["upper"][first], other.history["upper"][first], rtol=1e-7)
    assert np.allclose(of_f * one.history["mu2"][first], other.history["mu2"][first], rtol=1e-7)


def test_a_permutation_and_a_shift_of_the_variables_move_the_result_along():
    toy = sine(2, n=4, c=2.0)
    order, by = torch.tensor([2, 0, 3, 1]), torch.tensor([0.5, -1.0, 0.25, 0.0], dtype=D)
    target = torch.tensor([1.0, 0.0, -1.0, 2.0], dtype=D)
    upper = lambda x, y: toy.problem.upper(x, y) + (y * target).sum()  # noqa: E731
    moved = bvfim.Problem(
        lambda x, y: upper(x - 1.0, (y - by)[order]), lambda x, y: toy.problem.lower(x - 1.0, (y - by)[order])
    )
    x, y = torch.zeros(1, dtype=D), torch.linspace(-1, 1, 4, dtype=D)
    one = bvfim.solve(bvfim.Problem(upper, toy.problem.lower), x, y)
    other = bvfim.solve(moved, x + 1.0, y[order.argsort()] + by)
    assert one.upper == pytest.approx(other.upper, rel=1e-3)
    assert torch.allclose(one.x, other.x - 1.0, atol=5e-3)
    assert torch.allclose(one.y, (other.y - by)[order], atol=5e-3)


def test_several_starts_find_what_one_misses():
    test = next(t for t in collection() if t.name == "MitsosBarton2006Ex319")
    [(x, y)] = starts(test, 1, seed=2)
    one, many = (bvfim.solve(test.problem, x, y, bvfim.AdaptiveBVFIM(starts=n, seed=1)) for n in (1, 12))
    assert not solved(test, one.x, one.y)
    assert solved(test, many.x, many.y), str(many.certificate)
    assert many.certificate.starts == 12
    assert 1 <= many.certificate.agreeing < many.certificate.solved


def test_float32():
    toy = sine(2)
    begin = torch.full((1,), -4.0)
    solution = bvfim.solve(toy.problem, begin, begin)
    assert solution.status is bvfim.Status.CONVERGED
    assert solution.x.dtype == torch.float32
    assert abs(solution.upper - toy.upper) < bvfim.AdaptiveBVFIM().tol_of(begin) * toy.upper
    assert abs(solution.x - toy.x).item() < 1e-2, "F is flat there: x is known to the root of F's tolerance"


def test_no_double_backward():
    problem = bvfim.Problem(
        lambda x, y: OnlyOnce.apply(y - x).sum() + (x**2).sum(), lambda x, y: OnlyOnce.apply(y + x - 1).sum()
    )
    x = torch.ones(2, dtype=D)
    solution = bvfim.solve(problem, x, x, bvfim.AdaptiveBVFIM())
    assert solution.status is bvfim.Status.CONVERGED
    # min (1 - 2x)^2 + x^2 at y = 1 - x: x = 0.4
    assert torch.allclose(solution.x, torch.full((2,), 0.4, dtype=D), atol=2e-2)


def test_trees_context_and_sets():
    problem = bvfim.Problem(
        upper=lambda x, y, c: ((y["a"] - 2) ** 2).sum() + (c**2).sum(),
        lower=lambda x, y, c: ((y["a"] - c) ** 2).sum() + (y["b"] ** 2).sum(),
        x_set=bvfim.Box(0.0, 0.8),
        context=lambda x, batch: 1.5 * x["w"],
    )
    x = {"w": torch.full((2,), 0.1, dtype=D)}
    y = {"a": torch.zeros(2, dtype=D), "b": torch.ones(1, dtype=D)}
    solution = bvfim.solve(problem, x, y, bvfim.AdaptiveBVFIM(tol=1e-5))
    # y = c and F = (c - 2)^2 + c^2 is least at c = 1, x = 2/3.
    assert torch.allclose(solution.x["w"], torch.full((2,), 2 / 3, dtype=D), atol=5e-3)
    assert solution.y["b"].abs().max() < 0.05


def test_resuming_is_bit_for_bit(tmp_path):
    toy = sine(2)
    begin, path = torch.full((1,), 3.0, dtype=D), tmp_path / "run.safetensors"
    whole = bvfim.solve(toy.problem, begin, begin, bvfim.AdaptiveBVFIM(), steps=8)
    bvfim.solve(toy.problem, begin, begin, bvfim.AdaptiveBVFIM(), steps=3, callbacks=[Checkpoint(path)])
    resumed = bvfim.solve(toy.problem, begin, begin, bvfim.AdaptiveBVFIM(), steps=8, resume=path)
    assert torch.equal(whole.x, resumed.x)
    assert torch.equal(whole.y, resumed.y)


def test_what_a_solver_does_not_take_is_refused():
    toy, begin = sine(2), torch.zeros(1, dtype=D)
    for name, given in (("optimizer", torch.optim.SGD), ("tol", 0.1), ("batches", [1])):
        with pytest.raises(bvfim.MethodError, match=f"AdaptiveBVFIM moves x itself and takes no {name}"):
            bvfim.solve(toy.problem, begin, begin, bvfim.AdaptiveBVFIM(), **{name: given})
    with pytest.raises(bvfim.MethodError, match="AdaptiveBVFIM does not estimate a hypergradient"):
        bvfim.hypergradient(toy.problem, begin, begin, bvfim.AdaptiveBVFIM())


def quadratic(x, y):
    return ((x - 1) ** 2 + (y - 1) ** 2).sum()


def near(x, y):
    return ((y - x) ** 2).sum()


OK, STUCK, UNBOUNDED = bvfim.Status.CONVERGED, bvfim.Status.STUCK, bvfim.Status.UNBOUNDED
HURTING = {
    "f falls like a cubic": (quadratic, lambda x, y: (y**3).sum(), {UNBOUNDED}),
    "f falls like a parabola": (quadratic, lambda x, y: -(y**2).sum(), {UNBOUNDED}),
    "f falls like a line": (quadratic, lambda x, y: (y + 0 * x).sum(), {UNBOUNDED}),
    "f falls like a logarithm": (quadratic, lambda x, y: -(1 + (y - x) ** 2).log().sum(), {UNBOUNDED}),
    "F falls like a line": (lambda x, y: (x + y).sum(), near, {UNBOUNDED}),
    "F falls like a parabola": (lambda x, y: -(x**2).sum(), near, {UNBOUNDED}),
    "F falls like a logarithm": (lambda x, y: -(1 + x**2).log().sum(), near, {UNBOUNDED}),
    "f is constant in y": (quadratic, lambda x, y: (0 * y + x**2).sum(), {OK}),
    "f is constant": (quadratic, lambda x, y: (0 * y + 3).sum(), {OK}),
    "f is zero": (quadratic, lambda x, y: (0 * y).sum(), {OK}),
    "f has a plateau": (quadratic, lambda x, y: torch.relu((y - x).abs() - 0.5).sum(), {OK}),
    "f has a kink": (quadratic, lambda x, y: (y - x).abs().sum(), {OK, STUCK}),
    "f has a cliff": (quadratic, lambda x, y: near(x, y) + torch.where(y > 0.6, 1e6, 0.0).sum(), {STUCK}),
    "f explodes": (quadratic, lambda x, y: near(x, y) + torch.exp(20 * (y - 0.5)).sum(), {OK, STUCK}),
    "f is NaN for y < 0": (quadratic, lambda x, y: (y - y.log() + (y - x) ** 2).sum(), {OK}),
    "y is a thousand times larger": (
        lambda x, y: ((x - 1) ** 2).sum() + (y**2).sum() / 1e6,
        lambda x, y: ((y - 1e3 * x) ** 2).sum(),
        {OK},
    ),
    "F is flat at the start": (lambda x, y: -torch.exp(-((x - 6) ** 2)).sum(), near, {OK, STUCK}),
}


@pytest.mark.long
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("name", HURTING)
def test_objectives_that_hurt_end_in_a_truthful_status(name, dtype):
    upper, lower, allowed = HURTING[name]
    x, y = torch.tensor([0.3], dtype=dtype), torch.tensor([0.4], dtype=dtype)
    solution = bvfim.solve(bvfim.Problem(upper, lower), x, y)
    if dtype is torch.float32:  # coarser, so that less can be shown
        allowed = allowed | {STUCK, bvfim.Status.GAP_OPEN}
    assert solution.status in allowed, str(solution.certificate)
    assert sum(solution.evaluations.values()) < 250_000
    assert solution.x.isfinite().all()
    assert solution.y.isfinite().all()
    if solution.status in (OK, STUCK):
        line = torch.linspace(-8, 8, 4001, dtype=dtype)
        lowest = torch.stack([lower(solution.x, v[None]) for v in line]).nan_to_num(torch.inf).min()
        assert solution.lower - lowest <= solution.certificate.gap_allowed + 1e-4 * (1 + abs(solution.lower))


def test_a_lower_level_without_a_minimum_does_not_converge_from_either_side():
    for sign in (1.0, -1.0):
        problem = bvfim.Problem(quadratic, lambda x, y, sign=sign: (sign * y**3).sum())
        assert bvfim.solve(problem, torch.ones(1, dtype=D), torch.ones(1, dtype=D)).status is UNBOUNDED


def test_a_start_on_a_saddle_is_left():
    problem = bvfim.Problem(quadratic, lambda x, y: ((y**2 - 1) ** 2 + 0 * x).sum())
    solution = bvfim.solve(problem, torch.zeros(1, dtype=D), torch.zeros(1, dtype=D))
    assert solution.status is OK
    assert solution.upper == pytest.approx(0, abs=1e-6)


def test_a_curved_valley_is_no_open_gap():
    target = torch.tensor([2.0, 4.0], dtype=D)
    problem = bvfim.Problem(
        lambda x, y: ((y - target) ** 2).sum() + 0.01 * (x**2).sum(),
        lambda x, y: 100 * (y[1] - y[0] ** 2) ** 2 + (x.sum() - y[0]) ** 2,
    )
    solution = bvfim.solve(problem, torch.full((1,), 0.3, dtype=D), torch.tensor([-1.2, 1.0], dtype=D))
    assert solution.upper == pytest.approx(0.04, abs=1e-3)
    assert solution.lower < 1e-3


def test_nothing_finite_at_the_start():
    problem = bvfim.Problem(quadratic, lambda x, y: (y.log() + x * 0).sum() * torch.nan)
    assert bvfim.solve(problem, torch.ones(1), torch.ones(1)).status is bvfim.Status.NON_FINITE


@pytest.mark.parametrize(
    "bad", [{"rate": 1.0}, {"rate": 0.0}, {"tol": 0.0}, {"starts": 0}, {"scouts": -1}, {"seed": 1.5}, {"seed": "a"}]
)
def test_hyper_parameters_out_of_range_are_refused(bad):
    with pytest.raises(bvfim.MethodError, match=f"AdaptiveBVFIM: {next(iter(bad))} must be"):
        bvfim.AdaptiveBVFIM(**bad)


def test_a_finished_run_is_not_gone_on_with(tmp_path):
    toy, begin, path = sine(2), torch.full((1,), 3.0, dtype=D), tmp_path / "run.safetensors"
    whole = bvfim.solve(toy.problem, begin, begin, callbacks=[Checkpoint(path)])
    again = bvfim.solve(toy.problem, begin, begin, resume=path)
    assert again.status is whole.status
    assert again.steps == whole.steps


@pytest.mark.slow
def test_most_starts_of_most_problems():
    for seed in range(2):
        outcomes = [solved(test, s.x, s.y) for test in collection() for s in from_six_starts(test, seed)]
        assert sum(outcomes) >= 118


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_refused(dtype):
    start = torch.ones(1, dtype=dtype)
    problem = bvfim.Problem(lambda x, y: (y**2).sum(), lambda x, y: ((y - x) ** 2).sum())
    with pytest.raises(bvfim.MethodError, match="needs float32 or float64"):
        bvfim.solve(problem, start, start)
