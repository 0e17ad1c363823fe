"""BiC-GAFFA: its step against the equations written out, its limits, and what it takes and refuses."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import bvfim
from bvfim import tree
from bvfim.testproblems import bic_gaffa, lv_hba

D = torch.float64
FAST = bvfim.BiCGAFFA(alpha=0.05, beta=0.05, eta=0.2, gamma1=1.0)


def stated(**options):
    """Trees, both kinds of lower constraints in several shapes, and a lower level whose gradient is not linear."""
    return bvfim.Problem(
        upper=lambda x, y: ((y["u"] - x[0]) ** 2).sum() + (y["v"] * x[1]).sum() + x[1] ** 2,
        lower=lambda x, y: torch.cosh(y["u"] - x[0] * x[1]).sum() + (y["v"] ** 4).sum() + (y["v"] * x[0]).sum(),
        lower_constraints=lambda x, y: torch.stack([y["u"] * x[0] - 1, x[1] - y["u"] ** 2]),
        lower_equalities=lambda x, y: y["v"].sum() * x[1] - y["u"][0],
        **options,
    )


X = [torch.tensor([0.3, -0.4], dtype=D), torch.tensor(0.7, dtype=D)]
Y = {"u": torch.tensor([0.5, 1.2], dtype=D), "v": torch.tensor([[0.2], [-0.3]], dtype=D)}
Z = {"u": torch.tensor([0.1, 0.9], dtype=D), "v": torch.tensor([[0.4], [0.6]], dtype=D)}
MULTIPLIERS = torch.tensor([0.2, 0.0, 0.5, 0.1, -0.3], dtype=D)
METHOD = bvfim.BiCGAFFA(alpha=0.02, beta=0.3, eta=0.05, gamma1=2.0, gamma2=0.7, c=1.5, p=0.4, c_max=50.0, bound=0.45)


def by_hand(m, k, x, y, z, lam, problem):
    """One step, as the paper writes it."""
    weight = min(m.c * (k + 1) ** m.p, m.c_max)

    def g(x, y):
        return torch.cat([problem.lower_constraints(x, y).reshape(-1), problem.lower_equalities(x, y).reshape(1)])

    def lagrangian(x, y, by):
        return problem.lower(x, y) + by @ g(x, y)

    def gradient(value, at):
        return tree.grad(value, at)

    x, y, z = tree.variable(x), tree.variable(y), tree.variable(z)
    in_z = gradient(lagrangian(x, z, lam), z)
    new_z = tree.variable(tree.map(lambda a, d, b: a - m.eta * (d + (a - b) / m.gamma1), z, in_z, y))
    mu = (lam + m.gamma2 * g(x, y)).detach()
    mu[:4] = mu[:4].clamp_min(0)
    in_x = gradient(problem.upper(x, y) / weight + lagrangian(x, y, mu) - lagrangian(x, new_z, lam), x)
    in_y = gradient(problem.upper(x, y) / weight + lagrangian(x, y, mu), y)
    new_x = tree.map(lambda a, d: a - m.alpha * d, x, in_x)
    new_y = tree.map(lambda a, d, b: a - m.alpha * (d - (a - b) / m.gamma1), y, in_y, new_z)
    moved = lam - m.beta * (-(lam - mu) / m.gamma2 - g(x, new_z).detach())
    low = torch.tensor([0.0, 0.0, 0.0, 0.0, -m.bound], dtype=D)
    return tree.detach(new_x), tree.detach(new_y), tree.detach(new_z), moved.clamp(low, torch.full_like(low, m.bound))


@pytest.mark.parametrize("k", [0, 7])
def test_a_step_is_the_one_of_the_paper(k):
    problem = stated()
    state = METHOD.init(problem, X, Y)._replace(z=Z, multipliers=MULTIPLIERS)
    x, found, info = METHOD.step(problem, X, state, k, None)
    expected = by_hand(METHOD, k, X, Y, Z, MULTIPLIERS, problem)
    for mine, theirs in zip((x, found.y, found.z, found.multipliers), expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-14, atol=1e-14)
    assert float(info["upper"]) == float(problem.upper(X, Y))
    assert problem.evaluations.as_dict() == {"upper": 1, "lower": 3, "forward": 0, "hvp": 0, "jvp": 0}


def test_multipliers_stay_where_they_belong():
    state = METHOD.init(stated(), X, Y)
    for k in range(40):
        _, state, _ = METHOD.step(stated(), X, state, k, None)
    assert state.equal.tolist() == [False] * 4 + [True]
    assert state.multipliers[:4].min() >= 0
    assert state.multipliers.abs().max() == METHOD.bound


def test_sets_hold_for_x_y_and_z():
    problem = stated(x_set=[bvfim.Box(-0.45, 0.35), bvfim.Ball(0.72)], y_set={"u": bvfim.Box(0.2, 1.0), "v": None})
    found = bvfim.solve(problem, X, problem.project_y(Y), METHOD, steps=30, refit=False)
    assert -0.45 <= found.x[0].min() <= found.x[0].max() <= 0.35
    assert found.x[1].abs() <= 0.72 + 1e-12
    for y in (found.y, found.z):
        assert 0.2 <= y["u"].min() <= y["u"].max() <= 1.0


@pytest.mark.parametrize("power", [1, 3])
@pytest.mark.parametrize("n", [2, 3])
def test_it_comes_to_the_optimum_of_the_papers_problem(n, power):
    test = bic_gaffa(n, power)
    start = torch.zeros(n, dtype=D)
    state = FAST.init(test.problem, start, torch.ones(2 * n, dtype=D))
    x = start
    for k in range(1500):
        x, state, info = FAST.step(test.problem, x, state, k, None)
    assert (x - test.x).abs().max() < 0.06
    assert (state.y - test.y).abs().max() < 0.06
    assert float(state.multipliers) == pytest.approx(-1, abs=0.02)
    assert info["violation"] < 0.02


def test_it_is_off_by_the_share_of_f_in_the_merit():
    test = lv_hba(2)  # where F has a slope at the optimum, as it hasn't in the problem above
    errors = []
    for weight, steps in ((3.0, 500), (30.0, 1000)):
        method = bvfim.BiCGAFFA(alpha=0.1, beta=0.1, eta=0.3, c=weight, p=0.0, c_max=weight)
        x, state = 0 * test.x, method.init(test.problem, 0 * test.x, 0 * test.y)
        for k in range(steps):
            x, state, _ = method.step(test.problem, x, state, k, None)
        errors.append(float((x - test.x).norm()))
    assert errors[1] == pytest.approx(errors[0] / 10, rel=0.3)


def test_without_constraints_it_is_the_gap_of_a_moreau_envelope():
    problem = bvfim.Problem(lambda x, y: ((x - 2) ** 2 + (y - 2) ** 2).sum(), lambda x, y: ((y - x + 1) ** 2).sum())
    zero = torch.zeros(1, dtype=D)
    found = bvfim.solve(problem, zero, zero, bvfim.BiCGAFFA(alpha=0.2, eta=0.3, c=30.0, c_max=30.0), steps=1000)
    assert found.x.item() == pytest.approx(2.5, abs=0.01)
    assert found.y.item() == pytest.approx(1.5, abs=0.01)
    assert found.evaluations["hvp"] == 0
    assert "violation" not in found.history


@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_constraints_in_other_units_need_other_numbers_and_no_more(scale):
    plain = stated()
    other = dataclasses.replace(
        plain,
        lower_constraints=lambda x, y: scale * plain.lower_constraints(x, y),
        lower_equalities=lambda x, y: scale * plain.lower_equalities(x, y),
    )
    method = dataclasses.replace(
        METHOD, beta=METHOD.beta / scale**2, gamma2=METHOD.gamma2 / scale**2, bound=METHOD.bound / scale
    )
    one = bvfim.solve(plain, X, Y, METHOD, steps=20, refit=False)
    two = bvfim.solve(other, X, Y, method, steps=20, refit=False)
    torch.testing.assert_close(tree.flatten((one.x, one.y)), tree.flatten((two.x, two.y)), rtol=1e-9, atol=1e-9)


def test_a_context_is_one_more_way_to_write_a_problem():
    inside = bvfim.Problem(
        upper=lambda x, y, c: ((y - c) ** 2).sum(),
        lower=lambda x, y, c: ((y + c) ** 2).sum(),
        lower_constraints=lambda x, y, c: c - y,
        context=lambda x, batch: torch.tanh(x),
    )
    outside = bvfim.Problem(
        lambda x, y: inside.upper(x, y, torch.tanh(x)),
        lambda x, y: inside.lower(x, y, torch.tanh(x)),
        lower_constraints=lambda x, y: torch.tanh(x) - y,
    )
    x = torch.tensor([0.3, -0.8], dtype=D)
    one, two = (bvfim.solve(problem, x, x, METHOD, steps=5, refit=False) for problem in (inside, outside))
    torch.testing.assert_close(one.x, two.x, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(one.y, two.y, rtol=1e-13, atol=1e-13)


def test_the_weight_of_the_gap_grows_to_its_limit():
    weights = {}
    for limit in (2.5, None):
        method = dataclasses.replace(METHOD, c_max=limit)
        steps = [method.step(stated(), X, method.init(stated(), X, Y), k, None) for k in (0, 3, 99)]
        weights[limit] = [info["weight"] for _, _, info in steps]
    assert weights[None] == pytest.approx([1.5, 1.5 * 4**0.4, 1.5 * 100**0.4])
    assert weights[2.5] == pytest.approx([1.5, 2.5, 2.5])


def test_numbers_may_be_schedules():
    schedules = {"alpha": lambda k: 0.02, "c": bvfim.schedules.constant(1.5)}
    one, two = (
        bvfim.solve(stated(), X, Y, method, steps=5, refit=False)
        for method in (METHOD, dataclasses.replace(METHOD, **schedules))
    )
    assert torch.equal(tree.flatten((one.x, one.y, one.z)), tree.flatten((two.x, two.y, two.z)))


@pytest.mark.parametrize("problem", [stated(), bvfim.Problem(stated().upper, stated().lower)])
def test_it_resumes_from_a_file_bit_for_bit(tmp_path, problem):
    whole = bvfim.Stepper(problem, X, Y, METHOD)
    for _ in range(3):
        whole.step()
    bvfim.checkpoint.write(tmp_path / "state", whole.state_dict())
    later = bvfim.Stepper(problem, X, Y, METHOD)
    later.load_state_dict(bvfim.checkpoint.read(tmp_path / "state"))
    for stepper in (whole, later):
        for _ in range(4):
            stepper.step()
    assert torch.equal(tree.flatten((whole.x, whole.state)), tree.flatten((later.x, later.state)))
    assert whole.problem.evaluations == later.problem.evaluations


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"upper_constraints": lambda x, y: y["u"] - 1}, "constraints of the lower level, but no upper_constraints"),
        ({"upper_equalities": lambda x, y: y["v"] - 1}, "constraints of the lower level, but no upper_equalities"),
        ({"follower": "pessimistic"}, "BiCGAFFA does not solve for a pessimistic follower: take AdaptiveBVFIM, SiPBA"),
    ],
)
def test_problems_that_are_refused(given, says):
    with pytest.raises(bvfim.MethodError, match=says):
        bvfim.solve(stated(**given), X, Y, METHOD)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"alpha": 0}, "alpha must be a finite number above 0, not 0"),
        ({"gamma2": -1.0}, "gamma2 must be a finite number above 0"),
        ({"p": -0.1}, "p must be a finite number of at least 0"),
        ({"p": lambda k: 0.3}, "p must be a finite number of at least 0"),
        ({"c_max": 0.0}, "c_max must be a finite number above 0"),
        ({"bound": 0.0}, "bound must be a finite number above 0"),
    ],
)
def test_numbers_that_are_refused(given, says):
    with pytest.raises(bvfim.MethodError, match=says):
        bvfim.BiCGAFFA(**given)
