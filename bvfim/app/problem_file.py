"""A problem stated in a file of its own: what ``bvfim solve`` reads and runs."""

from __future__ import annotations

import dataclasses
import numbers
import os
import random
import re
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bvfim import sets, tree
from bvfim.app import python_file
from bvfim.core.arguments import accepts, check_steps
from bvfim.core.constraints import KINDS
from bvfim.core.problem import Problem
from bvfim.core.run import Callback
from bvfim.core.solution import Solution
from bvfim.core.solve import solve
from bvfim.core.validate import validate
from bvfim.methods import AdaptiveBVFIM, Chosen, as_method, by_name
from bvfim.methods.base import OptimizerFactory
from bvfim.reports.describe import named, point, shapes
from bvfim.status import BvfimError, BvfimWarning, MethodError, ProblemError
from bvfim.tree import Tree

REQUIRED = ("upper", "lower", "x", "y")
PARTS = ("x_set", "y_set", "context", "joint", *KINDS)
OPTIONAL = (*PARTS, "follower", "method", "steps", "optimizer")
UNREAD = ("batches", "scheduler", "callbacks", "tol", "time_limit")
"""Names that ``bvfim.solve`` takes and a file can't give."""
EXAMPLE = """\
import torch
x, y = torch.zeros(2).double(), torch.zeros(2).double()
def upper(x, y):
    return ((y - 1) ** 2).sum() + (x**2).sum()
def lower(x, y):
    return ((y - x) ** 2).sum()
"""


@dataclass(frozen=True)
class Stated:
    """The contents of a problem file: a problem, a starting point, and how to solve it.

    Attributes:
        file: the file it was read from.
        problem: built from the file's ``upper``, ``lower`` and whatever else of :class:`bvfim.Problem` it names.
        x, y: the starting point.
        method: an instance; None leaves the choice to :func:`bvfim.solve`.
        optimizer, steps, tol: as :func:`bvfim.solve` takes them.
        lines: the line of the file that defines each name.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from bvfim.app.problem_file import EXAMPLE, load
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "example.py").write_text(EXAMPLE)
        ...     stated = load(f"{folder}/example.py")
        >>> stated.steps, stated.lines["lower"], stated.changed(method="rhg", steps=20).method.lr
        (500, 5, 0.01)
    """

    file: Path
    problem: Problem
    x: Tree
    y: Tree
    method: Chosen | None = None
    optimizer: OptimizerFactory | None = None
    steps: int = 500
    tol: float | None = None
    lines: dict[str, int] = field(default_factory=dict)

    def changed(
        self, method: str | None = None, steps: int | None = None, tol: float | None = None, seed: int | None = None
    ) -> Stated:
        """A copy with options from the command line; None keeps the file's. AdaptiveBVFIM gets tol and seed itself."""
        chosen = self.method if method is None else by_name(method)()
        chosen = AdaptiveBVFIM() if chosen is None else chosen
        if isinstance(chosen, AdaptiveBVFIM):
            own: dict[str, Any] = {"tol": tol, "seed": seed}
            chosen, tol = dataclasses.replace(chosen, **{k: v for k, v in own.items() if v is not None}), None
        steps = self.steps if steps is None else steps
        return dataclasses.replace(self, method=chosen, steps=steps, tol=self.tol if tol is None else tol)


def seed_everything(seed: int) -> None:
    """Seed every generator an objective may draw from: those of torch, NumPy and Python.

    Example:
        >>> import torch
        >>> from bvfim.app.problem_file import seed_everything
        >>> seed_everything(3)
        >>> torch.initial_seed()
        3
    """
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


def load(path: str | os.PathLike[str]) -> Stated:
    """Run the file and read the problem from the names it defines.

    Args:
        path: a Python file that defines ``upper``, ``lower``, ``x`` and ``y``, and optionally ``x_set``, ``y_set``,
            ``lower_constraints``, ``lower_equalities``, ``upper_constraints``, ``upper_equalities``, ``follower``,
            ``method`` (an instance, a class or a name), ``steps``, ``optimizer``, ``context`` and ``joint``. Other
            names are ignored.

    Returns:
        The problem. Any error in the file is raised as a :class:`bvfim.BvfimError` that says what is wrong and where.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from bvfim.app.problem_file import EXAMPLE, load
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "example.py").write_text(EXAMPLE)
        ...     load(f"{folder}/example.py").x
        tensor([0., 0.], dtype=torch.float64)
    """
    file = Path(path)
    text = python_file.read(file)
    names, lines = python_file.execute(text, file), python_file.bindings(text)
    _require_names(file, names, lines)
    _warn_of_names(file, names, lines)
    x, y, given = names["x"], names["y"], {name: names.get(name) for name in OPTIONAL}
    with explained(file, lines, x, y):
        _require_tensors("x", x)
        _require_tensors("y", y)
        parts: dict[str, Any] = {name: given.pop(name) for name in PARTS}
        parts["follower"] = given.pop("follower") or Problem.follower
        problem = Problem(names["upper"], names["lower"], **parts)
        _require_arguments(problem)
        sets.check_fit(problem.x_set, x, "x")
        sets.check_fit(problem.y_set, y, "y")
        steps = Stated.steps if given["steps"] is None else given["steps"]
        check_steps(steps)
        return Stated(file, problem, x, y, _method(given["method"]), given["optimizer"], steps, lines=lines)


