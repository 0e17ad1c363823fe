"""What the commands share: the console, options and progress bars. Nothing here takes torch along."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, track

from bvfim.status import DataError

# A terminal has its own width; a log or a pipe gets one that fits the tables.
console = Console(width=None if sys.stdout.isatty() else 140)

Out = Annotated[Path, typer.Option(help="Output folder for data, figures and settings.")]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Random seed.")]
Device = Annotated[str, typer.Option(help="Device: cpu, cuda or cuda:1.")]
Force = Annotated[bool, typer.Option(help="Overwrite the results of an earlier run.")]
Resume = Annotated[bool, typer.Option(help="Resume an interrupted run in the same output folder.")]
Workers = Annotated[
    int, typer.Option(min=1, help="Number of CPU processes, one thread each; with 1, one process uses all threads.")
]


def require_new(out: Path, names: Iterable[str], force: bool) -> None:
    """Refuse to write over files of an earlier run, unless that is asked for.

    Example:
        >>> from pathlib import Path
        >>> from bvfim.app.terminal import require_new
        >>> require_new(Path("no-such-folder"), ["index.html"], force=False)
    """
    try:
        there = next((out / name for name in names if (out / name).exists()), None)
    except OSError as error:  # a name that is too long
        raise DataError(f"--out: {error.strerror}") from error
    if there is not None and not force:
        raise DataError(f"{there} already exists; use --force to overwrite it or --out for another folder")


def listed(text: str) -> tuple[str, ...]:
    """The parts of an option that takes several, with commas between them."""
    return tuple(part.strip() for part in text.split(","))


def counts(text: str, option: str) -> tuple[int, ...]:
    """The whole numbers of an option that takes several."""
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise DataError(f"--{option} {text}: expected whole numbers, comma-separated") from error
    if min(found) < 0:
        raise DataError(f"--{option} {text}: expected whole numbers of at least 0")
    return found


def size_and_count(text: str, option: str) -> tuple[float, int]:
    """A number and a whole number, with a comma between them."""
    try:
        size, count = text.split(",")
        return float(size), int(count)
    except ValueError as error:
        raise DataError(f"--{option} {text}: expected a number and a whole number, as in 0.1,10") from error


def parts(title: str) -> Any:
    """A progress bar for parts of unequal work, with an estimate of the time that is left."""

    def wrap(parts: Iterable[Any], work: Mapping[str, float], ahead: float) -> Iterator[Any]:
        total, done, begin = sum(work.values()) + ahead, 0.0, time.monotonic()
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
        with Progress(*columns, TextColumn("{task.fields[left]}"), console=Console(stderr=True)) as bar:
            task = bar.add_task(title, total=total, left="")
            for part in parts:
                done += work[part[0]]
                left = (time.monotonic() - begin) * (total - done) / done
                bar.update(task, completed=done, left=f"about {timedelta(seconds=round(left))} left")
                yield part

    return wrap


def tracked(title: str) -> Any:
    """A progress bar for a list."""

    def wrap(plan: Sequence[Any]) -> Iterator[Any]:
        return iter(track(plan, title, console=Console(stderr=True)))

    return wrap
