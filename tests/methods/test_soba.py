"""SOBA and SABA: their directions in closed form, the rate without noise, and what noise leaves of it."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import bvfim
from bvfim import tree
from bvfim.methods import Settled
from bvfim.methods.saba import Block, Memory
from tests.problems import nested, quadratic, summed

D = torch.float64
Q = quadratic(3, 4, seed=6)
ROWS, SIZE = 40, 8
SUMMED = summed(Q, ROWS)
X, Y = torch.zeros(3, dtype=D), torch.zeros(4, dtype=D)
SABA = bvfim.SABA(lr=0.2, lower_rows=ROWS, upper_rows=ROWS, size=SIZE)


def errors(problem, method, steps, looks, lr=0.1, stream=None):
    """Of x, at equally spaced steps of a run with SGD in x."""
    x, state, found = X, method.init(problem, X, Y), []
    for k in range(steps):
        gradient, state, _ = method.estimate(problem, x, state, k, stream and next(stream))
        x = x - (lr(k) if callable(lr) else lr) * gradient
        if (k + 1) % (steps // looks) == 0:
            found.append(float((x - Q.optimum).norm()))
    return found


@pytest.mark.parametrize("method", [bvfim.SOBA(lr=0.3), bvfim.SABA(lr=0.3)])
def test_its_directions_are_those_of_the_paper(method):
    x, y, v = torch.linspace(-1, 1, 3, dtype=D), torch.ones(4, dtype=D), torch.linspace(1, 2, 4, dtype=D)
    state = method.init(Q.problem, x, y)._replace(v=v)
    gradient, after, _ = method.estimate(Q.problem, x, state, 0, None)
    torch.testing.assert_close(gradient, Q.D * x - Q.B.T @ v)
    torch.testing.assert_close(after.y, y - 0.3 * (Q.H @ y - Q.B @ x - Q.c))
    torch.testing.assert_close(after.v, v - 0.3 * (Q.H @ v + y - Q.t))


@pytest.mark.parametrize("method", [bvfim.SOBA(lr=0.3), bvfim.SABA(lr=0.3)])
def test_settled_it_is_the_implicit_hypergradient(method):
    x = torch.linspace(-1, 1, 3, dtype=D)
    found = bvfim.hypergradient(Q.problem, x, Y, Settled(method))
    torch.testing.assert_close(found, Q.gradient(x), rtol=1e-10, atol=1e-10)


def test_without_batches_both_are_the_same_and_converge_linearly():
    soba, saba = (errors(Q.problem, m, 240, 3) for m in (bvfim.SOBA(lr=0.2), bvfim.SABA(lr=0.2)))
    assert soba == pytest.approx(saba, rel=1e-6)
    assert soba[2] / soba[1] == pytest.approx(soba[1] / soba[0], rel=0.4)
    assert soba[2] < 1e-6


def test_rounding_of_single_precision_does_not_gather_in_the_mean():
    generator = torch.Generator().manual_seed(0)
    blocks = tuple(100.0 + torch.arange(10.0) + i for i in range(4))
    memory = Memory(blocks, torch.stack(blocks).double().mean(0))
    for k in range(400):
        close = blocks[k % 4] + 1e-2 * torch.randn(10, generator=generator)  # their differences have no rounding
        direction, memory = memory.followed(Block(k % 4, 0.25), close)
    assert direction.dtype is torch.float32
    torch.testing.assert_close(memory.mean, torch.stack(memory.blocks).double().mean(0), rtol=0, atol=1e-9)


def test_under_sampling_saba_converges_linearly_where_soba_stops_at_noise():
    streams = [bvfim.Shuffled(ROWS, SIZE, seed=3, blocks=True) for _ in range(2)]
    saba = errors(SUMMED, SABA, 300, 3, stream=streams[0])
    soba = errors(SUMMED, bvfim.SOBA(lr=0.2), 300, 3, stream=streams[1])
    assert saba[1] < 1e-2 * saba[0]
    assert saba[2] < 1e-2 * saba[1]
    assert saba[2] < 1e-9
    assert min(soba) > 5e-3


@pytest.mark.long
def test_soba_converges_with_steps_that_go_down():
    lr = bvfim.schedules.power(0.4, -0.5)
    ends = [
        sum(errors(SUMMED, bvfim.SOBA(lr), n, 1, lr, bvfim.Shuffled(ROWS, SIZE, seed)).pop() for seed in range(3))
        for n in (300, 2400)
    ]
    assert ends[1] < ends[0] / 2


def test_a_direction_of_saba_is_unbiased_with_blocks_of_any_size():
    """Over all pairs of blocks, each as likely, the mean direction is that of all rows."""
    rows, size = 10, 4  # so the last block has two
    problem, method = summed(Q, rows), bvfim.SABA(lr=0.1, lower_rows=rows, upper_rows=rows, size=size)
    blocks = torch.arange(rows).split(size)
    state, x = method.init(problem, X, Y), X
    for k, i in enumerate((0, 2, 1, 1)):  # memories of other points, some of them twice
        gradient, state, _ = method.estimate(problem, x, state, k, blocks[i])
        x = x - 0.1 * gradient
    ends = [method.estimate(problem, x, state, 4, bvfim.Draw(upper, lower))[:2] for upper in blocks for lower in blocks]
    whole, whole_state, _ = bvfim.SOBA(lr=0.1).estimate(
        problem, x, bvfim.SOBA().init(problem, X, state.y)._replace(v=state.v), 4, torch.arange(rows)
    )
    torch.testing.assert_close(torch.stack([gradient for gradient, _ in ends]).mean(0), whole)
    for name in ("y", "v"):
        found = torch.stack([getattr(after, name) for _, after in ends]).mean(0)
        torch.testing.assert_close(found, getattr(whole_state, name))


def test_its_means_are_those_of_its_memory():
    state, stream, x = SABA.init(SUMMED, X, Y), bvfim.Shuffled(ROWS, SIZE, blocks=True), X
    for k in range(13):
        gradient, state, _ = SABA.estimate(SUMMED, x, state, k, next(stream))
        x = x - 0.1 * gradient
    for memory in (state.lower, state.upper):
        expected = tree.map(lambda *entries: torch.stack(entries).mean(0), *memory.blocks)
        torch.testing.assert_close(memory.mean, expected, rtol=1e-12, atol=1e-12)


def test_a_step_leaves_the_state_before_alone():
    state = SABA.init(SUMMED, X, Y)
    before = tree.clone(state)
    SABA.estimate(SUMMED, X, state, 0, torch.arange(SIZE))
    assert tree.equal(state, before)


def test_it_resumes_among_its_batches():
    whole = bvfim.solve(SUMMED, X, Y, SABA, steps=11, batches=bvfim.Shuffled(ROWS, SIZE, blocks=True), refit=False)
    one, other = (bvfim.Shuffled(ROWS, SIZE, blocks=True) for _ in range(2))
    stepper = bvfim.Stepper(SUMMED, X, Y, SABA)
    for _ in range(6):
        stepper.step(next(one))
    later = bvfim.Stepper(SUMMED, X, Y, SABA)
    later.load_state_dict(stepper.state_dict())
    other.load_state_dict(one.state_dict())
    for _ in range(5):
        later.step(next(other))
    assert torch.equal(later.x, whole.x)


@pytest.mark.parametrize("method", [bvfim.SOBA(lr=0.1), bvfim.SABA(lr=0.1)])
def test_on_a_face_of_y_it_ends_at_the_solution_there(method):
    """y* = clip(x, 0, 1): its second entry is held, and does not follow x."""
    problem = bvfim.Problem(
        upper=lambda x, y: ((y - 0.4) ** 2).sum() + 0.1 * ((x - 2) ** 2).sum(),
        lower=lambda x, y: ((y - x) ** 2).sum(),
        y_set=bvfim.Box(0.0, 1.0),
    )
    start = torch.tensor([0.5, 1.7], dtype=D)
    found = bvfim.solve(
        problem, start, start.clamp(0, 1), method, optimizer=lambda p: torch.optim.SGD(p, 0.1), steps=800, refit=False
    )
    # (x - 0.4) + 0.1 (x - 2) = 0 where y moves; x = 2 where it is held
    torch.testing.assert_close(found.x, torch.tensor([0.6 / 1.1, 2.0], dtype=D), rtol=1e-5, atol=1e-5)


@pytest.mark.long
def test_the_check_knows_the_draw():
    checked = dataclasses.replace(SABA, lr=0.3)
    rows = torch.arange(SIZE, 2 * SIZE)
    found = bvfim.check_hypergradient(SUMMED, X, Y, checked, data=rows)
    assert found.verdict is bvfim.Verdict.BIASED
    assert "the memory of other rows" in str(found)


@pytest.mark.parametrize(
    ("method", "batches", "says"),
    [
        (bvfim.SABA(), bvfim.Shuffled(ROWS, SIZE, blocks=True), "SABA remembers blocks of rows: pass batches="),
        (SABA, [torch.arange(3, dtype=torch.int32)], "SABA remembers blocks of rows"),
        (SABA, bvfim.Shuffled(ROWS, SIZE), "the rows of a batch are not a block of 8 of 40"),
        (SABA, bvfim.Shuffled(ROWS, 2 * SIZE, blocks=True), "the rows of a batch are not a block of 8 of 40"),
        (SABA, None, "SABA remembers blocks of rows"),
    ],
)
def test_what_has_no_rows_to_remember_is_refused(method, batches, says):
    problem, x, y = nested() if batches is None else (SUMMED, X, Y)
    with pytest.raises(bvfim.MethodError, match=says):
        bvfim.solve(problem, x, y, method, batches=batches, steps=5)
