"""What ``bvfim bench rivals`` says: how often each method is near the best, and where it ends on each job."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from bvfim.reports.report import Results, Section
from bvfim.reproduce.bench.contest_figures import BEST, NEAR_FROM, curves, profiles
from bvfim.reproduce.bench.contest_run import CUT, FAILED, REFUSED
from bvfim.reproduce.bench.contest_settings import DEFAULTS
from bvfim.reproduce.bench.jobs import excess, is_near, jobs
from bvfim.reproduce.bench.jobs.base import NEAR, TRIFLE

TRIED = "tried"
ENDS = (DEFAULTS, BEST)
DIGITS = 6
"""Of the numbers that are kept."""


def results(looks: pd.DataFrame, scale: float, tries: int) -> Results:
    """The tables, figures, summary and sections of all looks.

    Args:
        looks: a row a look at a run, as :func:`bvfim.reproduce.bench.contest.looks` gives them.
        scale: the CPU seconds of a run, as a multiple of the budget of its job; tries: settings of a method.
    """
    looks = measured_against(looks, lowest(looks, optima(looks)))
    compared = looks[looks["as"] != TRIED]
    ends = ended(compared, {job.name: scale * job.budget for job in jobs()})
    overall, kinds = shares(ends), by_kind(ends)
    families = list(dict.fromkeys(ends["family"]))
    figures = {"profiles": profiles(ends)}
    tables = {"methods": overall, "kinds": kinds}
    sections = [Section("Methods", about(ends, tries), "", said(overall), ("profiles",), ("methods", "kinds"))]
    for family in families:
        name = family.replace(" ", "-")
        own = compared[compared["family"] == family]
        figures |= {f"{name}-{unit}": curves(own, unit) for unit in ("seconds", "gradients")}
        tables[name] = by_job(ends[ends["family"] == family])
        text = "Lines: the best of the grid. Dotted, in the same colour: the defaults, where they are another setting."
        names = (f"{name}-seconds", f"{name}-gradients")
        sections.append(Section(family.capitalize(), text, "", "", names, (name,)))
    tables |= {
        "ends": ends.set_index(["job", "method", "as", "seed"]),
        "refusals": refusals(ends),
        "grid": grid(looks),
        "settings": settings_tried(looks),
        "looks": looks,
    }
    missing = "A method counts as infinitely far from the best where it refuses a job, breaks off or fails."
    sections.append(Section("Who could not, and what was tried", missing, "", "", (), ("refusals", "grid")))
    return Results(tables, figures, {"jobs": len(families), "problems": ends["job"].nunique()}, tuple(sections))


def optima(looks: pd.DataFrame) -> dict[str, float]:
    """What is known of the jobs beforehand: the lowest value that an x can have."""
    seen = set(looks["job"])
    posed = {job.name: job.build(0) for job in jobs() if job.name in seen}
    return {name: own.optimum for name, own in posed.items() if own.optimum is not None}


def lowest(looks: pd.DataFrame, known: Mapping[str, float]) -> dict[tuple[str, int], float]:
    """The lowest value that a run of anyone ended with on each job and seed, or the optimum where it is lower.

    Example:
        >>> import pandas as pd
        >>> from bvfim.reproduce.bench.contest_report import lowest
        >>> ends = pd.DataFrame({"job": ["a", "a"], "seed": [1, 1], "status": ["stopped"] * 2, "value": [3.0, 2.0]})
        >>> lowest(ends, {}), lowest(ends, {"a": 1.0})
        ({('a', 1): 2.0}, {('a', 1): 1.0})
    """
    found: Any = looks[looks["status"] != ""].groupby(["job", "seed"])["value"].min().items()
    return {(job, int(seed)): min(float(value), known.get(job, math.inf)) for (job, seed), value in found}


def measured_against(looks: pd.DataFrame, best: Mapping[tuple[str, int], float]) -> pd.DataFrame:
    """The looks with the best of their job, how far they are above it, and whether they count as near."""
    rows: list[Any] = looks[["job", "seed", "value", "start"]].to_dict("records")
    lows = [best[row["job"], int(row["seed"])] for row in rows]
    pairs = list(zip(rows, lows, strict=True))
    return looks.assign(
        best=lows,
        excess=[excess(row["value"], low, row["start"]) for row, low in pairs],
        near=[is_near(row["value"], low, row["start"]) for row, low in pairs],
    )


def ended(looks: pd.DataFrame, budgets: Mapping[str, float]) -> pd.DataFrame:
    """The ends of runs, with the share of its budget from which on each was near the best; NaN where it never was.

    Example:
        >>> import pandas as pd
        >>> from bvfim.reproduce.bench.contest_report import ended
        >>> run = {"job": "a", "method": "RHG", "as": "defaults", "seed": 1, "seconds": [1.0, 2.0, 3.0, 4.0]}
        >>> run |= {"near": [True, False, True, True], "status": ["", "", "", "stopped"]}
        >>> float(ended(pd.DataFrame(run), {"a": 4.0})["near from"].iloc[0])
        0.75
    """
    found = []
    for _, run in looks.groupby(["job", "method", "as", "seed"], sort=False):
        end = run[run["status"] != ""]
        staying = run["near"].to_numpy()[::-1].cumprod()[::-1].astype(bool)
        share = run["seconds"][staying].min() / budgets[str(end["job"].iloc[0])]
        found.append(end.assign(**{NEAR_FROM: min(share, 1.0) if staying.any() else math.nan}))
    return pd.concat(found, ignore_index=True)


def methods(ends: pd.DataFrame) -> Iterator[tuple[str, dict[str, pd.DataFrame]]]:
    """Each method with its ends, by default and at its best."""
    for method, own in ends.groupby("method", sort=False):
        yield str(method), {name: own[own["as"] == name] for name in ENDS}


def shares(ends: pd.DataFrame) -> pd.DataFrame:
    """How often each method ends near the best, and what became of it elsewhere; those that do most often first."""
    rows: list[dict[str, Any]] = []
    for method, own in methods(ends):
        default, chosen = own[DEFAULTS], own[BEST]
        broken = default["value"].eq(math.inf) & ~default["status"].eq(REFUSED)
        rows.append(
            {
                "method": method,
                "near, best of grid": int(chosen["near"].sum()),
                "near, defaults": int(default["near"].sum()),
                "lowest of all": int(chosen["excess"].eq(0).sum()),
                "refused": int(default["status"].eq(REFUSED).sum()),
                "broke off, failed or cut off": int((broken | default["status"].eq(CUT)).sum()),
                "median excess, best of grid": float(chosen["excess"].median()),
                "median excess, defaults": float(default["excess"].median()),
                "of": len(default),
            }
        )
    order = ["near, best of grid", "near, defaults"]
    return pd.DataFrame(rows).sort_values(order, ascending=False, kind="stable").set_index("method")


def by_kind(ends: pd.DataFrame) -> pd.DataFrame:
    """For each method and kind of jobs: how many ends are near the best, by default and at its best."""
    sizes = ends[ends["as"] == DEFAULTS].groupby(["family", "method"], sort=False)["near"].size()
    rows: dict[str, dict[str, str]] = {}
    for method, own in methods(ends):
        counts = {name: table.groupby("family", sort=False)["near"].sum() for name, table in own.items()}
        cells = {str(kind): f"{counts[DEFAULTS][kind]}, {counts[BEST][kind]}" for kind in counts[DEFAULTS].index}
        rows[method] = {f"{kind}, of {sizes[kind, method]}": cell for kind, cell in cells.items()}
    found = pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")
    found.attrs["title"] = "ends near the best: by default, with the best of the grid"
    return found


def by_job(ends: pd.DataFrame) -> pd.DataFrame:
    """A row for each job and method: medians over the seeds, by default and at its best."""
    rows: list[dict[str, Any]] = []
    for (job, method), own in ends.groupby(["job", "method"], sort=False):
        row: dict[str, Any] = {"job": job, "method": method}
        for name in ENDS:
            run = own[own["as"] == name]
            row |= {f"{name}: {column}": float(run[column].median()) for column in ("value", "gradients", "seconds")}
            row[f"{name}: end"] = ", ".join(dict.fromkeys(run["status"]))
        row["setting"] = own[own["as"] == BEST]["setting"].iloc[0]
        row["near"] = ", ".join("yes" if bool(own[own["as"] == name]["near"].all()) else "no" for name in ENDS)
        rows.append(row)
    return pd.DataFrame(rows).set_index(["job", "method"])


def refusals(ends: pd.DataFrame) -> pd.DataFrame:
    """What the methods said that could not take a job, and on which."""
    own = ends[(ends["as"] == DEFAULTS) & ends["status"].isin([REFUSED, FAILED, CUT])]
    groups = own.groupby(["method", "status", "said"], sort=False)["job"]
    return groups.agg(lambda found: ", ".join(dict.fromkeys(found))).rename("jobs").to_frame()


def grid(looks: pd.DataFrame) -> pd.DataFrame:
    """The settings of each method, and how often each was its best."""
    rows: list[dict[str, Any]] = []
    chosen = looks[(looks["as"] == BEST) & (looks["status"] != "")].drop_duplicates(["job", "method"])
    for method, own in looks[looks["as"] == TRIED].groupby("method", sort=False):
        counts = chosen[chosen["method"] == method]["setting"].value_counts()
        rows += [{"method": method, "setting": s, "best on": int(counts.get(s, 0))} for s in own["setting"].unique()]
    return pd.DataFrame(rows).set_index(["method", "setting"])


def settings_tried(looks: pd.DataFrame) -> pd.DataFrame:
    """What each setting ended with on the seed that settings are chosen on."""
    own = looks[looks["as"] == TRIED].set_index(["job", "method", "setting"])
    return own[["value", "excess", "gradients", "seconds", "status"]]


def about(ends: pd.DataFrame, tries: int) -> str:
    """What was done, for the page."""
    seeds = sorted(set(ends["seed"]))
    return (
        f"{ends['job'].nunique()} problems of {ends['family'].nunique()} kinds, {ends['method'].nunique()} methods, "
        "each for the same seconds of one CPU thread on a problem. What counts is what a judge gives for x alone: "
        "F after an exact solution of the lower level, or the loss on unseen rows of a network trained anew. "
        f"Each method ran with at most {tries} settings on seed 0; the one that ended lowest there is its best, and "
        f"what is shown is seed {', '.join(map(str, seeds))}. Judging is not counted. A value is near the best, the "
        f"lowest end of anyone or the optimum if it is known, where it is above it by at most {100 * NEAR:g} per cent "
        f"of it, or by {TRIFLE:g} of the fall from the start. A step that was begun in time may end. A product of "
        "second order counts as two gradients, a value as a third of one."
    )


def said(overall: pd.DataFrame) -> str:
    """Who is near the best most often, in a sentence."""
    total = int(overall["of"].iloc[0])
    pairs = zip(overall.index, overall["near, best of grid"], overall["near, defaults"], strict=True)
    words = [f"{method} {best} ({default})" for method, best, default in pairs]
    return f"Ends near the best out of {total}, with the best of the grid (by default): {', '.join(words)}."


def recorded(results: Results, command: str, about: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of a run as JSON: the ends, and how often each method is near; what is not finite is null."""
    tables = results.tables
    return {
        "command": command,
        **about,
        "methods": _plain(tables["methods"]),
        "runs": _plain(tables["ends"], KEPT),
        "tried": _plain(tables["settings"], ("job", "method", "setting", "value", "status")),
        "refusals": _plain(tables["refusals"]),
    }


KEPT = ("job", "family", "method", "as", "setting", "seed", "start", "best", "value", "excess", "near", NEAR_FROM,
        "seconds", "gradients", "status")  # fmt: skip
"""What is kept of an end."""


def _plain(table: pd.DataFrame, columns: Sequence[str] = ()) -> list[dict[str, Any]]:
    rows: list[Any] = table.reset_index().to_dict("records")
    return [{key: plain(row[key]) for key in columns or row} for row in rows]


def plain(value: Any) -> Any:
    """A number as it is kept, with as many digits as are worth keeping.

    Example:
        >>> from bvfim.reproduce.bench.contest_report import plain
        >>> plain(0.123456789), plain(float("inf")), plain("stopped")
        (0.123457, None, 'stopped')
    """
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value
