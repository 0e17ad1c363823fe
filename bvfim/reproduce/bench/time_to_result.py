"""Hyper-cleaning on batches against the clock: accuracy and F1 over seconds and over rows, ours and its rivals.

Ours runs at its defaults. Each rival tries a grid of settings on split 0 and is judged there on held rows, at the end
of its budget and at the moment when our run ends; with the settings that were best it then runs on the other splits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import pandas as pd

from bvfim.reports.describe import slug
from bvfim.reports.report import Results
from bvfim.reproduce.bench import time_to_result_report as report
from bvfim.reproduce.bench.peers.base import Budget
from bvfim.reproduce.bench.speed import reason
from bvfim.reproduce.bench.time_to_result_report import BOTH, BUDGET, DEFAULTS, OUR_END, TUNED
from bvfim.reproduce.bench.time_to_result_rivals import OURS, Setting, ours, rivals
from bvfim.reproduce.bench.time_to_result_watch import LOOKS, Watch
from bvfim.reproduce.experiments import cleaning, cleaning_settings
from bvfim.reproduce.experiments.resumable import How, Part, measured
from bvfim.status import DataError, require_known

TUNING = 0
"""The split that settings are chosen on."""

Chosen: TypeAlias = dict[tuple[str, str], dict[Setting, str]]
"""The settings of a rival on a data set, and the moment that each is the best at."""


@dataclass(frozen=True)
class Config:
    """The runs.

    Args:
        data: of :data:`bvfim.reproduce.experiments.cleaning_settings.DATA`.
        splits: how many, from 1 on; settings are chosen on split 0.
        budget: how long each rival runs, as a multiple of the seconds of our run.
        steps: of our run.
        size: the rows of a batch.
        T: lower steps an upper step of RHG, CG, Neumann, BOAT and TorchOpt.
        J: steps of CG, terms of the Neumann series.
        tries: how many of the nine settings of a rival are tried.
        only: only rivals whose names have one of these in them; all where it is empty.
        device: where the tensors are.

    Example:
        >>> from bvfim.reproduce.bench.time_to_result import Config
        >>> Config().quick().data
        ('digits',)
    """

    data: tuple[str, ...] = ("mnist", "fashion-mnist", "cifar10")
    splits: int = 5
    budget: float = 10.0
    steps: int = 365
    size: int = 256
    T: int = 10
    J: int = 5
    tries: int = 9
    only: tuple[str, ...] = ()
    device: str = "cpu"

    def __post_init__(self) -> None:
        require_known("problem", self.data or ("",), cleaning_settings.DATA)
        if not self.budget >= 1:
            raise DataError(f"budget must be at least 1, the seconds of our run, not {self.budget!r}")
        if not self.rivals(self.data[0]):
            raise DataError(f"no rival has {' or '.join(map(repr, self.only))} in its name")

    def quick(self) -> Config:
        """Smaller, to see that it runs."""
        return replace(self, data=("digits",), splits=min(self.splits, 2), budget=3.0, steps=100, size=64, tries=2)

    def rivals(self, data: str) -> list[str]:
        """The names of those that are asked for."""
        return [name for name in rivals(data) if not self.only or any(part in name for part in self.only)]

    def task(self, data: str, split: int) -> cleaning.Task:
        """The problem on a split: ReLU, centred rows, a tenth of the trusted rows held out."""
        return cleaning_settings.task(data, "relu", split, cleaning_settings.Config(device=self.device))


def run(config: Config, how: How = How()) -> Results:
    """Measure and report.

    Args:
        config: the settings.
        how: where the parts are saved; they are timed, so that one process takes them in turn.
    """
    taking, absent = present(config)
    splits = range(TUNING, config.splits + 1)
    pairs = [(data, name) for data in config.data for name in taking]
    ahead = len(pairs) * (config.tries * config.budget + config.splits * (config.budget + 1))
    alone: dict[str, Part] = {
        _key(data, OURS, split): partial(own_part, config, data, split) for data in config.data for split in splits
    }
    own = pd.concat(measured(config, alone, how, dict.fromkeys(alone, 1.0), ahead).values(), ignore_index=True)
    ends = report.ends(own)
    tried = _tried(config, pairs, ends, how)
    chosen = {pair: _best(tried[pair], ends[pair[0], TUNING]) for pair in pairs}
    ended = own[own["split"] != TUNING].assign(**{TUNED: DEFAULTS})
    looks = pd.concat([ended, *_splits(config, chosen, ends, how)], ignore_index=True)
    bilevel = [name for name in taking if rivals(config.data[0])[name].bilevel]
    grid = pd.concat([*tried.values()], ignore_index=True)
    return report.results(looks, grid, bilevel, _about(config), absent)


def _about(config: Config) -> str:
    """What was done, for the page."""
    return (
        f"Hyper-cleaning with half of the labels wrong, on {', '.join(config.data)}: accuracy on test rows and F1 of "
        f"the rows with x <= 0, means over {config.splits} splits, on {config.device}. {OURS} runs at its defaults: "
        f"{config.steps} steps on batches of {config.size} rows. Each rival has the best of {config.tries} pairs of a "
        f"lower and an upper step (weight decay for the plain network), by accuracy on held rows of split {TUNING}: "
        f"at the end of its budget of {config.budget:g} times our seconds, and, in thin lines, at the end of our run. "
        f"{config.T} lower steps an upper step for RHG, CG, Neumann, BOAT and TorchOpt, {config.J} steps of CG or "
        "terms of the series; one lower step for one-step unrolling and Betty. Rivals' steps stay as they are; ours "
        "follow a cosine to zero. Nested BVFIM sees all rows at every step. Looking at a run is not counted, starting "
        "it is. A product of second order counts as two gradients. Dotted: the end of our run."
    )


def present(config: Config) -> tuple[list[str], dict[str, str]]:
    """Those who can take part, and why others can't: each takes a step first.

    So the libraries are loaded before anything is timed, and their loading is nobody's time.
    """
    data = config.data[0]
    task, found, absent = config.task(data, TUNING), list[str](), dict[str, str]()
    ours(task, config.size, Watch(task, 1.0, 0.0, steps=2))
    for name in config.rivals(data):
        rival = rivals(data)[name]
        try:
            rival.run(task, _budget(config, rival.grid[0]), config.size, Watch(task, 1.0, 0.0))
            found.append(name)
        except ImportError as error:
            absent[name] = f"{rival.library} is not installed ({error})"
        except Exception as error:  # another library may fail on this device or version: told, not hidden
            if rival.library == "bvfim":
                raise
            absent[name] = reason(error)
    return found, absent


def own_part(config: Config, data: str, split: int) -> pd.DataFrame:
    """Our run on one split, a row a look."""
    task = config.task(data, split)
    watch = Watch(task, 1.0, float("inf"), max(1, config.steps // LOOKS), config.steps)
    ours(task, config.size, watch)
    return _table(watch, data, OURS, split, Setting(float("nan"), float("nan")))


def rival_part(
    config: Config, data: str, name: str, setting: Setting, split: int, end: float, factor: float
) -> pd.DataFrame:
    """A rival's run on one split until so many times our seconds are over, a row a look."""
    task = config.task(data, split)
    watch = Watch(task, end, factor * end)
    rivals(data)[name].run(task, _budget(config, setting), config.size, watch)
    return _table(watch, data, name, split, setting)


