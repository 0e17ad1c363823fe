"""The command ``bvfim clean``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from bvfim.app.terminal import Force, console, listed


def clean(
    data: Annotated[Path, typer.Argument(help="CSV or parquet file, or a folder with one image folder per label.")],
    label: Annotated[str, typer.Option(help="Label column.")] = "label",
    trusted: Annotated[
        str | None,
        typer.Option(help="File or folder like DATA with correct labels, or the column that marks the trusted rows."),
    ] = None,
    image: Annotated[str | None, typer.Option(help="Image column: paths, or bytes in parquet.")] = None,
    ignore: Annotated[str, typer.Option(help="Columns to ignore, comma-separated.")] = "",
    out: Annotated[Path | None, typer.Option(help="Output folder; by default <DATA>-cleaned, beside DATA.")] = None,
    apply: Annotated[
        Path | None, typer.Option(help="Decisions downloaded from report.html; they count as trusted.")
    ] = None,
    dry_run: Annotated[bool, typer.Option(help="Print the findings and write nothing.")] = False,
    force: Force = False,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Random seed.")] = 0,
    bilevel: Annotated[bool, typer.Option(help="Include the bilevel network; about twice as fast without it.")] = True,
    rows: Annotated[
        int, typer.Option(min=100, help="Maximum number of rows to train on; the rest are only scored.")
    ] = 50_000,
    sentence_model: Annotated[
        str | None,
        typer.Option(help="Name or folder of a model for columns of sentences; needs sentence-transformers."),
    ] = None,
    fail_above: Annotated[
        float | None, typer.Option(min=0, max=1, help="Exit with code 1 if a larger share of the labels is wrong.")
    ] = None,
) -> None:
    """Find wrong labels in a table or a folder of images, using a few trusted labels.

    Writes four files:
      issues.csv   every row with its findings
      cleaned.csv  without the rows that are almost certainly mislabelled,
                   if the trusted rows show no harm from dropping them
      report.html  a page to review the suspicious rows in a browser
      config.json  settings, versions and the estimated noise

    Row numbers start at 0.

    Exit codes: 0 done, 1 more wrong labels than --fail-above, 2 invalid input,
    130 interrupted.
    """
    from bvfim.app.clean import job, output  # they take scikit-learn along

    folder = output.beside(data) if out is None else out
    if not dry_run:
        output.require_new(folder, force, [data, *(Path(other) for other in (trusted, apply) if other)])
    asked = job.Job(
        data, label, trusted, image, tuple(filter(None, listed(ignore))), apply, bilevel, rows, seed, sentence_model
    )
    try:
        with _bar() as bar:
            told = _teller(bar)
            found = job.find(asked, told)
            if not dry_run:
                output.write(asked, found, folder, told)
    except KeyboardInterrupt:
        Console(stderr=True).print("stopped; nothing was written")
        raise typer.Exit(130) from None
    for sentence in (*found.columns.notes, *output.sentences(found)):
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
