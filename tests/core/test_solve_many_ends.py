"""Whatever ends many solves, every start is given back."""

from __future__ import annotations

import signal
import threading
import time

import pytest
import torch

import bvfim

D = torch.float64
TOY = bvfim.testproblems.sine(a=2)
STARTS = torch.linspace(-8, 8, 5, dtype=D)[:, None]


def unmapped(x, y):
    return torch.sin(x + y).sum() * (1.0 if float(x.detach().sum()) > -100 else 2.0)


KINDS = {
    "adaptive": (TOY.problem, bvfim.AdaptiveBVFIM(), {}),
    "batch": (TOY.problem, bvfim.RHG(5, 0.1), {}),
    "one by one": (bvfim.Problem(TOY.problem.upper, unmapped), bvfim.RHG(5, 0.1), {"tol": 0.0}),
}  # fmt: skip
kinds = pytest.mark.parametrize("kind", KINDS)


def solve(kind, **more):
    problem, method, options = KINDS[kind]
    return bvfim.solve_many(problem, STARTS, STARTS, method, 500, **options, **more)


def assert_whole(found, status, kind):
    assert len(found) == len(STARTS)
    assert {s.status for s in found} <= {status, bvfim.Status.CONVERGED, bvfim.Status.STUCK}
    assert status in {s.status for s in found}
    for start, solution in zip(STARTS, found, strict=True):
        assert solution.x.shape == start.shape
        assert solution.x.isfinite().all()
        assert len(solution.history) == solution.steps
        if solution.steps == 0:
            assert torch.equal(solution.x, start)


@kinds
def test_a_callback_stops_them_all(kind):
    seen = []

    def stop(run):
        seen.append(run.k)
        return run.k >= 3

    assert_whole(solve(kind, callbacks=[stop]), bvfim.Status.STOPPED, kind)
    assert seen == [1, 2, 3]


@kinds
def test_a_time_limit_stops_them_all(kind):
    found = solve(kind, callbacks=[lambda run: time.sleep(0.05) or False], time_limit=0.15)
    assert_whole(found, bvfim.Status.TIME_LIMIT, kind)
    assert max(s.steps for s in found) <= 4


@kinds
def test_ctrl_c_stops_them_all(kind):
    def interrupt(run):
        if run.k == 2:
            signal.raise_signal(signal.SIGINT)

    assert_whole(solve(kind, callbacks=[interrupt]), bvfim.Status.INTERRUPTED, kind)


def test_a_second_ctrl_c_stops_at_once():
    def interrupt(run):
        if run.k == 2:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    assert_whole(solve("batch", callbacks=[interrupt]), bvfim.Status.INTERRUPTED, "batch")


def test_a_time_limit_works_in_a_thread():
    found = []
    thread = threading.Thread(target=lambda: found.extend(solve("batch", time_limit=0.1)))
    thread.start()
    thread.join()
    assert len(found) == len(STARTS)


@pytest.mark.parametrize("kind", ["adaptive", "batch"])
def test_the_callbacks_of_the_library_work(kind):
    rows = []
    bar = bvfim.callbacks.ProgressBar(pause=0.0, console=bvfim.callbacks.PlainStream())
    found = solve(kind, callbacks=[bar, bvfim.callbacks.Log(rows.append), bvfim.callbacks.EarlyStop(patience=3)])
    assert len(found) == len(STARTS)
    assert {"upper", "lower", "x_norm", "seconds", "upper_evaluations"} <= set(rows[0])


def test_callbacks_see_means_over_the_starts():
    rows = []
    found = solve("batch", callbacks=[lambda run: rows.append(run.row) or run.k == 2])
    mean = sum(s.history["upper"].iloc[0] for s in found) / len(found)
    assert rows[0]["upper"] == pytest.approx(mean)


def test_what_cannot_be_is_refused(tmp_path):
    with pytest.raises(bvfim.MethodError, match="solve_many does not support resume"):
        solve("batch", resume="anything")
    with pytest.raises(bvfim.CheckpointError, match="a checkpoint holds one run"):
        solve("batch", callbacks=[bvfim.callbacks.Checkpoint(tmp_path / "run")])
