"""What the few-shot experiment shows: a table beside the paper's, and the course of the runs."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from bvfim.reports.plots import COLOURS, legend, panels
from bvfim.reports.report import Results, Section
from bvfim.reproduce.experiments.paper import FEW_SHOT, PROTOTYPES
from bvfim.status import SOUND

KEY = ["data", "ways", "shots", "method"]
SHOWN = [
    "accuracy",
    "interval",
    "each alone",
    "paper",
    "steps",
    "seconds",
    "ms",
    "fit lr",
    "fit steps",
    "validation",
    "episodes",
    "status",
]


def results(config: Any, raw: pd.DataFrame) -> Results:
    """The tables, the figure and the section of a page.

    Args:
        config: what was asked for.
        raw: a row for each point of each run's course, with what came of the run.
    """
    runs = raw.drop_duplicates(KEY)
    table = runs.assign(paper=[_published(*key) for key in runs[KEY].to_numpy()]).set_index(KEY)[SHOWN]
    notes = [f"{name}: {note}." for name, note in raw[["data", "note"]].drop_duplicates().to_numpy() if note]
    rows: list[Any] = table.reset_index().to_dict("records")
    section = Section(
        "Few-shot learning",
        f"{config.steps} upper steps for every method, on the same tasks. Accuracy, in percent, is on tasks of classes "
        "that no run has seen; the interval is half of its 95 percent confidence interval. A fresh head is fitted to "
        f"each test task, with the step size and the number of steps that {_chosen(config)}. The images of "
        'a task are normalised together, including its query images; "each alone" is the accuracy if they are '
        f"normalised with training images, with the same fit. {_varied(config)}"
        "ms is the median time of an upper step. " + " ".join([*_beside(config), *notes]),
        "BVFIM is slightly behind the others on Omniglot and ahead of them on miniImageNet. (In the paper's table, on "
        "Omniglot, it is behind BDA, at 20-way also behind TRHG, and ahead of the rest.)",
        _sentence(rows),
        ("course",),
        ("few-shot",),
    )
    summary = {" ".join(str(row[name]) for name in KEY): round(row["accuracy"], 2) for row in rows}
    return Results({"few-shot": table, "course": raw}, {"course": _figure(raw)}, summary, (section,))


def _chosen(config: Any) -> str:
    if config.fit is None:
        return "do best on validation classes"
    return "were fixed in advance; the validation classes are used for training, too"


def _beside(config: Any) -> list[str]:
    said = "For CIFAR-FS, which is not in the paper, the reference number is that of prototypical networks "
    return [said + "(Bertinetto et al., 2019)."] if "cifar-fs" in config.data else []


def _varied(config: Any) -> str:
    harder = f"Every network was trained on {config.train_ways}-way tasks. " if config.train_ways else ""
    turned = "Rotated characters are additional classes; for training, mirrored ones are as well. "
    moved = "Each training image is slightly shifted, rotated and scaled. "
    return harder + (turned if "omniglot" in config.data else "") + (moved if config.moved else "")


def _published(data: str, ways: int, shots: int, label: str) -> float:
    key = (data, ways, shots)
    return FEW_SHOT.get(key, {}).get(label.split("-")[0], PROTOTYPES.get(key, float("nan")))


def _sentence(rows: list[Any]) -> str:
    words = []
    for row in rows:
        chance = 100 / row["ways"]
        words.append(
            f"{row['data']} {row['ways']}-way {row['shots']}-shot {row['method']}: {row['accuracy']:.2f} ± "
            f"{row['interval']:.2f} (chance {chance:g}) after {row['steps']} steps and {row['seconds']:.0f} s"
            + ("" if row["status"] in SOUND else f"; the run failed: {row['status']}")
        )
    return "; ".join(words) + "."


def _figure(raw: pd.DataFrame) -> Figure:
    learned = ["data", "train ways", "shots"]
    tables = list(raw.drop_duplicates([*learned, "method", "step"]).groupby(learned, sort=False))
    figure, axes = panels(1, len(tables), width=max(4.6, 9.2 / len(tables)))
    for one, ((data, ways, shots), rows) in zip(axes[0], tables, strict=True):
        for label, own in rows.groupby("method", sort=False):
            one.semilogy(own["step"], own["upper"], color=COLOURS.get(str(label)), label=label)
        one.set(xlabel=f"upper step, {data} {ways}-way {shots}-shot", ylabel="F, summed over a batch of tasks")
    legend(figure)
    return figure
