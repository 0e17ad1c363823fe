"""Betty and BOAT against our own methods: what agrees, and by how much what does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

import bvfim
from bvfim.reproduce.bench.peers import betty_, boat_
from bvfim.reproduce.bench.peers.base import Budget
from bvfim.reproduce.experiments import cleaning

BUDGET = Budget(T=7, J=20, lr=0.1)
RHG = bvfim.RHG(steps=7, lr=0.1)
CG = bvfim.CG(steps=7, lr=0.1, cg_steps=20)
NEUMANN = bvfim.Neumann(steps=7, lr=0.1, terms=20)
NAMES = {
    betty_: ["Betty CG", "Betty Neumann", "Betty finite differences"],
    boat_: ["BOAT RAD", "BOAT CG", "BOAT NS", "BOAT VSO"],
}


@pytest.fixture
def betty():
    pytest.importorskip("betty", reason="betty-ml is not installed")
    return betty_.loops


@pytest.fixture
def boat():
    pytest.importorskip("boat_torch", reason="boat-torch is not installed")
    return boat_.loops


def small(ridge: float = 0.0, dtype: torch.dtype = torch.float64) -> cleaning.Task:
    """The lower Hessian's lowest eigenvalue at the start is -0.24 + 2 ridge."""
    task = cleaning.problem("digits", train=60, validation=60, test=50, hidden=8, dtype=dtype)
    upper, lower = task.problem.upper, task.problem.lower
    if not ridge:
        return task
    return replace(
        task,
        problem=bvfim.Problem(upper, lambda x, y: lower(x, y) + ridge * sum((t**2).sum() for t in y.values())),
    )


def errors(loops, name: str, task: cleaning.Task, method) -> list[float]:
    """The relative errors of a loop's first two hypergradients against ours."""
    loop = loops(task, BUDGET)[name]()
    after = bvfim.solve(task.problem, task.x, task.y, method, steps=1)
    found = []
    for x, y in ((task.x, task.y), (after.x, after.y)):
        expected = bvfim.hypergradient(task.problem, x, y, method)
        found.append(float((loop.step() - expected).norm() / expected.norm()))
    return found


def test_boat_unrolled_is_rhg(boat):
    assert max(errors(boat, "BOAT RAD", small(), RHG)) < 1e-10


def test_the_series_are_neumann(betty):
    assert max(errors(betty, "Betty Neumann", small(), NEUMANN)) < 1e-10
    assert max(errors(betty, "Betty Neumann", small(ridge=0.2), NEUMANN)) < 1e-10


def test_boat_series_is_neumann(boat):
    assert max(errors(boat, "BOAT NS", small(), NEUMANN)) < 1e-10
    assert max(errors(boat, "BOAT NS", small(ridge=0.2), NEUMANN)) < 1e-10


def test_boat_cg_is_cg_on_a_convex_lower_level(boat):
    assert max(errors(boat, "BOAT CG", small(ridge=0.2), CG)) < 1e-6


def test_boat_cg_goes_on_through_negative_curvature(boat):
    """Ours stops there, and says so."""
    assert min(errors(boat, "BOAT CG", small(), CG)) > 1


def test_betty_cg_is_not_cg_even_on_a_convex_lower_level(betty):
    """Betty 0.1.1 makes each direction of the residual before the last; its error is 21 % where CG has converged."""
    first, second = errors(betty, "Betty CG", small(ridge=0.2), CG)
    assert 0.1 < second < first < 0.3
    assert min(errors(betty, "Betty CG", small(), CG)) > 1000


def test_betty_finite_differences_shift_y(betty):
    """The identity for the Hessian's inverse; y stays where the second evaluation put it, a hundredth away."""
    identity = bvfim.Neumann(steps=7, lr=0.1, terms=0, eta=1.0)
    first, second = errors(betty, "Betty finite differences", small(), identity)
    assert first < 1e-5
    assert 1e-3 < second < 0.1


def test_boat_vso_is_bvfim_as_printed_but_for_y(boat):
    """T = 7 leaves y one step, from z, which VSO takes twice: a step of twice the size."""
    task = small()
    doubled = bvfim.BVFIM(3, 1, z_lr=0.1, y_lr=0.2, mu2=bvfim.LowerValue(), start="z")
    gradient = boat(task, BUDGET)["BOAT VSO"]().step()
    assert torch.allclose(gradient, bvfim.hypergradient(task.problem, task.x, task.y, doubled), rtol=1e-10, atol=0)
    printed = bvfim.hypergradient(task.problem, task.x, task.y, replace(doubled, y_lr=0.1, start="warm"))
    assert torch.cosine_similarity(gradient, printed, dim=0) < -0.9


@pytest.mark.parametrize(("module", "name"), [(module, name) for module in NAMES for name in NAMES[module]])
def test_a_loop_leaves_the_task_alone_and_moves_x_by_adam(module, name, request, capsys, tmp_path, monkeypatch):
    loops = request.getfixturevalue("betty" if module is betty_ else "boat")
    monkeypatch.chdir(tmp_path)
    task = small(dtype=torch.float32)
    start = {key: t.clone() for key, t in task.y.items()}
    made = loops(task, BUDGET)
    assert list(made) == NAMES[module]
    loop = made[name]()
    gradient: Tensor = loop.step()
    assert gradient.dtype == loop.x.dtype == torch.float32
    moved = gradient.abs() > 1e-6
    assert torch.allclose(loop.x[moved], -BUDGET.x_lr * gradient[moved].sign(), rtol=0.02)
    assert not torch.equal(gradient, loop.step())
    assert torch.equal(task.x, torch.zeros(60))
    assert all(torch.equal(task.y[key], t) for key, t in start.items())
    assert capsys.readouterr().out == ""
    assert not list(tmp_path.iterdir())
