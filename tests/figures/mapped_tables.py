"""The tables of the pages, worked out from the results: a function gives the cells of each row, by its label.

A cell is a number, a text with numbers in it, a tuple of these, or None where nothing may stand.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.figures.mapped_rivals import near
from tests.figures.results import mean, one, result

Rows = dict[str, list[Any]]

CLEANED = ("mnist", "fashion-mnist", "cifar10")


def ablation(name: str, labels: dict[str, str]) -> Callable[[], Rows]:
    """AdaptiveBVFIM with parts taken away; labels are those of the page where they differ from the file's."""
    kept = ("starts solved", "problems solved after choosing", "converged elsewhere")
    counts = ("median F grads", "median f grads", "median values")

    def rows() -> Rows:
        return {labels.get(run[""], run[""]): [run[key] for key in kept + counts] for run in result(name)["runs"]}

    return rows


def networks() -> Rows:
    """F and what a network trained anew has, digits beside MNIST; of RHG the steps with the lowest F."""

    def cells(method: str) -> list[Any]:
        found: list[Any] = []
        for name in ("networks-digits-cpu", "networks-mnist-h200"):
            runs = [run for run in result(name)["runs"] if run["method"].startswith(method)]
            run = min(runs, key=lambda run: run["F"])
            found += [run["F"], (run["F trained anew"], run["accuracy trained anew"])]
        return found

    return {
        "AdaptiveBVFIM": cells("AdaptiveBVFIM"),
        "BVFIM, fixed steps, Adam 0.1": cells("BVFIM, s = 0.1, Adam 0.1"),
        "RHG, T = 100, its best steps": cells("RHG"),
    }


def cleaning(activation: str) -> Callable[[], Rows]:
    """Table 3: accuracy of y, that of z where it is another, F1; the milliseconds of a step."""
    methods = ("RHG", "TRHG", "CG", "Neumann", "BDA", "BVFIM", "trusted rows alone", "no cleaning", "true labels")

    def cell(row: dict[str, Any]) -> tuple[float, ...]:
        z = row["accuracy of z"]
        shown = (row["accuracy"], z if z != row["accuracy"] else None, row["F1"])
        return tuple(value for value in shown if value is not None)

    def rows() -> Rows:
        found: Rows = {}
        measured = [row for row in result("cleaning-h200")["rows"] if row["activation"] == activation]
        for method in methods:
            own = [one(measured, problem=problem, method=method) for problem in CLEANED]
            times = None if own[0]["ms a step"] is None else tuple(row["ms a step"] for row in own)
            found[method] = [*map(cell, own), times]
        paper = [one(measured, problem=problem, method="BVFIM") for problem in CLEANED]
        found["BVFIM in the paper"] = [*((row["paper's accuracy"], row["paper's F1"]) for row in paper), None]
        return found

    return rows


def few_shot() -> Rows:
    """Accuracy with its interval, and the cost; the paper's below."""
    short, long = (result("few-shot-h200")[key]["rows"] for key in ("four methods at equal steps", "BVFIM at length"))

    def cells(rows: list[dict[str, Any]], method: str) -> list[Any]:
        five, twenty = (one(rows, method=method, ways=ways) for ways in (5, 20))
        scores = [(row["accuracy"], row["interval"]) for row in (five, twenty)]
        return [*scores, five["steps"], five["seconds"], five["ms"]]

    def paper(method: str, steps: int | None = None) -> list[Any]:
        return [one(short, method=method, ways=ways)["paper"] for ways in (5, 20)] + [steps, None, None]

    return {
        **{method: cells(short, method) for method in ("RHG", "TRHG", "BDA", "BVFIM")},
        "BVFIM, validation classes learned from too": cells(long, "BVFIM"),
        "in the paper: RHG": paper("RHG", 50_000),
        **{f"in the paper: {method}": paper(method) for method in ("TRHG", "BDA", "BVFIM")},
    }


