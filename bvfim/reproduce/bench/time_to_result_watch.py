"""The clock of ``bvfim bench time-to-result``, and how a run is looked at."""

from __future__ import annotations

import time
from typing import Protocol

from torch import Tensor

from bvfim.reproduce.bench.speed import wait
from bvfim.reproduce.experiments import cleaning

EPOCH = 10_000
"""Rows through one gradient."""
ENDLESS = 10**9
"""Upper steps of a run that the watch ends."""
LOOKS, GROWTH = 20, 1.15
"""A run is looked at after its first step and so many times until the end of ours, evenly; later whenever its time has
grown by this factor."""


class Standing(Protocol):
    """A run under way."""

    @property
    def x(self) -> Tensor:
        """The upper variable: a label counts as wrong where it is not above zero."""
        ...

    @property
    def y(self) -> dict[str, Tensor]:
        """The network."""
        ...


class Watch:
    """A clock that stops while a run is looked at; it starts when it is made.

    Args:
        task: what judges the run.
        ours: the seconds of our run, which the moments of looking are chosen by.
        limit: the seconds after which the time is up.
        every: look after so many steps instead of at moments; steps: and the time is up after so many.

    Attributes:
        looks: a row a look: steps, seconds, epochs, accuracy on the test rows, F1, accuracy on the held rows.
    """

    def __init__(
        self, task: cleaning.Task, ours: float, limit: float, every: int | None = None, steps: int = ENDLESS
    ) -> None:
        self.task, self.ours, self.limit, self.every, self.last = task, ours, limit, every, steps
        self.steps, self.looks, self.next = 0, list[dict[str, float]](), ours / LOOKS
        self._look(task, 0.0, 0.0)
        self.began = self._now()

    def __call__(self, run: Standing, rows: float) -> bool:
        """After a step: look where it is due, and say whether the time is up.

        Args:
            run: where it stands.
            rows: how many rows went through a gradient so far.
        """
        self.steps += 1
        paused = self._now()
        seconds = paused - self.began
        over = seconds >= self.limit or self.steps >= self.last
        due = self.steps % self.every == 0 if self.every else seconds >= self.next
        if due or over or self.steps == 1:
            self._look(run, seconds, rows / EPOCH)
            self.next = self._after(seconds)
            self.began += self._now() - paused
        return over

    def _after(self, seconds: float) -> float:
        """When the next look is due."""
        between = self.ours / LOOKS
        return between * (seconds // between + 1) if seconds < self.ours else seconds * GROWTH

    def _now(self) -> float:
        wait(str(self.task.x.device))
        return time.perf_counter()

    def _look(self, run: Standing, seconds: float, epochs: float) -> None:
        y = {key: t.detach() for key, t in run.y.items()}
        self.looks.append(
            {
                "steps": self.steps,
                "seconds": seconds,
                "epochs": epochs,
                "accuracy": self.task.accuracy(y),
                "F1": self.task.f1(run.x.detach()),
                "held": self.task.accuracy(y, self.task.held),
            }
        )
