"""On a CUDA device: the same numbers, no wait for the host inside a step, one graph for a whole step."""

from __future__ import annotations

import warnings
from contextlib import contextmanager

import pytest
import torch

import bvfim
from bvfim import tree
from bvfim.callbacks import Checkpoint
from bvfim.memory import PeakMemory
from tests.problems import nested
from tests.test_battery import METHODS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]


def on_gpu(variables):
    return tree.map(lambda t: t.to("cuda"), variables)


@contextmanager
def no_waiting():
    """Any operation that waits for the device raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls the mode a prototype
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("method", METHODS)
def test_the_same_run_as_on_the_cpu(method):
    problem, x, y = nested()
    here = bvfim.solve(problem, x, y, METHODS[method], steps=5)
    there = bvfim.solve(problem, *on_gpu((x, y)), METHODS[method], steps=5)
    assert tree.flatten(there.x).is_cuda
    assert torch.allclose(tree.flatten(here.x), tree.flatten(there.x).cpu(), atol=1e-10)
    assert torch.allclose(tree.flatten(here.y), tree.flatten(there.y).cpu(), atol=1e-10)


@pytest.mark.parametrize("method", METHODS)
def test_a_step_never_waits_for_the_host(method):
    problem, x, y = nested()
    x, y = on_gpu((x, y))
    chosen = METHODS[method]
    state = chosen.init(problem, x, y)
    chosen.estimate(problem, x, state, 0, None)
    with no_waiting():
        chosen.estimate(problem, x, state, 0, None)


@pytest.mark.parametrize("method", [name for name in METHODS if name != "FHG"])
def test_a_whole_step_is_captured_in_one_graph(method):
    problem, x, y = nested()
    x, y = on_gpu((x, y))
    chosen = METHODS[method]
    state = chosen.init(problem, x, y)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            expected, _, _ = chosen.estimate(problem, x, state, 0, None)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found, _, _ = chosen.estimate(problem, x, state, 0, None)
    for _ in range(2):
        graph.replay()
    torch.cuda.synchronize()
    assert torch.allclose(tree.flatten(found), tree.flatten(expected), atol=1e-12)


def test_a_checkpoint_written_on_the_gpu_resumes_there(tmp_path):
    problem, x, y = nested()
    x, y = on_gpu((x, y))
    path = tmp_path / "run.safetensors"
    whole = bvfim.solve(problem, x, y, bvfim.BVFIM(5, 5), steps=6)
    bvfim.solve(problem, x, y, bvfim.BVFIM(5, 5), steps=3, callbacks=[Checkpoint(path)])
    resumed = bvfim.solve(problem, x, y, bvfim.BVFIM(5, 5), steps=6, resume=path)
    assert torch.equal(tree.flatten(whole.x), tree.flatten(resumed.x))


def test_memory_does_not_grow_with_the_steps():
    problem = bvfim.Problem(
        lambda x, y: (y - x.sum()).square().sum(), lambda x, y: torch.cosh(y - x.mean()).sum() + (y**2).sum()
    )
    x, y = torch.ones(3, device="cuda"), torch.zeros(1_000_000, device="cuda")
    peaks = []
    for steps in (5, 80):
        with PeakMemory("cuda") as memory:
            bvfim.hypergradient(problem, x, y, bvfim.BVFIM(steps, steps))
        peaks.append(memory.peak)
    assert peaks[0] == peaks[1]


def test_mixed_devices_are_refused():
    problem, x, y = nested()
    with pytest.raises(bvfim.ProblemError, match="x and y must be on one device, but are on cpu and cuda"):
        bvfim.solve(problem, x, on_gpu(y), bvfim.RHG(2))


@pytest.mark.parametrize("starts", [1, 8])
def test_the_interior_point_runs_on_the_device(starts):
    toy = bvfim.testproblems.sine(2)
    begin = torch.full((1,), -6.0, dtype=torch.float64, device="cuda")
    solution = bvfim.solve(toy.problem, begin, begin, bvfim.AdaptiveBVFIM(starts=starts))
    assert solution.status is bvfim.Status.CONVERGED
    assert solution.x.device.type == "cuda"
    assert abs(solution.x.cpu() - toy.x).item() < 1e-3
    assert solution.certificate.solved == starts


def test_many_starts_on_the_device():
    toy = bvfim.testproblems.sine(2)
    begin = torch.linspace(-10, 10, 40, dtype=torch.float64, device="cuda")[:, None]
    found = bvfim.solve_many(toy.problem, begin, begin)
    assert sum(abs(s.x.cpu() - toy.x).item() < 1e-3 for s in found) >= 39
