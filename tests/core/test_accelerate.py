"""Accelerated steps: the same numbers as plain ones. What needs a CUDA device is in tests/test_gpu.py."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
import torch

import bvfim
from bvfim import tree
from bvfim.core.accelerate import Plain, compiled, estimate_of, scalars
from bvfim.schedules import geometric
from tests.problems import nested
from tests.test_battery import METHODS

TOY = bvfim.Problem(lambda x, y: (x**2 + y**2).sum(), lambda x, y: torch.sin(x + y).sum())
START = torch.tensor([3.0], dtype=torch.float64)
SCHEDULED = {
    "BVFIM": bvfim.BVFIM(5, 5, z_lr=geometric(0.02, 0.9), y_lr=geometric(0.03, 0.8), repeats=2),
    "printed": bvfim.BVFIM.printed(),
    "RHG": bvfim.RHG(steps=5, lr=geometric(0.1, 0.5)),
    "TRHG": bvfim.TRHG(steps=5, keep=2, lr=geometric(0.1, 0.5)),
    "BDA": bvfim.BDA(steps=5, lr=geometric(0.1, 0.5)),
    "BDA, alpha 0": bvfim.BDA(steps=5, alpha=lambda k: 0.0),
    "CG": bvfim.CG(steps=5, lr=geometric(0.1, 0.5)),
    "Neumann": bvfim.Neumann(steps=5, lr=geometric(0.1, 0.5)),
    "Neumann, eta": bvfim.Neumann(steps=5, eta=geometric(0.1, 0.5)),
    "F2SA of order 1": bvfim.F2SA(1, steps=5, lr=geometric(0.1, 0.5), nu=geometric(0.4, 0.5)),
    "F2SA of order 2": bvfim.F2SA(2, steps=5, lr=geometric(0.1, 0.5), nu=geometric(0.4, 0.5)),
    "SOBA": bvfim.SOBA(lr=geometric(0.1, 0.5)),
}


@pytest.mark.parametrize("k", [0, 3])
@pytest.mark.parametrize("name", SCHEDULED)
def test_fed_scalars_give_what_schedules_give(name, k):
    method = SCHEDULED[name]
    problem, x, y = nested()
    state = method.init(problem, x, y)
    numbers = scalars(method, k, tree.leaves(x)[0])
    assert numbers
    expected = method.estimate(problem, x, state, k, None)
    found = method.fed(numbers).estimate(problem, x, state, 0, None)
    for a, b in zip(tree.leaves(found), tree.leaves(expected), strict=True):
        assert torch.allclose(a, b, rtol=1e-12, atol=1e-14)


def test_the_numbers_of_a_step_are_those_of_its_stage():
    numbers = SCHEDULED["BVFIM"].numbers(3)
    assert numbers["z_lr"] == pytest.approx(0.02 * 0.9**3)
    assert numbers["tau"] == pytest.approx(1 / 1.01)
    assert bvfim.RHG().numbers(3) == {}
    with pytest.raises(bvfim.MethodError, match="alpha must stay below 1"):
        bvfim.BDA(alpha=lambda k: 1.5).numbers(0)
    with pytest.raises(bvfim.MethodError, match="the schedule of lr returned 0"):
        bvfim.RHG(lr=lambda k: 0.0).numbers(0)


@pytest.mark.parametrize("name", METHODS)
def test_on_a_cpu_auto_and_none_are_the_plain_step(name):
    assert isinstance(estimate_of(METHODS[name], "auto", TOY, START, START, 500), Plain)
    assert isinstance(estimate_of(METHODS[name], "none", TOY, START, START, 500), Plain)


def test_what_can_not_be_is_said_in_a_line():
    with pytest.warns(bvfim.BvfimWarning, match="accelerate='cudagraph': x is not on a CUDA device; the step runs"):
        solution = bvfim.solve(TOY, START, START, bvfim.RHG(steps=3), steps=2, accelerate="cudagraph")
    assert torch.equal(solution.x, bvfim.solve(TOY, START, START, bvfim.RHG(steps=3), steps=2).x)
    with pytest.warns(bvfim.BvfimWarning, match="FHG is not known to run the same operations at every step"):
        bvfim.solve(TOY, START, START, bvfim.FHG(steps=3), steps=2, accelerate="compile")
    with pytest.raises(bvfim.MethodError, match="accelerate must be one of auto, none, cudagraph, compile"):
        bvfim.solve(TOY, START, START, bvfim.RHG(), accelerate="fast")


def test_a_step_that_breaks_when_compiled_runs_plainly_and_is_counted_once(monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("no compiler\nand a long story")

    monkeypatch.setattr(torch, "compile", broken)
    with pytest.warns(
        bvfim.BvfimWarning, match="the step could not be compiled and runs without acceleration: no compiler$"
    ):
        found = bvfim.solve(TOY, START, START, bvfim.BVFIM(5, 5), steps=4, accelerate="compile")
    plain = bvfim.solve(TOY, START, START, bvfim.BVFIM(5, 5), steps=4)
    assert torch.equal(found.x, plain.x)
    assert found.evaluations == plain.evaluations


@pytest.mark.parametrize("name", ["BVFIM", "printed", "CG", "Neumann", "F2SA of order 2"])
def test_the_functional_derivatives_of_a_compiled_step_are_right(name, monkeypatch):
    """All but the compiler itself, which takes long."""
    monkeypatch.setattr(torch, "compile", lambda step, **_: step)
    problem, x, y = nested()
    method = SCHEDULED[name]
    expected = method.estimate(problem, x, method.init(problem, x, y), 2, None)
    found = method.estimate(compiled(problem), x, method.init(problem, x, y), 2, None)
    for a, b in zip(tree.leaves(found), tree.leaves(expected), strict=True):
        assert torch.allclose(a, b, rtol=1e-10, atol=1e-12)
    accelerated = bvfim.solve(problem, x, y, replace(method), steps=6, accelerate="compile")
    plain = bvfim.solve(problem, x, y, method, steps=6)
    assert torch.allclose(tree.flatten(accelerated.x), tree.flatten(plain.x), rtol=1e-9, atol=1e-10)
    assert accelerated.evaluations == plain.evaluations


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no compiler")
@pytest.mark.parametrize("name", ["BVFIM", "printed", "CG", "Neumann", "F2SA of order 2"])
def test_a_compiled_run_agrees_to_rounding(name):
    problem, x, y = nested()
    method = SCHEDULED[name]
    found = bvfim.solve(problem, x, y, method, steps=20, accelerate="compile")
    plain = bvfim.solve(problem, x, y, method, steps=20)
    assert torch.allclose(tree.flatten(found.x), tree.flatten(plain.x), rtol=0, atol=1e-8)
    assert torch.allclose(tree.flatten(found.y), tree.flatten(plain.y), rtol=0, atol=1e-8)


def shared():
    """A problem whose context is a feature that both objectives use."""
    return bvfim.Problem(
        lambda x, y, c: ((c * y).sum() - 1) ** 2,
        lambda x, y, c: ((y - c) ** 2).sum(),
        context=lambda x, _: torch.tanh(x),
    )


@pytest.mark.parametrize("method", [bvfim.RHG(steps=5, lr=0.1), bvfim.BVFIM(5, 5)], ids=["RHG", "BVFIM"])
def test_a_context_is_compiled_for_any_method(method, monkeypatch):
    """All but the compiler itself, which takes long."""
    asked = []
    monkeypatch.setattr(torch, "compile", lambda step, **_: asked.append(step) or step)
    problem, start = shared(), torch.linspace(0.1, 0.9, 3, dtype=torch.float64)
    found = bvfim.solve(problem, start, start, method, steps=6, accelerate="compile")
    assert problem.context in asked
    assert torch.allclose(found.x, bvfim.solve(problem, start, start, method, steps=6).x, rtol=0, atol=1e-12)


def test_recording_is_tried_before_the_plain_step():
    step = estimate_of(bvfim.BVFIM(5, 5), "compile", TOY, START, START, 500)
    step.record = True
    with pytest.warns(bvfim.BvfimWarning, match="could not be compiled and is recorded uncompiled: so"):
        step._give_up(RuntimeError("so"))
    assert step.plain is None
    assert not step.compile
    with pytest.warns(
        bvfim.BvfimWarning, match="could not be recorded as a CUDA graph and runs without acceleration: so"
    ):
        step._give_up(RuntimeError("so"))
    assert isinstance(step.plain, Plain)


def test_a_long_compiled_run_stays_compiled():
    """Counters inside of a compiled step would be part of what it is compiled for."""
    method = bvfim.BVFIM(1, 1)  # the compiler takes as long as the step
    step = estimate_of(method, "compile", TOY, START, START, 500)
    problem = TOY.counted_anew()
    state = method.init(problem, START, START)
    for k in range(12):
        _, state, _ = step(problem, START, state, k, None)
    assert step.compile
    assert problem.evaluations.lower == 12 * (1 + 1 + 2)
