"""Few-shot learning: the paper's meta-learning table, every method on the same tasks for the same number of steps.

Tasks of other classes judge a network: a fresh head is fitted to each by gradient descent, with the step size and the
number of steps that do best on validation classes, unless they are given. A run saves itself as it goes; one that was
stopped is resumed.
"""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass, replace
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
from bvfim.experiments.fewshot_model import FITS, accuracies, fixed_moments, heads, network, problem
from bvfim.experiments.fewshot_report import results
from bvfim.experiments.parts import How, Part, finished, measured
from bvfim.report import Results
from bvfim.schedules import harmonic
from bvfim.status import DataError, require_known
from bvfim.words import slug

METHODS = ("RHG", "TRHG", "BDA", "BVFIM")
"""The methods of the paper's table, in its order."""
EXTRA = ("BVFIM-printed", "BVFIM-barrier")
"""What else can be asked for: the settings as they are printed, and the theorem's barrier."""
TASKS = {"omniglot": 16, "cifar-fs": 4, "miniimagenet": 4}
"""The tasks of a draw, as in the paper, which has no CIFAR-FS."""
TURNED = {"omniglot": {"train": 8, "validation": 4, "test": 4}}
"""Characters that are turned count as further ones, and to learn from, so do mirrored ones."""
JUDGED = 10
"""The tasks that are judged at once."""


@dataclass(frozen=True)
class Config:
    """The runs.

    Args:
        data: names of :data:`bvfim.data.fewshot.NAMES`.
        ways, shots: N and M, each any number of them.
        train_ways: classes of a task to learn from, where they are not those of the tasks to judge by: one network
            then serves all of ``ways``. Tasks of more classes teach more (Snell et al., Prototypical networks for
            few-shot learning, 2017).
        methods: of :data:`METHODS` and :data:`EXTRA`.
        steps: upper steps of a run; the paper takes 50,000.
        queries: images of a class in F.
        tasks: of a draw; those of :data:`TASKS` where it is ``None``.
        width: filters of a block.
        T: lower steps of RHG, TRHG (which goes back through half of them) and BDA.
        lr: size of the lower steps of every method at 5-way; more classes have larger ones.
        x_lr: of Adam, which moves x; it falls to zero along a cosine.
        episodes: test tasks, and as many validation tasks.
        moved: whether each image to learn from is shifted, turned and stretched a little, at random.
        fit: step size and number of steps that fit a head to a test task; where it is ``None``, those that do best on
            validation classes. Where it is given, these have nothing to choose, and are learned from too, as Snell et
            al. do in the end.
        every: steps between two checkpoints; one is also written every minute.
        log: whether the runs are logged for TensorBoard.
        seed: of the network and the draws.
        device: where to compute.

    Example:
        >>> from bvfim.experiments.fewshot import Config
        >>> Config().quick().methods
        ('BVFIM',)
    """

    data: tuple[str, ...] = ("omniglot",)
    ways: tuple[int, ...] = (5,)
    shots: tuple[int, ...] = (1,)
    train_ways: int | None = None
    methods: tuple[str, ...] = METHODS
    steps: int = 1000
    queries: int = 15
    tasks: int | None = None
    width: int = 64
    T: int = 5
    lr: float = 0.1
    x_lr: float = 1e-3
    episodes: int = 1000
    moved: bool = False
    fit: tuple[float, int] | None = None
    every: int = 1000
    log: bool = False
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        known = (("data set", self.data, fewshot.NAMES), ("method", self.methods, (*METHODS, *EXTRA)))
        for what, given, names in known:
            require_known(what, given or ("",), names)
        for name in ("ways", "shots"):
            if not getattr(self, name):
                raise DataError(f"{name} is empty")
        for name in ("steps", "episodes"):
            if getattr(self, name) < 1:
                raise DataError(f"{name} must be at least 1, not {getattr(self, name)!r}")
        lr, steps = self.fit or (1.0, 1)
        if not (0 < lr < math.inf and isinstance(steps, int) and steps >= 1):
            raise DataError(f"fit must be a step size above 0 and at least 1 step, not {self.fit!r}")
        for ways, shots in product((*self.ways, *self._other_ways), self.shots):
            Shape(ways, shots, self.queries, 1 if self.tasks is None else self.tasks)

    @property
    def _other_ways(self) -> tuple[int, ...]:
        return () if self.train_ways is None else (self.train_ways,)

    @property
    def served(self) -> list[tuple[int, ...]]:
        """The ways that each network is judged by."""
        return [self.ways] if self._other_ways else [(ways,) for ways in self.ways]

    def quick(self) -> Config:
        """Smaller, to see that it learns: a minute on two cores. What was asked for by name stays."""
        own = ("BVFIM",) if self.methods == METHODS else self.methods
        steps = 200 if self.steps == Config.steps else self.steps
        queries = 5 if self.queries == Config.queries else self.queries
        return replace(self, methods=own, steps=steps, queries=queries, tasks=4, width=32, episodes=100, every=50)