def labels() -> Rows:
    """The label cleaner beside others: synthetic noise, then people's."""
    names = {
        "bilevel weights alone, the paper's rule": "bilevel weights alone",
        "cleanlab 2.9.0": "cleanlab",
        "disagreement with a model of the trusted rows": "trusted rows alone",
        "the true labels": "true labels",
    }
    kept = ("F1", "AUROC", "calibration error", "accuracy")
    found: Rows = {"": [None] * 8}
    for name in dict.fromkeys(row["contestant"] for row in result("labels")["groups"]):
        shown = next((shown for shown, own in names.items() if own == name), name)
        groups = (one(result("labels")["groups"], contestant=name, group=group) for group in ("synthetic", "human"))
        found[shown] = [row[key] for row in groups for key in kept]
    return found


def beside_cleanlab(name: str, label: str, *kept: str) -> Callable[[], Rows]:
    """The label cleaner beside cleanlab: these figures of each contestant, by column."""

    def rows() -> Rows:
        found: Rows = {}
        for row in result(name)["columns"]:
            found.setdefault(label.format(**row), []).append(tuple(row[key] for key in kept))
        return found

    return rows


def speed() -> Rows:
    """Milliseconds of an upper step, by TF32, float32 and a CPU."""
    runs = result("speed-h200")["runs"]
    columns = (runs["tf32"]["table"], runs["fp32"]["table"], result("speed-cpu")["table"])
    plain = "bvfim BVFIM, printed"
    names = {
        "the matrix products alone": ["matrix products alone"],
        "BVFIM, printed, compiled": [f"{plain}, compiled"],
        "BVFIM, printed, recorded": [f"{plain}, recorded"],
        "BVFIM, printed, plain": [f"{plain}, plain"],
        "a bare loop written by hand": ["bare loop"],
        **{name: [f"bvfim {name}"] for name in ("Neumann", "CG", "RHG")},
        "Betty: finite differences, Neumann, CG": ["Betty finite differences", "Betty Neumann", "Betty CG"],
        "TorchOpt: Neumann, CG, unrolled": ["TorchOpt Neumann", "TorchOpt CG", "TorchOpt unrolled"],
        "BOAT: Neumann, CG, VSO, unrolled": ["BOAT NS", "BOAT CG", "BOAT VSO", "BOAT RAD"],
        "higher, unrolled": ["higher unrolled"],
    }

    def cell(table: dict[str, Any], own: list[str]) -> Any:
        on_cpu = table is columns[2]
        own = [re.sub(", plain$", "", name) if on_cpu else name for name in own]
        return tuple(table[name]["ms per upper step"] for name in own) if own[0] in table else None

    return {label: [cell(table, own) for table in columns] for label, own in names.items()}


def problems() -> Rows:
    """The 126 starts of the test problems."""
    keys = ("starts solved", "problems solved after choosing")
    counts = ("median F grads", "median f grads", "median hvp+jvp")
    summary = result("problems-cpu")["summary"]
    names = {"BVFIM": "BVFIM, printed"}
    return {names.get(name, name): [row[key] for key in keys + counts] for name, row in summary.items()}


def trials(name: str) -> Rows:
    """As many trials for every method."""

    def cells(row: dict[str, Any]) -> list[Any]:
        z = row.get("accuracy of z", row["accuracy"])
        accuracy = (row["accuracy"], row["± accuracy"], *([z] if z != row["accuracy"] else []))
        others = [row.get(key) for key in ("AUROC", "upper steps", "lower step", "x step")]
        return [accuracy, (row.get("F1"), row.get("± F1")), *others]

    file = result(name)
    return {row["method"]: cells(row) for row in file["runs"] + file.get("baselines", [])}


def toy_starts() -> Rows:
    """Shares of starts, in per cent: the two problems with a short step, then with a long one."""
    found: Rows = {}
    for run in result("toy-starts-cpu")["runs"]:
        found.setdefault(run["method"], []).append(100 * run["share"])
    found["AdaptiveBVFIM, which chooses its own"] = [*found.pop("AdaptiveBVFIM"), None, None]
    return found


