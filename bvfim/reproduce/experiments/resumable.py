"""Measurements in independent parts: shared among processes, saved as they end, resumed where they stopped."""

from __future__ import annotations

import dataclasses
import itertools
import json
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd
import torch

from bvfim.core.solution import Solution
from bvfim.reports.files import write_whole
from bvfim.status import DataError, Status, warn
from bvfim.version import __version__

Part: TypeAlias = Callable[[], pd.DataFrame]
"""One measurement: no arguments, a table. With several workers it must be picklable."""


@dataclass(frozen=True)
class How:
    """How the parts of an experiment are run; none of this changes what they measure.

    Args:
        folder: where each part is saved as it ends; nowhere without one.
        resume: take over the parts that an earlier run with the same config has saved there.
        workers: processes, one thread each; 1 runs in this process, with all of its threads.
        track: wraps the parts as they end, to show how far they are; it is given them, the work that each is, and the
            work that comes after them.

    Example:
        >>> from bvfim.reproduce.experiments.resumable import How
        >>> How().workers
        1
    """

    folder: Path | None = None
    resume: bool = False
    workers: int = 1
    track: Callable[[Iterable[Any], Mapping[str, float], float], Iterable[Any]] = lambda parts, work, ahead: parts


def finished(*solutions: Solution) -> None:
    """Stop the experiment where a solve was interrupted: what it has so far is not a measurement.

    Example:
        >>> from bvfim.reproduce.experiments.resumable import finished
        >>> finished()
    """
    if any(solution.status is Status.INTERRUPTED for solution in solutions):
        raise KeyboardInterrupt


def measured(
    config: Any,
    parts: dict[str, Part],
    how: How,
    work: Mapping[str, float] | None = None,
    ahead: float = 0.0,
    first: bool = True,
) -> dict[str, pd.DataFrame]:
    """The table of each part.

    Args:
        config: what the parts were made from; parts saved under another are refused.
        parts: the measurements by name.
        how: how they are run.
        work: how much work a part is beside the others, where they differ; ahead: what is to come after these parts.
        first: whether these are the first parts of the run, before which older ones are set aside.

    Example:
        >>> import pandas as pd
        >>> from bvfim.reproduce.experiments.resumable import How, measured
        >>> from bvfim.reproduce.experiments.complexity import Config
        >>> measured(Config(), {"one": lambda: pd.DataFrame({"a": [1]})}, How())["one"]["a"].tolist()
        [1]
    """
    saved = {} if how.folder is None else _prepared(how.folder, config, how.resume, first)
    tables = {name: saved[name] for name in parts if name in saved}
    left = {name: part for name, part in parts.items() if name not in tables}
    amounts = {name: 1.0 if work is None else work[name] for name in left}
    for name, table in how.track(_done(left, how.workers), amounts, ahead) if left else ():
        tables[name] = table
        if how.folder is not None:
            write_whole(how.folder / f"{name}.csv", table.to_csv(index=False, na_rep="nan").encode())
    return {name: tables[name] for name in parts}


def _done(parts: dict[str, Part], workers: int) -> Iterator[tuple[str, pd.DataFrame]]:
    if workers == 1:
        yield from ((name, part()) for name, part in parts.items())
        return
    with ProcessPoolExecutor(workers, get_context("spawn"), _begin) as pool:
        jobs = {pool.submit(part): name for name, part in parts.items()}
        try:
            yield from ((jobs[job], job.result()) for job in as_completed(jobs))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in active_children():
                child.terminate()
            raise


def _begin() -> None:
    """A worker has one thread, and leaves Ctrl-C to the process that began it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)


def _prepared(folder: Path, config: Any, resume: bool, first: bool) -> dict[str, pd.DataFrame]:
    """The tables that are there already; unless they are wanted, they are set aside in a folder beside."""
    about = folder / "config.json"
    stated = json.loads(json.dumps({"bvfim": __version__, **dataclasses.asdict(config)}, default=str))
    if resume and about.exists():
        try:
            found = dict(json.loads(about.read_text()))
        except ValueError as error:
            raise DataError(f"{about} is damaged ({error}); restart without --resume") from error
        if found != stated:
            other = sorted(key for key in {*found, *stated} if found.get(key, ...) != stated.get(key, ...))
            raise DataError(
                f"{folder}: the run to resume used a different {', '.join(other)}; restart without --resume"
            )
        return {path.stem: _read(path) for path in sorted(folder.glob("*.csv"))}
    if not first:
        return {}
    if any(folder.glob("*.csv")):
        aside = next(p for i in itertools.count(1) if not (p := folder.with_name(f"{folder.name}-before-{i}")).exists())
        folder.rename(aside)
        warn(f"{folder} has parts of an earlier run, which are now in {aside}; --resume continues a run instead")
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(about, (json.dumps(stated, indent=2) + "\n").encode())
    return {}


def _read(path: Path) -> pd.DataFrame:
    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False).apply(_numbers)
    except ValueError as error:
        raise DataError(f"{path} is damaged ({error}); delete it, or restart without --resume") from error
    if table.empty:
        raise DataError(f"{path} is damaged (it has no rows); delete it, or restart without --resume")
    return table


def _numbers(column: pd.Series) -> pd.Series:
    """The column as it was before it was written; pandas' own parser of floats may miss the last bit."""
    if set(column) <= {"True", "False"}:
        return column == "True"
    for kind in (int, float):
        try:
            return column.map(kind)
        except ValueError:
            continue
    return column
