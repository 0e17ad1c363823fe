"""Finding wrong labels: the label cleaner against itself without its parts, and against what else is used.

Every contestant gets the same rows, labels and trusted rows of a column; what it flags is held against the true labels,
and a classifier, the same for all, is trained on what it leaves and judged on test rows.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from bvfim.labels.arrays import Array, Mask
from bvfim.reports.describe import slug
from bvfim.reports.plots import CYCLE, panels
from bvfim.reports.report import Results, Section
from bvfim.reproduce.bench.label_columns import SOURCES, Column, Task, columns, pool, task
from bvfim.reproduce.bench.rivals import CLEANLAB, CONTESTANTS, NONE, OURS, Found, learner
from bvfim.reproduce.experiments.cleaning import f1
from bvfim.reproduce.experiments.resumable import How, Part, measured
from bvfim.status import require_known

MEASURES = ("F1", "AUROC", "AP", "calibration error", "accuracy", "seconds")
LINES = {
    "synthetic": {"F1": 0.93, "AUROC": 0.99, "calibration error": 0.03},
    "human": {"F1": 0.60, "AUROC": 0.825, "calibration error": 0.10},
}
"""What the cleaner is held to: at least this, and of the calibration error at most."""
KEY = ["data", "noise", "trusted"]


@dataclass(frozen=True)
class Config:
    """Which columns and contestants.

    Args:
        data: names of :data:`bvfim.reproduce.bench.label_columns.SOURCES`.
        noises: the kinds of wrong labels; all that a data set is measured with where there are none.
        trusted: the sizes of the trusted set; digits has too few rows for 5000.
        noisy: how many rows have labels that may be wrong; of digits 1000 at most.
        seeds: how many draws of rows and noise.
        contestants: names of :data:`bvfim.reproduce.bench.rivals.CONTESTANTS`.
        seed: of the first draw.

    Example:
        >>> from bvfim.reproduce.bench.labels import Config
        >>> Config().quick().data
        ('digits',)
    """

    data: tuple[str, ...] = tuple(SOURCES)
    noises: tuple[str, ...] = ()
    trusted: tuple[int, ...] = (50, 200, 500, 5000)
    noisy: int = 2000
    seeds: int = 3
    contestants: tuple[str, ...] = tuple(CONTESTANTS)
    seed: int = 0

    def quick(self) -> Config:
        """Smaller, to see that it runs."""
        return replace(self, data=("digits",), noises=("symmetric 0.4",), trusted=(50, 200), seeds=1)


def run(config: Config, how: How = How()) -> Results:
    """Measure and report.

    Args:
        config: the settings.
        how: where the parts are saved, and how many processes share them.
    """
    asked = columns(config.data, config.noises, config.trusted)
    require_known("contestant", config.contestants, CONTESTANTS)
    absent = _absent(config)
    taking = tuple(name for name in config.contestants if name not in CLEANLAB or not absent)
    for name in dict.fromkeys(column.data for column in asked):
        pool(SOURCES[name].images)  # an embedding is made once, before the processes ask for it
    seeds = range(config.seed, config.seed + config.seeds)
    parts: dict[str, Part] = {
        slug(f"{column} {seed}"): partial(part, column, config.noisy, seed, taking)
        for seed in seeds
        for column in asked
    }
    work = {slug(f"{column} {seed}"): 3000.0 + column.trusted for seed in seeds for column in asked}
    raw = pd.concat(measured(config, parts, how, work).values(), ignore_index=True)
    return _results(config, raw, absent)


def _absent(config: Config) -> dict[str, str]:
    """Why cleanlab can't take part, where it is asked for and can't."""
    if not set(CLEANLAB) & set(config.contestants):
        return {}
    try:
        import_module("cleanlab.classification")
    except ImportError as error:
        return {"cleanlab": str(error)}
    return {}


def part(column: Column, noisy: int, seed: int, contestants: tuple[str, ...]) -> pd.DataFrame:
    """All contestants on one column with one seed, a row each.

    Example:
        >>> from bvfim.reproduce.bench.label_columns import Column
        >>> from bvfim.reproduce.bench.labels import part
        >>> found = part(Column("digits", "symmetric 0.4", 50), 200, 0, ("true labels",))
        >>> found[["data", "noise rate"]].to_dict("records")
        [{'data': 'digits', 'noise rate': 0.4}]
    """
    limits: Any = import_module("threadpoolctl").threadpool_limits  # which comes with scikit-learn, untyped
    own, rows = task(column, noisy, seed), []
    about: dict[str, Any] = {
        "data": column.data,
        "noise": column.noise,
        "trusted": column.trusted,
        "group": column.group,
    }
    with limits(torch.get_num_threads()):  # one of several processes has a single thread
        for name in contestants:
            began = time.perf_counter()
            found = CONTESTANTS[name](own, seed)
            seconds = time.perf_counter() - began
            rows.append({"contestant": name, **measures(own.wrong, found), "accuracy": accuracy(own, found)})
            rows[-1]["seconds"] = seconds
    return pd.DataFrame(rows).assign(**about, **{"noise rate": own.wrong.mean()}, seed=seed)


def measures(wrong: Mask, found: Found) -> dict[str, float]:
    """How well wrong labels were found; NaN where nothing was said about single rows.

    Example:
        >>> import numpy as np
        >>> from bvfim.reproduce.bench.labels import measures
        >>> from bvfim.reproduce.bench.rivals import Found
        >>> wrong = np.array([True, False])
        >>> measures(wrong, Found(np.array([0.9, 0.1]), wrong, np.zeros(2, int), np.ones(2)))["AUROC"]
        1.0
    """
    from sklearn.metrics import average_precision_score, roc_auc_score

    if found.p_wrong is None or found.flags is None:
        return dict.fromkeys(MEASURES[:4], float("nan"))
    return {
        "F1": f1(wrong, found.flags),
        "AUROC": float(roc_auc_score(wrong, found.p_wrong)),
        "AP": float(average_precision_score(wrong, found.p_wrong)),
        "calibration error": calibration_error(found.p_wrong, wrong),
    }


def calibration_error(p: Array, happened: Mask, bins: int = 15) -> float:
    """How far probabilities are from frequencies: the mean over the rows of their difference in the row's bin.

    Args:
        p: the probabilities, sorted into bins of equal width.
        happened: what they are of.
        bins: how many.

    Example:
        >>> import numpy as np
        >>> from bvfim.reproduce.bench.labels import calibration_error
        >>> calibration_error(np.array([0.75, 0.75, 0.75, 0.75]), np.array([True, True, True, False]))
        0.0
    """
    own = np.minimum((np.asarray(p) * bins).astype(int), bins - 1)
    return float(np.abs(np.bincount(own, p - happened, bins)).sum() / len(own))


def accuracy(task: Task, found: Found) -> float:
    """Of the classifier that is trained on the noisy rows as they were left, and on the trusted ones."""
    labels = np.concatenate([found.labels, task.trusted])
    weights = np.concatenate([found.weights, np.ones(len(task.trusted))])
    kept = weights > 0.0
    return float(learner().fit(task.inputs[kept], labels[kept], weights[kept]).score(task.test_inputs, task.test))


def _results(config: Config, raw: pd.DataFrame, absent: dict[str, str]) -> Results:
    by_column = _means(raw, [*KEY, "contestant"])
    by_group = _means(raw, ["group", "contestant"])
    summary: dict[str, Any] = {"absent": absent, **_lines(raw), **_behind(raw)}
    missing = "".join(f" {name} was not run: {why}." for name, why in absent.items())
    section = Section(
        "Wrong labels",
        f"{config.noisy} rows with partly wrong labels (digits: 1000), {config.seeds} draws; "
        "mean over the columns of a group, ± the spread between draws of a column. Synthetic: symmetric noise and "
        "pair flips on digits, MNIST and Fashion-MNIST; human: CIFAR-10N. After cleaning, all train the "
        "same logistic regression. Seconds are for the search alone, in processes that share the machine."
        f"{missing}",
        "",
        _sentence(summary),
        ("labels",),
        ("groups", "columns"),
    )
    tables = {"groups": by_group, "columns": by_column, "measurements": raw}
    return Results(tables, {"labels": _figure(by_group)}, summary, (section,))


def _means(raw: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Means, and how far the draws of a column are spread around theirs, on the average of the columns."""
    names = list(MEASURES)
    means = raw.groupby(by, sort=False)[names].mean()
    variances = raw.groupby([*KEY, "group", "contestant"], sort=False)[names].var().reset_index()
    spreads = np.sqrt(variances.groupby(by, sort=False)[names].mean())
    both = {name: means[name] for name in names} | {f"± {name}": spreads[name] for name in names if name != "seconds"}
    order = [column for name in names for column in (name, f"± {name}") if column in both]
    return pd.DataFrame(both)[order]


