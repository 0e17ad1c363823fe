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


@pytest.mark.parametrize("test", collection(), ids=lambda t: t.name)
def test_problems_of_the_literature_after_choosing_among_six_starts(test):
    ended = [s for s in from_six_starts(test) if s.status is bvfim.Status.CONVERGED]
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


@pytest.mark.parametrize("shift", [100.0, -100.0])
def test_a_constant_in_f_leaves_the_path_the_same(shift):
    toy = sine(2)
    moved = bvfim.Problem(toy.problem.upper, lambda x, y: toy.problem.lower(x, y) + shift)
    begin = torch.full((1,), 3.0, dtype=D)
    one, other = (bvfim.solve(p, begin, begin, bvfim.AdaptiveBVFIM(), steps=6) for p in (toy.problem, moved))
    assert torch.allclose(one.x, other.x, atol=1e-5)
    assert torch.allclose(one.y, other.y, atol=1e-5)


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
    with pytest.raises(bvfim.MethodError, match="AdaptiveBVFIM gives no hypergradient"):
        bvfim.hypergradient(toy.problem, begin, begin, bvfim.AdaptiveBVFIM())


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_an_unbounded_lower_level_ends_in_a_truthful_status(sign):
    problem = bvfim.Problem(lambda x, y: (x**2).sum() + (y**2).sum(), lambda x, y: (sign * y**3).sum())
    begin = torch.ones(1, dtype=D)
    solution = bvfim.solve(problem, begin, begin, bvfim.AdaptiveBVFIM(), steps=30)
    assert solution.status in (
        bvfim.Status.UNBOUNDED,
        bvfim.Status.NON_FINITE,
        bvfim.Status.GAP_OPEN,
        bvfim.Status.MAX_STEPS,
    )
    assert solution.status is not bvfim.Status.CONVERGED


@pytest.mark.slow
def test_most_starts_of_most_problems():
    for seed in range(2):
        outcomes = [solved(test, s.x, s.y) for test in collection() for s in from_six_starts(test, seed)]
        assert sum(outcomes) >= 118
