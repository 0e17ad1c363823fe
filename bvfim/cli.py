"""The command ``bvfim``: it parses, calls and prints."""

from __future__ import annotations

import random
import signal
import sys
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import numpy as np
import torch
import typer
from rich.console import Console
from rich.markup import escape

import bvfim
from bvfim import cli_clean, script, script_report
from bvfim.cli_bench import bench_app
from bvfim.data.fewshot import NAMES
from bvfim.experiments import assumptions, basins, complexity, fewshot, hypercleaning, net, sizes, theorem, toy
from bvfim.experiments import demo as demo_experiment
from bvfim.experiments.cleaning_settings import DATA
from bvfim.experiments.parts import How
from bvfim.live import LiveTable
from bvfim.status import BvfimError, DataError, Status, no_such
from bvfim.terminal import (
    Out,
    Workers,
    console,
    counts,
    listed,
    paged,
    parts,
    prepared,
    reported,
    require_device,
    saved,
    show,
    size_and_count,
)

app = typer.Typer(help="Bilevel optimisation without Hessians.", no_args_is_help=True, pretty_exceptions_enable=False)
app.add_typer(bench_app, name="bench")
app.command("clean")(cli_clean.clean)

EXPERIMENTS: dict[str, tuple[ModuleType, ...]] = {
    "toy": (toy, basins, sizes),
    "theorem": (theorem,),
    "assumptions": (assumptions,),
    "complexity": (complexity,),
    "cleaning": (hypercleaning,),
    "net": (net,),
    "few-shot": (fewshot,),
}
"""What ``bvfim reproduce`` knows, and the modules that make it up."""

Seed = Annotated[int | None, typer.Option(min=0, max=2**63 - 1, help="Of everything that is random.")]


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
    results = demo_experiment.run(config, How(prepared(out) / "parts", workers=workers, track=parts("solving")))
    lead = "A bilevel problem whose lower level is not convex, by four methods."
    reported("bvfim demo", lead, "demo", config, results, out)


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
        out = prepared(Path("out", file.stem) if out is None else out)
        solution = script.run(stated, [LiveTable()])
    except BvfimError:
        if debug:
            traceback.print_exc()
        raise
    script_report.save_solution(solution, out / "solution.safetensors")
    config, results = script_report.settings(stated, solution, seed), script_report.results(stated, solution)
    title = f"{file.name}: {solution.status.value.replace('_', ' ')}"
    reported(title, str(solution), file.stem, config, results, out)
    if solution.status is Status.INTERRUPTED:
        raise typer.Exit(130)
    if not solution.status.ok:
        raise typer.Exit(1)


@app.command()
def reproduce(
    names: Annotated[list[str], typer.Argument(help=f"Which experiments: {', '.join(EXPERIMENTS)}, or all.")],
    out: Out = Path("out"),
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Of everything that is random.")] = 0,
    quick: Annotated[bool, typer.Option(help="Smaller sizes, where no option asks for others.")] = False,
    device: Annotated[str, typer.Option(help="Where to compute: cpu, cuda, cuda:1.")] = "cpu",
    resume: Annotated[bool, typer.Option(help="Go on with a run that was interrupted, in the same folder.")] = False,
    workers: Workers = 2,
    data: Annotated[
        str | None,
        typer.Option(help=f"With commas, of cleaning: {', '.join(DATA)}; of few-shot: {', '.join(NAMES)}."),
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="Of cleaning and few-shot, with commas: RHG,BVFIM; all: those of the tables.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Of cleaning: how many splits.")] = None,
    ways: Annotated[str | None, typer.Option(help="Of few-shot, with commas: the classes of a task.")] = None,
    shots: Annotated[
        str | None, typer.Option(help="Of few-shot, with commas: images of a class to learn from.")
    ] = None,
    train_ways: Annotated[
        int | None, typer.Option(help="Of few-shot: the classes of a task to learn from, if not those of --ways.")
    ] = None,
    queries: Annotated[
        int | None, typer.Option(help="Of few-shot: how many further images of each class F is taken over.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Of toy, cleaning, few-shot: upper steps of a run.")] = None,
    fit: Annotated[
        str | None,
        typer.Option(
            help="Of few-shot: step size and number of steps of a test head, as 0.1,10; nothing is left to choose by "
            "the validation classes, which are learned from too."
        ),
    ] = None,
    moved: Annotated[
        bool | None, typer.Option("--moved", help="Of few-shot: shift, turn and stretch images to learn from a little.")
    ] = None,
    log: Annotated[bool | None, typer.Option("--log", help="Of few-shot: log the runs for TensorBoard.")] = None,
) -> None:
    """Run experiments of the paper and put our numbers beside its own, on one page."""
    chosen = _chosen(names, device)
    asked: dict[str, Any] = {
        name: listed(text) for name, text in (("data", data), ("methods", methods)) if text is not None
    }
    asked |= {name: counts(text, name) for name, text in (("ways", ways), ("shots", shots)) if text is not None}
    asked |= {} if fit is None else {"fit": size_and_count(fit, "fit")}
    single = {"seeds": seeds, "train_ways": train_ways, "queries": queries, "steps": steps, "moved": moved, "log": log}
    asked |= {name: value for name, value in single.items() if value is not None}
    configs = _configs(chosen, asked, quick, seed=seed, device=device)
    require_device(device)
    chapters = []
    for name, config in configs.items():
        console.rule(name)
        folder = prepared(out / name)
        how = How(folder / "parts", resume, workers if device == "cpu" else 1, parts(name))
        try:
            chapters.append(saved(name, config, chosen[name].run(config, how), folder))
        except KeyboardInterrupt:
            Console(stderr=True).print("stopped; what was measured is kept, and the same command with --resume goes on")
            raise typer.Exit(130) from None
        show(chapters[-1])
    title = "BVFIM, reproduced" + (" (quick sizes)" if quick else "")
    lead = "The experiments of Liu et al. (ICML 2021), run again: " + ", ".join(chosen) + "."
    paged(out, title, lead, chapters)


def _chosen(names: Sequence[str], device: str) -> dict[str, ModuleType]:
    unknown = [name for name in names if name not in EXPERIMENTS and name != "all"]
    if unknown:
        raise DataError(no_such("experiment", unknown[0], [*EXPERIMENTS, "all"]))
    asked = list(EXPERIMENTS) if "all" in names else list(names)
    if device == "cpu" and "few-shot" not in names and "few-shot" in asked:
        console.print("few-shot takes hours on a CPU, with --quick a minute: it is left out unless it is named")
        asked.remove("few-shot")
    found: dict[str, ModuleType] = {}
    for name in asked:
        own = EXPERIMENTS[name]
        found |= {name if len(own) == 1 else module.__name__.rsplit(".", 1)[-1]: module for module in own}
    return found


def _configs(chosen: dict[str, ModuleType], asked: dict[str, Any], quick: bool, **common: Any) -> dict[str, Any]:
    """The settings of each experiment; what was asked for, which all of them must have, stays as it is."""
    found: dict[str, Any] = {}
    for name, module in chosen.items():
        config = module.Config(**common)
        known = {field.name for field in fields(config)}
        for key in asked:
            if key not in known:
                raise DataError(f"--{key.replace('_', '-')} is no option of {name}")
        every = {"methods": config.methods} if asked.get("methods") == ("all",) else {}
        found[name] = replace(config.quick() if quick else config, **{**asked, **every})
    return found


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