def method(label: str, shape: Shape, config: Config) -> bvfim.Estimator:
    """A method with its settings for draws of this shape.

    f is a sum over the tasks, and so is the slack that tau is held against. For a task it is a mean over the classes:
    the more there are, the larger the lower steps.
    """
    T, start, tasks, lr = config.T, "restart", shape.tasks, config.lr * shape.ways / 5
    inner: dict[str, Any] = {"z_steps": 5, "y_steps": 10, "start": "z"}
    steady: dict[str, Any] = {"z_lr": lr, "y_lr": lr, "mu1": 0.1, "theta": 0.1, "tau": 0.4 * tasks, **inner}
    printed: dict[str, Any] = {"mu1": harmonic(1.0), "theta": harmonic(0.1), "tau": harmonic(10.0), **inner}
    made = {
        "RHG": lambda: bvfim.RHG(T, lr, start=start, segment=T),
        "TRHG": lambda: bvfim.TRHG(T, max(T // 2, 1), lr, start=start, segment=T),
        "BDA": lambda: bvfim.BDA(T, lr, start=start, segment=T),
        "BVFIM": lambda: bvfim.BVFIM(mu2=bvfim.LowerValue(), **steady),
        "BVFIM-printed": lambda: bvfim.BVFIM(mu2=bvfim.LowerValue(), **printed),
        "BVFIM-barrier": lambda: bvfim.BVFIM(mu2=0.4 * tasks, **steady),
    }
    return made[label]()


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
    """The size of a draw from each part of a data set; what is judged has 15 queries, or as many as there are.

    Raises:
        DataError: when a part has too few classes or images.
    """
    data = _loaded(name)
    fewest = min(int(part.counts.min()) for part in (data.validation, data.test))
    judged = Shape(ways, shots, max(1, min(15, fewest - shots)), JUDGED)
    found = {"train": Shape(config.train_ways or ways, shots, config.queries, config.tasks or TASKS[name])}
    found |= {"validation": judged, "test": judged}
    for part, shape in found.items():
        require_enough(classes(name, part, config), shape, symmetries(name, part))
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
        scheduler=lambda adam: torch.optim.lr_scheduler.CosineAnnealingLR(adam, max(config.steps, 1)),
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
    course = course.groupby(np.arange(len(course)) * 100 // max(len(course), 1)).mean().reset_index(drop=True)
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
    if folder is not None and not going_on:
        shutil.rmtree(folder, ignore_errors=True)  # of a run with other settings, which is not to be mixed in
    parts: dict[str, Part] = {}
    for data, served, shots, label in product(config.data, config.served, config.shots, config.methods):
        for ways in served:
            shapes(data, ways, shots, config)  # what can't be drawn is said before hours of work
        name = slug(f"{data} {'-'.join(map(str, served))}-way {shots}-shot {label}")
        saved = None if folder is None else folder / f"{name}.safetensors"
        parts[name] = partial(cell, data, served, shots, label, config, saved, going_on)
    alone = How(how.folder, how.resume)  # each run has a bar of its own
    return results(config, pd.concat(measured(config, parts, alone).values(), ignore_index=True))
