"""How the commands save and show what they found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bvfim.app.terminal import console
from bvfim.reports import page, report
from bvfim.status import DataError


def require_device(device: str) -> None:
    """Refuse a device that can't be computed on, before the work rather than in it."""
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError) as error:
        raise DataError(f"--device {device}: {str(error).splitlines()[0]}") from error


def prepared(out: Path) -> Path:
    """The folder, made before the work rather than after it."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{out}: can't make this folder ({error.strerror}); choose another one with --out") from error
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
    console.print(f"data and figures: {chapter.folder}", soft_wrap=True, markup=False)


def _table(frame: pd.DataFrame, title: str) -> Table:
    table = Table(*(escape(str(name)) for name in frame.columns), title=escape(title), box=SIMPLE_HEAD)
    for row in frame.itertuples(index=False):
        table.add_row(*(f"{v:.4g}" if isinstance(v, float) else escape(str(v)) for v in row))
    return table


def paged(out: Path, title: str, lead: str, chapters: Sequence[page.Chapter]) -> None:
    """Write the page, and say where it is."""
    console.print(f"page: {page.write(out / 'index.html', title, lead, chapters)}", soft_wrap=True, markup=False)
