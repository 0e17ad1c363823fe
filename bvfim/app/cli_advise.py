"""The command ``bvfim advise``."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Annotated

import typer

from bvfim.app.terminal import console
from bvfim.status import BvfimError


def advise(
    file: Annotated[Path, typer.Argument(help="Python file that defines upper, lower, x and y, as for bvfim solve.")],
    seconds: Annotated[float, typer.Option(min=0, help="How long the run may take, for its number of steps.")] = 60.0,
    trial: Annotated[bool, typer.Option(help="Try the two best methods for a second each.")] = True,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Random seed.")] = 0,
    debug: Annotated[bool, typer.Option(help="Show the full traceback of an error.")] = False,
) -> None:
    """Say which method suits the problem in a Python file, with its steps, and why.

    Takes about four seconds. For a problem with batches call bvfim.advise from Python.

    Exit codes: 0 done, 2 invalid input.
    """
    from bvfim.adviser import advise as advised
    from bvfim.app import problem_file

    problem_file.seed_everything(seed)
    try:
        stated = problem_file.load(file)
        with problem_file.explained(stated.file, stated.lines, stated.x, stated.y):
            answer = advised(stated.problem, stated.x, stated.y, seconds=seconds, trial=trial)
    except BvfimError:
        if debug:
            traceback.print_exc()
        raise
    console.print(str(answer), soft_wrap=True, markup=False, highlight=False)
