"""What the commands share: the console, progress bars, and the way results are saved and shown."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import torch
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, track
from rich.table import Table

from bvfim import page, report
from bvfim.status import DataError

# A terminal has its own width; a log or a pipe gets one that fits the tables.
console = Console(width=None if sys.stdout.isatty() else 140)

Out = Annotated[Path, typer.Option(help="The folder for data, pictures and the settings that made them.")]
Workers = Annotated[int, typer.Option(min=1, help="Processes on the CPU, one thread each; 1: all threads.")]


def listed(text: str) -> tuple[str, ...]:
    """The parts of an option that takes several, with commas between them."""
    return tuple(part.strip() for part in text.split(","))


def counts(text: str, option: str) -> tuple[int, ...]:
    """The whole numbers of an option that takes several."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise DataError(f"--{option} {text}: these are no whole numbers") from error


def size_and_count(text: str, option: str) -> tuple[float, int]:
    """A number and a whole number, with a comma between them."""
    try:
        size, count = text.split(",")
        return float(size), int(count)
    except ValueError as error:
        raise DataError(f"--{option} {text}: this is no number and whole number, as in 0.1,10") from error


def require_device(device: str) -> None:
    """Refuse a device that can't be computed on, before the work rather than in it."""
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError) as error:
        raise DataError(f"--device {device}: {str(error).splitlines()[0]}") from error


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


def prepared(out: Path) -> Path:
    """The folder, made before the work rather than after it."""
    out.mkdir(parents=True, exist_ok=True)
    return out


def saved(name: str, config: Any, results: report.Results, out: Path) -> page.Chapter:
    """Save an experiment, and give back its chapter for a page."""
    report.save(results, config, out)
    return page.Chapter(name, config, results, out)


def reported(title: str, lead: str, name: str, config: Any, results: report.Results, out: Path) -> None:
    """Save one experiment with a page of its own, then show it: a reader who closes the pipe loses nothing."""
    chapter = saved(name, config, results, out)
    paged(out, title, lead, [chapter])
    show(chapter)


def show(chapter: page.Chapter) -> None:
    """The first table of an experiment, as many of its columns as fit, and its summary."""
    first, frame = next(iter(chapter.results.tables.items()))
    title, frame = frame.attrs.get("title", first), frame.reset_index()
    shown, endless = len(frame.columns), Console(width=10_000)
    while shown > 2 and endless.measure(_table(frame.iloc[:, :shown], title)).maximum > console.width:
        shown -= 1
    console.print(_table(frame.iloc[:, :shown], title))
    if shown < len(frame.columns):
        console.print(f"{len(frame.columns) - shown} more columns in {first}.csv", markup=False)
    for what, number in chapter.results.summary.items():
        console.print(f"{what}: {number}", markup=False)
    console.print(f"data and pictures: {chapter.folder}", soft_wrap=True, markup=False)


def _table(frame: pd.DataFrame, title: str) -> Table:
    table = Table(*(escape(str(name)) for name in frame.columns), title=escape(title), box=SIMPLE_HEAD)
    for row in frame.itertuples(index=False):
        table.add_row(*(f"{v:.4g}" if isinstance(v, float) else escape(str(v)) for v in row))
    return table


def paged(out: Path, title: str, lead: str, chapters: Sequence[page.Chapter]) -> None:
    """Write the page, and say where it is."""
    console.print(f"page: {page.write(out / 'index.html', title, lead, chapters)}", soft_wrap=True, markup=False)
