"""On a CUDA device: the same numbers, no wait for the host inside a step, one graph for a whole step."""

from __future__ import annotations

import warnings
from contextlib import contextmanager

import pytest
import torch

import bvfim
from bvfim import tree
from bvfim.callbacks import Checkpoint
from bvfim.core.accelerate import Plain, estimate_of
from bvfim.core.memory import PeakMemory
from bvfim.reproduce.experiments import cleaning
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


CAPTURABLE = {
    "BVFIM": bvfim.BVFIM(6, 4),
    "BVFIM, L = 3": bvfim.BVFIM(6, 4, repeats=3, y_lr=bvfim.schedules.geometric(0.02, 0.99)),
    "printed": bvfim.BVFIM.printed(),
    "RHG": bvfim.RHG(steps=6),
    "RHG, one graph": bvfim.RHG(steps=6, segment=6, lr=bvfim.schedules.geometric(0.02, 0.99)),
    "TRHG": bvfim.TRHG(steps=6, keep=3),
    "BDA": bvfim.BDA(steps=6),
    "CG": bvfim.CG(steps=6, cg_steps=3),
    "Neumann": bvfim.Neumann(steps=6, terms=4),
    "F2SA": bvfim.F2SA(2, steps=6),
    "SOBA": bvfim.SOBA(),
}


def cleaned(dtype=torch.float32):
    task = cleaning.problem("digits", train=100, validation=100, hidden=16, device="cuda", dtype=dtype)
    return task.problem, task.x, task.y


@pytest.mark.parametrize("name", CAPTURABLE)
def test_a_recorded_run_is_bit_for_bit_the_plain_one(name):
    problem, x, y = cleaned()
    runs = [bvfim.solve(problem, x, y, CAPTURABLE[name], steps=50, accelerate=way) for way in ("none", "cudagraph")]
    for a, b in zip(*(tree.leaves([r.x, r.y, r.z]) for r in runs), strict=True):
        assert torch.equal(a, b)
    assert runs[0].evaluations == runs[1].evaluations
    first, second = (r.history.drop(columns="seconds") for r in runs)
    assert first.equals(second)


@pytest.mark.parametrize("name", ["BVFIM", "printed", "CG", "Neumann"])
def test_a_compiled_run_agrees_to_rounding(name):
    problem, x, y = cleaned(torch.float64)
    runs = [bvfim.solve(problem, x, y, CAPTURABLE[name], steps=50, accelerate=way) for way in ("none", "compile")]
    for a, b in zip(*(tree.leaves([r.x, r.y]) for r in runs), strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-8)
    assert runs[0].evaluations == runs[1].evaluations


@pytest.mark.parametrize("name", ["BVFIM", "printed", "CG", "Neumann"])
def test_a_compiled_step_of_a_network_is_the_plain_step(name):
    problem, x, y = cleaned(torch.float64)
    rows = [
        bvfim.solve(problem, x, y, CAPTURABLE[name], steps=4, accelerate=way).history for way in ("none", "compile")
    ]
    for column in ("upper", "lower", "grad_norm"):
        assert rows[1][column].to_numpy()[:3] == pytest.approx(rows[0][column].to_numpy()[:3], rel=1e-6)


@pytest.mark.parametrize(("first", "second"), [("none", "cudagraph"), ("cudagraph", "none")])
def test_a_recorded_run_goes_on_from_a_plain_checkpoint_and_back(first, second, tmp_path):
    problem, x, y = cleaned()
    path, method = tmp_path / "run.safetensors", bvfim.BVFIM(6, 4)
    whole = bvfim.solve(problem, x, y, method, steps=20, accelerate="none")
    bvfim.solve(problem, x, y, method, steps=12, accelerate=first, callbacks=[Checkpoint(path)])
    resumed = bvfim.solve(problem, x, y, method, steps=20, accelerate=second, resume=path)
    assert torch.equal(whole.x, resumed.x)
    assert whole.evaluations == resumed.evaluations


def test_a_recorded_run_takes_batches_of_several_shapes_and_a_context():
    inputs, labels = torch.randn(90, 5, device="cuda"), torch.randn(90, device="cuda")

    def loss(x, y, data):
        features, targets = data
        return ((features @ y - targets) ** 2).mean() + 0.1 * (y**2).sum()

    problem = bvfim.Problem(loss, loss, context=lambda x, rows: (inputs[rows] * x, labels[rows]))
    rows = [torch.arange(0, 30, device="cuda"), torch.arange(30, 90, device="cuda")]
    x, y = torch.ones(5, device="cuda"), torch.zeros(5, device="cuda")
    runs = [
        bvfim.solve(problem, x, y, bvfim.BVFIM(4, 3), steps=12, batches=rows * 6, accelerate=way)
        for way in ("none", "cudagraph")
    ]
    assert torch.equal(runs[0].x, runs[1].x)


