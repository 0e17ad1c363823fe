"""Estimators over many starts at once, against the same starts one by one."""

from __future__ import annotations

import warnings

import pytest
import torch

import bvfim
from bvfim import tree
from bvfim.testproblems import collection, sine, starts

TESTS = {test.name: test for test in collection()}
METHODS = [
    bvfim.RHG(steps=8),
    bvfim.RHG(steps=8, dynamics=bvfim.dynamics.Adam(0.1), segment=3),
    bvfim.BDA(steps=8, segment=8),
    bvfim.TRHG(steps=8, keep=3),
    bvfim.FHG(steps=4),
    bvfim.CG(steps=8, cg_steps=2),
    bvfim.CG(steps=8, cg_steps=20, damping=0.1),
    bvfim.Neumann(steps=8),
    bvfim.BVFIM(z_steps=6, y_steps=4),
    bvfim.BVFIM(z_steps=6, y_steps=4, start="z", repeats=3),
    bvfim.BVFIM.printed(),
    bvfim.F2SA(1, steps=8),
    bvfim.F2SA(2, steps=8),
    bvfim.SOBA(lr=0.01),
    bvfim.SABA(lr=0.01),
]


def adam(parameters):
    return torch.optim.Adam(parameters, 0.1)


def alone(problem, xs, ys, method, steps, **options):
    pairs = [
        (tree.map(lambda t, i=i: t[i], xs), tree.map(lambda t, i=i: t[i], ys)) for i in range(len(tree.leaves(xs)[0]))
    ]
    return [bvfim.solve(problem, x, y, method, steps=steps, **options) for x, y in pairs]


def assert_same(together, apart):
    for one, other in zip(together, apart, strict=True):
        for a, b in zip(tree.leaves([one.x, one.y, one.z]), tree.leaves([other.x, other.y, other.z]), strict=True):
            assert torch.allclose(a, b, rtol=1e-9, atol=1e-9)
        assert one.status is other.status
        assert one.steps == other.steps
        assert one.evaluations == other.evaluations
        assert (one.upper, one.lower) == pytest.approx((other.upper, other.lower))
        a, b = (s.history.drop(columns="seconds") for s in (one, other))
        a.loc[one.steps :, "x_norm"] = b.loc[one.steps :, "x_norm"] = 0  # an update that was not taken over
        assert list(a.columns) == list(b.columns)
        assert a.to_numpy() == pytest.approx(b.to_numpy(), rel=1e-6, abs=1e-8, nan_ok=True)


@pytest.mark.parametrize("name", ["MitsosBarton2006Ex317", "SMD3", "sine(a=2, n=10, c=2)"])
@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
def test_each_start_is_solved_as_it_would_be_alone(method, name):
    xs, ys = (torch.stack(side) for side in zip(*starts(TESTS[name], 4, seed=0), strict=True))
    together = bvfim.solve_many(TESTS[name].problem, xs, ys, method, steps=6, optimizer=adam)
    assert_same(together, alone(TESTS[name].problem, xs, ys, method, 6, optimizer=adam))


@pytest.mark.parametrize("method", [method for method in METHODS if not isinstance(method, bvfim.FHG)])
def test_every_method_but_one_runs_in_one_batch(method):
    asked = []

    def lower(x, y):
        asked.append(1)
        return ((y - x) ** 2).sum()

    problem = bvfim.Problem(lambda x, y: (x**2 + y**2).sum(), lower)
    xs = torch.linspace(-1, 1, 100, dtype=torch.float64)[:, None]
    bvfim.solve_many(problem, xs, xs, method, steps=2)
    assert len(asked) < 100 * 2 * 4


def test_a_batch_asks_the_objectives_as_often_as_one_start():
    asked = []

    def lower(x, y):
        asked.append(1)
        return torch.sin(x + y).sum()

    problem = bvfim.Problem(lambda x, y: (x**2 + y**2).sum(), lower)
    xs = torch.linspace(-3, 3, 50, dtype=torch.float64)[:, None]
    bvfim.solve_many(problem, xs, xs, bvfim.BVFIM(), steps=4)
    assert len(asked) < 6 * (50 + 25 + 10)


@pytest.mark.parametrize("method", [bvfim.RHG(steps=4), bvfim.CG(steps=4, cg_steps=2), bvfim.BVFIM(z_steps=4)])
def test_trees_and_sets_of_every_kind(method):
    problem = bvfim.Problem(
        lambda x, y: (x["a"] ** 2).sum() + (y[0] * x["b"]).sum() + (y[1] ** 2).sum(),
        lambda x, y: ((y[0] - x["a"]) ** 2).sum() + ((y[1] - x["b"].sum()) ** 2).sum(),
        x_set={"a": bvfim.Ball(1.0), "b": bvfim.Simplex()},
        y_set=[bvfim.Box(-0.5, torch.tensor([0.2, 0.4, 0.6]).double()), None],
    )
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.rand(5, *shape, generator=generator, dtype=torch.float64)

    xs, ys = {"a": draw(3) / 2, "b": torch.softmax(draw(3), -1)}, [draw(3) / 6, draw()]
    assert_same(bvfim.solve_many(problem, xs, ys, method, steps=3), alone(problem, xs, ys, method, 3))


def test_a_row_that_leaves_the_numbers_keeps_its_last_good_iterate_and_the_others_go_on():
    cliff = bvfim.Problem(lambda x, y: ((x - y) ** 2).sum(), lambda x, y: ((y - x) ** 4).sum())
    xs = torch.tensor([0.0, 1.0, 200.0, 2.0]).double()[:, None]
    ys = torch.ones(4, 1).double()
    method = bvfim.RHG(steps=20, lr=0.01)
    together = bvfim.solve_many(cliff, xs, ys, method, steps=5)
    assert [s.status.value for s in together] == ["max_steps", "max_steps", "non_finite", "max_steps"]
    assert_same(together, alone(cliff, xs, ys, method, 5))


