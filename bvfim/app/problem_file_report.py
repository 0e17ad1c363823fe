"""What ``bvfim solve`` leaves behind: the solution, its history and pictures of both."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from safetensors.torch import save
from torch import Tensor

from bvfim import tree
from bvfim.app import python_file
from bvfim.app.problem_file import Stated
from bvfim.core.shown import Chart, charts, draw
from bvfim.core.solution import Solution
from bvfim.reports.describe import ENTRIES, named, point, short
from bvfim.reports.plots import CYCLE, panels
from bvfim.reports.report import Results, Section
from bvfim.status import Status, warn

ROWS = 15
"""How many rows of the history a page shows."""
FILES = ("solution.safetensors", "index.html", "summary.json", "solution.csv", "history.csv", "steps.csv")
"""What a run leaves in its folder, among others."""
WATCHED = ("upper", "lower", "grad_norm", "x_norm")
"""The columns of which a value that is not finite ends a run."""


@dataclass(frozen=True)
class Settings:
    """What was run, for the saved report.

    Example:
        >>> from bvfim.app.problem_file_report import Settings
        >>> Settings("a.py", "RHG(steps=100)", 500, None).steps
        500
    """

    file: str
    method: str
    steps: int
    tol: float | None
    seed: int | None = None


def settings(stated: Stated, solution: Solution, seed: int | None = None) -> Settings:
    """What was run: the file, the method that was chosen, for how long at most, and the seed that was given.

    Example:
        >>> import torch, bvfim
        >>> from pathlib import Path
        >>> from bvfim.app.problem_file import Stated, run
        >>> from bvfim.app.problem_file_report import settings
        >>> problem = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum())
        >>> stated = Stated(Path("a.py"), problem, torch.zeros(1), torch.zeros(1), bvfim.RHG(steps=5), steps=1)
        >>> settings(stated, run(stated)).method
        "RHG(steps=5, lr=0.01, dynamics=None, start='warm', segment=1)"
    """
    method = re.sub(r" at 0x[0-9a-f]+", "", repr(solution.method))
    return Settings(str(stated.file), method, stated.steps, stated.tol, seed)


def results(stated: Stated, solution: Solution) -> Results:
    """The solution as tables, figures and sections of a page.

    Example:
        >>> import torch, bvfim
        >>> from pathlib import Path
        >>> from bvfim.app.problem_file import Stated, run
        >>> from bvfim.app.problem_file_report import results
        >>> problem = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum())
        >>> stated = Stated(Path("a.py"), problem, torch.zeros(1), torch.zeros(1), bvfim.RHG(), steps=3)
        >>> found = results(stated, run(stated))
        >>> list(found.tables), list(found.figures)
        (['solution', 'history', 'steps'], ['objectives', 'gradient'])
    """
    history = solution.history
    tables, figures = {"solution": _solution(solution)}, {}
    if solution.certificate is not None:
        tables["certificate"] = _certificate(solution)
    if len(history):
        tables |= {"history": history.set_index("step"), "steps": _thinned(history)}
        figures = _figures(history)
    how = ended(stated, solution)
    certified = [] if solution.certificate is None else [Section("Certificate", _SHOWN, tables=("certificate",))]
    course = Section("Course", _COURSE, figures=tuple(figures), tables=("steps",))
    sections = [Section("Solution", _POINT, ours=how, tables=("solution",)), *certified]
    summary: dict[str, Any] = {"status": solution.status.value, "advice": how}
    figures_of = {"F": solution.upper, "f": solution.lower, "lower_gap": solution.lower_gap}
    for name, value in {**figures_of, "upper_refit": solution.upper_refit}.items():
        summary[name] = value if math.isfinite(value) else str(value)  # JSON has no NaN
    summary["uses_slack"] = solution.uses_slack
    return Results(tables, figures, summary, (*sections, course) if len(history) else tuple(sections))


def ended(stated: Stated, solution: Solution) -> str:
    """How the run ended and what to do next; for a non-finite value also which one, when and where.

    Example:
        >>> import torch, bvfim
        >>> from pathlib import Path
        >>> from bvfim.app.problem_file import Stated, run
        >>> from bvfim.app.problem_file_report import ended
        >>> root = bvfim.Problem(lambda x, y: (y - x.sqrt()).sum(), lambda x, y: ((y - x) ** 2).sum())
        >>> stated = Stated(Path("a.py"), root, torch.zeros(1), torch.zeros(1), bvfim.RHG())
        >>> print(ended(stated, run(stated)).partition(". A ")[0])
        Step 0 ended with grad_norm = inf, x_norm = nan. The gradient of upper (a.py) is not finite at x = [0], y = [0]
    """
    status, history = solution.status, solution.history
    if status is not Status.NON_FINITE or history.empty:
        return solution.advice
    last = history.iloc[-1]
    broken = [f"{name} = {last[name]:g}" for name in WATCHED if name in last and not math.isfinite(last[name])]
    what = f"Step {last['step']:.0f} ended with {', '.join(broken) or 'a non-finite gradient'}"
    return f"{what}. {_where(stated, solution)}. {status.advice}"


def unused(out: Path) -> Path:
    """The folder itself, or where another run has finished in it meanwhile, the next one that is free.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from bvfim.app.problem_file_report import unused
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     unused(Path(folder, "game")).name
        'game'
    """
    whole = out.absolute()  # a name such as . has none to add to
    places = itertools.chain([out], (whole.with_name(f"{whole.name}-{i}") for i in itertools.count(2)))
    found = next(place for place in places if not any((place / name).exists() for name in FILES))
    if found != out:
        warn(f"{out} was taken by another run meanwhile, so the results are in {found}")
    return found


def save_solution(solution: Solution, path: str | os.PathLike[str]) -> Path:
    """Write x and y into a safetensors file, a tensor for each leaf: ``x``, ``x/weight``, ``y/0``.

    Args:
        solution: what was found.
        path: the file; its folder is made if need be.

    Returns:
        The file. ``safetensors.torch.load_file`` reads it.

    Example:
        >>> import tempfile, torch, bvfim
        >>> from safetensors.torch import load_file
        >>> from bvfim.app.problem_file_report import save_solution
        >>> problem = bvfim.Problem(lambda x, y: ((y["a"] - 1) ** 2).sum(), lambda x, y: ((y["a"] - x) ** 2).sum())
        >>> solution = bvfim.solve(problem, torch.zeros(1), {"a": torch.zeros(1)}, bvfim.RHG(), steps=1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sorted(load_file(save_solution(solution, f"{folder}/solution.safetensors")))
        ['x', 'y/a']
    """
    tensors: dict[str, Tensor] = {}
    for name, variable in (("x", solution.x), ("y", solution.y)):
        for leaf_name, leaf in named(name, variable):
            while leaf_name in tensors:  # keys such as "a/b", or 0 beside "0"
                leaf_name += "'"
            tensors[leaf_name] = leaf.detach().cpu().contiguous().clone()
    about = {"method": type(solution.method).__name__, "status": solution.status.value}
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(save(tensors, metadata=about))
    return target


_POINT = "The solution and its cost. solution.safetensors has x and y at full precision."
_SHOWN = (
    "What the run has verified about this point. All of it is local, and no stronger than the status. relaxed and "
    "polished are F before and after y is refined to a lower-level solution; they agree within tol if the run has "
    "converged. gap is f(x, y) minus the lowest f(x, ·) found; it counts as closed below gap_allowed. multimodal says "
    "whether other minima of f(x, ·) were seen. violation is a distance in x and y; conflict names constraints that "
    "stand against each other, if there is no point where all hold."
)
_COURSE = f"F and f per step, and the method's own diagnostics. Shows at most {ROWS} rows; history.csv has all of them."


def _measured(solution: Solution, text: str) -> str:
    """What a refit says, or that the run was too short to afford one, or broke off."""
    return "not measured" if math.isnan(solution.lower_gap) else text


def _solution(solution: Solution) -> pd.DataFrame:
    rows = {
        "method": type(solution.method).__name__,
        "status": solution.status.value,
        "F": f"{solution.upper:.6g}",
        "f": f"{solution.lower:.6g}",
        "lower-level gap": _measured(solution, f"{solution.lower_gap:.3g}"),
        "F after a refit": _measured(solution, f"{solution.upper_refit:.6g}"),
        "F uses the slack of the lower level": _measured(solution, "yes" if solution.uses_slack else "no"),
    }
    if solution.multipliers:
        rows["largest violation"] = f"{solution.violation:.3g}"
    for name, variable in (("x", solution.x), ("y", solution.y)):
        for path, leaf in named(name, variable):
            rows |= _entries(path, leaf)
    for name, multiplier in solution.multipliers.items():
        rows |= _entries(f"multiplier of {name}", multiplier)
    rows |= {"steps": f"{solution.steps}", "seconds": f"{solution.seconds:.2f}"}
    rows |= {_COUNTED[name]: f"{count}" for name, count in solution.evaluations.items() if count}
    return pd.DataFrame({"value": rows}).rename_axis("quantity")


_COUNTED = {
    "upper": "gradients of F",
    "lower": "gradients of f",
    "forward": "values",
    "hvp": "products with the lower Hessian",
    "jvp": "products with the mixed derivative",
}


def _entries(path: str, leaf: Tensor) -> dict[str, str]:
    """A row for each entry of a small tensor; one row for a large one."""
    if leaf.dim() == 0 or leaf.numel() > ENTRIES:
        return {path: short(leaf)}
    places = np.ndindex(*leaf.shape)
    return {f"{path}[{', '.join(map(str, i))}]": f"{float(leaf[i]):.6g}" for i in places}


def _certificate(solution: Solution) -> pd.DataFrame:
    shown: dict[str, Any] = dataclasses.asdict(solution.certificate)  # type: ignore[arg-type]  # only asked for where there is one
    status = shown.pop("status")
    shown["status"] = "under way" if status is None else status.value
    return pd.DataFrame({"value": pd.Series(shown, dtype=object)}).rename_axis("what was shown")


def _thinned(history: pd.DataFrame) -> pd.DataFrame:
    """Some rows from the first to the last, without the columns that never move."""
    rows = np.unique(np.linspace(0, len(history) - 1, min(ROWS, len(history))).round().astype(int))
    kept = [name for name in history.columns if name == "step" or bool((history[name] != 0).any())]
    return history.iloc[rows][kept].set_index("step")


def _figures(history: pd.DataFrame) -> dict[str, Figure]:
    objectives, own = charts(history)
    wide = {"width": 6.0} if len(own) == 1 and len(own[0].columns) > 1 else {}
    return {
        "objectives": _figure(history, objectives),
        "barrier" if wide else "gradient": _figure(history, own, **wide),
    }


def _figure(history: pd.DataFrame, own: list[Chart], **size: float) -> Figure:
    figure, axes = panels(1, len(own), **size)
    for one, chart in zip(axes[0], own, strict=True):
        one.set_prop_cycle(color=CYCLE)
        draw(one, history, chart)
    return figure


def _where(stated: Stated, solution: Solution) -> str:
    """Which objective is not finite, or not smooth, at the point that was returned."""
    at, here = stated.problem.at(solution.x), point(solution.x, solution.y)
    for name, grads in (("upper", at.upper_grads), ("lower", at.lower_grads)):
        line, _ = python_file.place(stated.file, stated.lines.get(name))
        value, in_u, in_y = grads(solution.y)
        if not bool(value.isfinite()):
            return f"{name} ({line}) is {float(value):g} at {here}"
        if not all(bool(g.isfinite().all()) for g in tree.leaves([at.pull(in_u), in_y])):
            return f"The gradient of {name} ({line}) is not finite at {here}"
    return f"The best point before it was {here}"
