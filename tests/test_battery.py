"""Every method on every problem: what all of them promise."""

from __future__ import annotations

import pytest
import torch

import bvfim
from bvfim import tree
from tests.problems import nested, quadratic, sine_1d

METHODS = {
    "FHG": bvfim.FHG(steps=5, lr=0.05),
    "RHG": bvfim.RHG(steps=5, lr=0.05),
    "TRHG": bvfim.TRHG(steps=5, keep=2, lr=0.05),
    "BDA": bvfim.BDA(steps=5, lr=0.05),
    "CG": bvfim.CG(steps=5, lr=0.05, cg_steps=3),
    "Neumann": bvfim.Neumann(steps=5, lr=0.05, terms=3),
    "BVFIM": bvfim.BVFIM(z_steps=5, y_steps=5),
    "printed": bvfim.BVFIM(z_steps=5, y_steps=5, mu2=bvfim.LowerValue(10.0)),
    "F2SA of order 1": bvfim.F2SA(1, steps=5, nu=0.5),
    "F2SA of order 2": bvfim.F2SA(2, steps=5, nu=0.5),
    "SOBA": bvfim.SOBA(lr=0.05),
    "SABA": bvfim.SABA(lr=0.05),
}
FIRST_ORDER = ("BVFIM", "printed", "F2SA of order 1", "F2SA of order 2")


def module_problem():
    """A network with batch normalisation as y, its parameters by name; x weighs the rows."""
    g = torch.Generator().manual_seed(0)
    inputs, labels = torch.randn(12, 3, generator=g), torch.randint(2, (12,), generator=g)
    module = torch.nn.Sequential(
        torch.nn.Linear(3, 4),
        torch.nn.BatchNorm1d(4, track_running_stats=False),
        torch.nn.Tanh(),
        torch.nn.Linear(4, 2),
    )

    def loss(y, weights):
        logits = torch.func.functional_call(module, y, (inputs,))
        return (weights * torch.nn.functional.cross_entropy(logits, labels, reduction="none")).mean()

    problem = bvfim.Problem(lambda x, y: loss(y, 1.0), lambda x, y: loss(y, torch.sigmoid(x)))
    return problem, torch.zeros(12), bvfim.parameters(module)


PROBLEMS = {
    "nested": nested,
    "sine": lambda: (sine_1d(), torch.zeros(1).double(), torch.ones(1).double()),
    "float32": lambda: (sine_1d(), torch.zeros(1), torch.ones(1)),
    "quadratic": lambda: (quadratic(4, 6).problem, torch.ones(4).double(), torch.ones(6).double()),
    "module": module_problem,
    "scalars": lambda: (sine_1d(), torch.tensor(0.3).double(), torch.tensor(0.1).double()),
    "upper without y": lambda: (
        bvfim.Problem(lambda x, y: (x**2).sum(), lambda x, y: (x * y).sum() + (y**2).sum()),
        torch.ones(2).double(),
        torch.ones(2).double(),
    ),
    "lower without x": lambda: (
        bvfim.Problem(lambda x, y: ((x - y) ** 2).sum(), lambda x, y: (y**2).sum()),
        torch.ones(2).double(),
        torch.ones(2).double(),
    ),
}


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("method", METHODS)
def test_contract(method, problem):
    stated, x, y = PROBLEMS[problem]()
    before = tree.clone((x, y))
    solution = bvfim.solve(stated, x, y, METHODS[method], steps=3)
    assert solution.status is bvfim.Status.MAX_STEPS
    for a, b in zip(tree.leaves((x, y)), tree.leaves(before), strict=True):
        assert torch.equal(a, b), "an input was changed in place"
    for found, given in ((solution.x, x), (solution.y, y), (solution.z, y)):
        assert tree.same_structure(found, given)
        for a, b in zip(tree.leaves(found), tree.leaves(given), strict=True):
            assert (a.shape, a.dtype, a.requires_grad) == (b.shape, b.dtype, False)
    moved = not torch.equal(tree.flatten(solution.x), tree.flatten(x))
    assert moved or (solution.history.get("breakdown") == 1).all()
    assert list(solution.history["step"]) == [0, 1, 2]
    assert {"upper", "lower", "value", "grad_norm", "seconds", "upper_evaluations", "hvp_evaluations"} <= set(
        solution.history
    )
    assert stated.evaluations.as_dict() == dict.fromkeys(solution.evaluations, 0), (
        "the user's own problem is not counted"
    )
    assert (solution.evaluations["hvp"] == 0) == (method in FIRST_ORDER)
    F, f = stated.at(solution.x).values(solution.y)
    assert (solution.upper, solution.lower) == (float(F), float(f))


@pytest.mark.parametrize("method", METHODS)
def test_the_same_run_twice_is_the_same(method):
    stated, x, y = nested()
    one, other = (bvfim.solve(stated, x, y, METHODS[method], steps=3) for _ in range(2))
    assert torch.equal(tree.flatten(one.x), tree.flatten(other.x))
    assert torch.equal(tree.flatten(one.y), tree.flatten(other.y))


