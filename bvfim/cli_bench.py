"""The commands ``bvfim bench``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from bvfim.bench import labels, problems, speed
from bvfim.experiments import growth
from bvfim.experiments.parts import How
from bvfim.terminal import Out, Workers, counts, listed, parts, prepared, reported, require_device, tracked

bench_app = typer.Typer(help="Measure the library against others and against itself.", no_args_is_help=True)


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
    require_device(device)
    config = speed.Config(data, steps=steps, rounds=rounds, seconds=seconds, peers=peers, device=device, tf32=tf32)
    config = replace(config, only=tuple(filter(None, listed(only))))
    if data == "digits":
        config = replace(config, train=600, validation=600)
    results = speed.run(config, tracked("timing"))
    lead = "An upper step of hyper-cleaning: every method, a bare loop, other libraries, and the hardware's floor."
    reported("bvfim bench speed", lead, "speed", config, results, out)


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
    require_device(device)
    config = growth.Config(inputs=inputs, device=device, tf32=tf32).sized(quick)
    results = growth.run(config, How(prepared(out) / "parts", resume, track=parts("measuring")))
    lead = "Time and memory of an upper step of every method, while one size grows."
    reported("bvfim bench growth", lead, "growth", config, results, out)


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
    out, names = prepared(out), tuple(dict.fromkeys(name.lower() for name in method or problems.Config.methods))
    config = problems.Config(names, tuple(problem or ()), planted, starts, steps, lr, seed, workers)
    if quick:
        config = replace(config, methods=("adaptivebvfim", "rhg"), starts=2, steps=100)
    lead = "Problems with known optima, by several methods from the same starts."
    results = problems.run(config, tracked("solving"))
    reported("bvfim bench problems", lead, "problems", config, results, out)


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
        config = replace(config, data=listed(data))
    if trusted is not None:
        config = replace(config, trusted=counts(trusted, "trusted"))
    how = How(prepared(out) / "parts", resume, workers, parts("cleaning"))
    config = config.quick() if quick else config
    lead = "Labels of which some are wrong, by several ways to find them, on the same rows."
    reported("bvfim bench labels", lead, "labels", config, labels.run(config, how), out)