def test_a_row_that_loses_its_slack_says_so():
    problem = bvfim.Problem(lambda x, y: (y**2).sum(), lambda x, y: ((y - x) ** 2).sum() - 30 * (x > 1).sum())
    xs = torch.tensor([0.0, 2.0]).double()[:, None]
    together = bvfim.solve_many(problem, xs, xs, bvfim.BVFIM.printed(), steps=3)
    assert [s.status for s in together] == [bvfim.Status.MAX_STEPS, bvfim.Status.SLACK_LOST]
    assert_same(together, alone(problem, xs, xs, bvfim.BVFIM.printed(), 3))


def test_all_rows_ended_end_the_solve():
    problem = bvfim.Problem(lambda x, y: (y**2).sum(), lambda x, y: ((y - x) ** 2).sum() - 30 * (x > 1).sum())
    xs = torch.tensor([3.0, 2.0]).double()[:, None]
    told = []
    together = bvfim.solve_many(problem, xs, xs, bvfim.BVFIM.printed(), 300, lambda *at: told.append(at))
    assert [s.status for s in together] == [bvfim.Status.SLACK_LOST] * 2
    assert len(told) == 1


@pytest.mark.parametrize(
    ("lower", "options"),
    [
        (lambda x, y: ((y - x) ** 2).sum() * (1.0 if float(x.detach().sum()) > 0 else 2.0), {}),
        (lambda x, y: ((y - x) ** 2).sum(), {"tol": 1e-3}),
        (lambda x, y: ((y - x) ** 2).sum(), {"optimizer": lambda p: torch.optim.Adafactor(p, lr=0.1)}),
    ],
    ids=["asks the host", "tol", "an optimiser that ties entries"],
)
def test_what_can_not_be_mapped_runs_one_after_another(lower, options):
    problem = bvfim.Problem(lambda x, y: (y**2).sum(), lower)
    xs = torch.tensor([[1.0], [-2.0]]).double()
    told = []
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        together = bvfim.solve_many(problem, xs, xs, bvfim.RHG(steps=3), 2, lambda *at: told.append(at), **options)
    assert [str(w.message).partition(":")[0] for w in seen] == [
        "the starts can't run in one batch, so they run one after another"
    ] * (not options)
    assert_same(together, alone(problem, xs, xs, bvfim.RHG(steps=3), 2, **options))
    assert told == [(1, 2), (2, 2)]


def test_a_mistake_is_told_as_solve_tells_it():
    problem = bvfim.Problem(lambda x, y: y**2, lambda x, y: ((y - x) ** 2).sum())
    xs = torch.ones(2, 3).double()
    with pytest.raises(bvfim.ProblemError, match="upper must return a scalar"):
        bvfim.solve_many(problem, xs, xs, bvfim.RHG(steps=3), 2)


def test_the_toy_from_a_grid_in_one_batch():
    toy, line = sine(a=2), torch.linspace(1.5, 3, 6, dtype=torch.float64)
    xs, ys = (side.reshape(-1, 1) for side in torch.meshgrid(line, line, indexing="ij"))
    found = bvfim.solve_many(toy.problem, xs, ys, bvfim.CG(lr=0.1), steps=100, optimizer=adam)
    assert all(abs(float(s.x - toy.x)) < 1e-2 for s in found)


def test_starts_that_require_gradients_are_copied():
    problem = bvfim.Problem(lambda x, y: (y**2).sum(), lambda x, y: ((y - x) ** 2).sum())
    xs = torch.nn.Parameter(torch.ones(3, 1).double())
    assert len(bvfim.solve_many(problem, xs, xs.detach(), bvfim.RHG(steps=3), 2)) == 3


class Bare(bvfim.Estimator):
    """Reports nothing, and may give a gradient of another shape."""

    def __init__(self, wrong=False):
        self.wrong = wrong

    def init(self, problem, x, y):
        return bvfim.methods.LowerState(y, y)

    def estimate(self, problem, x, state, k, data):
        gradient, state, _ = bvfim.RHG(3, 0.1).estimate(problem, x, state, k, data)
        return ({"a": gradient} if self.wrong else gradient), state, {}


def test_a_method_of_a_users_own_may_report_nothing_but_not_anything():
    problem = bvfim.Problem(lambda x, y: (y**2).sum(), lambda x, y: ((y - x) ** 2).sum())
    xs = torch.ones(3, 1).double()
    assert [s.steps for s in bvfim.solve_many(problem, xs, xs, Bare(), 2)] == [2, 2, 2]
    assert bvfim.solve(problem, xs[0], xs[0], Bare(), steps=100).lower_gap >= 0
    refused = pytest.raises(bvfim.MethodError, match="must return a gradient shaped like x")
    with pytest.warns(bvfim.BvfimWarning, match="one after another"), refused:
        bvfim.solve_many(problem, xs, xs, Bare(wrong=True), 2)


def test_a_context_is_computed_no_more_often_for_a_gradient_than_it_has_to_be():
    calls = []

    def context(x, batch):
        calls.append(1)
        return torch.sin(x) * 2

    problem = bvfim.Problem(
        lambda x, y, c: ((y - c) ** 2).sum(), lambda x, y, c: ((y - torch.tanh(c)) ** 2).sum(), context=context
    )
    solution = bvfim.solve(problem, torch.ones(1).double(), torch.zeros(1).double(), steps=3)
    assert len(calls) < 5 * solution.evaluations["upper"]