def table_1() -> Rows:
    """The distance from the optimum on the three problems."""
    runs = result("table1-cpu")["runs"]
    return {
        method: [
            one(runs, method=method, broken=broken)["|x - x*|"] for broken in ("convexity", "singleton", "hessian")
        ]
        for method in dict.fromkeys(run["method"] for run in runs)
    }


def conditions() -> Rows:
    """Ill-conditioned quadratics, the mean of two for each condition."""
    runs = result("conditioning-cpu")["quadratics"]
    found: Rows = {}
    for condition in dict.fromkeys(run["condition"] for run in runs):
        own = [run for run in runs if run["condition"] == condition]
        label = f"{condition:.0f}" if condition < 1000 else f"{condition:.0e}".replace("e+0", "e")
        found[label] = [mean(own, key) for key in ("upper", "lower", "seconds of CPU")]
    return found


def large_networks() -> Rows:
    """A step on large networks, in milliseconds, and its peak memory beside the formula."""
    names = {"124M": "127 million, single precision", "1B": "1010 million, bfloat16"}
    found = {}
    for row in result("large-networks-h200")["summary"]:
        memory = [row["peak MiB"], row["peak MiB by the formula"]]
        found[names[row["size"]]] = [*(row["ms"][way] for way in ("plain", "by hand", "ours")), *memory]
    return found


def mixtures() -> Rows:
    """The test losses of networks trained on a mixture, means over the seeds."""
    rows = result("data-mixture-h200")["rows"]
    random = [[row for row in rows if row["seed"] == seed and "random" in row["mixture"]] for seed in range(3)]
    best = [min(own, key=lambda row: row["validation"]) for own in random]
    return {
        "trusted part of the target alone": [mean(rows, "test", mixture="trusted alone")],
        "uniform over the sources that are not spoiled": [mean(rows, "test", mixture="uniform, unspoiled")],
        "best of ten random mixtures, by the validation part": [mean(best, "test")],
        "learned": [mean(rows, "test", mixture="learned")],
        "uniform over all sources": [mean(rows, "test", mixture="uniform")],
        "in proportion to the losses of the sources": [mean(rows, "test", mixture="by loss")],
    }


def mlsbench_toy() -> Rows:
    """Costs of the toy's methods, and where their starts end."""
    keys = ("steps", "F gradients", "f gradients", "success rate", "|x + y|", "in the basin of x*", "at x*")
    return {run["method"]: [run[key] for key in keys] for run in result("mlsbench-cpu")["toy"]}


def mlsbench_cleaning() -> Rows:
    """Accuracy and F1 at the step that each rule selects, means over the seeds; those that are published."""
    file, found = result("mlsbench-cpu"), {}
    for net, name in {"linear": "linear", "mlp": "MLP"}.items():
        for ours, label in {"chosen": "settings chosen", "default": "defaults"}.items():
            own = [run for run in file[net]["runs"] if run["method"] == f"StochasticBVFIM, {ours}"]
            rules = ("by test accuracy", "by validation accuracy", "last")
            selected = [[run[rule] for run in own] for rule in rules]
            cells = [(mean(rows, "accuracy"), mean(rows, "F1")) for rows in selected]
            found[f"{name}: StochasticBVFIM, {label}"] = cells
        for method, scores in file["published"][net].items():
            found[f"{name}: {method}, published"] = [tuple(scores), None, None]
    return found


def benchopt() -> Rows:
    """The last values of the suite's solvers and ours: the median, the quartiles and the number of repetitions."""
    ours = {
        "SABA[": "SABA of the suite",
        "SOBA[": "SOBA of the suite",
        "method=SABA": "our SABA",
        "method=StochasticBVFIM": "StochasticBVFIM",
        "answer=z": "StochasticBVFIM, z",
        "multiplier=": "StochasticBVFIM, settings chosen",
    }
    found: Rows = {}
    for dataset, rows in result("benchopt-cpu")["data"].items():
        for row in rows:
            label = [label for part, label in ours.items() if part in row["solver"]][-1]
            unit, curve = 1 if dataset == "simulated" else 100, row["curve"]
            low, middle, high = (unit * curve[name][-1] for name in ("low", "median", "high"))
            found[f"{dataset}: {label}"] = [curve["seconds"][-1], middle, (low, high), len(row["last"])]
    return found