def run(stated: Stated, callbacks: Iterable[Callback] = ()) -> Solution:
    """Solve the problem of a file; errors name the file and the line.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from bvfim.app.problem_file import EXAMPLE, load, run
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "example.py").write_text(EXAMPLE)
        ...     print(run(load(f"{folder}/example.py").changed(method="rhg", steps=3)).status)
        Status.MAX_STEPS
    """
    with explained(stated.file, stated.lines, stated.x, stated.y):
        _check_start(stated.problem, stated.x, stated.y)
        how = (stated.method, stated.optimizer, stated.steps)
        return solve(stated.problem, stated.x, stated.y, *how, callbacks=callbacks, tol=stated.tol)


@contextmanager
def explained(file: Path, lines: Mapping[str, int], x: Tree, y: Tree) -> Iterator[None]:
    """Turn what goes wrong inside into an error that names a line of the file, with the shapes of x and y.

    Args:
        file: the file; its folder can be imported from meanwhile.
        lines: the line that binds each of its names.
        x, y: the start.

    Example:
        >>> import torch, bvfim
        >>> from pathlib import Path
        >>> from bvfim.app.problem_file import explained
        >>> with explained(Path("a.py"), {"upper": 7}, torch.ones(2), torch.ones(3)):
        ...     raise bvfim.ProblemError("upper must return a scalar")
        Traceback (most recent call last):
        bvfim.status.ProblemError: a.py:7: upper must return a scalar
    """
    try:
        with python_file.importable(file):
            yield
    except Exception as error:
        inside = python_file.frames(error, file)
        if isinstance(error, BvfimError) and not inside:
            subject = re.split(r"[ :[]", str(error), maxsplit=1)[0]
            where, line = python_file.place(file, lines.get(subject) if subject in REQUIRED + OPTIONAL else None)
            raise type(error)(f"{where}: {error}{line}") from error
        hint = "" if inside else "\nThe error was raised outside the file: --debug shows where."
        raise ProblemError(f"{python_file.described(error, file)}{hint}\n{shapes(x, y)}") from error


def _require_names(file: Path, names: Mapping[str, Any], lines: Mapping[str, int]) -> None:
    missing = [name for name in REQUIRED if name not in names]
    if not missing:
        return
    text = f"{file} does not define {_listed(missing)}."
    own = {name.lower(): name for name in lines if name in names and name not in REQUIRED + OPTIONAL}
    for name in missing:
        for near in get_close_matches(name, own, n=1):
            text += f" Is {own[near]!r} on line {lines[own[near]]} meant to be {name!r}?"
    more = textwrap.fill(f"It may also define {_listed(list(OPTIONAL))}.", 79)
    raise ProblemError(f"{text}\nA complete file:\n\n{textwrap.indent(EXAMPLE, '    ')}\n{more}")


def _warn_of_names(file: Path, names: Mapping[str, Any], lines: Mapping[str, int]) -> None:
    """Say which names look as if they were meant for us and are not read."""
    absent = [name for name in OPTIONAL if name not in names]
    for name, line in lines.items():
        if name not in names or name in REQUIRED + OPTIONAL or isinstance(names[name], ModuleType):
            continue
        if name in UNREAD:
            hint = f"to set {name}, call bvfim.solve from Python"
        elif near := get_close_matches(name.lower(), absent, n=1, cutoff=0.85):
            hint = f"did you mean {near[0]!r}?"
        else:
            continue
        warnings.warn(f"{file}:{line}: {name!r} is ignored; {hint}", BvfimWarning, stacklevel=3)


def _require_tensors(name: str, value: Any) -> None:
    """Refuse numbers, arrays and modules with the line that would do; the rest is left to :func:`validate`."""
    for path, leaf in named(name, value):
        if isinstance(leaf, Tensor):
            continue
        what, repair = f"contains a {type(leaf).__name__}, not a tensor", ""
        if isinstance(leaf, numbers.Real):
            plain = isinstance(value, list | tuple) and all(isinstance(v, numbers.Real) for v in value)
            numeral = repr(value if plain else leaf)
            what = f"is a {type(value).__name__} of numbers, not a tensor" if plain else what
            repair = f"torch.tensor({numeral if len(numeral) < 60 else '...'}, dtype=torch.float64)"
        elif isinstance(leaf, np.ndarray):
            repair = "torch.from_numpy(...)"
        elif isinstance(leaf, torch.nn.Module):
            repair = "bvfim.parameters(...)"
        place = "" if path == name or "of numbers" in what else f" at {path}"
        raise ProblemError(f"{name} {what}{place}" + (f": write {repair}" if repair else ""))


def _require_arguments(problem: Problem) -> None:
    for name in ("upper", "lower"):
        objective = getattr(problem, name)
        if not (accepts(objective, 2) or accepts(objective, 3)):
            raise ProblemError(f"{name} must be a function of (x, y)")


def _method(given: Any) -> Any:
    """An instance, from an instance, a class or a name."""
    try:
        return None if given is None else as_method(by_name(given) if isinstance(given, str) else given)
    except MethodError as error:
        raise MethodError(f"method: {error}") from error


def _check_start(problem: Problem, x: Tree, y: Tree) -> None:
    """Refuse a start at which an objective is not finite: a step from there leads anywhere."""
    validate(problem, x, y)
    x, y = tree.detach(problem.project_x(x)), tree.detach(problem.project_y(y))
    for name, start in (("x", x), ("y", y)):
        if not all(bool(leaf.isfinite().all()) for leaf in tree.leaves(start)):
            raise ProblemError(f"{name} is not finite at the starting point {point(x, y)}")
    at = problem.at(x)
    with torch.no_grad():
        for name, objective in (("upper", at.F), ("lower", at.f)):
            value = objective(at.u, y)
            if not bool(value.isfinite()):
                raise ProblemError(
                    f"{name} is {float(value):g} at the starting point {point(x, y)}: start elsewhere, or constrain "
                    "x and y to sets where it is defined"
                )


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
