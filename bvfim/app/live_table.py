"""The last steps of a run as a table that moves, for whoever watches."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass, field

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table

from bvfim.core.run import Run
from bvfim.schedules import require_count

SHOWN = {"upper": "F", "lower": "f", "grad_norm": "grad_norm", "gap": "gap", "mu2": "mu2", "slack": "slack"}
"""Columns of the history, of which a method reports some, and what they are called here."""


@dataclass
class LiveTable:
    """A callback that shows the last steps as a live table on stderr; in a file or a pipe, an occasional line.

    Args:
        rows: number of steps in the table.
        refresh: minimum number of seconds between two updates.
        pause: without a terminal, print a line after this many seconds, and after every tenth of the steps.
        console: where to draw; stderr by default.

    Example:
        >>> import sys, torch, bvfim
        >>> from rich.console import Console
        >>> from bvfim.app.live_table import LiveTable
        >>> problem = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum())
        >>> start, table = torch.zeros(1), LiveTable(console=Console(file=sys.stdout))
        >>> solution = bvfim.solve(problem, start, start, bvfim.BVFIM(), steps=1, callbacks=[table])
        ... # doctest: +ELLIPSIS
        step 0: F 0.51012, f 0.081665, grad_norm 0.622, slack 0.918, 103 gradients, ... s
    """

    rows: int = 10
    refresh: float = 0.1
    pause: float = 10.0
    console: Console = field(default_factory=lambda: Console(stderr=True), repr=False)
    _live: Live | None = field(default=None, init=False, repr=False)
    _last: float = field(default=-math.inf, init=False, repr=False)
    _said: int = field(default=-1, init=False, repr=False)

    def __post_init__(self) -> None:
        require_count(self, "rows")

    def __call__(self, run: Run) -> None:
        """Show the step where it is time."""
        waited = time.monotonic() - self._last
        if not self._moves:
            if waited >= self.pause or run.k % max(1, run.steps // 10) == 0:
                self._say(run)
        elif waited >= self.refresh:
            self._draw(run)

    def finish(self, run: Run) -> None:
        """Show the last step, also one that broke off, and leave the table there."""
        if not self._moves:
            self._say(run)
        elif run.rows:
            self._draw(run)
        if self._live is not None:
            self._live.stop()
        self._live, self._last, self._said = None, -math.inf, -1

    @property
    def _moves(self) -> bool:
        return self.console.is_terminal and not self.console.is_dumb_terminal

    def _say(self, run: Run) -> None:
        if len(run.rows) == self._said or not run.rows:
            return
        self._last, self._said = time.monotonic(), len(run.rows)
        row = run.row
        words = [f"{name} {row[column]:.{digits}g}" for column, (name, digits) in _columns(row).items()]
        words += [f"{_gradients(row)} gradients", f"{row['seconds']:.1f} s"]
        self.console.print(f"step {row['step']:.0f}: {', '.join(words)}", soft_wrap=True, markup=False, highlight=False)

    def _draw(self, run: Run) -> None:
        self._last = time.monotonic()
        if self._live is None:
            # What the objectives print goes above the table where both are on the terminal.
            self._live = Live(console=self.console, auto_refresh=False, redirect_stdout=sys.stdout.isatty())
            self._live.start()
        self._live.update(self._table(run), refresh=True)

    def _table(self, run: Run) -> Table:
        title = f"{type(run.method).__name__}: {run.k} of at most {run.steps} steps"
        columns = _columns(run.row)
        table = Table(title=title, box=SIMPLE_HEAD, padding=0, pad_edge=False)
        for heading in ("step", *(name for name, _ in columns.values()), "gradients", "s"):
            table.add_column(heading, justify="right")
        for row in run.rows[-self.rows :]:
            numbers = [f"{row.get(column, math.nan):.{digits}g}" for column, (_, digits) in columns.items()]
            table.add_row(f"{row['step']:.0f}", *numbers, str(_gradients(row)), f"{row['seconds']:.1f}")
        return table


def _columns(row: dict[str, float]) -> dict[str, tuple[str, int]]:
    """The columns to show, with their names and digits: as much as eighty characters hold."""
    shown = {column: (name, 5 if name in "Ff" else 3) for column, name in SHOWN.items() if column in row}
    if "gap" in shown:  # and so mu2, of which the slack is what the gap leaves
        shown.pop("slack", None)
    return shown


def _gradients(row: dict[str, float]) -> int:
    return int(row["upper_evaluations"] + row["lower_evaluations"])
