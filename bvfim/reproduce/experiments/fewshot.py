"""Few-shot learning: the paper's meta-learning table, every method on the same tasks for the same number of steps.

Tasks of other classes judge a network: a fresh head is fitted to each by gradient descent, with the step size and the
number of steps that do best on validation classes, unless they are given. A run saves itself as it goes; one that was
stopped is resumed.
"""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import bvfim
from bvfim.callbacks import Checkpoint, ProgressBar, TensorBoard
from bvfim.data import fewshot
from bvfim.data.episodes import Episodes, Shape, require_enough
from bvfim.reports.describe import slug
from bvfim.reports.report import Results
from bvfim.reproduce.experiments.fewshot_model import FITS, accuracies, fixed_moments, heads, network, problem
from bvfim.reproduce.experiments.fewshot_report import results
from bvfim.reproduce.experiments.fewshot_settings import TASKS, TURNED, Config, method
from bvfim.reproduce.experiments.resumable import How, Part, finished, measured
from bvfim.status import DataError

JUDGED = 10
"""The tasks that are judged at once."""


@cache
def _loaded(name: str) -> fewshot.FewShot:
    return fewshot.load(name)


def classes(name: str, part: str, config: Config) -> fewshot.ClassImages:
    """The classes of a part; where no fit is to be chosen, those of validation are learned from too."""
    if part == "train" and config.fit is not None:
        return _both(name)
    found: fewshot.ClassImages = getattr(_loaded(name), part)
    return found


@cache
def _both(name: str) -> fewshot.ClassImages:
    data = _loaded(name)
    return fewshot.joined(data.train, data.validation)


def symmetries(name: str, part: str) -> int:
    """How many classes a class of this part makes."""
    return TURNED.get(name, {}).get(part, 1)


def shapes(name: str, ways: int, shots: int, config: Config) -> dict[str, Shape]:
    """The size of a draw from each part of a data set that is drawn from.

    To judge by there are 15 queries, or as many as there are.

    Raises:
        DataError: when a part has too few classes or images.
    """
    found = {"train": Shape(config.train_ways or ways, shots, config.queries, config.tasks or TASKS[name])}
    others = ("validation", "test") if config.fit is None else ("test",)
    fewest = min(int(classes(name, part, config).counts.min()) for part in others)
    found |= dict.fromkeys(others, Shape(ways, shots, max(1, min(15, fewest - shots)), JUDGED))
    for part, shape in found.items():
        try:
            require_enough(classes(name, part, config), shape, symmetries(name, part))
        except DataError as error:
            raise DataError(f"the {part} classes of {name}: {error}") from None
    return found


def stream(name: str, part: str, shape: Shape, config: Config) -> Episodes:
    """The draws from one part of a data set."""
    seed = (3 * config.seed + ("train", "validation", "test").index(part)) % 2**63
    return Episodes(
        classes(name, part, config),
        shape,
        symmetries=symmetries(name, part),
        moved=config.moved and part == "train",
        seed=seed,
        device=config.device,
    )


def train(name: str, ways: int, shots: int, label: str, config: Config, saved: Path | None, resume: bool) -> Any:
    """The end of one run, which goes on from what was saved where it is asked to."""
    shape = shapes(name, ways, shots, config)["train"]
    x = network(_loaded(name).train.pixels.shape[1], config.width, config.seed, config.device)
    callbacks: list[Any] = [ProgressBar(f"{name} {shape.ways}-way {shots}-shot {label}")]
    if saved is not None:
        callbacks.append(Checkpoint(saved, config.every, minutes=1.0))
        callbacks += [TensorBoard(saved.with_suffix(""))] if config.log else []
    solution = bvfim.solve(
        problem(),
        x,
        heads(x, shape.tasks, shape.ways),
        method(label, shape, config),
        partial(torch.optim.Adam, lr=config.x_lr, fused=config.device != "cpu"),
        steps=config.steps,
        batches=stream(name, "train", shape, config),
        callbacks=callbacks,
        scheduler=lambda adam: torch.optim.lr_scheduler.CosineAnnealingLR(adam, config.steps),
        resume=saved if resume and saved is not None and saved.exists() else None,
    )
    finished(solution)
    return solution


