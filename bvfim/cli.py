"""The command ``bvfim``: it parses, calls and prints."""

from __future__ import annotations

import random
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, track
from rich.table import Table

import bvfim
from bvfim import cli_clean, page, report, script, script_report
from bvfim.bench import labels, problems, speed
from bvfim.experiments import assumptions, basins, complexity, growth, hypercleaning, net, sizes, theorem, toy
from bvfim.experiments import demo as demo_experiment
from bvfim.experiments.cleaning_settings import DATA
from bvfim.experiments.parts import How
from bvfim.live import LiveTable
from bvfim.status import BvfimError, DataError, Status, no_such

app = typer.Typer(help="Bilevel optimisation without Hessians.", no_args_is_help=True, pretty_exceptions_enable=False)
bench_app = typer.Typer(help="Measure the library against others and against itself.", no_args_is_help=True)
app.add_typer(bench_app, name="bench")
app.command("clean")(cli_clean.clean)
# A terminal has its own width; a log or a pipe gets one that fits the tables.
console = Console(width=None if sys.stdout.isatty() else 140)

EXPERIMENTS: dict[str, tuple[ModuleType, ...]] = {
    "toy": (toy, basins, sizes),
    "theorem": (theorem,),
    "assumptions": (assumptions,),
    "complexity": (complexity,),
    "cleaning": (hypercleaning,),
    "net": (net,),
}
"""What ``bvfim reproduce`` knows, and the modules that make it up."""

Out = Annotated[Path, typer.Option(help="The folder for data, pictures and the settings that made them.")]
Seed = Annotated[int | None, typer.Option(min=0, max=2**63 - 1, help="Of everything that is random.")]
Workers = Annotated[int, typer.Option(min=1, help="Processes on the CPU, one thread each; 1: all threads.")]


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
def demo(out: Out = Path("out/demo"), workers: Workers = 2) -> None:
    """Solve the paper's toy with each method from one start and from 400, and write a page: under two minutes."""
    config = demo_experiment.Config()
    results = demo_experiment.run(config, How(_prepared(out) / "parts", workers=workers, track=_parts("solving")))
    lead = "A bilevel problem whose lower level is not convex, by four methods."
    _report("bvfim demo", lead, "demo", config, results, out)


@app.command()
def solve(
    file: Annotated[Path, typer.Argument(help="A Python file that defines upper, lower, x and y.")],
    method: Annotated[str | None, typer.Option(help="A method by name, instead of the file's.")] = None,
    steps: Annotated[int | None, typer.Option(min=0, help="The most updates of x, instead of the file's.")] = None,
    tol: Annotated[float | None, typer.Option(min=0, help="When to stop: the method's own measure.")] = None,
    seed: Seed = None,
    out: Annotated[Path | None, typer.Option(help="The folder for the report; out/ and the file's name.")] = None,
    debug: Annotated[bool, typer.Option(help="Show the whole traceback of an error.")] = False,
) -> None:
    """Solve the problem that a file states, show its course, and save a report; exit code 1 if the run broke off."""
    if seed is not None:
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)
    try:
        stated = script.load(file).changed(method, steps, tol, seed)
        out = _prepared(Path("out", file.stem) if out is None else out)
        solution = script.run(stated, [LiveTable()])
    except BvfimError:
        if debug:
            traceback.print_exc()
        raise
    script_report.save_solution(solution, out / "solution.safetensors")
    config, results = script_report.settings(stated, solution, seed), script_report.results(stated, solution)
    title = f"{file.name}: {solution.status.value.replace('_', ' ')}"
    _report(title, str(solution), file.stem, config, results, out)
    if solution.status is Status.INTERRUPTED:
        raise typer.Exit(130)
    if not solution.status.ok:
        raise typer.Exit(1)


