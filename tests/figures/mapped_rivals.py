"""The tables of the page on which method to take, worked out from the contest of all methods."""

from __future__ import annotations

from typing import Any

from tests.figures.results import result

DEFAULTS, BEST = "defaults", "best of grid"


def near() -> dict[str, list[Any]]:
    """Ends near the best of each method by kind of problem, then of all: by default, with the best of the grid."""
    runs = result("rivals-cpu")["runs"]
    kinds = list(dict.fromkeys(run["family"] for run in runs))

    def count(method: str, kind: str | None, how: str) -> int:
        return sum(
            run["near"]
            for run in runs
            if run["method"] == method and run["as"] == how and kind in (None, run["family"])
        )

    return {
        row["method"]: [tuple(count(row["method"], kind, how) for how in (DEFAULTS, BEST)) for kind in (*kinds, None)]
        for row in result("rivals-cpu")["methods"]
    }
