"""A run that is killed ten times, and one that never is: tests/test_killed.py starts it and compares what they leave.

Each run is a fork, which pays for no imports. Nothing of torch is computed before it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import TextIO

import torch
from torch.utils.data import DataLoader, TensorDataset

import bvfim
from bvfim.callbacks import Checkpoint

STEPS, EVERY, FAR = 170, 5, 16
"""The steps of the run, those between two saves, and those after which a run that is to be killed waits for it."""
KILLS = [*6 * ["any"], "fsync", "link", "replace", "unlink"]
"""At any moment, or inside a write, before it calls one of these."""


class Noise:
    """An endless stream with a state, from a generator of its own and from torch's."""

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(2)

    def __iter__(self) -> Noise:
        return self

    def __next__(self) -> torch.Tensor:
        return torch.randn(3, generator=self.generator).double() + torch.rand(3).double()

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        self.generator.set_state(state["generator"])


def solve(path: Path, callback) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rows = TensorDataset(torch.linspace(-1, 1, 21).double().reshape(7, 3))
    loader = DataLoader(rows, batch_size=2, shuffle=True, generator=torch.Generator().manual_seed(1))
    bvfim.solve(
        bvfim.Problem(
            upper=lambda x, y, batch: ((y - batch[0]) ** 2).sum() + 0.1 * (x**2).sum(),
            lower=lambda x, y, noise: ((y - torch.sin(x) - 0.1 * noise) ** 2).sum(),
        ),
        torch.ones(3).double(),
        torch.zeros(3).double(),
        bvfim.BVFIM(z_steps=2, y_steps=2),
        lambda p: torch.optim.Adam(p, 0.05),
        STEPS,
        bvfim.Batches(upper=loader, lower=Noise()),
        [callback, Checkpoint(path, every=EVERY)],
        scheduler=lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS),
        resume=path if path.exists() else None,
    )


def forked(path: Path, moment: str = "never", call: int = 0) -> tuple[int, TextIO]:
    """A child that solves, and the lines that it writes: each step, and that it stands at a call of ``moment``."""
    told, tell = os.pipe()
    child = os.fork()
    if child:
        os.close(tell)
        return child, os.fdopen(told)

    def step(run: bvfim.Run) -> None:
        os.write(tell, f"{run.k}\n".encode())
        if run.k == run.k_before + 1 and hasattr(os, moment):
            setattr(os, moment, stand(getattr(os, moment)))
        time.sleep(60 if moment != "never" and run.k == run.k_before + FAR else 0.003)

    def stand(real):
        calls = iter(range(1, 1000))

        def operation(*given, **options):
            if next(calls) == call:
                os.write(tell, b"inside\n")
                time.sleep(60)
            return real(*given, **options)

        return operation

    try:
        solve(path, step)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def killed(path: Path, moment: str, chance: random.Random) -> dict[str, str | int]:
    """Start the run or go on with it, and kill it."""
    child, lines = forked(path, moment, chance.randint(1, 2))
    said = [next(lines)]
    awaited = f"{int(said[0]) + chance.randrange(FAR - 5)}\n" if moment == "any" else "inside\n"
    while said[-1] != awaited:
        said.append(next(lines))
    time.sleep(chance.uniform(0, 0.02))
    os.kill(child, signal.SIGKILL)
    said += lines
    assert os.waitpid(child, 0)[1] == signal.SIGKILL, "the run ended before it was killed"
    steps = [int(line) for line in said if line != "inside\n"]
    return {"moment": moment, "from": steps[0] - 1, "to": steps[-1]}


def ended(path: Path) -> dict[str, str | int]:
    """Let the run come to its end."""
    child, lines = forked(path)
    steps = [int(line) for line in lines]
    assert os.waitpid(child, 0)[1] == 0, "the run failed"
    return {"moment": "never", "from": steps[0] - 1, "to": steps[-1]}


def main(folder: Path, chance: random.Random) -> None:
    import torch._dynamo  # noqa: F401 (the first use of an optimiser would import it in each child, which takes seconds)

    path = folder / "run.safetensors"
    parts = [killed(path, moment, chance) for moment in chance.sample(KILLS, len(KILLS))]
    print(json.dumps([*parts, ended(path), ended(folder / "whole.safetensors")]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), random.Random(int(sys.argv[2])))
