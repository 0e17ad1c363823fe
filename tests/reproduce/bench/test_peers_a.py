from __future__ import annotations

import dataclasses
import sys

import pytest
import torch

import bvfim
from bvfim.reproduce.bench.peers import higher_, torchopt_
from bvfim.reproduce.bench.peers.base import Budget
from bvfim.reproduce.experiments import cleaning

BUDGET = Budget(T=7, J=20, lr=0.1)
EXACT = {
    "higher unrolled": bvfim.RHG(steps=7, lr=0.1),
    "TorchOpt unrolled": bvfim.RHG(steps=7, lr=0.1),
    "TorchOpt CG": bvfim.CG(steps=7, lr=0.1, cg_steps=20),
    "TorchOpt Neumann": bvfim.Neumann(steps=7, lr=0.1, terms=20),
}


def small(dtype: torch.dtype = torch.float64, activation: str = "identity") -> cleaning.Task:
    return cleaning.problem("digits", train=60, validation=60, test=50, hidden=8, dtype=dtype, activation=activation)


def ridged(task: cleaning.Task) -> cleaning.Task:
    """With a lower Hessian whose eigenvalues are in (0.2, 0.8) at y_T; without the ridge the least one is -0.2."""
    upper, lower = task.problem.upper, task.problem.lower
    problem = bvfim.Problem(upper, lambda x, y: lower(x, y) + 0.2 * sum((t**2).sum() for t in y.values()))
    return dataclasses.replace(task, problem=problem)


def peer(name: str, task: cleaning.Task):
    package, module = {"h": ("higher", higher_), "T": ("torchopt", torchopt_)}[name[0]]
    pytest.importorskip(package)
    return module.loops(task, BUDGET)[name]()


def ours(name: str, task: cleaning.Task, steps: int) -> list[torch.Tensor]:
    method = EXACT[name]
    x = task.x.clone()
    adam = torch.optim.Adam([x], lr=BUDGET.x_lr)
    state, found = method.init(task.problem, x, task.y), []
    for k in range(steps):
        x.grad, state = bvfim.hypergradient(task.problem, x, task.y, method, state=state, step=k)
        found.append(x.grad)
        adam.step()
    return found


def error(gradient: torch.Tensor, exact: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(gradient - exact) / torch.linalg.vector_norm(exact))


@pytest.mark.parametrize("activation", cleaning.ACTIVATIONS)
@pytest.mark.parametrize("name", ["higher unrolled", "TorchOpt unrolled"])
def test_the_unrolled_gradients_are_ours(name, activation):
    task = small(activation=activation)
    loop = peer(name, task)
    for exact in ours(name, task, 2):
        assert error(loop.step(), exact) < 1e-8


@pytest.mark.parametrize("name", ["TorchOpt CG", "TorchOpt Neumann"])
def test_the_implicit_gradients_are_ours_where_the_lower_hessian_is_positive_definite(name):
    task = ridged(small())
    loop = peer(name, task)
    for exact in ours(name, task, 2):
        assert error(loop.step(), exact) < 1e-8


@pytest.mark.parametrize(("name", "activation"), [("TorchOpt CG", "identity"), ("TorchOpt Neumann", "relu")])
def test_torchopt_goes_on_where_an_indefinite_hessian_makes_ours_stop(name, activation):
    """Then neither is a solution of the linear system, and only their times compare."""
    task = small(activation=activation)
    solution = bvfim.solve(task.problem, task.x, task.y, EXACT[name], steps=1)
    assert solution.history["breakdown"].item() == 1
    (stopped,) = ours(name, task, 1)
    assert error(peer(name, task).step(), stopped) > 0.1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", EXACT)
def test_a_loop_keeps_the_dtype_and_leaves_the_task_alone(name, dtype):
    task, same = small(dtype), small(dtype)
    loop = peer(name, task)
    assert loop.step().dtype == loop.x.dtype == dtype
    assert torch.equal(task.x, same.x)
    assert not torch.equal(loop.x, same.x)
    assert all(torch.equal(t, same.y[key]) and not t.requires_grad for key, t in task.y.items())


@pytest.mark.parametrize(("package", "module"), [("higher", higher_), ("torchopt", torchopt_)])
def test_a_missing_peer_is_an_import_error(package, module, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=package):
        module.loops(small(), BUDGET)
