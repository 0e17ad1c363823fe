"""The command ``bvfim``: it parses, calls and prints."""

from __future__ import annotations

import signal
import sys
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from bvfim.app import cli_advise, cli_clean
from bvfim.app.cli_bench import bench_app
from bvfim.app.terminal import (
    Device,
    Force,
    Out,
    Resume,
    Seed,
    Workers,
    console,
    counts,
    listed,
    parts,
    require_new,
    size_and_count,
)
from bvfim.status import BvfimError, DataError, Status, no_such
from bvfim.version import __version__

app = typer.Typer(
    help="Bilevel optimisation without Hessians.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(bench_app, name="bench")
app.command("clean")(cli_clean.clean)
app.command("advise")(cli_advise.advise)

EXPERIMENTS = {
    "toy": ("toy", "basins", "sizes"),
    "theorem": ("theorem",),
    "assumptions": ("assumptions",),
    "complexity": ("complexity",),
    "cleaning": ("hypercleaning",),
    "net": ("net",),
    "few-shot": ("fewshot",),
}
"""What ``bvfim reproduce`` knows, and the modules of :mod:`bvfim.reproduce.experiments` that make it up."""
CLEANING_DATA = ("mnist", "fashion-mnist", "cifar10", "digits", "digits-few")
FEW_SHOT_DATA = ("omniglot", "cifar-fs", "miniimagenet")
"""The data sets, named here too so that ``--help`` need not load them."""


def _version(value: bool) -> None:
    if value:
        console.print(f"bvfim {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def demo(out: Out = Path("out/demo"), workers: Workers = 2) -> None:
    """Solve the paper's toy problem with four methods, from one start and from 400, and write a report page.

    Takes under two minutes.
    """
    from bvfim.app.results import prepared, reported
    from bvfim.reproduce.experiments import demo as demo_experiment
    from bvfim.reproduce.experiments.resumable import How

    config = demo_experiment.Config()
    results = demo_experiment.run(config, How(prepared(out) / "parts", workers=workers, track=parts("solving")))
    lead = "Four methods on a bilevel problem with a non-convex lower level."
    reported("bvfim demo", lead, "demo", config, results, out)


@app.command()
def solve(
    file: Annotated[Path, typer.Argument(help="Python file that defines upper, lower, x and y.")],
    method: Annotated[str | None, typer.Option(help="Name of the method; overrides the file.")] = None,
    steps: Annotated[int | None, typer.Option(min=0, help="Maximum number of x updates; overrides the file.")] = None,
    tol: Annotated[float | None, typer.Option(min=0, help="Stopping tolerance, in the method's own measure.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=2**63 - 1, help="Random seed.")] = None,
    out: Annotated[Path | None, typer.Option(help="Output folder; out/<file name> by default.")] = None,
    force: Force = False,
    debug: Annotated[bool, typer.Option(help="Show the full traceback of an error.")] = False,
) -> None:
    """Solve the problem defined in a Python file, show its progress and save a report.

    Beside upper, lower, x and y, the file may define x_set, y_set, lower_constraints, lower_equalities,
    upper_constraints, upper_equalities, follower, context, joint, method, steps and optimizer: see docs/constraints.md.

    Exit codes: 0 done, 1 the run failed, 2 invalid input, 130 interrupted.
    """
    from bvfim.app import problem_file, problem_file_report
    from bvfim.app.live_table import LiveTable
    from bvfim.app.results import prepared, reported

    if seed is not None:
        problem_file.seed_everything(seed)
    try:
        stated = problem_file.load(file).changed(method, steps, tol, seed)
        out = Path("out", file.stem) if out is None else out
        require_new(out, problem_file_report.FILES, force)
        prepared(out)
        solution = problem_file.run(stated, [LiveTable()])
    except BvfimError:
        if debug:
            traceback.print_exc()
        raise
    out = out if force else problem_file_report.unused(out)
    problem_file_report.save_solution(solution, out / "solution.safetensors")
    config, results = (
        problem_file_report.settings(stated, solution, seed),
        problem_file_report.results(stated, solution),
    )
    title = f"{file.name}: {solution.status.value.replace('_', ' ')}"
    reported(title, str(solution), file.stem, config, results, out)
    if solution.status is Status.INTERRUPTED:
        raise typer.Exit(130)
    if not solution.status.ok:
        raise typer.Exit(1)


@app.command()
def reproduce(
    names: Annotated[list[str], typer.Argument(help=f"Experiments to run: {', '.join(EXPERIMENTS)}, or all.")],
    out: Out = Path("out"),
    seed: Seed = 0,
    quick: Annotated[bool, typer.Option(help="Use smaller sizes, except where an option sets them.")] = False,
    device: Device = "cpu",
    resume: Resume = False,
    workers: Workers = 2,
    data: Annotated[
        str | None,
        typer.Option(
            help=f"Data sets, comma-separated. cleaning: {', '.join(CLEANING_DATA)}; "
            f"few-shot: {', '.join(FEW_SHOT_DATA)}."
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(help="cleaning, few-shot: methods, comma-separated, e.g. RHG,BVFIM; all: those in the tables."),
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="cleaning: number of splits.")] = None,
    ways: Annotated[str | None, typer.Option(help="few-shot: number of classes per task, comma-separated.")] = None,
    shots: Annotated[
        str | None, typer.Option(help="few-shot: number of support images per class, comma-separated.")
    ] = None,
    train_ways: Annotated[
        int | None, typer.Option(help="few-shot: number of classes per training task, if not --ways.")
    ] = None,
    queries: Annotated[
        int | None, typer.Option(help="few-shot: number of query images per class, on which F is computed.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="toy, cleaning, few-shot: upper steps per run.")] = None,
    fit: Annotated[
        str | None,
        typer.Option(
            help="few-shot: step size and number of steps for fitting a test head, e.g. 0.1,10. With no setting left "
            "to select, the validation classes are used for training, too."
        ),
    ] = None,
    moved: Annotated[
        bool | None,
        typer.Option("--moved", help="few-shot: slightly shift, rotate and scale the training images."),
    ] = None,
    log: Annotated[bool | None, typer.Option("--log", help="few-shot: log the runs for TensorBoard.")] = None,
) -> None:
    """Rerun the paper's experiments and report our numbers next to the paper's, on one page."""
    from bvfim.app.results import paged, prepared, require_device, saved, show
    from bvfim.reproduce.experiments.resumable import How

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
            Console(stderr=True).print("stopped; finished parts are saved: add --resume to this command to continue")
            raise typer.Exit(130) from None
        show(chapters[-1])
    title = "BVFIM, reproduced" + (" (quick sizes)" if quick else "")
    lead = "The experiments of Liu et al. (ICML 2021), rerun: " + ", ".join(chosen) + "."
    paged(out, title, lead, chapters)


def _chosen(names: Sequence[str], device: str) -> dict[str, ModuleType]:
    unknown = [name for name in names if name not in EXPERIMENTS and name != "all"]
    if unknown:
        raise DataError(no_such("experiment", unknown[0], [*EXPERIMENTS, "all"]))
    asked = list(EXPERIMENTS) if "all" in names else list(names)
    if device == "cpu" and "few-shot" not in names and "few-shot" in asked:
        console.print("skipping few-shot, which takes hours on a CPU (a minute with --quick); name it to run it")
        asked.remove("few-shot")
    found: dict[str, ModuleType] = {}
    for name in asked:
        own = EXPERIMENTS[name]
        found |= {
            name if len(own) == 1 else module: import_module(f"bvfim.reproduce.experiments.{module}") for module in own
        }
    return found


def _configs(chosen: dict[str, ModuleType], asked: dict[str, Any], quick: bool, **common: Any) -> dict[str, Any]:
    """The settings of each experiment; what was asked for, which all of them must have, stays as it is."""
    found: dict[str, Any] = {}
    for name, module in chosen.items():
        config = module.Config(**common)
        known = {field.name for field in fields(config)}
        for key in asked:
            if key not in known:
                raise DataError(f"--{key.replace('_', '-')} does not apply to {name}")
        every = {"methods": config.methods} if asked.get("methods") == ("all",) else {}
        found[name] = replace(config.quick() if quick else config, **{**asked, **every})
    return found


def run() -> None:
    """Run the command; errors raised by the library are printed as one sentence, with exit code 2."""
    warnings.showwarning = lambda message, *_: Console(stderr=True).print(
        f"[yellow]warning:[/yellow] {escape(str(message))}", soft_wrap=True
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that workers end and the cursor comes back
    try:
        app()
    except (BvfimError, OSError) as error:
        Console(stderr=True).print(f"[red]error:[/red] {escape(str(error))}", soft_wrap=True)
        sys.exit(2)