def _lines(raw: pd.DataFrame) -> dict[str, Any]:
    """The cleaner's means in each group beside the lines it is held to."""
    own = raw[raw["contestant"] == OURS]
    found: dict[str, Any] = {}
    for group, lines in LINES.items():
        rows = own[own["group"] == group]
        for name, line in lines.items() if len(rows) else ():
            mean = float(rows[name].mean())
            met = mean <= line if "error" in name else mean >= line
            found[f"{group} {name}"] = {"mean": round(mean, 4), "line": line, "met": met}
    return found


def _behind(raw: pd.DataFrame) -> dict[str, Any]:
    """The columns in which the cleaner is not ahead of cleanlab, or costs accuracy beyond the spread of the draws."""
    there, found = set(raw["contestant"]), dict[str, Any]()
    if OURS not in there:
        return found
    wide = raw.pivot(index=[*KEY, "seed"], columns="contestant", values=list(MEASURES[:5]))
    for rival in [name for name in CLEANLAB if name in there]:
        ahead = {m: (wide[m, OURS] - wide[m, rival]).groupby(KEY, sort=False).mean() for m in ("F1", "AUROC")}
        found[f"not ahead of {rival}"] = [f"{name}: {m}" for m, by in ahead.items() for name in _names(by <= 0.0)]
    if NONE in there:
        gain = (wide["accuracy", OURS] - wide["accuracy", NONE]).groupby(KEY, sort=False)
        found["accuracy below no cleaning"] = _names(gain.mean() < -gain.std().fillna(0.0))
    return found


