from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    """Two workers on two cores: one thread each."""
    torch.set_num_threads(1)


class Clock:
    """The clock of a run, in the hands of a test: a second passes at every call of its callback."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def tick(self, run) -> None:
        self.now += 1.0


@pytest.fixture
def clock(monkeypatch):
    """A clock that ``tick``, given as a callback, moves on by a second a step."""
    clock = Clock()
    monkeypatch.setattr("bvfim.core.stepper.time", clock)
    return clock


@pytest.fixture
def real():
    """A function that gives back the name of a data set, or skips with a reason where its real files are not there."""

    def named(name: str) -> str:
        if not os.environ.get("BVFIM_DATA") or not Path(os.environ["BVFIM_DATA"], name).is_dir():
            pytest.skip(f"BVFIM_DATA names no folder with {name} in it")
        return name

    return named


@pytest.fixture
def mnist(real):
    """The real MNIST."""
    return real("mnist")
