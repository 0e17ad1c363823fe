"""The tables of the page on which method to take, worked out from the contest of all methods."""

from __future__ import annotations

from typing import Any

from tests.figures.results import one, result

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

    def cells(method: str) -> list[Any]:
        return [tuple(count(method, kind, how) for how in (DEFAULTS, BEST)) for kind in (*kinds, None)]

    return {f"`{row['method']}`": cells(row["method"]) for row in result("rivals-cpu")["methods"]}


def sentences() -> list[tuple[Any, ...]]:
    """Single ends: what x is worth on the seed that is shown."""
    runs = result("rivals-cpu")["runs"]

    def end(job: str, method: str, how: str = DEFAULTS, key: str = "value") -> float:
        return float(one(runs, job=job, method=method, **{"as": how})[key])

    def both(job: str, method: str, other: str, how: str = DEFAULTS) -> list[float]:
        return [end(job, method, how, key) for key in ("value", other)]

    stochastic, larger, few = "StochasticBVFIM", "cleaning, larger", "few-shot, 1 image"
    return [
        ("n = 1 it ends at {}, where the optimum is {}", *both("toy, n = 1", "MEHA", "best")),
        ("at {} where the optimum is {}: it looks", *both("toy, n = 100", "AdaptiveBVFIM", "best")),
        ("when its time is over, at {} from {}", *both("per feature, breast cancer", "AdaptiveBVFIM", "start")),
        ("the best on the small one ({} on unseen rows, from {})", *both("cleaning", stochastic, "start")),
        ("is ahead of it ({} against {})", end(larger, "SOBA"), end(larger, stochastic)),
        ("with `Adam 0.1` on x it is at {}", end(larger, stochastic, BEST)),
        ("it was the best there ({})", end(few, stochastic, BEST)),
        ("than its defaults on seed 1 ({} against {})", end(few, "F2SA", BEST), end(few, "F2SA")),
        ("`CG` ({} from {})", *both("distillation", "CG", "start")),
        ("hardly moves ({})", end("distillation", stochastic)),
        ("with `Adam 0.1` ({} from {})", *both("architecture", "SABA", "start", BEST)),
        ("by default makes it worse ({})", end("architecture", stochastic)),
        ("just outside of 5 % ({})", end("architecture", stochastic, BEST)),
        *advice(),
    ]


def advice() -> list[tuple[Any, ...]]:
    """What the adviser's picks are worth on the same problems."""
    file = result("advice-cpu")
    totals, runs = file["totals"], file["runs"]

    def pick(job: str) -> list[float]:
        row = one(runs, job=job)
        return [row["pick"], row["best"]]

    return [
        ("near the best on {} of the {} problems, those", totals["near"]["pick"], totals["of"]),
        ("without a trial, on {}, and", totals["near"]["rules"]),
        ("second choice on {}. The", totals["near"]["second"]),
        ("longest advice took {} seconds", totals["longest advice in seconds"]),
        ("larger cleaning problem ({}, where its other setting has {})", *pick("cleaning, larger")),
        ("with one image ({} against {})", *pick("few-shot, 1 image")),
        ("for distillation ({} against {})", *pick("distillation")),
        ("worse than the start ({} against {})", *pick("architecture")),
    ]
