"""What each ingredient of AdaptiveBVFIM is worth: the 21 test problems with one of them taken away at a time.

python benchmarks/adaptive.py
python benchmarks/adaptive.py --only "no scouts" --only "whole" --starts 6
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pandas as pd
import torch
from rich.progress import track
from torch import Tensor

from bvfim.interior import curvature, judging, probing, schedule, stage, tolerances
from bvfim.interior.barrier import Barrier
from bvfim.interior.lbfgs import Memory, unit
from bvfim.interior.lower import Descended, Interior
from bvfim.interior.starts import Known, Starts
from bvfim.methods import AdaptiveBVFIM
from bvfim.reports.report import machine
from bvfim.reproduce.bench import problems

Ablation = Callable[[], AbstractContextManager[Any]]


def without_scouts() -> AbstractContextManager[Any]:
    return patch.object(problems, "method", lambda name, seed: AdaptiveBVFIM(seed=100 * seed, scouts=0))


def without_archive() -> AbstractContextManager[Any]:
    """No older minima among the starts of z."""
    candidates = Barrier.candidates

    def latest(self: Barrier, rows: Tensor, x: Tensor, y: Tensor, attempt: int) -> Tensor:
        self.archive = self.archive.index_copy(0, rows, self.known.z[rows][:, None].expand_as(self.archive[rows]))
        return candidates(self, rows, x, y, attempt)

    return patch.object(Barrier, "candidates", latest)


def without_prediction() -> AbstractContextManager[Any]:
    """z is expected where it was."""
    gradient = Barrier.gradient

    def still(self: Barrier, rows: Tensor, w: Tensor) -> Tensor:
        found = gradient(self, rows, w)
        self.dz.zero_()
        return found

    return patch.object(Barrier, "gradient", still)


def without_rejection() -> AbstractContextManager[Any]:
    """z is solved for at every trial, however hopeless."""
    trial = Barrier.trial

    def patient(self: Barrier, rows: Tensor, w: Tensor, attempt: int, ceiling: Tensor) -> Tensor:
        return trial(self, rows, w, attempt, torch.full_like(ceiling, torch.inf))

    return patch.object(Barrier, "trial", patient)


def without_memory_of_z() -> AbstractContextManager[Any]:
    descend = Interior.descend
    return patch.object(Interior, "descend", lambda self, at, y, tol, memory=None: descend(self, at, y, tol))


def without_memory_of_w() -> AbstractContextManager[Any]:
    """Every stage learns its curvature anew."""
    advance = stage.advance

    def forgetful(own: Interior, members: Tensor, starts: Starts, tol: float, rate: float) -> Starts:
        blank = torch.zeros_like(starts.w_steps)
        return advance(own, members, starts._replace(w_steps=blank, w_changes=blank), tol, rate)

    return patch("bvfim.methods.adaptive.advance", forgetful)


def without_curvature() -> AbstractContextManager[Any]:
    """The steepest descent."""

    def none(self: Memory, rows: Tensor, step: Tensor, change: Tensor) -> Tensor:
        return torch.zeros(len(rows), dtype=torch.bool, device=rows.device)

    return patch.object(Memory, "add", none)


def with_one_scale() -> AbstractContextManager[Any]:
    """x and y share the scale of the first step."""
    return patch.object(Barrier, "scale", lambda self, reduced: unit(reduced))


def with_geometric_schedule() -> AbstractContextManager[Any]:
    """mu2 and tau shrink by the same factor, wherever y is; a y that is left outside is brought back."""
    return patch.object(stage, "tighten", lambda mu2, tau, gap, slack, rate: (rate * mu2, rate * tau))


def with_z_tolerance(factor: float) -> AbstractContextManager[Any]:
    descend = Interior.descend

    def other(self: Interior, at: Any, y: Tensor, tol: Tensor, memory: Memory | None = None) -> Descended:
        return descend(self, at, y, factor * tol, memory)

    return patch.object(Interior, "descend", other)


def with_tight_start() -> AbstractContextManager[Any]:
    """The first mu2 only just admits y, or is a hundredth of the range of f."""
    begin = schedule.begin

    def tight(own: Interior, w: Tensor) -> Starts:
        starts = begin(own, w)
        gap = starts.mu2 - starts.slack
        return starts._replace(mu2=torch.maximum(1.05 * gap, 0.01 * starts.spread))

    return patch("bvfim.methods.adaptive.begin", tight)


def without_probes() -> AbstractContextManager[Any]:
    def nothing(own: Interior, at: Any, known: Known, tol: Tensor) -> Any:
        none = torch.full_like(tol, torch.inf)
        return probing.Probed(known.z, known.f_z, torch.zeros_like(tol, dtype=torch.bool), known.z, none)

    return patch.object(judging, "probe", nothing)


def without_units() -> AbstractContextManager[Any]:
    """x and y are measured as they come."""
    return patch("bvfim.methods.adaptive.units", lambda batch, w, *_: torch.ones_like(w))


def without_return() -> AbstractContextManager[Any]:
    """A start ends where it ends, even if it has seen better."""

    def as_it_is(interior: Interior, members: Tensor, starts: Starts, *_: Any) -> Starts:
        return starts

    return patch.multiple(stage, with_answer=as_it_is, never_worse=as_it_is)


def without_refreshing() -> AbstractContextManager[Any]:
    """Older minima stay where they were found."""
    return patch.object(stage, "refreshed", lambda interior, at, archive, *_: archive)


def without_path() -> AbstractContextManager[Any]:
    """A stage begins where the last one ended."""
    return patch.object(stage, "followed", lambda *known: known[6])


ABLATIONS: dict[str, Ablation] = {
    "whole": nullcontext,
    "no scouts": without_scouts,
    "no older minima": without_archive,
    "no prediction of z": without_prediction,
    "no early rejection": without_rejection,
    "no memory of z": without_memory_of_z,
    "no memory of w between stages": without_memory_of_w,
    "no curvature": without_curvature,
    "one scale for x and y": with_one_scale,
    "mu2 and tau geometric": with_geometric_schedule,
    "z 100 times coarser": partial(with_z_tolerance, 100.0),
    "z 100 times finer": partial(with_z_tolerance, 0.01),
    "first z of a stage no finer": partial(patch.object, tolerances, "FIRST_Z", 1.0),
    "tight first mu2": with_tight_start,
    "no jump into the basin": partial(patch.object, tolerances, "STALLED", float("inf")),
    "no nudge off saddles": partial(patch.object, tolerances, "NUDGE", 0.0),
    "no probes": without_probes,
    "no grid of probes": partial(patch.object, tolerances, "GRID", ()),
    "no units": without_units,
    "no way back": without_return,
    "older minima left as they are": without_refreshing,
    "no path": without_path,
    "no estimate from the path": partial(patch.object, tolerances, "MEET_AHEAD", 0.0),
    "no measured curvature of f": partial(patch.object, curvature, "LARGEST", 0),
    "mu2 falls although B does": partial(patch.object, tolerances, "STILL_FALLING", float("inf")),
}


def measure(starts: int, seed: int, name: str) -> dict[str, Any]:
    torch.set_num_threads(1)
    with ABLATIONS[name]():
        found = problems.run(problems.Config(("adaptivebvfim",), starts=starts, seed=seed, workers=1))
    runs, total = found.tables["runs"], found.tables["totals"].iloc[0]
    # What certifies itself and is wrong is worse than what says that it failed.
    wrong = runs[(runs["status"] == "converged") & ~runs["solved"]]
    return {"": name, **total.drop(["median hvp+jvp"]).to_dict(), "converged elsewhere": len(wrong)}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", action="append", choices=ABLATIONS, help="may be given several times")
    options.add_argument("--starts", type=int, default=6)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    names = chosen.only or list(ABLATIONS)
    with ProcessPoolExecutor(chosen.workers, get_context("spawn")) as pool:
        jobs = [pool.submit(measure, chosen.starts, chosen.seed, name) for name in names]
        rows = []
        for job in track(as_completed(jobs), "ablations", len(jobs)):
            rows.append(job.result())
            print(json.dumps(rows[-1]), flush=True)
    rows.sort(key=lambda row: names.index(row[""]))
    print(pd.DataFrame(rows).set_index("").to_string())
    if chosen.out:
        only = "".join(f' --only "{name}"' for name in chosen.only or [])
        about = {"command": f"python benchmarks/adaptive.py --starts {chosen.starts} --seed {chosen.seed}{only}"}
        chosen.out.write_text(json.dumps({**about, "machine": machine(), "runs": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