def judged(name: str, ways: int, shots: int, x: Any, config: Config) -> dict[str, Any]:
    """Accuracy on test tasks in per cent with its 95 per cent interval, and the fit, given or chosen.

    Twice: with the images of a task normalised together, and by the moments of training images, on the same tasks.
    """
    own = shapes(name, ways, shots, config)
    shape = own["test"]
    fit, validation = config.fit, math.nan
    if fit is None:
        tried = accuracies(x, stream(name, "validation", shape, config), config.episodes, FITS)
        fit = max(tried, key=lambda fit: float(tried[fit].mean()))
        validation = 100 * float(tried[fit].mean())
    lr, steps = fit
    seen = next(stream(name, "train", replace(own["train"], tasks=JUDGED), replace(config, moved=False)))
    moments = fixed_moments(x, torch.cat([seen.support, seen.query], 1))
    found, alone = (
        100 * accuracies(x, stream(name, "test", shape, config), config.episodes, {lr: (steps,)}, by)[fit]
        for by in ((), moments)
    )
    return {
        "accuracy": float(found.mean()),
        "interval": 1.96 * float(found.std()) / math.sqrt(len(found)),
        "each alone": float(alone.mean()),
        "episodes": len(found),
        "validation": validation,
        "fit lr": lr,
        "fit steps": steps,
    }


def cell(
    name: str, served: tuple[int, ...], shots: int, label: str, config: Config, saved: Path | None, resume: bool
) -> pd.DataFrame:
    """One run: its course in 100 means of F, and what came of it for each number of ways that it serves."""
    solution = train(name, served[0], shots, label, config, saved, resume)
    course = solution.history[["step", "upper", "seconds"]].rename(columns={"seconds": "at"})
    course = course.groupby(np.arange(len(course)) * 100 // len(course)).mean().reset_index(drop=True)
    about = {"data": name, "shots": shots, "method": label, "steps": solution.steps, "note": _loaded(name).note}
    about |= {"status": solution.status.value, "seconds": solution.seconds, "ms": _median_ms(solution.history)}
    about |= {"train ways": config.train_ways or served[0]}
    return pd.concat(
        [course.assign(**about, ways=ways, **judged(name, ways, shots, solution.x, config)) for ways in served]
    )


def _median_ms(history: pd.DataFrame) -> float:
    """Of the time between two steps; the first ones set up, and a resumed run has a few long ones."""
    return 1e3 * float(history["seconds"].diff().median())


def run(config: Config, how: How = How()) -> Results:
    """Train, judge and report.

    Args:
        config: the settings.
        how: where runs are saved as they go. They share no machine: one process takes them one after another.
    """
    folder = None if how.folder is None else how.folder.parent / "runs"
    going_on = how.resume and how.folder is not None and (how.folder / "config.json").exists()
    parts: dict[str, Part] = {}
    for data, served, shots, label in product(config.data, config.served, config.shots, config.methods):
        for ways in served:
            shapes(data, ways, shots, config)  # what can't be drawn is said before hours of work
        name = slug(f"{data} {'-'.join(map(str, served))}-way {shots}-shot {label}")
        saved = None if folder is None else folder / f"{name}.safetensors"
        parts[name] = partial(cell, data, served, shots, label, config, saved, going_on)
    if folder is not None and not going_on:
        shutil.rmtree(folder, ignore_errors=True)  # of a run with other settings, which is not to be mixed in
    alone = How(how.folder, how.resume)  # each run has a bar of its own
    return results(config, pd.concat(measured(config, parts, alone).values(), ignore_index=True))
