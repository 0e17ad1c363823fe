"""What ``bvfim bench time-to-result`` says: the table, who leads ours and when, and curves over seconds and epochs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from bvfim.reports.plots import legend, panels
from bvfim.reports.report import Results, Section
from bvfim.reproduce.bench.time_to_result_rivals import OURS
from bvfim.reproduce.bench.time_to_result_watch import LOOKS

BUDGET, OUR_END, BOTH, DEFAULTS = "the budget", "our end", "both", "defaults"
"""The moments that a setting can be the best at; ours is not chosen."""
TUNED = "tuned for"
MEASURES = ("accuracy", "F1")
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#808a94")
"""Of Okabe and Ito, which the colour-blind can tell apart too; dashes and markers tell the rest."""
DASHES = ("-", "--", "-.")
MARKERS = "osv^DPX*<>"
POINTS = 60
"""Of a curve."""
BELOW, EARLIEST = 0.3, 50
"""How far below our result the panels reach, and how early, as a share of our run: nothing is learnt before."""

Ends = Mapping[tuple[str, int], float]
"""The seconds of our run by data set and split."""


def ends(own: pd.DataFrame) -> dict[tuple[str, int], float]:
    """When our run ended on each data set and split.

    Example:
        >>> import pandas as pd
        >>> from bvfim.reproduce.bench.time_to_result_report import ends
        >>> ends(pd.DataFrame({"data": ["digits"] * 2, "split": [1, 1], "seconds": [0.0, 2.0]}))
        {('digits', 1): 2.0}
    """
    last: Any = own.groupby(["data", "split"])["seconds"].max().items()
    return {(data, int(split)): float(seconds) for (data, split), seconds in last}


def results(looks: pd.DataFrame, grid: pd.DataFrame, bilevel: list[str], about: str, absent: dict[str, str]) -> Results:
    """The tables, figures, summary and section of all looks.

    Args:
        looks: a row a look: of ours and, with the chosen settings, of the rivals.
        grid: likewise, of all settings on the split that they are chosen on.
        bilevel: the rivals that are bilevel methods.
        about: what was done.
        absent: those that could not take part, with the reason.
    """
    our_ends = ends(looks[looks["method"] == OURS])
    table, leads = summarised(looks, our_ends), leading(looks, our_ends)
    sentence = f"{said(leads, bilevel)} {later(table, bilevel)}"
    seconds = {
        data: round(float(rows["seconds"].iloc[0]), 3) for data, rows in table.xs(OURS, level="method").groupby("data")
    }
    missing = "".join(f" {name} did not take part: {why}." for name, why in absent.items())
    section = Section("Time to result", about + missing, "", sentence, ("seconds", "epochs"), ("results", "leads"))
    figures = {unit: drawn(looks, unit) for unit in ("seconds", "epochs")}
    tables = {"results": table, "leads": leads, "looks": looks, "settings": tried(grid)}
    return Results(tables, figures, {"absent": absent, "our seconds": seconds, "verdict": sentence}, (section,))


def runs(looks: pd.DataFrame) -> Iterator[tuple[str, str, str, dict[int, pd.DataFrame]]]:
    """The data set, the method, what it is tuned for, and its runs by split."""
    for key, own in looks.groupby(["data", "method", TUNED], sort=False):
        data, method, tuned = map(str, key)
        splits: Any = own.groupby("split")
        yield data, method, tuned, {int(split): run for split, run in splits}


def at(run: pd.DataFrame, moment: float, column: str) -> float:
    """A column of a run at a moment, on the line between the looks around it; as at the start before its first step.

    Example:
        >>> import pandas as pd
        >>> from bvfim.reproduce.bench.time_to_result_report import at
        >>> run = pd.DataFrame({"seconds": [0.0, 1.0, 3.0], "F1": [0.5, 0.6, 0.7]})
        >>> [round(at(run, moment, "F1"), 2) for moment in (0.9, 2.0, 9.0)]
        [0.5, 0.65, 0.7]
    """
    times = run["seconds"].to_numpy()
    begun = moment >= times[min(1, len(times) - 1)]
    return float(np.interp(moment, times, run[column])) if begun else float(run[column].iloc[0])


def summarised(looks: pd.DataFrame, our_ends: Ends) -> pd.DataFrame:
    """Means over the splits: when our run ends, at last, and the best from our end on."""
    order, rows = list(dict.fromkeys(looks["data"])), list[dict[str, Any]]()
    for data, method, tuned, by_split in runs(looks):
        row: dict[str, Any] = {"data": data, "method": method, TUNED: tuned}
        for name in MEASURES:
            then = [at(run, our_ends[data, split], name) for split, run in by_split.items()]
            row |= {f"{name} at our end": np.mean(then), f"± {name}": np.std(then)}
        for name in MEASURES:
            row[f"{name} at last"] = np.mean([run[name].iloc[-1] for run in by_split.values()])
            later = [run[name][run["seconds"] >= our_ends[data, split]] for split, run in by_split.items()]
            row[f"best {name} later"] = np.mean([max(own, default=np.nan) for own in later])
        row["epochs at our end"] = np.mean([at(run, our_ends[data, s], "epochs") for s, run in by_split.items()])
        row |= {name: np.mean([run[name].iloc[-1] for run in by_split.values()]) for name in ("seconds", "epochs")}
        first = next(iter(by_split.values()))
        rows.append(row | {"lower step": first["lower"].iloc[0], "upper step": first["upper"].iloc[0]})
    rows.sort(key=lambda row: order.index(row["data"]))
    return pd.DataFrame(rows).set_index(["data", "method", TUNED])


def leading(looks: pd.DataFrame, our_ends: Ends) -> pd.DataFrame:
    """Who is ahead of ours at evenly spaced moments up to the end of our run, by the means over the splits."""
    shares = np.arange(1, LOOKS + 1) / LOOKS
    ours = {data: by_split for data, method, _, by_split in runs(looks) if method == OURS}
    rows: list[dict[str, Any]] = []
    for data, method, tuned, by_split in runs(looks[looks["method"] != OURS]):
        seconds = shares * float(np.mean([our_ends[data, split] for split in by_split]))
        for name in MEASURES:
            ahead = np.mean(
                [_ahead(ours[data][s], run, our_ends[data, s] * shares, name) for s, run in by_split.items()], 0
            )
            when = seconds[ahead > 0]
            if len(when):
                where = {"data": data, "method": method, TUNED: tuned, "measure": name, "moments": len(when)}
                span = {"from second": when[0], "to second": when[-1]}
                rows.append(where | span | {"largest lead": ahead.max(), "lead at our end": ahead[-1]})
    columns = [
        "data",
        "method",
        TUNED,
        "measure",
        "moments",
        "from second",
        "to second",
        "largest lead",
        "lead at our end",
    ]
    return pd.DataFrame(rows, columns=columns).set_index(["data", "method", TUNED])


def _ahead(ours: pd.DataFrame, run: pd.DataFrame, moments: np.ndarray, name: str) -> list[float]:
    return [at(run, moment, name) - at(ours, moment, name) for moment in moments]


def said(leads: pd.DataFrame, bilevel: list[str]) -> str:
    """Whether a bilevel method, or else the plain network, leads ours before our run ends, in a sentence or two."""
    named = leads.index.get_level_values("method").isin(bilevel)
    words = (
        f"Before the run of {OURS} ends, bilevel methods lead it in {_listed(leads[named])}."
        if named.any()
        else f"No bilevel method leads {OURS} in accuracy or F1 at any of {LOOKS} evenly spaced moments up to the end "
        "of its run."
    )
    return words if named.all() else f"{words} A method that is not bilevel leads it in {_listed(leads[~named])}."


def _listed(leads: pd.DataFrame) -> str:
    """What ours is led in: by how many, until when, by how much at most, and who still does at its end."""
    words = []
    for key, own in leads.reset_index().groupby(["measure", "data"], sort=False):
        measure, data = map(str, key)
        most, still = own["largest lead"].to_numpy(), own[own["lead at our end"] > 0]["method"].unique()
        at_end = f"at its end still {', '.join(still)}" if len(still) else "none at its end"
        words.append(
            f"{measure} on {data} ({own['method'].nunique()} until {own['to second'].max():.2g} s, most "
            f"{own['method'].iloc[most.argmax()]} by {most.max():.3f}; {at_end})"
        )
    return ", ".join(words)


def later(table: pd.DataFrame, bilevel: list[str]) -> str:
    """Whether bilevel methods get further than ours ended, given more time, in a sentence."""
    words = []
    for data, rows in table.groupby(level="data", sort=False):
        for name in MEASURES:
            ended = float(rows.xs(OURS, level="method")[f"{name} at last"].iloc[0])
            best = rows[f"best {name} later"].groupby(level="method", sort=False).max().reindex(bilevel)
            ahead = best[best > ended]
            if len(ahead):
                most = f"{ahead.idxmax()} with {ahead.max():.3f} against {ended:.3f}"
                words.append(f"{name} on {data} ({len(ahead)}, most {most})")
    if not words:
        return "With more time no bilevel method goes beyond what it has at its end."
    return f"With more time bilevel methods go beyond what it has at its end in {', '.join(words)}."


def tried(grid: pd.DataFrame) -> pd.DataFrame:
    """What each setting had at the end of its run on the split that settings are chosen on."""
    return grid.groupby(["data", "method", "lower", "upper"], sort=False).last()


def drawn(looks: pd.DataFrame, unit: str) -> Figure:
    """Accuracy and F1 over seconds or epochs, a column a data set; thin lines are tuned for the end of our run."""
    names = list(dict.fromkeys(looks["data"]))
    order = list(dict.fromkeys(looks["method"]))
    figure, axes = panels(len(MEASURES), len(names), width=max(4.2, 9.0 / len(names)), height=3.2)
    for data, method, tuned, by_split in runs(looks):
        for row, name in enumerate(MEASURES):
            _curve(axes[row, names.index(data)], list(by_split.values()), unit, name, order.index(method), tuned)
    for column, data in enumerate(names):
        own = looks[(looks["data"] == data) & (looks["method"] == OURS)].groupby("split").last()
        axes[0, column].set_title(data)
        axes[-1, column].set_xlabel("seconds" if unit == "seconds" else "epochs: 10,000 rows through a gradient")
        for row, name in enumerate(MEASURES):
            one, top = axes[row, column], float(looks[looks["data"] == data][name].max())
            end = float(own[unit].mean())
            one.set(xscale="log", xlim=(end / EARLIEST, None), ylim=(float(own[name].mean()) - BELOW, top + 0.02))
            one.axvline(end, color="#808a94", linestyle=":", linewidth=1)
            if column == 0:
                one.set_ylabel(f"{name} on test rows" if name == "accuracy" else f"{name} of the flags")
    legend(figure, 5)
    return figure


def _curve(axes: Any, splits: list[pd.DataFrame], unit: str, name: str, index: int, tuned: str) -> None:
    """The mean over the splits, where all of them have been looked at; nothing of a method that broke off at once."""
    if any(len(run) < 2 for run in splits):
        return
    begin = max(float(run[unit].iloc[1]) for run in splits)
    moments = np.geomspace(begin, min(float(run[unit].max()) for run in splits), POINTS)
    mean = np.mean([np.interp(moments, run[unit], run[name]) for run in splits], 0)
    method, thin = str(splits[0]["method"].iloc[0]), tuned == OUR_END
    axes.plot(
        moments,
        mean,
        color=COLOURS[index % len(COLOURS)],
        linestyle=DASHES[index // len(COLOURS) % len(DASHES)],
        linewidth=3.0 if method == OURS else 0.8 if thin else 1.5,
        marker=None if thin else MARKERS[index % len(MARKERS)],
        markevery=(POINTS - 1 - 4 * (index % 3), POINTS),
        markersize=5,
        label=None if thin else method,
        zorder=3 if method == OURS else 2,
    )
