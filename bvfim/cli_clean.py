"""The command ``bvfim clean``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from bvfim.terminal import console, listed


def clean(
    data: Annotated[Path, typer.Argument(help="A CSV or parquet file, or a folder with a folder of images per label.")],
    label: Annotated[str, typer.Option(help="The column of labels.")] = "label",
    trusted: Annotated[
        str | None,
        typer.Option(help="A file or folder like DATA whose labels are right, or the column that says which rows are."),
    ] = None,
    image: Annotated[str | None, typer.Option(help="The column of images: paths, or bytes in parquet.")] = None,
    ignore: Annotated[str, typer.Option(help="Columns to leave out, with commas.")] = "",
    out: Annotated[Path | None, typer.Option(help="The folder for the results; DATA's name with -cleaned.")] = None,
    apply: Annotated[
        Path | None, typer.Option(help="Decisions that were made on the page: they count as trusted.")
    ] = None,
    dry_run: Annotated[bool, typer.Option(help="Only say what was found; write nothing.")] = False,
    force: Annotated[bool, typer.Option(help="Write over the results of an earlier run.")] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Of everything that is random.")] = 0,
    bilevel: Annotated[bool, typer.Option(help="Let the bilevel network take part; without it twice as fast.")] = True,
    rows: Annotated[
        int, typer.Option(min=100, help="Rows to learn from, at most; the others are only judged.")
    ] = 50_000,
    fail_above: Annotated[
        float | None, typer.Option(min=0, max=1, help="Exit code 1 if a larger share of the labels is wrong.")
    ] = None,
) -> None:
    """Find wrong labels in a table or a folder of images, with the help of a few that can be trusted.

    Writes issues.csv (every row and what was found of it), cleaned.csv (without the rows that are surely wrong, where
    the trusted rows show that this does no harm), report.html (to review the suspects in a browser) and config.json.
    Rows are counted from 0. Exit codes: 0 done, 1 more wrong labels than --fail-above, 2 something is wrong with what
    was given, 130 interrupted.
    """
    from bvfim.cleaning import job, output  # they take scikit-learn along

    folder = output.beside(data) if out is None else out
    if not dry_run:
        output.require_new(folder, force, [data, *(Path(other) for other in (trusted, apply) if other)])
    asked = job.Job(data, label, trusted, image, tuple(filter(None, listed(ignore))), apply, bilevel, rows, seed)
    try:
        with _bar() as bar:
            told = _teller(bar)
            found = job.find(asked, told)
            if not dry_run:
                output.write(asked, found, folder, told)
    except KeyboardInterrupt:
        Console(stderr=True).print("stopped; nothing was written")
        raise typer.Exit(130) from None
    for name, why in found.columns.left_out.items():
        console.print(f"column {name!r} is left out: {why}", markup=False, soft_wrap=True)
    for sentence in output.sentences(found):
        console.print(sentence, markup=False, soft_wrap=True)
    if not dry_run:
        console.print(f"review: {folder / 'report.html'}", markup=False, soft_wrap=True)
    if fail_above is not None and float(found.issues["p_wrong"].mean()) > fail_above:
        raise typer.Exit(1)


def _bar() -> Progress:
    columns: tuple[Any, ...] = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    return Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True))


def _teller(bar: Progress) -> Any:
    """What shows the progress of each kind of work in its own line."""
    tasks: dict[str, Any] = {}

    def tell(what: str, share: float) -> None:
        name = what.split(",")[0]
        if name not in tasks:
            for earlier in tasks.values():
                bar.update(earlier, completed=1.0)
            tasks[name] = bar.add_task(name, total=1.0)
        bar.update(tasks[name], completed=share, description=what)

    return tell
