"""What all of the value-function methods' kin promise: sets, trees, resuming, batches, first gradients only."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import bvfim
from bvfim import tree
from tests.methods.test_bvfim import OnlyOnce
from tests.problems import nested, quadratic, summed

D = torch.float64
Q = quadratic(3, 4, seed=6)
START = torch.zeros(3, dtype=D), torch.zeros(4, dtype=D)

JOINT = {
    "VPBGD": bvfim.VPBGD(x_lr=0.05, y_lr=0.05, z_lr=0.05, z_steps=2),
    "BOME": bvfim.BOME(x_lr=0.02, y_lr=0.03, lr=0.05, steps=3),
    "BOME by value": bvfim.BOME(x_lr=0.02, y_lr=0.03, lr=0.05, steps=3, barrier="value"),
    "MEHA": bvfim.MEHA(alpha=0.05, beta=0.04, eta=0.06, gamma=1.0),
}
"""Those that move x themselves."""
METHODS = JOINT | {
    "F2SA of order 1": bvfim.F2SA(1, steps=3, lr=0.05),
    "F2SA of order 2": bvfim.F2SA(2, steps=3, lr=0.05),
    "SOBA": bvfim.SOBA(lr=0.05),
    "SABA": bvfim.SABA(lr=0.05),
}
SECOND_ORDER = ("SOBA", "SABA")
each = pytest.mark.parametrize("name", METHODS)


def quiet(problem, x, y, method, **options):
    return bvfim.solve(problem, x, y, method, refit=False, progress=False, **options)


@each
def test_it_runs_on_nested_trees_and_leaves_them_alone(name):
    problem, x, y = nested()
    before = tree.clone((x, y))
    found = quiet(problem, x, y, METHODS[name], steps=3)
    assert tree.equal((x, y), before)
    for new, old in ((found.x, x), (found.y, y), (found.z, y)):
        assert tree.same_structure(new, old)
        assert not tree.equal(new, old)
    assert {"upper", "lower", "grad_norm"} <= set(found.history)
    assert (found.evaluations["hvp"] > 0) == (name in SECOND_ORDER)


@each
def test_sets_hold_for_x_y_and_z(name):
    problem, x, y = nested()
    boxed = dataclasses.replace(problem, x_set={"w": [bvfim.Box(-0.1, 0.1), None]}, y_set=bvfim.Ball(0.2))
    x, y = boxed.project_x(x), boxed.project_y(y)
    found = quiet(boxed, x, y, METHODS[name], steps=20)
    assert found.x["w"][0].abs().max() <= 0.1
    assert found.x["w"][1].abs().max() > 0.1
    for ends in (found.y, found.z):
        assert max(float(t.norm()) for t in tree.leaves(ends)) <= 0.2 + 1e-12


@each
def test_a_context_is_one_more_way_to_write_a_problem(name):
    inside = bvfim.Problem(
        upper=lambda x, y, c: ((y - c) ** 2).sum() + c.sum(),
        lower=lambda x, y, c: torch.cosh(y + c).sum() + (x * y).sum(),
        context=lambda x, batch: torch.tanh(x),
    )
    outside = bvfim.Problem(
        lambda x, y: inside.upper(x, y, torch.tanh(x)), lambda x, y: inside.lower(x, y, torch.tanh(x))
    )
    x = torch.tensor([0.3, -0.8], dtype=D)
    one, two = (quiet(problem, x, x, METHODS[name], steps=5) for problem in (inside, outside))
    torch.testing.assert_close((one.x, one.y, one.z), (two.x, two.y, two.z), rtol=1e-12, atol=1e-12)


@each
def test_it_resumes_from_a_file_bit_for_bit(tmp_path, name):
    problem, x, y = nested()
    whole = bvfim.Stepper(problem, x, y, METHODS[name])
    for _ in range(3):
        whole.step()
    bvfim.checkpoint.write(tmp_path / "state", whole.state_dict())
    later = bvfim.Stepper(problem, x, y, METHODS[name])
    later.load_state_dict(bvfim.checkpoint.read(tmp_path / "state"))
    for stepper in (whole, later):
        for _ in range(4):
            stepper.step()
    assert tree.equal((whole.x, whole.state), (later.x, later.state))
    assert whole.problem.evaluations == later.problem.evaluations


@each
def test_batches_of_rows_come_near_the_optimum(name):
    """Noise leaves an error, and so does a finite weight: most for BOME, whose weight follows the noise."""
    method, stream = METHODS[name], bvfim.Shuffled(40, 10, blocks=True)
    if name == "SABA":
        method = dataclasses.replace(method, lower_rows=40, upper_rows=40, size=10)
    if isinstance(method, bvfim.BOME):
        method = dataclasses.replace(method, lr=0.3, steps=10, y_lr=0.02)
    options = {} if name in JOINT else {"optimizer": lambda p: torch.optim.SGD(p, 0.03)}
    found = quiet(summed(Q, 40), *START, method, steps=600, batches=stream, **options)
    assert (found.x - Q.optimum).norm() < (0.2 if isinstance(method, bvfim.BOME) else 0.1) * Q.optimum.norm()


@pytest.mark.parametrize("name", [n for n in METHODS if n not in SECOND_ORDER])
def test_no_double_backward(name, monkeypatch):
    """Objectives that refuse a second derivative, and an autograd that refuses to build its graph."""
    problem = bvfim.Problem(lambda x, y: OnlyOnce.apply(y - x).sum(), lambda x, y: OnlyOnce.apply(y + x).sum())
    x, plain = torch.ones(2, dtype=D), torch.autograd.grad

    def grad(*args, create_graph=False, **options):
        assert not create_graph, f"{name} asked for the graph of a gradient"
        return plain(*args, create_graph=create_graph, **options)

    monkeypatch.setattr(torch.autograd, "grad", grad)
    assert quiet(problem, x, x, METHODS[name], steps=3).status is bvfim.Status.MAX_STEPS


def test_they_stand_beside_others_in_a_table():
    table = bvfim.compare(Q.problem, METHODS, *START, steps=10)
    assert list(table.index) == list(METHODS)
    assert (table["lower_gap"] >= -1e-12).all()


@pytest.mark.parametrize("name", JOINT)
def test_those_that_move_x_give_no_hypergradient_and_take_no_optimiser(name):
    with pytest.raises(bvfim.MethodError, match="does not estimate a hypergradient: it moves x itself"):
        bvfim.check_hypergradient(Q.problem, *START, METHODS[name])
    with pytest.raises(bvfim.MethodError, match=r"optimizer: .* moves x itself"):
        bvfim.solve(Q.problem, *START, METHODS[name], optimizer=lambda p: torch.optim.SGD(p, 0.1))


@each
def test_numbers_may_be_schedules(name):
    problem, x, y = nested()
    method = METHODS[name]
    numbers = {f.name: getattr(method, f.name) for f in dataclasses.fields(method) if "Schedule" in str(f.type)}
    assert numbers
    same = dataclasses.replace(method, **{key: bvfim.schedules.constant(number) for key, number in numbers.items()})
    one, two = (quiet(problem, x, y, m, steps=4) for m in (method, same))
    assert tree.equal((one.x, one.y, one.z), (two.x, two.y, two.z))


@each
def test_constraints_and_a_pessimist_are_refused(name):
    with pytest.raises(bvfim.MethodError, match="takes sets, but no lower_constraints"):
        bvfim.solve(dataclasses.replace(Q.problem, lower_constraints=lambda x, y: y), *START, METHODS[name])
    with pytest.raises(bvfim.MethodError, match="does not solve for a pessimistic follower"):
        bvfim.solve(dataclasses.replace(Q.problem, follower="pessimistic"), *START, METHODS[name])


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: bvfim.F2SA(3), "F2SA: order must be 1 or 2, not 3"),
        (lambda: bvfim.F2SA(nu=0.0), "F2SA: nu must be a finite number above 0"),
        (lambda: bvfim.F2SA(start="z"), "F2SA: start must be one of warm, restart"),
        (lambda: bvfim.VPBGD(gamma=-1.0), "VPBGD: gamma must be a finite number of at least 0"),
        (lambda: bvfim.VPBGD(z_steps=0), "VPBGD: z_steps must be a whole number of at least 1"),
        (lambda: bvfim.BOME(eta=0.0), "BOME: eta must be a finite number above 0"),
        (lambda: bvfim.BOME(barrier="none"), "BOME: barrier must be one of gradient, value"),
        (lambda: bvfim.MEHA(gamma=0), "MEHA: gamma must be a finite number above 0"),
        (lambda: bvfim.MEHA(p=-0.1), "MEHA: p must be a finite number of at least 0"),
        (lambda: bvfim.MEHA(prox=lambda x, v, s: v), "MEHA: nonsmooth and prox belong together"),
        (lambda: bvfim.SOBA(lr=0), "SOBA: lr must be a finite number above 0"),
        (lambda: bvfim.SABA(lower_rows=4), "SABA: lower_rows and upper_rows belong together"),
        (lambda: bvfim.SABA(size=0), "SABA: size must be a whole number of at least 1"),
    ],
)
def test_numbers_that_are_refused(make, says):
    with pytest.raises(bvfim.MethodError, match=says):
        make()
