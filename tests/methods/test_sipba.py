"""SiPBA: its step against the equations written out, its limits, and what it takes and refuses."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import bvfim
from bvfim import tree
from bvfim.testproblems import sipba, sto_sipba

D = torch.float64


def stated(**options):
    """Trees, and objectives that no gradient of which is linear."""
    return bvfim.Problem(
        upper=lambda x, y: (torch.sin(y["u"]) * x[0]).sum() - (y["v"] * x[1]).square().sum() + x[1] ** 2,
        lower=lambda x, y: torch.cosh(y["u"] - x[0] * x[1]).sum() + (y["v"] ** 4).sum() + (y["v"] * x[0]).sum(),
        **{"follower": "pessimistic", **options},
    )


X = [torch.tensor([0.3, -0.4], dtype=D), torch.tensor(0.7, dtype=D)]
Y = {"u": torch.tensor([0.5, 1.2], dtype=D), "v": torch.tensor([[0.2], [-0.3]], dtype=D)}
Z = {"u": torch.tensor([0.1, 0.9], dtype=D), "v": torch.tensor([[0.4], [0.6]], dtype=D)}
METHOD = bvfim.SiPBA(alpha=0.05, beta=0.01, rho=4.0, sigma=0.3, p=0.02, q=0.05, s=0.2)


def by_hand(m, k, x, y, z, problem):
    """One step, as the paper writes it: the gradients of psi."""
    n = k + 1
    alpha, beta = m.alpha * n**-m.s, m.beta * n ** (-m.q - 2 * m.p)
    rho, sigma = m.rho * n**m.p, m.sigma * n**-m.q

    def psi(x, y, z):
        gap = problem.lower(x, y) - problem.lower(x, z)
        return problem.upper(x, y) - rho * gap - sigma * tree.dot(y, z) + sigma / 2 * tree.dot(z, z)

    x, y, z = (tree.variable(w) for w in (x, y, z))
    in_y, in_z = tree.grad(psi(x, y, z), y), tree.grad(psi(x, y, z), z)
    new_y, new_z = tree.map(lambda a, d: a + beta * d, y, in_y), tree.map(lambda a, d: a - beta * d, z, in_z)
    in_x = tree.grad(psi(x, new_y, new_z), x)
    return tuple(map(tree.detach, (tree.map(lambda a, d: a - alpha * d, x, in_x), new_y, new_z)))


@pytest.mark.parametrize("k", [0, 7])
def test_a_step_is_the_one_of_the_paper(k):
    problem = stated()
    x, found, info = METHOD.step(problem, X, METHOD.init(problem, X, Y)._replace(z=Z), k, None)
    for mine, theirs in zip((x, found.y, found.z), by_hand(METHOD, k, X, Y, Z, problem), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-14, atol=1e-14)
    assert float(info["upper"]) == float(problem.upper(X, found.y))
    assert problem.evaluations.as_dict() == {"upper": 2, "lower": 4, "forward": 0, "hvp": 0, "jvp": 0}


@pytest.mark.parametrize("n", [2, 3, 5])
def test_it_comes_near_the_optimum_with_its_printed_numbers(n):
    test = sto_sipba(n)
    found = bvfim.solve(test.problem, 0 * test.x, 0 * test.y, bvfim.SiPBA(), steps=300, refit=False)
    assert (found.x - test.x).abs().max() < 2e-3
    assert (found.y - test.y).abs().max() < 1e-2  # rho is 10, so y gives way to F
    assert (found.z.sum() - found.x.square().sum()).abs() < 1e-2


@pytest.mark.long
def test_it_comes_near_the_kink_of_the_papers_problem():
    test = sipba(4)
    generator = torch.Generator().manual_seed(0)
    x, y = (test.problem.project_x(10 * torch.rand(4, generator=generator, dtype=D)) for _ in range(2))
    found = bvfim.solve(test.problem, x, y, bvfim.SiPBA(), steps=5000, refit=False)
    assert (found.x - test.x).norm() < 0.1
    assert (found.y - test.y).norm() < 0.1
    assert abs(found.upper - test.upper) < 0.1


def test_its_y_is_the_worst_of_the_lower_solutions():
    """F = u, where f does not see u: an optimist takes its lower bound."""
    problem = bvfim.Problem(
        lambda x, y: (x**2).sum() + y[0],
        lambda x, y: (y[1] - x[0]) ** 2,
        y_set=bvfim.Box(-1.0, 1.0),
        follower="pessimistic",
    )
    found = bvfim.solve(
        problem, torch.ones(1, dtype=D), torch.zeros(2, dtype=D), bvfim.SiPBA(beta=0.02), steps=300, refit=False
    )
    assert found.y[0] == 1.0
    assert found.x.abs() < 1e-2


def test_sets_hold_for_x_y_and_z():
    problem = stated(x_set=[bvfim.Box(-0.45, 0.32), bvfim.Ball(0.72)], y_set={"u": bvfim.Box(0.2, 1.0), "v": None})
    found = bvfim.solve(problem, X, problem.project_y(Y), METHOD, steps=30, refit=False)
    assert -0.45 <= found.x[0].min() <= found.x[0].max() <= 0.32
    assert found.x[1].abs() <= 0.72 + 1e-12
    for y in (found.y, found.z):
        assert 0.2 <= y["u"].min() <= y["u"].max() <= 1.0


@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_objectives_in_other_units_need_other_numbers_and_no_more(scale):
    plain = stated()
    other = dataclasses.replace(plain, lower=lambda x, y: scale * plain.lower(x, y))
    one = bvfim.solve(plain, X, Y, METHOD, steps=20, refit=False)
    two = bvfim.solve(other, X, Y, dataclasses.replace(METHOD, rho=METHOD.rho / scale), steps=20, refit=False)
    torch.testing.assert_close(tree.flatten((one.x, one.y)), tree.flatten((two.x, two.y)), rtol=1e-12, atol=1e-12)


def test_numbers_may_be_schedules():
    schedules = {"alpha": lambda k: 0.05, "rho": bvfim.schedules.constant(4.0)}
    one, two = (
        bvfim.solve(stated(), X, Y, method, steps=5, refit=False)
        for method in (METHOD, dataclasses.replace(METHOD, **schedules))
    )
    assert torch.equal(tree.flatten((one.x, one.y, one.z)), tree.flatten((two.x, two.y, two.z)))


def test_it_resumes_from_a_file_bit_for_bit(tmp_path):
    whole = bvfim.Stepper(stated(), X, Y, METHOD)
    for _ in range(3):
        whole.step()
    bvfim.checkpoint.write(tmp_path / "state", whole.state_dict())
    later = bvfim.Stepper(stated(), X, Y, METHOD)
    later.load_state_dict(bvfim.checkpoint.read(tmp_path / "state"))
    for stepper in (whole, later):
        for _ in range(4):
            stepper.step()
    assert torch.equal(tree.flatten((whole.x, whole.state)), tree.flatten((later.x, later.state)))
    assert whole.problem.evaluations == later.problem.evaluations


def test_it_stands_beside_others():
    problem = sto_sipba(2).problem
    zero = torch.zeros(2, dtype=D)
    methods = {"printed": bvfim.SiPBA(), "without powers": bvfim.SiPBA(p=0.0, q=0.0, s=0.0)}
    table = bvfim.compare(problem, methods, zero, zero, steps=20)
    assert list(table.index) == list(methods)
    starts = torch.stack([zero, zero + 0.1])
    found = bvfim.solve_many(problem, starts, starts, bvfim.SiPBA(), steps=20)
    assert torch.equal(found[0].x, bvfim.solve(problem, zero, zero, bvfim.SiPBA(), steps=20).x)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"follower": "optimistic"}, "SiPBA does not solve for an optimistic follower: take FHG, RHG"),
        ({"lower_constraints": lambda x, y: y["u"]}, "SiPBA takes sets, but no lower_constraints: these do"),
    ],
)
def test_problems_that_are_refused(given, says):
    with pytest.raises(bvfim.MethodError, match=says):
        bvfim.solve(stated(**given), X, Y, METHOD)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"beta": 0}, "beta must be a finite number above 0, not 0"),
        ({"rho": float("nan")}, "rho must be a finite number above 0"),
        ({"s": -0.1}, "s must be a finite number of at least 0"),
    ],
)
def test_numbers_that_are_refused(given, says):
    with pytest.raises(bvfim.MethodError, match=says):
        bvfim.SiPBA(**given)
