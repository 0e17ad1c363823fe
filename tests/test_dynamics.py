import math

import pytest
import torch

import bvfim
from bvfim import tree
from bvfim.dynamics import Adam, Adaptive, GradientDescent, Momentum
from bvfim.status import MethodError

H = torch.tensor([[3.0, 1.0, 0.0], [1.0, 2.0, 0.5], [0.0, 0.5, 1.0]], dtype=torch.float64)
start = {"w": torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64), "b": torch.tensor(0.7, dtype=torch.float64)}
kinds = {
    "descent": (GradientDescent(0.05), lambda p: torch.optim.SGD(p, 0.05)),
    "momentum": (Momentum(0.05, 0.8), lambda p: torch.optim.SGD(p, 0.05, momentum=0.8)),
    "momentum-default": (Momentum(), lambda p: torch.optim.SGD(p, 0.01, momentum=0.9)),
    "adam": (Adam(0.1), lambda p: torch.optim.Adam(p, 0.1)),
    "adam-betas": (Adam(0.05, 0.5, 0.8, 1e-3), lambda p: torch.optim.Adam(p, 0.05, (0.5, 0.8), 1e-3)),
}


def loss(y):
    return 0.5 * y["w"] @ H @ y["w"] + torch.sin(y["b"] * y["w"]).sum() + y["b"] ** 2


def run(dynamics, y, gradient, steps):
    memory = dynamics.init(y)
    for t in range(steps):
        y, memory = dynamics.step(y, gradient(y), memory, t)
    return y


def lower_gradient(y):
    y = tree.variable(y)
    return tree.grad(loss(y), y)


@pytest.mark.parametrize("steps", [1, 2, 20])
@pytest.mark.parametrize("name", kinds)
def test_dynamics_are_those_of_torch_optim(name, steps):
    dynamics, make = kinds[name]
    expected = tree.variable(tree.clone(start))
    optimizer = make(tree.leaves(expected))
    for _ in range(steps):
        optimizer.zero_grad()
        loss(expected).backward()
        optimizer.step()
    found = run(dynamics, start, lower_gradient, steps)
    assert tree.same_structure(found, start)
    torch.testing.assert_close(tree.flatten(found), tree.flatten(tree.detach(expected)), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", kinds)
def test_the_derivative_through_five_steps_is_the_finite_difference(name):
    dynamics, _ = kinds[name]

    def end(x, y):
        return run(dynamics, y, lambda y: H @ y - x + torch.sin(x * y), 5)

    x = torch.tensor([0.3, -0.4, 0.9], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(end, (x, y), eps=1e-6, atol=1e-7, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_derivative_through_adam_is_finite_where_an_entry_of_the_gradient_is_zero(dtype):
    x = torch.tensor([1.0, 2.0, 3.0], dtype=dtype, requires_grad=True)
    y = torch.tensor([0.0, 1.0, -1.0], dtype=dtype, requires_grad=True)
    end = run(Adam(0.1), y, lambda y: x * y, 5)
    found = torch.autograd.grad(end.sum(), (x, y))
    assert end[0] == 0
    assert all(g.isfinite().all() for g in found)
    assert found[0][0] == 0


def test_a_step_changes_neither_point_nor_memory_in_place():
    y = start["w"].clone()
    for dynamics, _ in kinds.values():
        memory = dynamics.init(y)
        dynamics.step(y, torch.ones_like(y), memory, 0)
        assert torch.equal(y, start["w"])
        assert not any(m.any() for m in tree.leaves(memory))


@pytest.mark.parametrize(
    "make",
    [
        lambda: GradientDescent(0.0),
        lambda: GradientDescent(-0.1),
        lambda: GradientDescent(math.nan),
        lambda: Adaptive(0.0),
        lambda: Momentum(0.0),
        lambda: Momentum(0.1, -0.1),
        lambda: Momentum(0.1, "0.9"),
        lambda: Adam(math.inf),
        lambda: Adam(beta1=-0.1),
        lambda: Adam(eps=-1e-8),
        lambda: Adam(floor=-1.0),
        pytest.param(lambda: Adam(beta1=1.0), id="adam-beta1-one"),
        pytest.param(lambda: Adam(beta2=1.0), id="adam-beta2-one"),
    ],
)
def test_numbers_out_of_range_are_refused(make):
    with pytest.raises(MethodError, match="must be"):
        make()


def test_an_adaptive_step_is_the_published_rule():
    """Malitsky and Mishchenko (2020), Algorithm 1, written out on a vector."""
    y, step, ratio = start["w"], 0.3, math.inf
    before = None
    for _ in range(12):
        d = H @ y
        if before is not None:
            moved, turned = (y - before[0]).norm(), (d - before[1]).norm()
            new = min((1 + ratio) ** 0.5 * step, float(moved / (2 * turned)))
            step, ratio = new, new / step
        before = y, d
        y = y - step * d
    torch.testing.assert_close(run(Adaptive(0.3), start["w"], lambda y: H @ y, 12), y, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("first", [1e-3, 1.0])
def test_an_adaptive_step_converges_whatever_the_scale(scale, first):
    found = run(Adaptive(first), start["w"], lambda y: scale * (H @ y), 400)
    assert found.norm() < 1e-6 * start["w"].norm()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_adaptive_steps_stay_finite_where_nothing_moves(dtype):
    y = start["w"].to(dtype)
    assert torch.equal(run(Adaptive(0.1), y, torch.zeros_like, 2000), y)
    assert run(Adaptive(0.1), y, lambda y: 1000 * y, 2000).abs().max() < 1e-12, "long after it has converged"


@pytest.mark.parametrize("method", [bvfim.RHG, bvfim.CG, bvfim.BDA])
@pytest.mark.parametrize("steps", [20, 400])
def test_adaptive_steps_run_through_where_plain_ones_overflow(method, steps):
    problem = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: 500 * ((y - x) ** 2).sum())
    x, y = torch.zeros(3), torch.ones(3)
    ways = {"lr": 0.1}, {"dynamics": Adaptive(1e-4)}
    plain, adaptive = (bvfim.solve(problem, x, y, method(steps, **way), steps=3) for way in ways)
    assert plain.status is bvfim.Status.NON_FINITE
    assert adaptive.status is bvfim.Status.MAX_STEPS


def test_the_derivative_through_adaptive_steps_takes_them_as_constants():
    x = torch.tensor([0.3, -0.4, 0.9], dtype=torch.float64, requires_grad=True)
    sizes = []

    def steps(y, x, fixed=None):
        memory = ()
        for t in range(5):
            d = H @ y - x
            if fixed is None:
                y, memory = Adaptive(0.1).step(y, d, memory, t)
                sizes.append(memory[2])
            else:
                y = y - fixed[t] * d
        return y

    found = torch.autograd.grad(steps(start["w"], x).sum(), x)[0]
    expected = torch.autograd.grad(steps(start["w"], x, sizes).sum(), x)[0]
    torch.testing.assert_close(found, expected)
