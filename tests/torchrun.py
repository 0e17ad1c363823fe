"""A script under torchrun: two processes of one thread each, which talk over this machine alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
RUN = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1", "--master-port", "0"]
RENDEZVOUS = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
LIMIT = 300
"""Seconds that a run may take: ten are usual, and a machine may have much else to do."""


def torchrun(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """What the processes print, and how they end."""
    loopback = "lo" if sys.platform == "linux" else "lo0"
    return subprocess.run(
        [sys.executable, *RUN, *RENDEZVOUS, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": loopback, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
