"""Every method of the library on seven kinds of jobs, for the same CPU seconds: as it is by default, and at its best.

On seed 0 each method runs with its defaults and with a few other steps; the setting that ends lowest there is its best.
Both the defaults and the best then run on other seeds, and it is these that are compared.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from bvfim.methods import ALL, by_name
from bvfim.reports.describe import slug
from bvfim.reports.files import write_whole
from bvfim.reports.report import Results, machine
from bvfim.reproduce.bench import contest_report
from bvfim.reproduce.bench.contest_figures import BEST
from bvfim.reproduce.bench.contest_run import NO_STEP, REFUSED, loaded, rows
from bvfim.reproduce.bench.contest_settings import DEFAULTS, Setting, settings
from bvfim.reproduce.bench.jobs import Job, jobs
from bvfim.reproduce.experiments.resumable import How, Part, measured
from bvfim.status import DataError, no_such

TUNING = 0
"""The seed that settings are chosen on."""


@dataclass(frozen=True)
class Config:
    """The runs.

    Args:
        only: jobs whose names or kinds have one of these in them; all where it is empty.
        methods: names for :func:`bvfim.methods.by_name`; all where it is empty.
        seeds: how many seeds are compared on, from 1 on; settings are chosen on seed 0.
        budget_scale: the CPU seconds of a run, as a multiple of the budget of its job.
        tries: settings of a method, of at most four, the defaults among them.

    Example:
        >>> from bvfim.reproduce.bench.contest import Config
        >>> [job.name for job in Config(only=("toy",)).jobs()]
        ['toy, n = 1', 'toy, n = 100']
    """

    only: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    seeds: int = 1
    budget_scale: float = 1.0
    tries: int = 3

    def __post_init__(self) -> None:
        for name in self.methods:
            by_name(name)
        for part in self.only:
            if not any(_named(job, part) for job in jobs()):
                raise DataError(no_such("job", part, [job.name for job in jobs()]))
        if not self.budget_scale > 0 or self.seeds < 1 or not 1 <= self.tries <= 4:
            raise DataError("budget_scale must be above 0, seeds at least 1, and tries from 1 to 4")

    def quick(self) -> Config:
        """Smaller, to see that it runs."""
        return replace(self, only=self.only or ("toy, n = 1", "ridge"), budget_scale=0.1 * self.budget_scale, tries=2)

    def jobs(self) -> list[Job]:
        """Those that are asked for."""
        return [job for job in jobs() if not self.only or any(_named(job, part) for part in self.only)]

    def kinds(self) -> list[type[Any]]:
        """The methods that are asked for."""
        asked = {by_name(name) for name in self.methods}
        return [kind for kind in ALL if not asked or kind in asked]


def _named(job: Job, part: str) -> bool:
    return part.lower() in job.name.lower() or part.lower() in job.family.lower()


def run(config: Config, how: How = How()) -> Results:
    """Measure and report.

    Args:
        config: the settings.
        how: where the parts are saved; they are timed, so that one process takes them in turn.
    """
    return contest_report.results(looks(config, how), config.budget_scale, config.tries)


def keep(path: Path, results: Results, config: Config) -> None:
    """Write the ends of all runs as JSON, with the command, the config, versions and the machine."""
    command = f"bvfim bench rivals --seeds {config.seeds} --budget-scale {config.budget_scale:g} --tries {config.tries}"
    command += f" --only '{';'.join(config.only)}'" * bool(config.only)
    command += f" --methods {','.join(config.methods)}" * bool(config.methods)
    about = {"config": asdict(config), "machine": machine()}
    write_whole(path, (json.dumps(contest_report.recorded(results, command, about)) + "\n").encode())


def looks(config: Config, how: How = How()) -> pd.DataFrame:
    """All looks at all runs, a row each; the column ``as`` says as what a run counts: defaults, best of grid, tried.

    One job is done with after the other, so that the load of the machine is the same for all who are compared on it.
    """
    torch.set_num_threads(1)
    loaded(config.kinds())
    tables: list[pd.DataFrame] = []
    left = sum(job.budget for job in config.jobs()) * len(config.kinds()) * (config.tries + 2.0 * config.seeds)
    for job in config.jobs():
        kinds = {_key("tried", job, kind): kind for kind in config.kinds()}
        first: dict[str, Part] = {key: partial(tried, config, job, kind) for key, kind in kinds.items()}
        work = job.budget * config.tries
        left -= work * len(kinds)
        found = measured(config, first, how, dict.fromkeys(first, work), left, first=not tables)
        second: dict[str, Part] = {
            _key("ended", job, kind): partial(ended, config, job, kind, best(found[key], settings(kind, config.tries)))
            for key, kind in kinds.items()
        }
        work = job.budget * 2.0 * config.seeds
        left -= work * len(kinds)
        later = measured(config, second, how, dict.fromkeys(second, work), left, first=False)
        tables += [*found.values(), *later.values()]
    return pd.concat(tables, ignore_index=True)


def _key(what: str, job: Job, kind: type[Any]) -> str:
    """The name of a part."""
    return slug(f"{what} {job.name} {kind.__name__}")


def tried(config: Config, job: Job, kind: type[Any]) -> pd.DataFrame:
    """Each setting of a method on the seed for it, a row for each end.

    What is refused by default, or takes no step in time, is not tried with other steps.
    """
    found: list[dict[str, Any]] = []
    for setting in settings(kind, config.tries):
        found += rows(job, setting, TUNING, config.budget_scale * job.budget, looked=False)
        if found[0]["status"] == REFUSED or found[0]["said"] == NO_STEP:
            break
    return pd.DataFrame(found).assign(**{"as": contest_report.TRIED})


def best(tried: pd.DataFrame, given: list[Setting]) -> Setting:
    """The setting that ended lowest, of equal ones the first.

    Example:
        >>> import bvfim, pandas as pd
        >>> from bvfim.reproduce.bench.contest import best, settings
        >>> given = settings(bvfim.RHG, 2)
        >>> best(pd.DataFrame({"setting": [s.name for s in given], "value": [2.0, 1.0]}), given).name
        'Adam 0.1'
    """
    values = dict(zip(tried["setting"], tried["value"], strict=True))
    return min(given, key=lambda setting: values.get(setting.name, math.inf))


def ended(config: Config, job: Job, kind: type[Any], chosen: Setting) -> pd.DataFrame:
    """The defaults and the best setting of a method on the other seeds, a row a look; once where they are the same."""
    found: list[pd.DataFrame] = []
    for seed in range(TUNING + 1, TUNING + 1 + config.seeds):
        for setting in {s.name: s for s in (settings(kind, 1)[0], chosen)}.values():
            run = pd.DataFrame(rows(job, setting, seed, config.budget_scale * job.budget, looked=True))
            counts = [DEFAULTS] * (setting.name == DEFAULTS) + [BEST] * (setting.name == chosen.name)
            found += [run.assign(**{"as": name}) for name in counts]
    return pd.concat(found, ignore_index=True)
