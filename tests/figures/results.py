"""What was measured, as the files in benchmarks/results hold it."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from tests.figures.pages import ROOT

FOLDER = ROOT / "benchmarks" / "results"


@cache
def result(name: str) -> Any:
    """A file of results by its name."""
    return json.loads((FOLDER / f"{name}.json").read_text())


def one(rows: list[dict[str, Any]], /, **wanted: Any) -> dict[str, Any]:
    """The only row with these entries."""
    (found,) = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    return found


def mean(rows: list[dict[str, Any]], key: str, /, **wanted: Any) -> float:
    """The mean of an entry over the rows with these entries."""
    found = [row[key] for row in rows if all(row[k] == value for k, value in wanted.items())]
    return sum(found) / len(found)


def commands(found: Any) -> list[str]:
    """The words of all commands that a file of results has, wherever they stand in it."""
    if isinstance(found, list):
        return [word for item in found for word in commands(item)]
    if not isinstance(found, dict):
        return []
    own = found.get("command", "").replace("python3", "python").split()
    return [word.rstrip(",") for word in own] + [word for value in found.values() for word in commands(value)]
