"""The tables and figures of the hyper-cleaning experiment, beside the paper's Table 3."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from bvfim.reports.plots import COLOURS, legend, panels
from bvfim.reports.report import Results, Section
from bvfim.reproduce.experiments.cleaning_baselines import ALONE
from bvfim.reproduce.experiments.cleaning_settings import DATA, Config, grid, updates
from bvfim.reproduce.experiments.paper import CLEANING
from bvfim.status import SOUND, Status

SCORES = ("accuracy", "accuracy of z", "F1", "AP", "AUROC")
CELL = ["problem", "activation", "method"]
LOOKS = 5
COLUMNS = [
    *("accuracy", "± accuracy", "accuracy of z", "F1", "± F1", "AP", "AUROC"),
    *("paper's accuracy", "paper's F1", "gradients", "products", "ms a step", "lower step", "step", "ended"),
]


def by_held(traces: pd.DataFrame) -> pd.DataFrame:
    """The rows of runs, the best last: by the accuracy on the held-out rows, and among equals by the step.

    The accuracy is averaged over the last few looks at the run: a few hundred rows measure it to a per cent or two, and
    the highest of many such numbers is that of the run that swings most.
    """
    runs = traces.groupby([*CELL, "lr", "seed"], sort=False)["held"]
    smooth = runs.transform(lambda held: held.rolling(LOOKS, min_periods=1).mean())
    return traces.assign(smooth=smooth.round(9)).sort_values(["smooth", "step"], kind="stable")


def chosen(traces: pd.DataFrame) -> pd.DataFrame:
    """The row of each run at which it is judged: that with the highest smoothed accuracy on the held-out rows."""
    return by_held(traces).groupby([*CELL, "seed"], sort=False).tail(1)


def table(traces: pd.DataFrame, others: pd.DataFrame) -> pd.DataFrame:
    """Means and spreads over the seeds, in per cent, with the paper's numbers beside them."""
    judged = chosen(traces).sort_index()
    rows = [_row(cell, own) for cell, own in judged.groupby(CELL, sort=False)]
    rows += [_row(cell, own) for cell, own in others.groupby(CELL, sort=False)]
    found = pd.DataFrame(rows)
    order = {name: place for place, name in enumerate(dict.fromkeys(found["problem"] + found["activation"]))}
    found = found.iloc[(found["problem"] + found["activation"]).map(order).argsort(kind="stable")].set_index(CELL)
    return found[[column for column in COLUMNS if column in found]]


def _row(cell: Any, own: pd.DataFrame) -> dict[str, Any]:
    row: dict[str, Any] = dict(zip(CELL, cell, strict=True))
    ended = sorted(set(own["status"])) if "status" in own else []
    for score in SCORES:
        if score in own and own[score].notna().all() and set(ended) <= set(SOUND):
            row[score] = round(100 * own[score].mean(), 2)
            if score in ("accuracy", "F1"):
                row[f"± {score}"] = round(100 * own[score].std(ddof=1), 2) if len(own) > 1 else float("nan")
    if "ms" in own:
        tuned = float("nan") if cell[2] == "AdaptiveBVFIM" else own["lr"].iloc[0]
        row |= {"ms a step": own["ms"].median(), "lower step": tuned, "step": round(own["step"].mean(), 1)}
        row |= {"gradients": own["gradients"].mean(), "products": own["products"].mean(), "ended": ", ".join(ended)}
    paper = CLEANING.get(cell[0], {}).get(cell[2])
    return row | (dict(zip(("paper's accuracy", "paper's F1"), paper, strict=False)) if paper else {})


