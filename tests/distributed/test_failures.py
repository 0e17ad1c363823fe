"""What happens on one rank ends all of them alike, and what was saved resumes; nobody waits for ever."""

from __future__ import annotations

import errno
import os
import signal
import time
import warnings

import pytest
import torch

import bvfim
from bvfim import tree
from bvfim.callbacks import Checkpoint
from bvfim.core import solve as loop
from bvfim.distributed import files
from tests.distributed.jobs import METHODS, mesh_of, shares
from tests.distributed.ranks import run_ranks

D = torch.float64
STEPS, AT = 12, 5
"""Of a run; what goes wrong does so after this many steps."""


class Fault:
    """Something that goes wrong on one rank, once."""

    def __init__(self, kind=None):
        self.kind, self.armed = kind, False

    def arm(self, run):
        self.armed = run.k == AT

    def strikes(self, kind):
        if self.armed and self.kind == kind:
            self.armed = False
            return True
        return False

    def upper(self, x, y, weight):
        if self.strikes("objective raises"):
            raise ZeroDivisionError("in the objective")
        value = (y - 1).square().mean() + 0.1 * x.square().mean()
        return value * torch.nan if self.strikes("objective is nan") else value

    def lower(self, x, y, weight):
        if self.strikes("lower raises"):
            raise ZeroDivisionError("in lower")
        return (weight * (y[:, None] - x[:, None]).square()).mean()

    def context(self, x, batch):
        if self.strikes("context raises"):
            raise ZeroDivisionError("in the context")
        return batch

    def callback(self, run):
        if self.strikes("callback raises"):
            raise ZeroDivisionError("in the callback")
        if self.strikes("interrupted"):
            os.kill(os.getpid(), signal.SIGINT)
        if self.strikes("clock"):
            run.started -= 3600
        if self.strikes("moves x"):
            run.x = tree.scale(1.01, run.x)
        return self.strikes("stops")


class Rows:
    """A stream with a position of its own that can be saved."""

    def __init__(self, rows, fault):
        self.rows, self.fault, self.k = rows, fault, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.fault.strikes("stream raises"):
            raise ZeroDivisionError("in the stream")
        self.k += 1
        return self.rows * (1 + 0.1 * (self.k % 3))

    def state_dict(self):
        return {"k": self.k}

    def load_state_dict(self, state):
        self.k = state["k"]


def solved(rank, count, method, fault=None, x=None, y=None, context=False, **options):
    fault = fault or Fault()
    rows = Rows(shares(torch.linspace(0.5, 1.5, 5, dtype=D), rank, count), fault)
    problem = bvfim.Problem(fault.upper, fault.lower, context=fault.context if context else None)
    batches = rows if context else bvfim.Batches(upper=Rows(rows.rows, Fault()), lower=rows)
    x, y = (torch.zeros(3, dtype=D) if v is None else v for v in (x, y))
    found = bvfim.solve(
        problem, x, y, METHODS[method], steps=STEPS, batches=batches, mesh=mesh_of(count), **{"refit": False, **options}
    )
    return {"status": found.status.value, "steps": found.steps, "x": found.x.tolist(), "y": found.y.tolist()}


def struck(rank, count, folder, kind, method, **options):
    """How a run ends where something goes wrong, and how the one that resumes from what it saved does."""
    fault, path = Fault(kind if rank == 1 else None), folder / f"{kind}-{method}"
    options |= {"context": kind == "context raises"}
    saver = Checkpoint(path, every=2)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = solved(rank, count, method, fault, callbacks=[fault.arm, fault.callback, saver], **options)
    resumed = solved(rank, count, method, resume=path, **options)
    return found, resumed, [str(w.message) for w in seen]


ENDS = {
    "objective raises": ("rank_failed", AT, "rank 1: ZeroDivisionError: in the objective"),
    "lower raises": ("rank_failed", AT, "rank 1: ZeroDivisionError: in lower"),
    "objective is nan": ("non_finite", AT, None),
    "context raises": ("rank_failed", AT, "rank 1: ZeroDivisionError: in the context"),
    "stream raises": ("rank_failed", AT, "rank 1: ZeroDivisionError: in the stream"),
    "callback raises": ("rank_failed", AT, "rank 1: ZeroDivisionError: in the callback"),
    "interrupted": ("interrupted", AT, None),
    "clock": ("time_limit", AT, None),
    "stops": ("stopped", AT, None),
}


def all_faults(rank, count, folder):
    found = {}
    for method in sorted(METHODS.keys() - {"printed"}):
        kinds = ENDS if method in ("StochasticBVFIM", "RHG") else ("objective raises", "lower raises")
        whole = [solved(rank, count, method, context=context) for context in sorted({"context raises" in kinds, False})]
        for kind in kinds:
            end, resumed, seen = struck(rank, count, folder, kind, method, time_limit=600)
            assert resumed == whole[kind == "context raises"], (kind, method)
            found[kind, method] = end, seen
    return found


def refused(kind, action, *args, **options):
    """The error, of this kind."""
    with pytest.raises(kind) as caught:
        action(*args, **options)
    assert type(caught.value) is kind
    return str(caught.value)


