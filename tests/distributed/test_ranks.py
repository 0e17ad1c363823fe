"""What run_ranks tells of ranks that fail, hang or are killed."""

from __future__ import annotations

import os
import signal
import time

import pytest
import torch
import torch.distributed as dist

from tests.distributed import ranks


def ends(rank, count, how):
    """Each rank in its own way."""
    total = torch.tensor(rank)
    dist.all_reduce(total)
    if how[rank] == "raises":
        raise ValueError(f"rank {rank} of {count}")
    if how[rank] == "hangs":
        time.sleep(60)
    if how[rank] == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how[rank] == "exits":
        os._exit(3)
    return total


@pytest.mark.long
def test_results_come_back_and_a_killed_rank_has_none():
    first, killed = ranks.run_ranks(2, ends, ["returns", "is killed"])
    assert first == torch.tensor(1)
    assert killed is None


@pytest.mark.long
def test_ranks_that_fail_hang_or_exit_are_told(monkeypatch):
    monkeypatch.setattr(ranks, "GRACE", 0.5)
    with pytest.raises(AssertionError) as caught:
        ranks.run_ranks(3, ends, ["raises", "hangs", "exits"])
    for part in ("in ends", "ValueError: rank 0 of 3", "rank 2: ended with code 3", "was killed: rank 1"):
        assert part in str(caught.value)