@app.command()
def reproduce(
    names: Annotated[list[str], typer.Argument(help=f"Which experiments: {', '.join(EXPERIMENTS)}, or all.")],
    out: Out = Path("out"),
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Of everything that is random.")] = 0,
    quick: Annotated[bool, typer.Option(help="Smaller sizes, to see that it runs.")] = False,
    device: Annotated[str, typer.Option(help="Where to compute: cpu, cuda, cuda:1.")] = "cpu",
    resume: Annotated[bool, typer.Option(help="Go on with a run that was interrupted, in the same folder.")] = False,
    workers: Workers = 2,
    data: Annotated[str | None, typer.Option(help=f"Of cleaning, with commas: {', '.join(DATA)}.")] = None,
    methods: Annotated[str | None, typer.Option(help="Of cleaning, with commas: RHG,BVFIM; or all.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Of cleaning: how many splits.")] = None,
) -> None:
    """Run experiments of the paper and put our numbers beside its own, on one page."""
    chosen = _chosen(names)
    own = _own(chosen, {"data": data, "methods": None if methods == "all" else methods, "seeds": seeds})
    _require_device(device)
    chapters = []
    for name, module in chosen.items():
        console.rule(name)
        config = module.Config(seed=seed, device=device, **own)
        config = config.quick() if quick else config
        folder = _prepared(out / name)
        how = How(folder / "parts", resume, workers if device == "cpu" else 1, _parts(name))
        try:
            chapters.append(_saved(name, config, module.run(config, how), folder))
        except KeyboardInterrupt:
            Console(stderr=True).print("stopped; what was measured is kept, and the same command with --resume goes on")
            raise typer.Exit(130) from None
        _show(chapters[-1])
    title = "BVFIM, reproduced" + (" (quick sizes)" if quick else "")
    lead = "The experiments of Liu et al. (ICML 2021), run again: " + ", ".join(chosen) + "."
    _page(out, title, lead, chapters)


@bench_app.command("speed")
def bench_speed(
    data: Annotated[str, typer.Option(help="The data set of the hyper-cleaning problem.")] = "mnist",
    rounds: Annotated[int, typer.Option(min=1, help="How many interleaved rounds.")] = speed.Config.rounds,
    steps: Annotated[int, typer.Option(min=1, help="Upper steps in one timing.")] = speed.Config.steps,
    seconds: Annotated[float, typer.Option(min=0, help="Train each so long for accuracy and F1.")] = 0.0,
    peers: Annotated[bool, typer.Option(help="Time other libraries too, where they are installed.")] = True,
    only: Annotated[str, typer.Option(help="Time only those whose names have one of these in them: CG,Neumann.")] = "",
    device: Annotated[str, typer.Option(help="Where to compute: cpu, cuda, cuda:1.")] = "cpu",
    tf32: Annotated[bool, typer.Option(help="Round the inputs of float32 products to TF32, for all.")] = False,
    out: Out = Path("out/bench"),
) -> None:
    """Time an upper step of every method beside a bare hand-written loop, other libraries, and the matrix products."""
    _require_device(device)
    config = speed.Config(data, steps=steps, rounds=rounds, seconds=seconds, peers=peers, device=device, tf32=tf32)
    config = replace(config, only=tuple(part.strip() for part in only.split(",") if part.strip()))
    if data == "digits":
        config = replace(config, train=600, validation=600)
    results = speed.run(config, _track("timing"))
    lead = "An upper step of hyper-cleaning: every method, a bare loop, other libraries, and the hardware's floor."
    _report("bvfim bench speed", lead, "speed", config, results, out)


@bench_app.command("growth")
def bench_growth(
    inputs: Annotated[int, typer.Option(min=1, help="The length of a row: 784 as MNIST's, 3072 as CIFAR-10's.")] = 784,
    device: Annotated[str, typer.Option(help="Where to compute; a GPU gets sizes up to 1e8.")] = "cpu",
    tf32: Annotated[bool, typer.Option(help="Round the inputs of float32 products to TF32.")] = False,
    quick: Annotated[bool, typer.Option(help="Smaller sizes, to see that it runs.")] = False,
    resume: Annotated[bool, typer.Option(help="Go on with a run that was interrupted, in the same folder.")] = False,
    out: Out = Path("out/growth"),
) -> None:
    """Measure how time and memory of an upper step grow with the lower variables, the samples and the lower steps."""
    _require_device(device)
    config = growth.Config(inputs=inputs, device=device, tf32=tf32).sized(quick)
    results = growth.run(config, How(_prepared(out) / "parts", resume, track=_parts("measuring")))
    lead = "Time and memory of an upper step of every method, while one size grows."
    _report("bvfim bench growth", lead, "growth", config, results, out)


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
    lead = "Problems with known optima, by several methods from the same starts."
    results = problems.run(config, _track("solving"))
    _report("bvfim bench problems", lead, "problems", config, results, out)