def at_the_start(rank, count):
    """What every rank is told where the ranks do not begin with the same problem."""
    one, told = rank == 1, {}
    zeros = torch.zeros(3, dtype=D)
    same = "x and y must be the same on every rank at the start: draw them with the same seed"
    for given in ({"x": zeros + rank}, {"x": torch.zeros(3 + rank, dtype=D)}, {"y": [zeros] * (1 + rank)}):
        assert refused(bvfim.ProblemError, solved, rank, count, "RHG", **given) == same
    wrong = lambda x, y: x if one else (x * y).sum()  # noqa: E731
    problem = bvfim.Problem(wrong, lambda x, y: (x - y).square().sum())
    start, options = torch.ones(3), {"mesh": mesh_of(count), "method": bvfim.RHG()}
    kind = bvfim.ProblemError if one else bvfim.RankError
    told["objective"] = refused(kind, bvfim.solve, problem, start, start, **options)
    empty = [] if one else [start]
    problem = bvfim.Problem(lambda x, y, b: (x * y).sum(), lambda x, y, b: (x - y).square().sum())
    told["batches"] = refused(kind, bvfim.solve, problem, start, start, batches=empty, **options)
    told["y"] = refused(kind, bvfim.solve, problem, start, None if one else start, batches=[start], **options)
    return told


def later(rank, count, folder):
    """What ends a run between steps, or after the last one."""
    one, found = rank == 1, {}
    with pytest.MonkeyPatch.context() as patch:
        for checked in (4, 100):
            patch.setattr(loop, "CHECKED", checked)
            fault, path = Fault("moves x" if one else None), folder / f"moved-{checked}"
            callbacks = [fault.arm, fault.callback, Checkpoint(path, every=4)]
            end = solved(rank, count, "RHG", fault, callbacks=callbacks)
            found[f"checked {checked}"] = end["status"], end["steps"]
            assert bvfim.checkpoint.is_folder(path)

    def unlucky(run):
        pass

    def fails(*_):
        if one:
            raise ZeroDivisionError("at the end")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    unlucky.finish = fails
    kind = ZeroDivisionError if one else bvfim.RankError
    found["finish"] = refused(kind, solved, rank, count, "RHG", callbacks=[unlucky, Checkpoint(folder / "finish")])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found["holdout"] = solved(rank, count, "RHG", holdout=lambda x, y: 1 / 0 if one else y.sum())["status"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(files, "save_file", full)  # what all ranks have alike, the first one writes
            found["disk"] = solved(rank, count, "RHG", callbacks=[Checkpoint(folder / "disk", every=3)])
    ended = Fault("objective raises" if one else None)

    def late(run):
        ended.armed = run.k == STEPS

    found["refit"] = refused(kind, solved, rank, count, "RHG", ended, callbacks=[late], refit=True)
    clock = time.monotonic() - (3600 if one else 0)
    saver = Checkpoint(folder / "minutes", every=None, minutes=30)
    solved(rank, count, "RHG", callbacks=[lambda run: setattr(run, "started", clock) if run.k == 3 else None, saver])
    found["minutes"] = saver._k
    return found


def on_two(rank, count, folder):
    faults = all_faults(rank, count, folder)
    return faults, at_the_start(rank, count), later(rank, count, folder)


@pytest.mark.long
def test_what_happens_on_one_rank_ends_all(tmp_path):
    (faults, told, late), (others, told_other, late_other) = run_ranks(2, on_two, tmp_path)
    for (kind, method), (end, seen) in faults.items():
        assert end == others[kind, method][0], (kind, method)
        status, steps, text = ENDS[kind]
        assert (end["status"], end["steps"]) == (status, steps), (kind, method)
        assert seen == others[kind, method][1]
        assert [text in warning for warning in seen] == ([] if text is None else [True]), seen
    assert told == {name: f"rank 1: ProblemError: {text}" for name, text in told_other.items()}
    assert "upper must return a scalar" in told["objective"]
    assert "batches is empty" in told["batches"]
    assert late["checked 4"] == late_other["checked 4"] == ("ranks_differ", 8)
    assert late["checked 100"] == late_other["checked 100"] == ("ranks_differ", STEPS)
    assert late["finish"] == "rank 1: ZeroDivisionError: at the end"
    assert late["refit"] == "rank 1: ZeroDivisionError: in the objective"
    for name in ("holdout", "disk", "minutes"):
        assert late[name] == late_other[name], name
    assert late["holdout"] == "rank_failed"
    assert (late["disk"]["status"], late["disk"]["steps"]) == ("rank_failed", 3)


def ending(rank, count, how):
    """A rank goes; the last to end is told what the others see."""
    method = METHODS["StochasticBVFIM"] if how == "interrupted twice" else bvfim.AdaptiveBVFIM()
    share = torch.linspace(0, 1, 6, dtype=D).tensor_split(count)[rank]
    gone = []

    def upper(x, y):
        if gone and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL if how == "killed" else signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
        return (y - share[:, None]).square().mean()

    problem = bvfim.Problem(upper, lambda x, y: (y - torch.sin(x)).square().mean())
    start = torch.zeros(2, dtype=D)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        options = {
            "mesh": mesh_of(count),
            "steps": 30,
            "callbacks": [lambda run: gone.append(1) if run.k == 2 else None],
        }
        found = bvfim.solve(problem, start, start, method, **options)
    return found.status.value, found.steps, any("a rank was lost" in str(w.message) for w in seen)


@pytest.mark.long
@pytest.mark.parametrize("how", ["killed", "interrupted twice"])
def test_where_a_rank_goes_the_others_end(how):
    first, second, *_ = run_ranks(3 if how == "killed" else 2, ending, how)
    assert first == ("rank_lost", 2, True)
    assert second == (None if how == "killed" else ("interrupted", 2, False))
