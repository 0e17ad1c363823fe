"""The settings of the few-shot experiment: its runs, and the methods as they are run on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import bvfim
from bvfim.data import fewshot
from bvfim.data.episodes import Shape
from bvfim.schedules import harmonic
from bvfim.status import DataError, require_known

METHODS = ("RHG", "TRHG", "BDA", "BVFIM")
"""The methods of the paper's table, in its order."""
EXTRA = ("BVFIM-printed", "BVFIM-barrier")
"""What else can be asked for: the settings as they are printed, and the theorem's barrier."""
TASKS = {"omniglot": 16, "cifar-fs": 4, "miniimagenet": 4}
"""The tasks of a draw, as in the paper, which has no CIFAR-FS."""
TURNED = {"omniglot": {"train": 8, "validation": 4, "test": 4}}
"""Characters that are turned count as further ones, and to learn from, so do mirrored ones."""


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
        lr: size of the lower steps at 5-way; more classes have larger ones. ``BVFIM-printed`` has its own.
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
        >>> from bvfim.reproduce.experiments.fewshot_settings import Config
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
        for name in ("steps", "episodes", "width", "T"):
            if getattr(self, name) < 1:
                raise DataError(f"{name} must be at least 1, not {getattr(self, name)!r}")
        lr, steps = self.fit or (1.0, 1)
        if not (0 < lr <= 1000 and isinstance(steps, int) and steps >= 1):
            raise DataError(f"fit must be a step size between 0 and 1000 and at least 1 step, not {self.fit!r}")
        learned = self.ways if self.train_ways is None else (self.train_ways,)
        for ways, shots in product((*self.ways, *learned), self.shots):
            Shape(ways, shots, self.queries, 1 if self.tasks is None else self.tasks)

    @property
    def served(self) -> list[tuple[int, ...]]:
        """The ways that each network is judged by."""
        return [(ways,) for ways in self.ways] if self.train_ways is None else [self.ways]

    def quick(self) -> Config:
        """Smaller, to see that it learns: a minute on two cores."""
        return replace(self, methods=("BVFIM",), steps=200, queries=5, tasks=4, width=32, episodes=100, every=50)


def method(label: str, shape: Shape, config: Config) -> bvfim.Estimator:
    """A method with its settings for draws of this shape.

    f is a sum over the tasks, and so is the slack that tau is held against. For a task it is a mean over the classes:
    the more there are, the larger the lower steps.
    """
    T, start, tasks, lr = config.T, "restart", shape.tasks, config.lr * shape.ways / 5
    inner: dict[str, Any] = {"z_steps": 5, "y_steps": 10, "start": "z"}
    steady: dict[str, Any] = {"z_lr": lr, "y_lr": lr, "mu1": 0.1, "theta": 0.1, "tau": 0.4 * tasks, **inner}
    printed: dict[str, Any] = {"mu1": harmonic(1.0), "theta": harmonic(0.1), "tau": harmonic(10.0), **inner}
    printed |= {"z_lr": 0.01, "y_lr": 0.01}
    made: dict[str, Callable[[], bvfim.Estimator]] = {
        "RHG": lambda: bvfim.RHG(T, lr, start=start, segment=T),
        "TRHG": lambda: bvfim.TRHG(T, max(T // 2, 1), lr, start=start, segment=T),
        "BDA": lambda: bvfim.BDA(T, lr, start=start, segment=T),
        "BVFIM": lambda: bvfim.BVFIM(mu2=bvfim.LowerValue(), **steady),
        "BVFIM-printed": lambda: bvfim.BVFIM(mu2=bvfim.LowerValue(), **printed),
        "BVFIM-barrier": lambda: bvfim.BVFIM(mu2=0.4 * tasks, **steady),
    }
    return made[label]()