def _names(holds: pd.Series) -> list[str]:
    """The columns for which something holds."""
    keys: list[Any] = holds.index[holds].tolist()
    return [str(Column(*key)) for key in keys]


def _sentence(summary: dict[str, Any]) -> str:
    lines = {name: value for name, value in summary.items() if isinstance(value, dict) and "line" in value}
    words = [f"{name} {v['mean']:.3f} ({'meets' if v['met'] else 'misses'} {v['line']:g})" for name, v in lines.items()]
    words += [f"{name}: {'; '.join(v) or 'nowhere'}" for name, v in summary.items() if isinstance(v, list)]
    return ". ".join(words) + "." if words else ""


def _figure(by_group: pd.DataFrame) -> Figure:
    """F1 and AUROC of each contestant, one panel for each group."""
    table = by_group.dropna(subset=["F1"])
    groups = list(dict.fromkeys(by_group.index.get_level_values("group")))
    figure, axes = panels(1, len(groups), width=6.0, height=0.8 + 0.3 * max(1, len(table) // len(groups)))
    for one, group in zip(axes[0], groups, strict=True):
        own = table[table.index.get_level_values("group") == group].droplevel("group")[::-1]
        for colour, name in zip(CYCLE, ("F1", "AUROC"), strict=False):
            one.errorbar(own[name], list(own.index), xerr=own[f"± {name}"].fillna(0), fmt="o", color=colour, label=name)
            one.axvline(LINES[group][name], color=colour, linestyle=":", linewidth=1)
        one.set(xlabel=f"{group} noise; dotted: the targets for {OURS}", xlim=(None, 1.005))
    if len(table):
        axes[0, 0].legend(frameon=False)
    return figure
