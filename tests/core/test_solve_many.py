"""solve_many: every start of a batch is solved as it would be alone."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import bvfim
from bvfim import tree
from bvfim.testproblems import sine
from tests.interior.test_batch_at import branching

D = torch.float64
TOY = sine(2)
SEED = 5
STARTS = torch.tensor([[-6.0], [0.0], [8.0]], dtype=D)
QUICK = bvfim.AdaptiveBVFIM(tol=1e-2, scouts=3, seed=SEED)
REPORTED = ["mu2", "tau"]


def row(variable, i):
    return tree.map(lambda t: t[i], variable)


def one_by_one(problem, xs, ys, method=QUICK, **options):
    count = len(tree.leaves(xs)[0])
    methods = [dataclasses.replace(method, seed=method.seed + i) for i in range(count)]
    return [bvfim.solve(problem, row(xs, i), row(ys, i), m, **options) for i, m in enumerate(methods)]


@pytest.fixture(scope="module")
def batch():
    torch.set_num_threads(1)
    return bvfim.solve_many(TOY.problem, STARTS, STARTS, QUICK)


@pytest.fixture(scope="module")
def alone():
    torch.set_num_threads(1)
    return one_by_one(TOY.problem, STARTS, STARTS)


def assert_same(found, expected):
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        for one, other in ((a.x, b.x), (a.y, b.y), (a.z, b.z)):
            assert tree.same_structure(one, other)
            torch.testing.assert_close(tree.flatten(one), tree.flatten(other), rtol=0, atol=1e-6)
        assert a.status is b.status
        assert a.steps == b.steps == len(a.history)
        assert a.upper == pytest.approx(b.upper, abs=1e-5)
        assert a.lower == pytest.approx(b.lower, abs=1e-5)
        for name, count in b.evaluations.items():
            assert a.evaluations[name] == pytest.approx(count, rel=0.05, abs=10)


def test_each_start_is_solved_as_it_would_be_alone(batch, alone):
    assert_same(batch, alone)
    for found, expected in zip(batch, alone, strict=True):
        assert found.status is bvfim.Status.CONVERGED
        assert abs(found.x - TOY.x).item() < 2e-2
        assert found.certificate.solved == found.certificate.starts == 1
        assert found.certificate.polished == pytest.approx(expected.certificate.polished, abs=1e-6)
        assert found.certificate.multimodal == expected.certificate.multimodal


def test_the_neighbours_of_a_start_do_not_matter(batch):
    turned = STARTS.flip(0)  # the middle one keeps its place, and so its seed
    found = bvfim.solve_many(TOY.problem, turned, turned, QUICK, steps=4)
    expected = bvfim.solve_many(TOY.problem, STARTS, STARTS, QUICK, steps=4)
    assert_same(found[1:2], expected[1:2])
    larger = torch.cat([STARTS, STARTS + 1])
    assert_same(bvfim.solve_many(TOY.problem, larger, larger, QUICK, steps=4)[:3], expected)


def test_trees_contexts_and_sets():
    problem = bvfim.Problem(
        upper=lambda x, y, c: ((y["a"] - 2) ** 2).sum() + (c**2).sum(),
        lower=lambda x, y, c: ((y["a"] - c) ** 2).sum() + (y["b"] ** 2).sum(),
        x_set={"w": bvfim.Box(0.0, 0.5)},
        y_set={"a": bvfim.Ball(3.0), "b": None},
        context=lambda x, batch: 1.5 * x["w"],
    )
    xs = {"w": 0.5 * torch.rand(2, 2, dtype=D)}
    ys = {"a": torch.rand(2, 2, dtype=D), "b": torch.randn(2, 1, dtype=D)}
    assert_same(bvfim.solve_many(problem, xs, ys, QUICK, steps=3), one_by_one(problem, xs, ys, steps=3))


def test_leaves_that_are_scalars():
    problem = bvfim.Problem(lambda x, y: (x - 2) ** 2 + (y - 2) ** 2, lambda x, y: torch.sin(x + y))
    scalars = STARTS[:, 0]
    found = bvfim.solve_many(problem, scalars, scalars, QUICK, steps=2)
    assert_same(found, one_by_one(problem, scalars, scalars, steps=2))


def test_objectives_that_cannot_be_mapped_have_the_same_answers():
    def hidden(objective):
        return lambda x, y: objective(x, y) if y.sum().item() < 1e9 else objective(x, 2 * y)

    looped = bvfim.Problem(hidden(TOY.problem.upper), hidden(TOY.problem.lower))
    found, expected = (bvfim.solve_many(p, STARTS, STARTS, QUICK, steps=5) for p in (looped, TOY.problem))
    assert_same(found, expected)
    kinked = branching(TOY.problem)
    assert_same(bvfim.solve_many(kinked, STARTS, STARTS, QUICK, steps=3), one_by_one(kinked, STARTS, STARTS, steps=3))


def test_the_default_is_the_adaptive_method():
    found = bvfim.solve_many(TOY.problem, STARTS, STARTS, steps=1)
    assert [s.method for s in found] == [bvfim.AdaptiveBVFIM()] * 3
    assert [s.status for s in found] == [bvfim.Status.MAX_STEPS] * 3
    assert all(s.steps == 1 for s in found)


def test_other_methods_run_one_after_another():
    problem = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum())
    method, options = bvfim.RHG(steps=4, lr=0.1), {"optimizer": lambda p: torch.optim.SGD(p, 0.1), "tol": 1e-9}
    told = []
    found = bvfim.solve_many(problem, STARTS, STARTS, method, 3, lambda *at: told.append(at), **options)
    expected = [bvfim.solve(problem, s, s, method, steps=3, **options) for s in STARTS]
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a.x, b.x)
        assert torch.equal(a.y, b.y)
        assert a.evaluations == b.evaluations
        assert a.certificate is None
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_progress_tells_how_many_starts_have_ended(batch):
    told = []
    starts = torch.stack([STARTS[0], torch.full((1,), torch.nan, dtype=D)])
    bvfim.solve_many(TOY.problem, starts, starts, QUICK, progress=lambda *at: told.append(at))
    assert told == [(1, 2)] * (batch[0].steps - 1) + [(2, 2)]


def test_inputs_are_left_as_they_are():
    xs = STARTS.clone().requires_grad_()
    found = bvfim.solve_many(TOY.problem, xs, xs, QUICK, steps=1)
    assert torch.equal(xs, STARTS)
    assert xs.grad is None
    assert not any(t.requires_grad for s in found for t in (s.x, s.y, s.z))


def test_a_start_that_is_no_number_leaves_the_others_alone():
    starts = torch.tensor([[-6.0], [torch.nan], [8.0]], dtype=D)
    found = bvfim.solve_many(TOY.problem, starts, starts, QUICK, steps=4)
    expected = bvfim.solve_many(TOY.problem, STARTS, STARTS, QUICK, steps=4)
    assert found[1].status is bvfim.Status.NON_FINITE
    assert_same([found[0], found[2]], [expected[0], expected[2]])


def test_a_start_whose_lower_level_is_unbounded_leaves_the_others_alone():
    problem = bvfim.Problem(
        lambda x, y: (x**2).sum() + (y**2).sum(), lambda x, y: torch.where(x > 5, y, (y - x) ** 2).sum()
    )
    found = bvfim.solve_many(problem, STARTS, STARTS, QUICK, steps=4)
    assert found[2].status is bvfim.Status.UNBOUNDED
    assert_same(found[:2], one_by_one(problem, STARTS[:2], STARTS[:2], steps=4))


# -- what is counted and reported --


def counted(steps):
    """The counts of all starts after some stages, and what the problem has counted itself."""
    problem = TOY.problem.counted_anew()
    x, state = STARTS[0], QUICK.init_many(problem, STARTS, STARTS)
    for k in range(steps):
        x, state, _ = QUICK.step(problem, x, state, k, None)
    total = problem.evaluations
    return state, torch.tensor([total.upper, total.lower, total.forward])


def test_the_starts_together_have_asked_for_all_that_was_counted():
    state, total = counted(4)
    assert torch.equal(state.starts.counts.sum(0), total)


@pytest.fixture(scope="module")
def at_the_end():
    torch.set_num_threads(1)
    return counted(20)


def test_the_probes_at_the_end_are_counted_within_a_few_percent(at_the_end):
    state, total = at_the_end
    assert QUICK.status(state) is bvfim.Status.CONVERGED
    assert torch.allclose(state.starts.counts.sum(0).double(), total.double(), rtol=0.05)


def test_the_probes_at_the_end_are_counted_for_their_starts(at_the_end):
    state, total = at_the_end
    assert torch.equal(state.starts.counts.sum(0), total)


def test_the_history_is_that_of_the_start_alone(batch, alone):
    for found, expected in zip(batch, alone, strict=True):
        shared = ["step", "upper", "lower", "value", "polished", "slack", "gap", "upper_evaluations"]
        shared += ["hvp_evaluations", "jvp_evaluations"]
        torch.testing.assert_close(
            torch.tensor(found.history[shared].to_numpy()), torch.tensor(expected.history[shared].to_numpy()),
            rtol=1e-6, atol=1e-6,
        )  # fmt: skip


def test_the_history_obeys_its_equations(batch):
    for s in batch:
        history = s.history
        assert list(history["step"]) == list(range(s.steps))
        assert (history["slack"] > 0).all()
        assert (history["slack"] <= history["mu2"] * (1 + 1e-12)).all()
        assert history["mu2"].is_monotonic_decreasing
        for name in ("upper_evaluations", "lower_evaluations", "forward_evaluations", "seconds"):
            assert history[name].is_monotonic_increasing
        last = history.iloc[-1]
        assert [last["upper_evaluations"], last["lower_evaluations"]] == [
            s.evaluations["upper"],
            s.evaluations["lower"],
        ]


def test_solve_reports_the_regularisers_of_the_stage_itself(batch, alone):
    for found, expected in zip(batch, alone, strict=True):
        assert (expected.history["slack"] <= expected.history["mu2"] * (1 + 1e-12)).all()
        torch.testing.assert_close(
            torch.tensor(found.history[REPORTED].to_numpy()), torch.tensor(expected.history[REPORTED].to_numpy())
        )


def test_the_history_has_the_columns_of_solve(batch, alone):
    assert set(batch[0].history) == set(alone[0].history)


def test_seconds_counts_from_the_begin_of_the_batch(batch):
    assert max(batch, key=lambda s: s.steps).seconds == max(s.seconds for s in batch)
    assert all(s.history["seconds"].is_monotonic_increasing for s in batch)


# -- what is refused, and what is at an edge --


@pytest.mark.parametrize(
    ("xs", "ys"),
    [
        (torch.zeros(3, 1), torch.zeros(2, 1)),
        ({"a": torch.zeros(3, 1), "b": torch.zeros(2, 1)}, torch.zeros(3, 1)),
        (torch.tensor(0.0), torch.zeros(1, 1)),
        (torch.zeros(0, 1), torch.zeros(0, 1)),
        ([], []),
    ],
    ids=["x and y", "leaves", "scalar", "empty", "nothing"],
)
def test_leaves_without_one_leading_dimension_are_refused(xs, ys):
    with pytest.raises(bvfim.ProblemError, match="the same first dimension, one row for each start"):
        bvfim.solve_many(TOY.problem, xs, ys)


@pytest.mark.parametrize(
    ("method", "options", "named"),
    [
        (None, {"tol": 0.1}, "tol"),
        (bvfim.AdaptiveBVFIM(), {"optimizer": torch.optim.SGD, "batches": [1]}, "optimizer, batches"),
        (bvfim.AdaptiveBVFIM(starts=2), {}, "starts"),
    ],
)
def test_what_the_batch_does_not_take_is_refused(method, options, named):
    with pytest.raises(bvfim.MethodError, match=f"solve_many with AdaptiveBVFIM takes no {named}: every row"):
        bvfim.solve_many(TOY.problem, STARTS, STARTS, method, **options)


def test_a_problem_that_is_none_is_refused():
    with pytest.raises(bvfim.ProblemError, match="lower does not depend on y"):
        bvfim.solve_many(bvfim.Problem(lambda x, y: y.sum(), lambda x, y: x.sum()), STARTS, STARTS)
    with pytest.raises(bvfim.MethodError, match=r"a method must be a bvfim\.Estimator"):
        bvfim.solve_many(TOY.problem, STARTS, STARTS, "rhg")


def test_no_steps_give_the_starts_back_as_in_solve():
    found = bvfim.solve_many(TOY.problem, STARTS, STARTS, QUICK, steps=0)
    assert [s.status for s in found] == [bvfim.Status.MAX_STEPS] * 3
    assert_same(found, one_by_one(TOY.problem, STARTS, STARTS, steps=0))


def test_a_lower_level_that_is_unbounded_for_every_start_has_that_status():
    problem = bvfim.Problem(lambda x, y: (x**2).sum(), lambda x, y: (y + 0 * x).sum())
    assert bvfim.solve(problem, STARTS[0], STARTS[0], QUICK).status is bvfim.Status.UNBOUNDED
    assert [s.status for s in bvfim.solve_many(problem, STARTS, STARTS, QUICK)] == [bvfim.Status.UNBOUNDED] * 3


@pytest.mark.parametrize("steps", [-1, 1.5, True])
def test_steps_that_are_no_count_are_refused(steps):
    with pytest.raises(bvfim.MethodError, match="steps must be a whole number"):
        bvfim.solve_many(TOY.problem, STARTS, STARTS, QUICK, steps=steps)


def test_starts_that_are_no_tensors_are_refused():
    with pytest.raises(bvfim.ProblemError, match="trees of tensors"):
        bvfim.solve_many(TOY.problem, [1.0, 2.0], [1.0, 2.0])


def test_starts_outside_the_sets_are_projected_first_as_in_solve():
    problem = dataclasses.replace(TOY.problem, x_set=bvfim.Box(-3, 3), y_set=bvfim.Box(-3, 3))
    with pytest.warns(bvfim.BvfimWarning, match="was outside"):
        found = bvfim.solve_many(problem, 4 * STARTS, 4 * STARTS, QUICK, steps=1)
    with pytest.warns(bvfim.BvfimWarning, match="was outside"):
        assert_same(found, one_by_one(problem, 4 * STARTS, 4 * STARTS, steps=1))


def test_the_objectives_are_asked_inside_the_sets_alone():
    lowest = []

    def lower(x, y):
        lowest.append(y.min().item())
        return ((y - x) ** 2).sum()

    half = bvfim.Box(lower=0)
    problem = bvfim.Problem(lambda x, y: ((x - 1) ** 2).sum() + (y**2).sum(), lower, x_set=half, y_set=half)
    [found] = bvfim.solve_many(problem, torch.ones(1, 1, dtype=D), torch.ones(1, 1, dtype=D), QUICK)
    assert found.status is bvfim.Status.CONVERGED
    assert min(lowest) >= 0