@bench_app.command("labels")
def bench_labels(
    data: Annotated[str | None, typer.Option(help=f"With commas: {', '.join(labels.Config.data)}.")] = None,
    trusted: Annotated[str | None, typer.Option(help="The sizes of the trusted set, with commas: 50,500.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many draws of rows and noise.")] = labels.Config.seeds,
    seed: Annotated[int, typer.Option(min=0, help="Of the first of them.")] = labels.Config.seed,
    quick: Annotated[bool, typer.Option(help="Digits with two trusted sets, to see that it runs.")] = False,
    resume: Annotated[bool, typer.Option(help="Go on with a run that was interrupted, in the same folder.")] = False,
    workers: Workers = 2,
    out: Out = Path("out/labels"),
) -> None:
    """Find wrong labels with LabelCleaner, its parts, cleanlab and simpler ways, on the same rows."""
    config = labels.Config(seeds=seeds, seed=seed)
    if data is not None:
        config = replace(config, data=tuple(name.strip() for name in data.split(",")))
    if trusted is not None:
        config = replace(config, trusted=_sizes(trusted))
    how = How(_prepared(out) / "parts", resume, workers, _parts("cleaning"))
    config = config.quick() if quick else config
    lead = "Labels of which some are wrong, by several ways to find them, on the same rows."
    _report("bvfim bench labels", lead, "labels", config, labels.run(config, how), out)


def _sizes(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise DataError(f"--trusted {text}: these are no whole numbers") from error


def _chosen(names: Sequence[str]) -> dict[str, ModuleType]:
    unknown = [name for name in names if name not in EXPERIMENTS and name != "all"]
    if unknown:
        raise DataError(no_such("experiment", unknown[0], [*EXPERIMENTS, "all"]))
    modules = [module for name in (EXPERIMENTS if "all" in names else names) for module in EXPERIMENTS[name]]
    return {module.__name__.rsplit(".", 1)[-1]: module for module in modules}


def _own(chosen: dict[str, ModuleType], options: dict[str, Any]) -> dict[str, Any]:
    """The options that were given, which every chosen experiment must have."""
    given = {
        key: tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else value
        for key, value in options.items()
        if value is not None
    }
    for name, module in chosen.items():
        for key in given:
            if key not in {field.name for field in fields(module.Config)}:
                raise DataError(f"--{key} is no option of {name}")
    return given


def _require_device(device: str) -> None:
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError) as error:
        raise DataError(f"--device {device}: {str(error).splitlines()[0]}") from error


def _parts(title: str) -> Any:
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


def _track(title: str) -> Any:
    def wrap(plan: Sequence[Any]) -> Iterator[Any]:
        return iter(track(plan, title, console=Console(stderr=True)))

    return wrap


def _prepared(out: Path) -> Path:
    """The folder, made before the work rather than after it."""
    out.mkdir(parents=True, exist_ok=True)
    return out


def _saved(name: str, config: Any, results: report.Results, out: Path) -> page.Chapter:
    report.save(results, config, out)
    return page.Chapter(name, config, results, out)


def _report(title: str, lead: str, name: str, config: Any, results: report.Results, out: Path) -> None:
    """Save one experiment with a page of its own, then show it: a reader who closes the pipe loses nothing."""
    chapter = _saved(name, config, results, out)
    _page(out, title, lead, [chapter])
    _show(chapter)


def _show(chapter: page.Chapter) -> None:
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


def _page(out: Path, title: str, lead: str, chapters: Sequence[page.Chapter]) -> None:
    console.print(f"page: {page.write(out / 'index.html', title, lead, chapters)}", soft_wrap=True, markup=False)


def main() -> None:
    """Run the command; errors of the library end in one sentence and exit code 2."""
    warnings.showwarning = lambda message, *_: Console(stderr=True).print(
        f"[yellow]warning:[/yellow] {escape(str(message))}", soft_wrap=True
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that workers end and the cursor comes back
    try:
        app()
    except (BvfimError, OSError) as error:
        Console(stderr=True).print(f"[red]error:[/red] {escape(str(error))}", soft_wrap=True)
        sys.exit(2)
