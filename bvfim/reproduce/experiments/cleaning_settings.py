"""What the hyper-cleaning experiment runs: data sets, sizes, methods and their settings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import bvfim
from bvfim.labels.network import falling
from bvfim.reproduce.experiments import cleaning
from bvfim.status import DataError, require_known

TABLE = ("RHG", "TRHG", "CG", "Neumann", "BDA", "BVFIM")
"""The methods of Table 3, in its order."""
FEW = ("FHG", "AdaptiveBVFIM")
"""The methods for problems with few enough weights."""
SINGLE = "StochasticBVFIM"
"""The single loop over batches, with nothing to tune."""
EXTRA = ("BVFIM-barrier", "BVFIM-adaptive", SINGLE)
"""What else can be asked for: the theorem's barrier, lower steps that find their own size, and the single loop."""
OWN_STEPS = ("AdaptiveBVFIM", SINGLE)
"""Methods that find their own lower steps."""


@dataclass(frozen=True)
class Size:
    """How large the problem on one data set is, how many upper steps it gets, and which lower steps are tried.

    Short rows bear longer steps. ``draws`` is the number of steps of the single loop, each on a ``batch`` of rows.
    """

    train: int = 5000
    validation: int = 5000
    test: int = 10_000
    hidden: int = 300
    steps: int = 100
    grid: tuple[float, ...] = (0.01, 0.03, 0.1)
    batch: int = 256
    draws: int = 365


PAPER = Size()
DATA = {
    "mnist": ("mnist", PAPER),
    "fashion-mnist": ("fashion-mnist", PAPER),
    "cifar10": ("cifar10", PAPER),
    "digits": ("digits", Size(400, 400, 355, 32, 16, (0.1, 0.3, 1.0), 64)),
    "digits-few": ("digits", Size(20, 400, 355, 8, 8, (0.1, 0.3, 1.0), 20)),
}
"""The problems by name: the data set and its sizes. The last has few enough weights for FHG."""
INPUTS = {"mnist": 784, "fashion-mnist": 784, "cifar10": 3072, "digits": 64}
COST = {"RHG": 2.1, "TRHG": 1.6, "BDA": 4.1, "CG": 1.35, "Neumann": 1.3, "FHG": 8.0, SINGLE: 0.04, "baselines": 0.2}
"""What a run costs beside BVFIM's, about: for the time that is left."""


@dataclass(frozen=True)
class Config:
    """The runs.

    Args:
        data: the problems, of :data:`DATA`.
        methods: of :data:`TABLE`, :data:`EXTRA` and :data:`FEW`.
        activations: of the network's hidden layer.
        seeds: how many splits, each with its own noise and start; the first is also the one that steps are tuned on.
        steps: upper steps; those of the problem's :class:`Size` where it is ``None``.
        x_lr: of Adam, which moves x.
        grid: the lower steps to choose from, the same for every method; as for steps where it is ``None``.
        T: lower gradients an upper step; BVFIM's T/2 on z and T/4 on y, each of these two gradients.
        J: steps of CG, terms of the Neumann series.
        regulariser, tau: mu1 and theta, and tau, of BVFIM at the first step; they fall by 1.01 a step.
        held: the share of the validation rows that is kept out of F, to choose steps by.
        every: upper steps between two looks at the run.
        tf32: whether float32 products may round their inputs to TF32 (a GPU's choice).
        seed: the first seed.
        device: where the tensors are.
    """

    data: tuple[str, ...] = ("digits", "digits-few")
    methods: tuple[str, ...] = (*TABLE, "BVFIM-adaptive", SINGLE, *FEW)
    activations: tuple[str, ...] = ("identity", "relu")
    seeds: int = 5
    steps: int | None = None
    x_lr: float = 0.03
    grid: tuple[float, ...] | None = None
    T: int = 100
    J: int = 20
    regulariser: float = 0.002
    tau: float = 1.0
    held: float = 0.1
    every: int = 4
    tf32: bool = True
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        for what, given, known in (("problem", self.data, DATA), ("method", self.methods, (*TABLE, *EXTRA, *FEW))):
            require_known(what, given or ("",), known)
        if not 0 < self.held < 1:
            raise DataError(f"held must lie between 0 and 1, not {self.held!r}")
        for problem in self.data:
            if not methods(problem, self):
                raise DataError(f"{problem} has too many weights for {' and '.join(self.methods)}")

    def quick(self) -> Config:
        """Smaller, to see that it runs."""
        return replace(self, seeds=min(self.seeds, 2), steps=5, grid=(0.1, 0.3), activations=("relu",))


def method(label: str, lr: float, config: Config) -> Any:
    """A method at one lower step."""
    T, J = config.T, config.J
    own = falling(config.regulariser, config.tau)
    published: dict[str, Any] = {**own, "mu2": bvfim.LowerValue()}
    made = {
        "FHG": lambda: bvfim.FHG(T, lr=lr),
        "AdaptiveBVFIM": lambda: bvfim.AdaptiveBVFIM(scouts=2),
        "RHG": lambda: bvfim.RHG(T, lr=lr, segment=T),
        "TRHG": lambda: bvfim.TRHG(T, T // 2, lr=lr, segment=T),
        "BDA": lambda: bvfim.BDA(T, lr=lr, segment=T),
        "CG": lambda: bvfim.CG(T, lr=lr, cg_steps=J),
        "Neumann": lambda: bvfim.Neumann(T, lr=lr, terms=J),
        "BVFIM": lambda: bvfim.BVFIM(T // 2, T // 4, lr, lr, **published),
        SINGLE: bvfim.StochasticBVFIM,
        "BVFIM-barrier": lambda: bvfim.BVFIM(T // 2, T // 4, lr, lr, **own),
        "BVFIM-adaptive": lambda: bvfim.BVFIM(T // 2, T // 4, **published, dynamics=bvfim.dynamics.Adaptive(lr)),
    }
    return made[label]()


def updates(problem: str, config: Config, label: str = "") -> int:
    """The upper steps of a run; the single loop's are short."""
    if label == SINGLE and config.steps is None:
        return DATA[problem][1].draws
    return DATA[problem][1].steps if config.steps is None else config.steps


def cost(problem: str, label: str, config: Config) -> float:
    """What a run costs beside others, about; the baselines do not depend on the upper steps."""
    name, size = DATA[problem]
    steps = size.steps if label == "baselines" else updates(problem, config)
    overhead = 2e6  # of launching T gradients, in the same unit
    return COST.get(label, 1.0) * steps * (overhead + (size.train + size.validation) * size.hidden * INPUTS[name])


def methods(problem: str, config: Config) -> tuple[str, ...]:
    """The methods for one problem: those of :data:`FEW` where x is short, and only there."""
    few = DATA[problem][1].train <= 100
    return tuple(label for label in dict.fromkeys(config.methods) if few or label not in FEW)


def grid(problem: str, label: str, config: Config) -> tuple[float, ...]:
    """The lower steps to choose from; a method that finds its own has nothing to choose."""
    steps = DATA[problem][1].grid if config.grid is None else config.grid
    return steps[:1] if label in OWN_STEPS else steps


@lru_cache(maxsize=2)
def task(problem: str, activation: str, seed: int, config: Config) -> cleaning.Task:
    """The problem of one seed."""
    name, size = DATA[problem]
    return cleaning.problem(
        name,
        train=size.train,
        validation=size.validation,
        held=round(config.held * size.validation),
        test=size.test,
        hidden=size.hidden,
        activation=activation,
        centred=True,
        seed=config.seed + seed,
        device=config.device,
    )