def results(config: Config, traces: pd.DataFrame, others: pd.DataFrame, tried: pd.DataFrame) -> Results:
    """Everything for the page."""
    full = table(traces, others)
    figures = {f"course-{p}": figure(traces[traces["problem"] == p]) for p in config.data}
    noted = dict(zip(others["problem"], others["note"], strict=True))
    sizes = "; ".join(f"{p}: {_size(p, config)}" for p in dict.fromkeys(config.data))
    notes = "".join(f"\n\n{problem}: {note}." for problem, note in noted.items() if note)
    held = f"{config.held:.0%}"
    sections = (
        Section(
            "Table 3: data hyper-cleaning",
            f"Half of the training labels are wrong. {sizes}. Adam with lr {config.x_lr:g} updates x; "
            f"{config.T} lower gradients per upper step (BVFIM: {config.T // 2} for z and two for each of "
            f"{config.T // 4} steps on y; BDA also takes as many of F; second derivatives of the others come on top: "
            f"see the columns); means over {config.seeds} splits in %. "
            "The lower step size is selected on the first split, and the upper step at which a run is "
            f"evaluated, by the accuracy on {held} of the validation rows, unseen by F, averaged over the last "
            f"{LOOKS} evaluations, one every {config.every} steps. The rows are centred. F1 is for flagging x <= 0; "
            "average precision and AUROC are for the ranking by x. The network trained on the trusted rows alone "
            "flags the labels it disagrees with; the one trained on the true labels is the upper bound. Runs may share "
            "the machine, so the milliseconds per step are not those of an idle one." + notes,
            "Accuracy and F1 from Table 3; 5000 training and validation rows each, a 2-layer network with 300 units.",
            conclusion(full),
            (),
            ("cleaning",),
        ),
        Section(
            "Figures 5 and A2: training curves",
            "The first split: F, F1 and test accuracy over upper steps and over seconds.",
            figures=tuple(figures),
        ),
    )
    return Results({"cleaning": full, "traces": traces, "grid": tried}, figures, summary(full), sections)


def _size(problem: str, config: Config) -> str:
    size = DATA[problem][1]
    rows = f"{size.train} training and {size.validation} validation rows"
    lower = ", ".join(f"{step:g}" for step in grid(problem, "", config))
    return f"{rows}, {size.hidden} units, {updates(problem, config)} upper steps, lower step sizes {lower}"


def summary(full: pd.DataFrame) -> dict[str, Any]:
    """Accuracy and F1 of BVFIM on each problem and with each activation, beside the trusted rows alone."""
    rows: list[Any] = full.reset_index().to_dict("records")
    return {
        f"{row['problem']}, {row['activation']}, {row['method']}": {"accuracy": row["accuracy"], "F1": row["F1"]}
        for row in rows
        if row["method"] in ("BVFIM", ALONE) and pd.notna(row["accuracy"])
    }


def conclusion(full: pd.DataFrame) -> str:
    """The summary in sentences, and what broke off."""
    said = [f"{name}: accuracy {own['accuracy']:.2f}, F1 {own['F1']:.2f}." for name, own in summary(full).items()]
    statuses = {status.value: status for status in Status}
    rows: list[Any] = full.dropna(subset="ended").reset_index().to_dict("records")
    for row in rows:
        broken = [statuses[value] for value in row["ended"].split(", ") if not statuses[value].ok]
        name = ", ".join(row[level] for level in CELL)
        said += [f"{name} ended with status {status.value}: {status.advice.rstrip('.')}." for status in broken]
    return " ".join(said)


def figure(traces: pd.DataFrame) -> Figure:
    """F, F1 and accuracy over steps and over seconds, for each activation of one problem."""
    activations = list(dict.fromkeys(traces["activation"]))
    shown = ("F", "F1", "accuracy")
    drawn, axes = panels(2 * len(activations), len(shown), width=3.4, height=2.3)
    for i, activation in enumerate(activations):
        first = traces[(traces["activation"] == activation) & (traces["seed"] == 0) & (traces["step"] > 0)]
        for j, over in enumerate(("step", "seconds")):
            for one, what in zip(axes[2 * i + j], shown, strict=True):
                for label, own in first.groupby("method", sort=False):
                    one.plot(own[over], own[what], color=COLOURS[str(label)], label=label)
                one.set(xlabel=over if over == "seconds" else "upper step", ylabel=f"{what}, {activation}")
                if what == "F":
                    one.set_yscale("log")
    legend(drawn)
    return drawn