def _table(watch: Watch, data: str, name: str, split: int, setting: Setting) -> pd.DataFrame:
    return pd.DataFrame(watch.looks).assign(data=data, method=name, split=split, **setting._asdict())


def _budget(config: Config, setting: Setting) -> Budget:
    return Budget(config.T, config.J, setting.lower, setting.upper)


def _key(data: str, name: str, split: int, setting: Setting | None = None) -> str:
    """The name of a part."""
    return slug(" ".join(map(str, (data, name, *(setting or ()), split))))


def _tried(
    config: Config, pairs: list[tuple[str, str]], ends: Mapping[tuple[str, int], float], how: How
) -> dict[tuple[str, str], pd.DataFrame]:
    """Each rival's runs on split 0, with each setting of its grid."""
    keys: dict[tuple[str, str], list[str]] = {}
    parts: dict[str, Part] = {}
    for data, name in pairs:
        grid = rivals(data)[name].grid[: config.tries]
        keys[data, name] = [_key(data, name, TUNING, setting) for setting in grid]
        end = ends[data, TUNING]
        runs = (partial(rival_part, config, data, name, setting, TUNING, end, config.budget) for setting in grid)
        parts |= zip(keys[data, name], runs, strict=True)
    ahead = len(pairs) * config.splits * (config.budget + 1)
    found = measured(config, parts, how, dict.fromkeys(parts, config.budget), ahead, first=False)
    return {pair: pd.concat([found[key] for key in own], ignore_index=True) for pair, own in keys.items()}


def _best(tried: pd.DataFrame, end: float) -> dict[Setting, str]:
    """The settings with the best accuracy on the held rows, at the end of the budget and at the end of our run."""
    groups: Any = tried.groupby(["lower", "upper"], sort=False)
    runs = {Setting(*setting): run for setting, run in groups}
    late = max(runs, key=lambda setting: runs[setting]["held"].iloc[-1])
    early = max(runs, key=lambda setting: report.at(runs[setting], end, "held"))
    return {late: BOTH} if late == early else {late: BUDGET, early: OUR_END}


def _splits(config: Config, chosen: Chosen, ends: Mapping[tuple[str, int], float], how: How) -> list[pd.DataFrame]:
    """Each rival's runs on the splits: until our end with the setting that is best there, else for the whole budget."""
    parts: dict[str, Part] = {}
    work: dict[str, float] = {}
    tuned: dict[str, str] = {}
    for split in range(TUNING + 1, config.splits + 1):
        for (data, name), settings in chosen.items():
            for setting, moment in settings.items():
                key, factor = _key(data, name, split, setting), 1.0 if moment == OUR_END else config.budget
                parts[key] = partial(rival_part, config, data, name, setting, split, ends[data, split], factor)
                work[key], tuned[key] = factor, moment
    found: dict[str, Any] = measured(config, parts, how, work, first=False)
    return [table.assign(**{TUNED: tuned[key]}) for key, table in found.items()]
