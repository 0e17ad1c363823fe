"""What some ranks saved, the same ranks continue bit for bit, and others up to rounding: x everywhere, or by rows."""

from __future__ import annotations

import os
import signal
import warnings
from functools import partial

import pytest
import torch

import bvfim
from bvfim import CheckpointError, checkpoint
from bvfim.callbacks import Checkpoint
from bvfim.distributed import storage
from tests.distributed.jobs import METHODS, mesh_of, sharded, taken
from tests.distributed.ranks import run_ranks

CASES = {
    "replicated": ("digits", "StochasticBVFIM", (80, 90, 100), {}),
    "along estimates": ("digits", "BVFIM", (6, 8, 10), {}),
    "whole data": ("quadratic", "inner steps", (20, 25, 30), {}),
    "by rows": ("sharded", "StochasticBVFIM", (20, 25, 30), {}),
    "by rows with Adam": ("sharded", "inner steps", (20, 25, 30), {"optimizer": partial(torch.optim.Adam, lr=0.02)}),
    "by rows along estimates": ("sharded", "RHG", (10, 13, 16), {}),
}
"""A job, a method, the steps at which it is saved for the first and the second time and at which it ends, options."""
FIRST, SECOND = 0, 1


def result(case, rank=0, count=1, stop=None, **options):
    """A run of a case, up to where it is saved for the first or the second time."""
    job, method, steps, own = CASES[case]
    callbacks = [*options.pop("callbacks", ()), *([] if stop is None else [lambda run: run.k == steps[stop]])]
    found = taken(job, METHODS[method], rank, count, steps[-1], refit=False, callbacks=callbacks, **own, **options)
    return found | {"upper": found["upper"][:2]}  # the others are not a number without a refit


def saver(folder, name, every=100):
    return Checkpoint(folder / name, every=every)


def rows_of_another(rank):
    """Batches that each rank has drawn another number of."""
    stream = bvfim.Shuffled(6, 3, seed=rank)
    stream.load_state_dict({"drawn": 3 * rank})
    return bvfim.Batches(upper=stream, lower=stream)


def at_other_positions(rank, count, **options):
    g = torch.Generator().manual_seed(0)
    A = torch.randn(6, 2, generator=g)
    problem = bvfim.Problem(lambda x, y, i: (A[i] @ y).square().mean(), lambda x, y, i: (A[i] @ y - x).square().mean())
    options |= {"batches": rows_of_another(rank), "refit": False, "mesh": mesh_of(count)}
    return bvfim.solve(problem, torch.zeros(1), torch.zeros(2), bvfim.RHG(steps=2), **options).steps


def on_two(rank, count, folder):
    """Half a run, the whole one, and the second half; and a run of which a rank is killed."""
    found = {}
    for case in CASES:
        half = result(case, rank, count, FIRST, callbacks=[saver(folder, f"{case}-2")])
        assert half["status"] == "stopped"
        found[case] = result(case, rank, count), result(case, rank, count, resume=folder / f"{case}-2")
    assert at_other_positions(rank, count, steps=2, callbacks=[saver(folder, "apart")]) == 2
    with pytest.raises(CheckpointError, match="has different shapes or dtypes"):
        result("replicated", rank, count, resume=folder / "by rows-2")
    with pytest.raises(CheckpointError, match="its optimizer is Adam, not OneScale"):
        result("by rows", rank, count, resume=folder / "by rows with Adam-2")
    with pytest.raises(CheckpointError, match="no such checkpoint"):
        result("by rows", rank, count, resume=folder / "nothing")
    with pytest.raises(CheckpointError, match=r"optimizer: it holds a tensor of shape \(2, 1\)"):
        rowwise(rank, count, folder)

    def killed(run):
        if run.k == 22 and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    problem, x, y, batches = sharded(rank, count)
    options = {"batches": batches, "mesh": mesh_of(count), "callbacks": [saver(folder, "killed", 10), killed]}
    with pytest.warns(bvfim.BvfimWarning, match="a rank was lost"):
        lost = bvfim.solve(problem, x, y, METHODS["StochasticBVFIM"], steps=30, **options)
    assert lost.status is bvfim.Status.RANK_LOST
    assert lost.steps == 22
    return found