def test_an_objective_that_waits_for_the_host_runs_plainly_with_a_line():
    problem = bvfim.Problem(
        lambda x, y: ((y - 1) ** 2).sum(),
        lambda x, y: ((y - x) ** 2).sum() * (1.0 if float(x.detach().sum()) > 0 else 2.0),
    )
    x = torch.ones(3, device="cuda")
    with pytest.warns(bvfim.BvfimWarning, match="could not be recorded as a CUDA graph and runs without acceleration"):
        found = bvfim.solve(problem, x, x, bvfim.BVFIM(4, 3), steps=12, accelerate="cudagraph")
    plain = bvfim.solve(problem, x, x, bvfim.BVFIM(4, 3), steps=12, accelerate="none")
    assert torch.equal(found.x, plain.x)
    assert found.evaluations == plain.evaluations


def test_auto_records():
    problem, x, y = cleaned()
    assert estimate_of(bvfim.BVFIM(), "auto", problem, x, y, 500).record
    assert not estimate_of(bvfim.BVFIM(), "auto", problem, x, y, 500).compile
    assert isinstance(estimate_of(bvfim.BVFIM(), "auto", problem, x, y, 3), Plain)


def test_a_step_that_does_not_compile_is_still_recorded(monkeypatch):
    def broken(step, **options):
        raise RuntimeError("no compiler")

    problem, x, y = cleaned()
    monkeypatch.setattr(torch, "compile", broken)
    with pytest.warns(bvfim.BvfimWarning, match="could not be compiled and is recorded uncompiled: no compiler"):
        found = bvfim.solve(problem, x, y, bvfim.BVFIM(4, 3), steps=12, accelerate="compile")
    plain = bvfim.solve(problem, x, y, bvfim.BVFIM(4, 3), steps=12, accelerate="none")
    assert torch.equal(tree.flatten(found.x), tree.flatten(plain.x))


def on_batches(dtype=torch.float32):
    task = cleaning.problem(
        "digits", train=200, validation=100, hidden=16, activation="relu", device="cuda", dtype=dtype
    )
    problem, batches = cleaning.on_batches(task, 20)
    return problem, task.x, task.y, batches


@pytest.mark.parametrize("y_optimizer", [None, lambda p: torch.optim.AdamW(p, 1e-3)])
def test_the_single_loop_recorded_is_bit_for_bit_the_plain_one(y_optimizer):
    found = []
    for way in ("none", "cudagraph"):
        problem, x, y, batches = on_batches()
        method = bvfim.StochasticBVFIM(y_optimizer)
        found.append(bvfim.solve(problem, x, y, method, steps=60, batches=batches, accelerate=way, refit=False))
    for a, b in zip(*(tree.leaves([r.x, r.y, r.z]) for r in found), strict=True):
        assert torch.equal(a, b)
    assert found[0].evaluations == found[1].evaluations
    assert found[0].history.drop(columns="seconds").equals(found[1].history.drop(columns="seconds"))


def test_the_single_loop_compiled_agrees_to_rounding():
    found = []
    for way in ("none", "compile"):
        problem, x, y, batches = on_batches(torch.float64)
        found.append(bvfim.solve(problem, x, y, steps=40, batches=batches, accelerate=way, refit=False))
    assert torch.allclose(found[0].x, found[1].x, rtol=0, atol=1e-8)


@pytest.mark.parametrize(("first", "second"), [("none", "cudagraph"), ("cudagraph", "cudagraph")])
def test_the_single_loop_recorded_goes_on_from_a_checkpoint(first, second, tmp_path):
    path = tmp_path / "run.safetensors"

    def run(way, **options):
        problem, x, y, batches = on_batches()
        return bvfim.solve(problem, x, y, steps=40, batches=batches, accelerate=way, refit=False, **options)

    whole = run("none")
    run(first, callbacks=[Checkpoint(path, every=15), lambda run: run.k == 20])
    assert torch.equal(whole.x, run(second, resume=path).x)


def test_an_objective_with_dropout_is_not_recorded():
    rows, targets = torch.randn(40, 4, device="cuda"), torch.randn(40, device="cuda")

    def loss(x, y, i):
        return ((torch.nn.functional.dropout(rows[i] * x) @ y - targets[i]) ** 2).mean()

    x, y = torch.ones(4, device="cuda"), torch.zeros(4, device="cuda")
    batches = bvfim.Shuffled(40, 10, device="cuda")
    assert bvfim.solve(bvfim.Problem(loss, loss), x, y, steps=20, batches=batches).steps == 20
