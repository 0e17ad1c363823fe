"""Callbacks, called after each step: progress, checkpoints, logging, early stopping."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from bvfim.checkpoint import as_path
from bvfim.core.arguments import as_number, check_function
from bvfim.core.run import Run
from bvfim.schedules import require, require_count
from bvfim.status import BvfimError, MethodError


class PlainStream:
    """Writes plain lines to stderr when rich is not installed.

    Example:
        >>> from bvfim.callbacks import PlainStream
        >>> PlainStream().is_interactive
        False
    """

    is_interactive = is_jupyter = False

    def print(self, line: str, **how: Any) -> None:
        """Write a line; rich's formatting arguments are ignored."""
        print(line, file=sys.stderr, flush=True)


def error_stream() -> Any:
    """A rich console on stderr, or a plain stream if rich is not installed.

    Example:
        >>> from bvfim.callbacks import error_stream
        >>> error_stream().is_jupyter
        False
    """
    try:
        from rich.console import Console
    except ImportError:
        return PlainStream()
    return Console(stderr=True)


@dataclass
class ProgressBar:
    """A progress bar with the rate, the time left, F, f and the gap; in a file or a pipe, a line from time to time.

    The rate and the time left do not count steps taken before a resume. :func:`bvfim.solve` shows one by itself on a
    terminal and in a notebook; the variable ``BVFIM_PROGRESS=0`` or ``solve(progress=False)`` switches that off.

    Args:
        title: the text before the bar.
        pause: without a terminal, the seconds between two lines.
        delay: the seconds before it appears; a run that is shorter shows nothing.
        console: a ``rich.console.Console`` to draw on; by default stderr, with plain lines if rich is not installed.

    Example:
        >>> import sys, torch, bvfim
        >>> from rich.console import Console
        >>> problem = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum())
        >>> start = torch.zeros(1)
        >>> bar = bvfim.callbacks.ProgressBar(console=Console(file=sys.stdout))
        >>> solution = bvfim.solve(problem, start, start, bvfim.RHG(), steps=3, callbacks=[bar])
        ... # doctest: +ELLIPSIS
        solve  3/3  ... steps/s  0:00:00 left  F 0.9... f ...
    """

    title: str = "solve"
    pause: float = 30.0
    console: Any = field(default=None, repr=False)
    delay: float = 0.0
    _bar: Any = field(default=None, init=False, repr=False)
    _task: Any = field(default=None, init=False, repr=False)
    _last: float = field(default=-math.inf, init=False, repr=False)
    _k: int = field(default=-1, init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("pause", "delay"):
            require(self, name, at_least=0, schedule=False)

    def __call__(self, run: Run) -> None:
        """Advance the bar."""
        if not self._due(run):
            return
        if not (self.console.is_interactive or self.console.is_jupyter):
            if time.monotonic() - max(self._last, run.started) >= self.pause:
                self._say(run)
            return
        if self._bar is None:
            self._start(run)
        self._bar.update(self._task, completed=run.k, description=f"{self.title}  {_values(run)}", pace=_pace(run))

    def _start(self, run: Run) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        texts = (TextColumn("{task.description}"), TextColumn("{task.fields[pace]}"))
        self._bar = Progress(texts[0], BarColumn(None), MofNCompleteColumn(), texts[1], console=self.console)
        self._task = self._bar.add_task(self.title, total=run.steps, completed=run.k, pace="")
        self._bar.start()

    def _due(self, run: Run) -> bool:
        """Whether the delay is over; what it is drawn on is loaded only then."""
        due = run.seconds - run.seconds_before >= self.delay
        if due and self.console is None:
            self.console = error_stream()
        return due

    def finish(self, run: Run) -> None:
        """Stop the bar where it is, or print the last step."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        elif run.rows and not (self._last >= run.started and self._k == run.k) and self._due(run):
            self._say(run)

    def _say(self, run: Run) -> None:
        self._last, self._k = time.monotonic(), run.k
        line = f"{self.title}  {run.k}/{run.steps}  {_pace(run)}  {_values(run)}"
        self.console.print(line, soft_wrap=True, markup=False, highlight=False)


def _pace(run: Run) -> str:
    """Steps per second since the run began or was resumed, and the time left at that rate."""
    rate = (run.k - run.k_before) / max(run.seconds - run.seconds_before, 1e-9)
    if rate == 0:
        return "0 steps/s"
    left = timedelta(seconds=round((run.steps - run.k) / rate))
    return f"{rate:.2g} steps/s  {left} left" if rate < 10 else f"{rate:.0f} steps/s  {left} left"


def _values(run: Run) -> str:
    gap = f"  gap {run.row['gap']:.2g}" if "gap" in run.row else ""
    return f"F {run.row['upper']:.4g}  f {run.row['lower']:.4g}{gap}"


DELAY = 2.0
"""The progress that a run shows by itself appears after this many seconds."""


def own_progress(asked: bool | None, title: str = "solve") -> list[ProgressBar]:
    """The progress bar of a run: as asked for, or if None on a terminal and in a notebook.

    Example:
        >>> from bvfim.callbacks import own_progress
        >>> own_progress(False), len(own_progress(True))
        ([], 1)
    """
    if asked is None:
        watched = "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())
        asked = watched and os.environ.get("BVFIM_PROGRESS") != "0"
    return [ProgressBar(title, pause=10.0, delay=DELAY)] if asked else []


@dataclass
class Checkpoint:
    """Save the run periodically, by steps or minutes, and at its end; ``solve(resume=path)`` continues it.

    A run that is killed loses the steps since its last save. If a save fails, the run ends with a
    :class:`bvfim.CheckpointError`, and the previous checkpoint is kept.

    Args:
        path: the file to write, with ``mesh=`` the folder; replaced atomically. Only one run may write to it at a time.
        every: the number of steps between two saves; None to save by minutes only.
        minutes: also save when this many minutes have passed since the last save, or since the run began or resumed.
        keep: how many files to keep: ``path`` and its predecessors ``path.old-1`` and so on, which a resumed run falls
            back to if ``path`` is damaged. Of folders, one is kept.

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
    every: int | None = 100
    minutes: float = math.inf
    keep: int = 2
    _last: float = field(default=-math.inf, init=False, repr=False)
    _k: int = field(default=-1, init=False, repr=False)

    def __post_init__(self) -> None:
        as_path(self.path)
        require_count(self, "keep")
        if self.every is not None:
            require_count(self, "every")
        if self.minutes != math.inf:
            require(self, "minutes", above=0, schedule=False)
        elif self.every is None:
            raise MethodError("Checkpoint: give every, minutes, or both")

    def __call__(self, run: Run) -> None:
        """Save if it is due."""
        due = self.every is not None and run.k % self.every == 0
        if self.minutes != math.inf:  # each process has its own clock, and all of them save or none does
            waited = time.monotonic() - max(self._last, run.started)
            due = run.world.agreed([due or waited >= 60 * self.minutes])[0] > 0
        if due:
            self._save(run)

    def finish(self, run: Run) -> None:
        """Save the final state; a run that broke off within a step keeps its last checkpoint."""
        if run.complete and not (self._last >= run.started and self._k == run.k):
            self._save(run)

    def _save(self, run: Run) -> None:
        self._last, self._k = time.monotonic(), run.k  # also of a save that fails, which finish is not to try again
        run.save(self.path, self.keep)
        self._last = time.monotonic()


@dataclass
class TensorBoard:
    """Write every n-th row of the history to a folder for ``tensorboard --logdir``.

    A resumed run continues from its checkpoint: anything logged after that checkpoint is hidden. A new run hides an
    older one in the same folder. Requires TensorBoard: ``pip install 'bvfim[tensorboard]'``.

    Args:
        folder: the folder for the event files; each start or resume adds one.
        every: n.

    Example:
        >>> import tempfile, torch, bvfim
        >>> problem = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum())
        >>> start = torch.zeros(1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     board = bvfim.callbacks.TensorBoard(folder)
        ...     solution = bvfim.solve(problem, start, start, bvfim.RHG(lr=0.1), steps=20, callbacks=[board])
    """

    folder: str | os.PathLike[str]
    every: int = 10
    _writer: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        require_count(self, "every")
        try:
            import torch.utils.tensorboard  # noqa: F401 (missed here, before the run, rather than at a step)
        except ImportError as error:
            raise BvfimError("TensorBoard is not installed: pip install 'bvfim[tensorboard]'") from error

    def __call__(self, run: Run) -> None:
        """Write if it is due."""
        if run.k % self.every != 0:
            return
        try:
            self._write(run)
        except OSError as error:
            self._writer = None  # finish is not to fail over it again
            raise BvfimError(f"{self.folder}: the log could not be written ({error.strerror or error})") from error

    def finish(self, run: Run) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _write(self, run: Run) -> None:
        from torch.utils.tensorboard import SummaryWriter

        if self._writer is None:
            self._writer = SummaryWriter(self.folder, purge_step=run.k_before)
        for name, number in run.row.items():
            if name != "step":
                self._writer.add_scalar(name, number, int(run.row["step"]))
        self._writer.flush()  # so that the rows of a run that is killed are there


@dataclass
class EarlyStop:
    """Stop when ``score(run)`` has not fallen by ``margin`` for ``patience`` steps.

    Args:
        score: a function of the run; lower is better. F by default.
        patience: the number of steps allowed without improvement.
        margin: the smallest decrease that counts as an improvement.

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
        check_function(self.score, "EarlyStop: score", 1, "a function of the run")
        require_count(self, "patience")
        require(self, "margin", at_least=0, schedule=False)

    def __call__(self, run: Run) -> bool:
        """Whether to stop."""
        if run.k == 1:  # a new run begins
            self.best, self.best_step = math.inf, 0
        score = as_number(self.score(run), "EarlyStop: score")
        if score < self.best - self.margin:
            self.best, self.best_step = score, run.k
        return run.k - self.best_step >= self.patience


@dataclass
class Log:
    """Pass every n-th row of the history to a function such as ``print`` or a logger.

    Args:
        write: a function of the row, a dict of floats.
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
        check_function(self.write, "Log: write", 1, "a function of a row of the history")
        require_count(self, "every")

    def __call__(self, run: Run) -> None:
        """Write if it is due."""
        if run.k % self.every == 0:
            self.write(run.row)
