"""What can be done after each step: show it, save it, log it, stop."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from bvfim.run import Run
from bvfim.schedules import require_count


@dataclass
class ProgressBar:
    """A bar with the rate, the time left, F and f, on the terminal's error stream.

    Args:
        title: what stands before the bar.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum())
        >>> start = torch.zeros(1)
        >>> bar = bvfim.callbacks.ProgressBar()
        >>> solution = bvfim.solve(problem, start, start, bvfim.RHG(), steps=3, callbacks=[bar])
    """

    title: str = "solve"
    _bar: Progress | None = field(default=None, init=False, repr=False)
    _task: TaskID = field(default=TaskID(0), init=False, repr=False)

    def __call__(self, run: Run) -> None:
        """Advance the bar."""
        if self._bar is None:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=Console(stderr=True))
            self._task = self._bar.add_task(self.title, total=run.steps)
            self._bar.start()
        description = f"{self.title}  F {run.row['upper']:.4g}  f {run.row['lower']:.4g}"
        self._bar.update(self._task, completed=run.k, description=description)

    def finish(self, run: Run) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


@dataclass
class Checkpoint:
    """Save the run every so many steps or minutes, and at its end; ``solve(resume=path)`` goes on from it.

    Args:
        path: the file to write; replaced atomically.
        every: how many steps between two saves.
        minutes: save also when this much time has passed since the last save.

    Example:
        >>> import tempfile, torch, bvfim
        >>> problem = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum())
        >>> start, method = torch.zeros(1), bvfim.RHG(lr=0.1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = f"{folder}/run.safetensors"
        ...     half = bvfim.solve(problem, start, start, method, steps=5, callbacks=[bvfim.callbacks.Checkpoint(path)])
        ...     whole = bvfim.solve(problem, start, start, method, steps=10, resume=path)
        >>> bool(whole.x == bvfim.solve(problem, start, start, method, steps=10).x)
        True
    """

    path: str | os.PathLike[str]
    every: int = 100
    minutes: float = math.inf
    _last: float = field(default_factory=time.monotonic, init=False, repr=False)

    def __post_init__(self) -> None:
        require_count(self, "every")

    def __call__(self, run: Run) -> None:
        """Save where it is time."""
        if run.k % self.every == 0 or time.monotonic() - self._last >= 60 * self.minutes:
            run.save(self.path)
            self._last = time.monotonic()

    def finish(self, run: Run) -> None:
        """Save the end; a run that broke off inside a step keeps its last checkpoint."""
        if run.complete:
            run.save(self.path)


@dataclass
class EarlyStop:
    """Stop when ``score(run)`` has not fallen by ``margin`` for ``patience`` steps.

    Args:
        score: a function of the run, lower is better; F by default.
        patience: how many steps without improvement are allowed.
        margin: what counts as an improvement.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum())
        >>> start = torch.ones(1)
        >>> stop = bvfim.callbacks.EarlyStop(patience=5)
        >>> bvfim.solve(problem, start, start, bvfim.RHG(lr=0.1), callbacks=[stop]).steps
        6
    """

    score: Callable[[Run], float] = lambda run: run.row["upper"]
    patience: int = 50
    margin: float = 0.0
    best: float = field(default=math.inf, init=False)
    best_step: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        require_count(self, "patience")

    def __call__(self, run: Run) -> bool:
        """Whether to stop."""
        if run.k == 1:  # a new run begins
            self.best, self.best_step = math.inf, 0
        score = self.score(run)
        if score < self.best - self.margin:
            self.best, self.best_step = score, run.k
        return run.k - self.best_step >= self.patience


@dataclass
class Log:
    """Hand every n-th row of the history to a function: ``print``, a logger, TensorBoard.

    Args:
        write: takes the row, a dict of floats.
        every: n.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum())
        >>> start = torch.zeros(1)
        >>> log = bvfim.callbacks.Log(lambda row: print(row["step"], round(row["upper"], 2)), every=2)
        >>> solution = bvfim.solve(problem, start, start, bvfim.RHG(lr=0.1), steps=4, callbacks=[log])
        1 0.98
        3 0.94
    """

    write: Callable[[dict[str, float]], object]
    every: int = 1

    def __post_init__(self) -> None:
        require_count(self, "every")

    def __call__(self, run: Run) -> None:
        """Write where it is due."""
        if run.k % self.every == 0:
            self.write(run.row)
