"""Functions that run on several ranks: a process each on this machine, which talk by gloo."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

LOADED = ["bvfim", "pytest", "sklearn.datasets", "torch._dynamo", "torch.distributed.fsdp", "torch.distributed.tensor"]
"""What ranks import, which takes seconds: one process does so, and every rank is a fork of it."""
LIMIT = 600.0
"""Seconds until ranks count as hung: the longest take 25 of a core, and a busy machine has been a tenth as fast.
A collective has half of them, so that a rank which waits in vain can say so."""
GRACE = 5.0
"""Seconds that the other ranks have to end in when one has failed; most of them fail as well, and say where."""


def run_ranks(count: int, function: Callable[..., Any], *args: Any) -> list[Any]:
    """What ``function(rank, count, *args)`` returns on each rank; ``None`` for a rank that SIGKILL has ended.

    Whatever else goes wrong is an ``AssertionError`` with the tracebacks of the ranks. In each of them a process group
    is there, warnings are errors as they are in pytest, and torch has one thread.

    Args:
        count: how many ranks.
        function: one at the top of a module, so that a new process can find it.
        args: what else it gets.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    with tempfile.TemporaryDirectory() as folder:
        waiting: dict[Connection, int] = {}
        processes = []
        try:
            for rank in range(count):
                answer, tell = context.Pipe(duplex=False)
                given = (rank, count, str(Path(folder, "store")), tell, function, args)
                processes.append(context.Process(target=_run_rank, args=given, daemon=True))
                processes[-1].start()
                tell.close()  # the end of the pipe is seen where the process alone holds it
                waiting[answer] = rank
            return _collect(waiting, processes)
        finally:
            for process in processes:
                process.kill()
                process.join()
            for answer in waiting:
                answer.close()


def _collect(waiting: dict[Connection, int], processes: list[Any]) -> list[Any]:
    """The results, when every process has answered or ended."""
    results: list[Any] = [None] * len(processes)
    failures: list[str] = []
    open_ones, end = set(waiting), time.monotonic() + LIMIT
    while open_ones:
        ready = wait(open_ones, max(0, end - time.monotonic()))
        if not ready:
            silent = ", ".join(str(waiting[answer]) for answer in open_ones)
            failures.append(f"did not end in time, and was killed: rank {silent}")
            break
        for answer in ready:
            rank = waiting[answer]
            open_ones.discard(answer)
            try:
                fine, value = pickle.loads(answer.recv_bytes())
            except EOFError:
                processes[rank].join()
                code = processes[rank].exitcode
                fine, value = code == -signal.SIGKILL, None if code == -signal.SIGKILL else f"ended with code {code}"
            if fine:
                results[rank] = value
            else:
                failures.append(f"rank {rank}: {value}")
                end = min(end, time.monotonic() + GRACE)
    assert not failures, "\n".join(failures)
    return results


def _run_rank(
    rank: int,
    count: int,
    store: str,
    tell: Connection,
    function: Callable[..., Any],
    args: tuple[Any, ...],
) -> None:
    """What a process does."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo" if sys.platform == "linux" else "lo0"
    torch.set_num_threads(1)
    torch.manual_seed(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", ".*torch.jit.*", DeprecationWarning)
            limit = timedelta(seconds=LIMIT / 2)
            dist.init_process_group(
                "gloo", store=dist.FileStore(store, count), rank=rank, world_size=count, timeout=limit
            )
            answer = True, function(rank, count, *args)
        # Not by tell.send: torch would share the memory of a tensor, which ends with this process.
        message = pickle.dumps(answer)
    except BaseException:
        message = pickle.dumps((False, traceback.format_exc()))
    tell.send_bytes(message)
    if dist.is_initialized():
        dist.destroy_process_group()
