"""The commands ``bvfim bench``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from bvfim.app.terminal import Device, Out, Resume, Seed, Workers, counts, listed, parts, tracked

LABEL_DATA = ("digits", "mnist", "fashion-mnist", "cifar10n")
"""The data sets of ``bvfim bench labels``, named here too so that ``--help`` need not load them."""

COLLECTIONS = ("plain", "constrained", "coupled", "pessimistic", "unattained")
"""The collections of test problems, likewise."""

bench_app = typer.Typer(help="Benchmark the library against others and against itself.", no_args_is_help=True)


@bench_app.command("speed")
def bench_speed(
    data: Annotated[str, typer.Option(help="Data set of the hyper-cleaning problem.")] = "mnist",
    rounds: Annotated[int, typer.Option(min=1, help="Number of interleaved rounds.")] = 7,
    steps: Annotated[int, typer.Option(min=1, help="Upper steps per timing.")] = 1,
    seconds: Annotated[
        float, typer.Option(min=0, help="Also train each loop for this long, to report accuracy and F1.")
    ] = 0.0,
    peers: Annotated[bool, typer.Option(help="Also time other libraries, if installed.")] = True,
    only: Annotated[
        str, typer.Option(help="Time only loops whose name contains one of these, comma-separated, e.g. CG,Neumann.")
    ] = "",
    device: Device = "cpu",
    tf32: Annotated[bool, typer.Option(help="Round the inputs of float32 products to TF32, in every loop.")] = False,
    out: Out = Path("out/bench"),
) -> None:
    """Time an upper step of every method against a hand-written loop, other libraries and the matrix products alone."""
    from bvfim.app.results import reported, require_device
    from bvfim.reproduce.bench import speed

    require_device(device)
    config = speed.Config(data, steps=steps, rounds=rounds, seconds=seconds, peers=peers, device=device, tf32=tf32)
    config = replace(config, only=tuple(filter(None, listed(only))))
    if data == "digits":
        config = replace(config, train=600, validation=600)
    results = speed.run(config, tracked("timing"))
    lead = "One upper step of hyper-cleaning: every method, a bare loop, other libraries and the hardware limit."
    reported("bvfim bench speed", lead, "speed", config, results, out)


@bench_app.command("growth")
def bench_growth(
    inputs: Annotated[int, typer.Option(min=1, help="Input dimension: 784 as in MNIST, 3072 as in CIFAR-10.")] = 784,
    device: Annotated[str, typer.Option(help="Device: cpu, cuda or cuda:1; sizes go up to 1e8 on a GPU.")] = "cpu",
    tf32: Annotated[bool, typer.Option(help="Round the inputs of float32 matrix products to TF32.")] = False,
    quick: Annotated[bool, typer.Option(help="Use smaller sizes, to check that it runs.")] = False,
    resume: Resume = False,
    out: Out = Path("out/growth"),
) -> None:
    """Measure how the time and memory of an upper step grow with lower variables, samples and lower steps."""
    from bvfim.app.results import prepared, reported, require_device
    from bvfim.reproduce.experiments import growth
    from bvfim.reproduce.experiments.resumable import How

    require_device(device)
    config = growth.Config(inputs=inputs, device=device, tf32=tf32).sized(quick)
    results = growth.run(config, How(prepared(out) / "parts", resume, track=parts("measuring")))
    lead = "Time and memory of one upper step of every method, as one size grows."
    reported("bvfim bench growth", lead, "growth", config, results, out)


@bench_app.command("problems")
def bench_problems(
    method: Annotated[
        list[str] | None,
        typer.Option(help="Method; may be repeated. Those of five that can take the collection by default."),
    ] = None,
    problem: Annotated[list[str] | None, typer.Option(help="Test problem; may be repeated. All by default.")] = None,
    collection: Annotated[str, typer.Option(help=f"Collection of problems: {', '.join(COLLECTIONS)}.")] = "plain",
    planted: Annotated[int, typer.Option(min=0, help="Number of random problems with a planted optimum to add.")] = 0,
    starts: Annotated[int, typer.Option(min=1, help="Number of starts per problem.")] = 6,
    steps: Annotated[int, typer.Option(min=1, help="Number of upper steps for the estimators.")] = 100,
    lr: Annotated[float, typer.Option(min=0, help="Learning rate of Adam, which updates x for the estimators.")] = 0.1,
    seed: Seed = 0,
    workers: Annotated[int, typer.Option(min=1, help="Number of processes, one thread each.")] = 2,
    quick: Annotated[bool, typer.Option(help="Run two methods from two starts, to check that it runs.")] = False,
    out: Out = Path("out/problems"),
) -> None:
    """Solve problems with known optima with several methods from the same starts, and count gradients."""
    from bvfim.app.results import prepared, reported
    from bvfim.reproduce.bench import problems

    out = prepared(out)
    names = tuple(dict.fromkeys(name.lower() for name in method or problems.able(problems.Config.methods, collection)))
    config = problems.Config(names, tuple(problem or ()), planted, starts, steps, lr, seed, workers, collection)
    if quick:
        quickest = problems.able(("adaptivebvfim", "rhg"), collection)
        config = replace(config, methods=quickest, starts=2, steps=100)
    lead = "Several methods on problems with known optima, from the same starts."
    results = problems.run(config, tracked("solving"))
    reported("bvfim bench problems", lead, "problems", config, results, out)


@bench_app.command("labels")
def bench_labels(
    data: Annotated[str | None, typer.Option(help=f"Data sets, comma-separated: {', '.join(LABEL_DATA)}.")] = None,
    trusted: Annotated[str | None, typer.Option(help="Sizes of the trusted set, comma-separated, e.g. 50,500.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of draws of rows and noise.")] = 3,
    seed: Seed = 0,
    quick: Annotated[bool, typer.Option(help="Run digits with two trusted sets, to check that it runs.")] = False,
    resume: Resume = False,
    workers: Workers = 2,
    out: Out = Path("out/labels"),
) -> None:
    """Compare LabelCleaner, its ablations, cleanlab and simpler baselines at finding wrong labels in the same rows."""
    from bvfim.app.results import prepared, reported
    from bvfim.reproduce.bench import labels
    from bvfim.reproduce.experiments.resumable import How

    config = labels.Config(seeds=seeds, seed=seed)
    if data is not None:
        config = replace(config, data=listed(data))
    if trusted is not None:
        config = replace(config, trusted=counts(trusted, "trusted"))
    how = How(prepared(out) / "parts", resume, workers, parts("cleaning"))
    config = config.quick() if quick else config
    lead = "Several ways to find wrong labels, on the same rows."
    reported("bvfim bench labels", lead, "labels", config, labels.run(config, how), out)


@bench_app.command("time-to-result")
def bench_time_to_result(
    data: Annotated[
        str | None,
        typer.Option(help="Data sets, comma-separated: mnist, fashion-mnist, cifar10 (all by default), digits."),
    ] = None,
    splits: Annotated[int, typer.Option(min=1, help="Number of splits; settings are chosen on one more.")] = 5,
    budget: Annotated[
        float, typer.Option(min=1, help="Time of each rival, as a multiple of our run's seconds.")
    ] = 10.0,
    only: Annotated[
        str, typer.Option(help="Run only rivals whose name contains one of these, comma-separated, e.g. RHG,Betty.")
    ] = "",
    device: Device = "cpu",
    quick: Annotated[bool, typer.Option(help="Run digits with two settings a rival, to check that it runs.")] = False,
    resume: Resume = False,
    out: Out = Path("out/time-to-result"),
) -> None:
    """Plot accuracy and F1 of hyper-cleaning over seconds and epochs: StochasticBVFIM and its rivals, each tuned.

    StochasticBVFIM runs at its defaults. Its rivals are nested BVFIM, RHG, CG,
    Neumann, one-step unrolling, Betty, BOAT, TorchOpt and a plain network on the
    trusted rows. Each tries nine settings on split 0, and runs on the other
    splits with those that are best on held-out rows. Libraries that are not
    installed are left out. All by default takes 3 data sets x 9 rivals x about
    145 times the seconds of one run of StochasticBVFIM.
    """
    from bvfim.app.results import prepared, reported, require_device
    from bvfim.reproduce.bench import time_to_result
    from bvfim.reproduce.experiments.resumable import How

    require_device(device)
    config = time_to_result.Config(splits=splits, budget=budget, only=tuple(filter(None, listed(only))), device=device)
    if data is not None:
        config = replace(config, data=listed(data))
    config = config.quick() if quick else config
    results = time_to_result.run(config, How(prepared(out) / "parts", resume, track=parts("racing")))
    lead = "Accuracy and F1 of hyper-cleaning against the clock: StochasticBVFIM and its rivals."
    reported("bvfim bench time-to-result", lead, "time-to-result", config, results, out)


@bench_app.command("rivals")
def bench_rivals(
    only: Annotated[
        str,
        typer.Option(help="Run only jobs whose name or kind contains one of these, separated by semicolons."),
    ] = "",
    methods: Annotated[str, typer.Option(help="Methods, comma-separated, e.g. rhg,meha; all by default.")] = "",
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds to compare on; settings are chosen on 0.")] = 1,
    budget_scale: Annotated[float, typer.Option(help="CPU seconds of a run, as a multiple of its job's budget.")] = 1.0,
    tries: Annotated[int, typer.Option(min=1, max=4, help="Settings of a method, its defaults among them.")] = 3,
    quick: Annotated[bool, typer.Option(help="Run two small jobs for a moment, to check that it runs.")] = False,
    resume: Resume = False,
    out: Out = Path("out/rivals"),
) -> None:
    """Run every method on seven kinds of jobs for the same CPU seconds: by default and with the best of a few settings.

    What counts is what a judge gives for x alone, the same for all. Seven kinds
    of jobs are the paper's toy, test problems with known optima, a penalty for
    each feature, hyper-cleaning, few-shot learning, distillation, and the search
    for an architecture. One core and all defaults take about two hours.
    """
    from bvfim.app.results import prepared, reported
    from bvfim.reproduce.bench import contest
    from bvfim.reproduce.experiments.resumable import How

    names = tuple(filter(None, (part.strip() for part in only.split(";"))))
    config = contest.Config(names, tuple(filter(None, listed(methods))), seeds, budget_scale, tries)
    config = config.quick() if quick else config
    results = contest.run(config, How(prepared(out) / "parts", resume, track=parts("running")))
    lead = "Every method of the library on the same jobs, for the same seconds."
    reported("bvfim bench rivals", lead, "rivals", config, results, out)
    contest.keep(out / "rivals.json", results, config)