@pytest.mark.parametrize("method", METHODS)
def test_sets_hold_for_x_and_y(method):
    stated, x, y = nested()
    boxed = bvfim.Problem(
        stated.upper,
        stated.lower,
        x_set={"w": [bvfim.Box(-0.1, 0.1), None]},
        y_set=bvfim.Box(-0.2, torch.tensor(0.2).double()),
    )
    x, y = boxed.project_x(x), boxed.project_y(y)
    solution = bvfim.solve(boxed, x, y, METHODS[method], steps=4)
    assert solution.x["w"][0].abs().max() <= 0.1
    assert solution.x["w"][1].abs().max() > 0.1
    assert tree.flatten((solution.y, solution.z)).abs().max() <= 0.2


@pytest.mark.parametrize("method", METHODS)
def test_context_gives_the_gradient_of_the_problem_written_out(method):
    def encode(x):
        return torch.tanh(x), x.square().mean()

    with_context = bvfim.Problem(
        upper=lambda x, y, c: ((y - c[0]) ** 2).sum() + c[1],
        lower=lambda x, y, c: torch.cosh(y - c[0]).sum() + c[1] * (y**2).sum() + (x * y).sum(),
        context=lambda x, batch: encode(x),
    )
    written_out = bvfim.Problem(
        upper=lambda x, y: with_context.upper(x, y, encode(x)), lower=lambda x, y: with_context.lower(x, y, encode(x))
    )
    x, y = torch.linspace(-1, 1, 4).double(), torch.zeros(4).double()
    one, other = (bvfim.hypergradient(p, x, y, METHODS[method]) for p in (with_context, written_out))
    assert (one - other).abs().max() < 1e-12


def test_context_is_computed_once_per_upper_step():
    calls = []

    def context(x, batch):
        calls.append(batch)
        return x * 2

    problem = bvfim.Problem(
        upper=lambda x, y, c: ((y - c) ** 2).sum(), lower=lambda x, y, c: ((y + c) ** 2).sum(), context=context
    )
    x = torch.ones(2).double()
    method = bvfim.BVFIM(z_steps=5, y_steps=5)
    bvfim.hypergradient(problem, x, x, method)
    before = len(calls)
    method.estimate(problem, x, method.init(problem, x, x), 0, None)
    assert len(calls) == before + 1


@pytest.mark.parametrize("method", [name for name in METHODS if name != "SABA"])  # which takes rows alone
def test_batches_reach_the_objectives(method):
    seen = {"upper": [], "lower": []}

    def upper(x, y, data):
        seen["upper"].append(float(data))
        return ((y - data) ** 2).sum()

    def lower(x, y, data):
        seen["lower"].append(float(data))
        return ((y - x * data) ** 2).sum()

    def floats(*values):
        return [torch.tensor(v).double() for v in values]

    x = torch.ones(2).double()
    pair = bvfim.Batches(upper=floats(1.0, 2.0), lower=floats(3.0, 4.0, 5.0))
    solution = bvfim.solve(bvfim.Problem(upper, lower), x, x, METHODS[method], steps=4, batches=pair)
    assert solution.status is bvfim.Status.MAX_STEPS
    assert set(seen["upper"]) == {1.0, 2.0}
    assert list(dict.fromkeys(seen["lower"])) == [3.0, 4.0, 5.0]


def test_joint_evaluation_gives_the_same_run():
    stated, x, y = nested()
    joint = bvfim.Problem(stated.upper, stated.lower, joint=lambda x, y: (stated.upper(x, y), stated.lower(x, y)))
    one, other = (bvfim.solve(p, x, y, METHODS["BVFIM"], steps=3) for p in (stated, joint))
    assert torch.equal(tree.flatten(one.x), tree.flatten(other.x))
    wrong = bvfim.Problem(stated.upper, stated.lower, joint=lambda x, y: (stated.lower(x, y), stated.upper(x, y)))
    with pytest.raises(bvfim.ProblemError, match="joint disagrees with upper"):
        bvfim.solve(wrong, x, y, METHODS["BVFIM"], steps=1)


@pytest.mark.parametrize("method", METHODS)
def test_autocast_runs_and_stays_close(method):
    """The objectives may lower their own precision; the variables keep theirs."""
    g = torch.Generator().manual_seed(0)
    A, B = torch.randn(8, 6, generator=g), torch.randn(8, 6, generator=g)

    def problem(enabled):
        def product(M, v):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
                return (M @ v.unsqueeze(1)).float()

        return bvfim.Problem(
            lambda x, y: (product(A, y) - 1).square().mean(),
            lambda x, y: (product(B, y) - product(A, x)).square().mean(),
        )

    x, y = torch.linspace(-1, 1, 6), torch.ones(6)

    def second(problem):
        # the first estimate of SOBA and SABA is F_x, which is zero here
        state = METHODS[method].init(problem, x, y)
        for k in range(2):
            gradient, state = bvfim.hypergradient(problem, x, y, METHODS[method], state=state, step=k)
        return gradient

    exact, rough = (second(problem(enabled)) for enabled in (False, True))
    assert rough.dtype == torch.float32
    assert (exact - rough).norm() < 0.2 * exact.norm()  # bfloat16 keeps three digits, and BVFIM takes a difference