def constrained() -> Rows:
    """The problems with constraints: solved at each seed, single starts, medians of gradients."""
    found: Rows = {}
    for own in result("constrained-cpu")["totals"]:
        name = {"constrained": "constraints of the lower level", "coupled": "upper constraints on y"}[own["collection"]]
        seeds = ", ".join(share.split()[0] for share in own["solved at each seed"].values())
        of = next(iter(own["solved at each seed"].values())).split()[-1]
        found[name] = [f"{seeds} {of}", own["single starts"], own["median F grads"], own["median f grads"]]
    return found


def scalable() -> Rows:
    """Gradients of AdaptiveBVFIM with 3 and with 1000 entries of x, and the quotient."""
    runs = [run for run in result("scalable-cpu")["runs"] if run["method"] == "AdaptiveBVFIM"]
    cost = {(run["problem"], run["n"]): run["upper"] + run["lower"] for run in runs}
    names = dict.fromkeys(run["problem"] for run in runs)
    return {name: [cost[name, 3], cost[name, 1000], cost[name, 1000] / cost[name, 3]] for name in names}


NEW_PARTS = {
    "whole": "nothing",
    "no probes": "all probes",
    "no units": "units",
    "no way back": "the way back to what was seen",
    "older minima left as they are": "minimising older minima again",
    "no grid of probes": "the grid of the probes",
    "no path": "the path",
    "no estimate from the path": "the estimate at its end",
    "no measured curvature of f": "the measured curvature of f",
}
PARTS = "What it is made of, and what each part is worth"

MAPPED: dict[tuple[str, str], Callable[[], Rows]] = {
    ("docs/adaptive.md", PARTS): ablation("adaptive-cpu", {"whole": "nothing"}),
    ("docs/adaptive.md", f"{PARTS} (2)"): ablation("adaptive-new-parts-cpu", NEW_PARTS),
    ("docs/adaptive.md", "Curvatures that differ much"): conditions,
    ("docs/adaptive.md", "Large problems"): networks,
    ("docs/constraints.md", "How often it works"): constrained,
    ("docs/constraints.md", "How often it works (2)"): scalable,
    ("docs/evidence/which-method.md", "How often each ends near the best"): near,
    ("docs/reproduce.md", "What came out"): toy_starts,
    ("docs/reproduce.md", "Table 3, on an H200"): cleaning("relu"),
    ("docs/reproduce.md", "Table 3, on an H200 (2)"): cleaning("identity"),
    ("docs/reproduce.md", "As many trials for every method"): partial(trials, "cleaning-trials-cpu"),
    ("docs/reproduce.md", "The same on MNIST, at full size"): partial(trials, "cleaning-trials-h200"),
    ("docs/reproduce.md", "Table 1, with the paper's BVFIM"): table_1,
    ("docs/reproduce.md", "Few-shot learning, on an H200"): few_shot,
    ("docs/reproduce.md", "The test problems"): problems,
    ("docs/cleaning-labels.md", "How good it is"): labels,
    ("docs/cleaning-labels.md", "Sentences"): beside_cleanlab(
        "text-cleaning-cpu", "{set}, {trusted} trusted", "F1", "AUROC"
    ),
    ("docs/several-gpus.md", "A language model's data mixture"): mixtures,
    ("docs/several-gpus.md", "What fits where"): large_networks,
    ("docs/speed.md", "An upper step"): speed,
    ("docs/suites.md", "benchopt's bilevel suite"): benchopt,
    ("docs/suites.md", "The toy of MLS-Bench"): mlsbench_toy,
    ("docs/suites.md", "Hyper-cleaning in MLS-Bench"): mlsbench_cleaning,
}
