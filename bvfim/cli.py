"""The command ``bvfim``: it parses, calls and prints."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

import bvfim
from bvfim import report
from bvfim.bench import problems, speed
from bvfim.callbacks import ProgressBar
from bvfim.experiments import complexity, toy
from bvfim.status import BvfimError, DataError, ProblemError, no_such

app = typer.Typer(help="Bilevel optimisation without Hessians.", no_args_is_help=True, pretty_exceptions_enable=False)
bench_app = typer.Typer(help="Measure the library against others and against itself.", no_args_is_help=True)
app.add_typer(bench_app, name="bench")
# A terminal has its own width; a log or a pipe gets one that fits the tables.
console = Console(width=None if sys.stdout.isatty() else 140)

Out = Annotated[Path, typer.Option(help="The folder for data, pictures and the settings that made them.")]


def _version(value: bool) -> None:
    if value:
        console.print(f"bvfim {bvfim.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option(callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    pass


@app.command()
def demo(out: Out = Path("out/demo"), start: Annotated[float, typer.Option(help="Where x and y start.")] = 3.0) -> None:
    """Solve the paper's toy with RHG, CG and BVFIM: one table, one picture."""
    if not abs(start) <= 1e6:
        raise ProblemError(f"--start must be a number of at most a million in size, not {start}")
    out, config = _prepared(out), toy.Config(start=start)
    _finish(config, toy.run(config, lambda label: [ProgressBar(label)]), out)


@app.command()
def reproduce(
    names: Annotated[list[str], typer.Argument(help="Which experiments: complexity, toy, or all.")],
    out: Out = Path("out"),
    quick: Annotated[bool, typer.Option(help="Smaller sizes, to see that it runs.")] = False,
) -> None:
    """Run experiments of the paper and put our numbers beside its own."""
    for module in _chosen(names):
        name = module.__name__.rsplit(".", 1)[-1]
        folder = _prepared(out / name)
        console.rule(name)
        config = module.Config()
        if module is complexity:
            config = replace(config, n=512, m=8, T=64, doublings=2) if quick else config
            results = complexity.run(config, _track("measuring"))
        else:
            config = replace(config, steps=100) if quick else config
            results = toy.run(config, lambda label: [ProgressBar(label)])
        _finish(config, results, folder)


@bench_app.command("speed")
def bench_speed(
    data: Annotated[str, typer.Option(help="The data set of the hyper-cleaning problem.")] = "mnist",
    pairs: Annotated[int, typer.Option(min=1, help="How many interleaved rounds.")] = 7,
    out: Out = Path("out/bench"),
) -> None:
    """Time an upper step of ``solve`` as a ratio to a bare hand-written loop; exit code 1 above 1.10."""
    out, config = _prepared(out), speed.Config(data=data, pairs=pairs)
    if data == "digits":
        config = replace(config, train=600, validation=600, steps=10)
    results = speed.run(config, _track("timing"))
    _finish(config, results, out)
    if not results.summary["within 1.10 of the bare loop"]:
        raise typer.Exit(1)


@bench_app.command("problems")
def bench_problems(
    method: Annotated[
        list[str] | None, typer.Option(help="A method, any number of times; all five by default.")
    ] = None,
    problem: Annotated[list[str] | None, typer.Option(help="A test problem, likewise; all by default.")] = None,
    planted: Annotated[int, typer.Option(min=0, help="How many random problems with a planted optimum to add.")] = 0,
    starts: Annotated[int, typer.Option(min=1, help="Starts of each problem.")] = problems.Config.starts,
    steps: Annotated[int, typer.Option(min=1, help="Upper steps of the estimators.")] = problems.Config.steps,
    lr: Annotated[float, typer.Option(min=0, help="Of Adam, which moves x for the estimators.")] = problems.Config.lr,
    seed: Annotated[int, typer.Option(min=0, help="Of the starts and the planted problems.")] = problems.Config.seed,
    workers: Annotated[int, typer.Option(min=1, help="Processes, one thread each.")] = problems.Config.workers,
    quick: Annotated[bool, typer.Option(help="Two methods from two starts, to see that it runs.")] = False,
    out: Out = Path("out/problems"),
) -> None:
    """Solve problems with known optima by several methods from the same starts, and count the gradients."""
    out, names = _prepared(out), tuple(dict.fromkeys(name.lower() for name in method or problems.Config.methods))
    config = problems.Config(names, tuple(problem or ()), planted, starts, steps, lr, seed, workers)
    if quick:
        config = replace(config, methods=("adaptivebvfim", "rhg"), starts=2, steps=100)
    _finish(config, problems.run(config, _track("solving")), out)


def _chosen(names: Sequence[str]) -> list[ModuleType]:
    known = {module.__name__.rsplit(".", 1)[-1]: module for module in (complexity, toy)}
    unknown = [name for name in names if name not in known and name != "all"]
    if unknown:
        raise DataError(no_such("experiment", unknown[0], [*known, "all"]))
    return list(known.values()) if "all" in names else [known[name] for name in dict.fromkeys(names)]


def _track(title: str) -> Any:
    def wrap(plan: Sequence[Any]) -> Iterator[Any]:
        return iter(track(plan, title, console=Console(stderr=True)))

    return wrap


def _prepared(out: Path) -> Path:
    """The folder, made before the work rather than after it."""
    out.mkdir(parents=True, exist_ok=True)
    return out


def _finish(config: Any, results: report.Results, out: Path) -> None:
    written = report.save(results, config, out)
    name, frame = next(iter(results.tables.items()))
    title, frame = frame.attrs.get("title", name), frame.reset_index()
    table = Table(*map(str, frame.columns), title=title, box=SIMPLE_HEAD)
    for row in frame.itertuples(index=False):
        table.add_row(*(f"{v:.4g}" if isinstance(v, float) else str(v) for v in row))
    console.print(table)
    for name, number in results.summary.items():
        console.print(f"{name}: {number}", markup=False)
    console.print("written: " + ", ".join(str(path) for path in written), soft_wrap=True, markup=False)


def main() -> None:
    """Run the command; errors of the library end in one sentence and exit code 2."""
    try:
        app()
    except (BvfimError, OSError) as error:
        Console(stderr=True).print(f"[red]error:[/red] {escape(str(error))}", soft_wrap=True)
        sys.exit(2)
