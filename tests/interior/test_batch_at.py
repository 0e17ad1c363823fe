"""A problem at many x at once gives what the problem at each x gives, mapped or not, and counts it the same."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import bvfim
from bvfim import sets, tree
from bvfim.interior.batch import Batch
from bvfim.interior.space import Space
from tests.methods.test_bvfim import OnlyOnce
from tests.problems import nested, quadratic

D = torch.float64
UPPER, LOWER, FORWARD = range(3)  # the columns of the counts


def plain():
    return quadratic(2, 3).problem, torch.ones(2, dtype=D), torch.ones(3, dtype=D)


def with_context():
    def context(x, batch):
        return {"weights": torch.tanh(x["w"]), "rate": (x["w"] ** 2).sum(), "index": torch.tensor([1, 0])}

    problem = bvfim.Problem(
        upper=lambda x, y, c: (c["weights"] * y[0]).sum() ** 2 + c["rate"] * y[1] + x["w"][0],
        lower=lambda x, y, c: ((y[0] - c["weights"][c["index"]]) ** 2).sum() + torch.cos(y[1] * c["rate"] * x["w"][1]),
        context=context,
    )
    return problem, {"w": torch.ones(2, dtype=D)}, (torch.ones(2, dtype=D), torch.tensor(0.5, dtype=D))


def upper_alone_takes_the_context():
    problem = bvfim.Problem(
        lambda x, y, c: c * y.sum(), lambda x, y: ((y - x) ** 2).sum(), context=lambda x, _: x.sum()
    )
    return problem, torch.ones(2, dtype=D), torch.ones(2, dtype=D)


def constant_context():
    problem = bvfim.Problem(
        lambda x, y, c: ((y - c) ** 2).sum() + (x**2).sum(),
        lambda x, y, c: ((y - x * c) ** 2).sum(),
        context=lambda x, _: torch.arange(2.0, dtype=D),
    )
    return problem, torch.ones(2, dtype=D), torch.ones(2, dtype=D)


def with_joint():
    def joint(x, y):
        residual = torch.sin(x.sum() * y)
        return (residual**2).sum() + (x**2).sum(), (residual - x[0]).square().sum()

    problem = bvfim.Problem(lambda x, y: joint(x, y)[0], lambda x, y: joint(x, y)[1], joint=joint)
    return problem, torch.ones(2, dtype=D), torch.ones(3, dtype=D)


def with_joint_and_context():
    def joint(x, y, c):
        residual = c - y
        return (residual**2).sum() + (x * y).sum(), (c * torch.cos(residual)).sum()

    problem = bvfim.Problem(
        lambda x, y, c: joint(x, y, c)[0], lambda x, y, c: joint(x, y, c)[1], context=lambda x, _: x**2, joint=joint
    )
    return problem, torch.ones(2, dtype=D), torch.ones(2, dtype=D)


def branching(problem):
    """The same problem, but which half of the space y is in decides on a factor."""

    def branch(name):
        def objective(x, y, c=None):
            factor = 2.0 if tree.flatten(y).sum() > 0 else 1.0
            found = problem.call(name, x, y, c)
            return tuple(factor * v for v in found) if name == "joint" else factor * found

        return objective

    joint = problem.joint and branch("joint")
    return dataclasses.replace(problem, upper=branch("upper"), lower=branch("lower"), joint=joint)


def item():
    problem, x, y = plain()
    return dataclasses.replace(problem, upper=lambda x, y: problem.upper(x, y) * y[0].item()), x, y


def own_backward():
    problem = bvfim.Problem(
        lambda x, y: OnlyOnce.apply(y - x).sum() + (x**2).sum(), lambda x, y: OnlyOnce.apply(y + x - 1).sum()
    )
    return problem, torch.ones(2, dtype=D), torch.ones(2, dtype=D)


def branching_context():
    problem, x, y = with_context()

    def context(x, batch):
        return problem.context(x if x["w"][0] > 0 else {"w": 1 - x["w"]}, batch)

    return dataclasses.replace(problem, context=context), x, y


def context_with_a_number():
    problem = bvfim.Problem(
        lambda x, y, c: c["power"] * (y - c["x"]).square().sum(),
        lambda x, y, c: ((y - c["x"]) ** c["power"]).sum(),
        context=lambda x, _: {"x": 3 * x, "power": 2},
    )
    return problem, torch.ones(2, dtype=D), torch.ones(2, dtype=D)


class WronglyMapped(torch.autograd.Function):
    """y^2 / 2, but three times that under vmap."""

    @staticmethod
    def forward(y):
        return y**2 / 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0]

    @staticmethod
    def vmap(info, in_dims, y):
        return 3 * WronglyMapped.apply(y), 0


def wrongly_mapped():
    problem = bvfim.Problem(lambda x, y: ((x - y) ** 2).sum(), lambda x, y: WronglyMapped.apply(y - x).sum())
    return problem, torch.zeros(2, dtype=D), torch.ones(2, dtype=D)


def also_branching(make):
    def made():
        problem, x, y = make()
        return branching(problem), x, y

    return made


MAPPED = {
    "plain": plain,
    "nested dicts": nested,
    "context": with_context,
    "context of F alone": upper_alone_takes_the_context,
    "constant context": constant_context,
    "joint": with_joint,
    "joint and context": with_joint_and_context,
}
LOOPED = {f"{name}, branching": also_branching(make) for name, make in MAPPED.items()} | {
    "item": item,
    "own backward": own_backward,
    "branching context": branching_context,
    "context with a number": context_with_a_number,
    "wrongly mapped": wrongly_mapped,
}
CASES = MAPPED | LOOPED
by_name = pytest.mark.parametrize("name", CASES)


def batch_of(problem, x, y, starts):
    of_x, of_y = sets.per_leaf(problem.x_set, x), sets.per_leaf(problem.y_set, y)
    return Batch(problem, Space(x, of_x), Space(y, of_y), torch.zeros(starts, 3, dtype=torch.long))


def setting(name, rows=4):
    """A batch at random x, with y, z and weights for each row."""
    problem, x, y = CASES[name]()
    batch = batch_of(problem, x, y, rows)
    xs, ys, zs = (torch.randn(rows, size, dtype=D) for size in (batch.x.size, batch.y.size, batch.y.size))
    return batch, xs, ys, zs, torch.rand(rows, dtype=D)


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-12)


def expected_rows(batch, xs, one):
    """``one(at, i)`` for each row, by :class:`bvfim.core.problem.At` and counted elsewhere."""
    problem = batch.problem.counted_anew()
    found = [[torch.as_tensor(part) for part in one(problem.at(batch.x.tree(x)), i)] for i, x in enumerate(xs)]
    return [torch.stack(parts) for parts in zip(*found, strict=True)]


def in_both(at, gradients):
    _, in_u, in_y = gradients
    return torch.cat([tree.flatten(at.pull(in_u)), tree.flatten(in_y)])


def check(rows, xs, ys, zs, weight):
    """Everything that ``rows`` offers, against the problem at each x alone."""
    batch = rows.batch
    y_of = batch.y.tree

    def gradients(at, i):
        of_F, of_f = (in_both(at, g(y_of(ys[i]))) for g in (at.upper_grads, at.lower_grads))
        in_x = tree.flatten(at.pull(at.lower_grads(y_of(zs[i]))[1]))
        return of_F, weight[i] * torch.cat([of_f[: batch.x.size] - in_x, of_f[batch.x.size :]])

    close(list(rows.values(ys)), expected_rows(batch, xs, lambda at, i: at.values(y_of(ys[i]))))
    close([rows.lower(ys)], expected_rows(batch, xs, lambda at, i: [at.lower(y_of(ys[i]))]))
    many = torch.stack([ys, zs, ys + zs], 1)
    close([rows.lower_many(many)], expected_rows(batch, xs, lambda at, i: [at.lower_many([*map(y_of, many[i])])]))
    close(
        list(rows.lower_grad(ys)),
        expected_rows(batch, xs, lambda at, i: [(p := at.lower_grad(y_of(ys[i])))[0], tree.flatten(p[1])]),
    )
    close(
        list(rows.upper_grad(ys)),
        expected_rows(batch, xs, lambda at, i: [(p := at.upper_grads(y_of(ys[i])))[0], in_both(at, p)]),
    )
    of_F, of_f = rows.barrier_grads(ys, zs, weight)
    close([of_F, of_f], expected_rows(batch, xs, gradients))
    barrier = expected_rows(
        batch, xs, lambda at, i: [tree.flatten(at.barrier_grad(y_of(ys[i]), y_of(zs[i]), lambda f: weight[i])[2])]
    )
    close([(of_F + of_f)[:, : batch.x.size]], barrier)


@by_name
def test_every_row_has_the_values_and_gradients_of_the_problem_at_its_x(name):
    batch, *point = setting(name)
    assert batch.mapped == (name in MAPPED)
    check(batch.at(point[0], torch.arange(4)), *point)


@by_name
@pytest.mark.parametrize("chosen", [[3], [1, 1, 0]], ids=str)
def test_some_of_the_rows_are_those_of_the_batch(name, chosen):
    batch, *point = setting(name)
    chosen = torch.tensor(chosen)
    check(batch.at(point[0], torch.arange(4)).take(chosen), *(part[chosen] for part in point))


@by_name
def test_one_row_is_no_exception(name):
    batch, *point = setting(name, rows=1)
    rows = batch.at(point[0], torch.arange(1))
    check(rows, *point)
    check(rows.take(torch.tensor([0, 0])), *(part.repeat(2, *[1] * (part.dim() - 1)) for part in point))


@by_name
def test_evaluations_are_counted_for_each_start_and_for_the_problem_as_at_would(name):
    batch, xs, ys, zs, weight = setting(name)
    members = torch.tensor([3, 1])
    rows = batch.at(xs[members], members)
    y, z, w = ys[members], zs[members], weight[members]
    expected = torch.zeros(3, dtype=torch.long)
    asked = [
        (lambda: rows.values(y), {FORWARD: 2}),
        (lambda: rows.lower(y), {FORWARD: 1}),
        (lambda: rows.lower_many(torch.stack([y, z, y], 1)), {FORWARD: 3}),
        (lambda: rows.lower_grad(y), {LOWER: 1}),
        (lambda: rows.upper_grad(y), {UPPER: 1}),
        (lambda: rows.barrier_grads(y, z, w), {UPPER: 1, LOWER: 2}),
        (lambda: rows.barrier_parts(y, z, w), {}),
        (lambda: rows.take(torch.tensor([1, 0])).lower(y), {FORWARD: 1}),
    ]
    for ask, times in asked:
        ask()
        for kind, count in times.items():
            expected[kind] += count
        assert torch.equal(batch.counts[members], expected.expand(2, 3))
    assert not batch.counts[[0, 2]].any()
    counted = batch.problem.evaluations
    assert [counted.upper, counted.lower, counted.forward] == batch.counts.sum(0).tolist()
    assert counted.hvp == counted.jvp == 0


def test_a_row_taken_twice_counts_twice():
    batch, xs, ys, _, _ = setting("plain")
    chosen = torch.tensor([0, 0, 0, 2])
    batch.at(xs, torch.arange(4)).take(chosen).lower(ys[chosen])
    assert batch.counts[:, FORWARD].tolist() == [3, 0, 1, 0]
    assert batch.problem.evaluations.forward == 4


def test_values_are_in_float64_and_gradients_in_the_dtype_of_the_variables():
    batch = batch_of(bvfim.testproblems.sine(2).problem, torch.zeros(1), torch.zeros(1), 3)
    rows, y = batch.at(torch.randn(3, 1), torch.arange(3)), torch.randn(3, 1)
    value, gradient = rows.lower_grad(y)
    assert value.dtype == rows.lower(y).dtype == rows.values(y)[0].dtype == rows.lower_many(y[:, None]).dtype == D
    of_F, of_f = rows.barrier_grads(y, y, torch.ones(3, dtype=D))
    assert gradient.dtype == of_F.dtype == of_f.dtype == torch.float32


@pytest.mark.parametrize("change", [lambda p: p, branching], ids=["mapped", "looped"])
def test_a_row_that_is_not_finite_leaves_the_others_alone(change):
    problem = change(bvfim.Problem(lambda x, y: (x * y.log()).sum(), lambda x, y: (y.sqrt() - x).sum()))
    batch = batch_of(problem, torch.ones(1, dtype=D), torch.ones(1, dtype=D), 3)
    x, y = torch.ones(3, 1, dtype=D), torch.tensor([[4.0], [-1.0], [9.0]], dtype=D)
    value, gradient = batch.at(x, torch.arange(3)).lower_grad(y)
    of_F, _ = batch.at(x, torch.arange(3)).barrier_grads(y, y, torch.ones(3, dtype=D))
    assert value.isfinite().tolist() == [True, False, True]
    assert gradient.isfinite().flatten().tolist() == [True, False, True]
    assert of_F[[0, 2]].isfinite().all()


def test_what_an_objective_raises_by_itself_is_not_taken_for_a_failure_to_map():
    def broken(x, y):
        raise ZeroDivisionError("mine")

    batch = batch_of(bvfim.Problem(broken, broken), torch.ones(1), torch.ones(1), 2)
    with pytest.raises(ZeroDivisionError, match="mine"):
        _ = batch.mapped


def test_whether_a_problem_can_be_mapped_is_tried_once_and_not_counted():
    calls = []
    problem, x, y = plain()
    watched = dataclasses.replace(problem, lower=lambda x, y: calls.append(0) or problem.lower(x, y))
    assert batch_of(watched, x, y, 2).mapped
    tried = len(calls)
    assert batch_of(watched, x, y, 2).mapped
    assert len(calls) == tried
    assert watched.evaluations == bvfim.core.problem.Evaluations()