class Rowwise(torch.optim.SGD):
    """An optimiser that keeps what is neither a number nor like its parameter."""

    def step(self, closure=None):
        self.state[self.param_groups[0]["params"][0]]["rows"] = torch.zeros(2, 1)


def rowwise(rank, count, folder):
    problem, x, y, batches = sharded(rank, count)
    options = {"batches": batches, "mesh": mesh_of(count), "optimizer": partial(Rowwise, lr=0.1)}
    run = bvfim.Run(problem, x, y, bvfim.RHG(steps=2), 1, **options)
    run.step(run.draw())
    run.save(folder / "rowwise")


def on_four(rank, count, folder):
    """What two ranks and one process began, up to another step."""
    found = {}
    for case in CASES:
        found[case] = [result(case, rank, count, resume=folder / f"{case}-{before}") for before in (1, 2)]
        go_on = {"resume": folder / f"{case}-2", "callbacks": [saver(folder, f"{case}-4")]}
        assert result(case, rank, count, SECOND, **go_on)["status"] == "stopped"
    found["killed"] = [result("by rows", rank, count, resume=folder / "killed")]
    # A checkpoint of one process makes room for that of several.
    result("replicated", rank, count, SECOND, resume=folder / "replicated-1", callbacks=[saver(folder, "replicated-1")])
    return found


def on_two_again(rank, count, folder):
    return {case: result(case, rank, count, resume=folder / f"{case}-4") for case in CASES}


def assert_close(found, expected, case):
    for name in ("x", "y", "history"):
        difference = torch.tensor(found[name]) - torch.tensor(expected[name])
        assert difference.abs().max() < 1e-10, (case, name, difference.abs().max())
    assert found["status"] == expected["status"]


@pytest.mark.long
def test_any_number_of_ranks_continues_what_others_saved(tmp_path):
    expected = {case: result(case) for case in CASES}
    assert all(max(map(abs, one["x"])) > 0.02 for one in expected.values())
    for case in CASES:
        result(case, stop=FIRST, callbacks=[saver(tmp_path, f"{case}-1")])

    found, killed = run_ranks(2, on_two, tmp_path)
    assert killed is None
    for case, (whole, resumed) in found.items():
        assert resumed == whole, case  # bit for bit
        assert_close(whole, expected[case], case)
        assert_close(result(case, resume=tmp_path / f"{case}-2"), expected[case], (case, "2 to 1"))
    assert_close(result("by rows", resume=tmp_path / "killed"), expected["by rows"], "killed to 1")

    for ranks in run_ranks(4, on_four, tmp_path):
        for case, several in ranks.items():
            for one in several:
                assert_close(one, expected["by rows" if case == "killed" else case], (case, "to 4"))
    for ranks in run_ranks(2, on_two_again, tmp_path):
        for case, one in ranks.items():
            assert_close(one, expected[case], (case, "4 to 2"))
            assert_close(result(case, resume=tmp_path / f"{case}-4"), expected[case], (case, "4 to 1"))

    assert checkpoint.read(tmp_path / "replicated-1.old-1")["k"] == 80
    assert_close(result("replicated", resume=tmp_path / "replicated-1"), expected["replicated"], "1 to 4 to 1")
    alone_in_a_folder(tmp_path, expected["replicated"])
    with pytest.warns(bvfim.BvfimWarning, match="2 processes that wrote the checkpoint were at different positions"):
        at_other_positions(0, 1, steps=3, resume=tmp_path / "apart")


def alone_in_a_folder(folder, expected):
    """One process goes on to save where several did."""
    path = folder / "replicated-2"
    result("replicated", stop=SECOND, resume=path, callbacks=[Checkpoint(path)])
    assert len(storage.peek(path).local) == 1
    assert sorted(file.name.partition("-")[0] for file in path.iterdir()) == ["metadata.json", "shards"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_close(result("replicated", resume=path), expected, "again")
