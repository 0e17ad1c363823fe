"""MLS-Bench's task optimization-bilevel by its own rules: its toy from 1000 starts, and hyper-cleaning of two networks.

First the settings of StochasticBVFIM are chosen on validation rows of the first seed, for each network; then the
default and the chosen settings run on every seed. With --baseline N, V-PBGD runs for N steps on the linear network of
the first seed too. MNIST is read from the folder that BVFIM_DATA names.

    python benchmarks/mlsbench.py --out benchmarks/results/mlsbench-cpu.json
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

import torch
from mlsbench_cleaning import BATCH, for_settings, single_loop, task, v_pbgd
from mlsbench_toy import measure

from bvfim.reports.report import machine

STEPS = {"linear": 500, "mlp": 1000}
X_STEPS, MULTIPLIERS = (0.1, 0.03, 0.01), (None, 1.0, 0.1)
PUBLISHED = {
    "linear": {"V-PBGD": (90.10, 91.72), "G-PBGD": (89.84, 80.6), "RHG": (84.8, 89.5)},
    "mlp": {"V-PBGD": (91.48, 92.05), "G-PBGD": (92.38, 90.82), "RHG": (84.79, 89.34)},
}
"""Accuracy and F1 of the suite's baselines on its board, in June 2026."""
DEFAULTS = {"x_step": None, "multiplier": None}

Record = dict[str, Any]


def told(row: Record) -> Record:
    """The row, once it has been printed."""
    print(json.dumps(row), flush=True)
    return row


def settings(net: str, seed: int) -> list[Record]:
    """Every setting on validation rows alone, the best first: by accuracy and F1, as the suite weighs them."""
    own, rows = for_settings(task(net, seed)), []
    for x_step, multiplier in itertools.product(X_STEPS, MULTIPLIERS):
        chosen = {"x_step": x_step, "multiplier": multiplier}
        last = single_loop(own, STEPS[net], **chosen, seed=seed)["last"]
        rows.append(told({"net": net, **chosen, "accuracy": last["accuracy"], "F1": last["F1"]}))
    return sorted(rows, key=lambda row: -row["accuracy"] - row["F1"])


def cleaning(net: str, seeds: list[int]) -> dict[str, list[Record]]:
    """The choice of settings, and the runs of one network."""
    choice = settings(net, seeds[0])
    chosen = {key: choice[0][key] for key in DEFAULTS}
    runs = []
    for seed, (name, own) in itertools.product(seeds, {"default": DEFAULTS, "chosen": chosen}.items()):
        found = single_loop(task(net, seed), STEPS[net], **own, seed=seed)
        runs.append(told({"net": net, "method": f"StochasticBVFIM, {name}", "seed": seed, **own, **found}))
    return {"settings": choice, "runs": runs}


def main() -> None:
    """Measure and write."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--starts", type=int, default=1000, help="of the toy")
    options.add_argument("--seeds", type=int, nargs="+", default=[42, 43, 44])
    options.add_argument("--nets", nargs="*", choices=STEPS, default=list(STEPS))
    options.add_argument("--baseline", type=int, default=0, help="steps of V-PBGD")
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    torch.set_num_threads(1)
    given = " ".join(
        f"--{key} {' '.join(map(str, value)) if isinstance(value, list) else value}"
        for key, value in vars(chosen).items()
        if key != "out"
    )
    about: Record = {"command": f"python benchmarks/mlsbench.py {given}", "machine": machine(), "batch": BATCH}
    about["toy"] = [told(row) for row in measure(chosen.seeds[0], chosen.starts)] if chosen.starts else []
    about["published"] = PUBLISHED
    about |= {net: cleaning(net, chosen.seeds) for net in chosen.nets}
    if chosen.baseline:
        seed = chosen.seeds[0]
        found = v_pbgd(task("linear", seed), "linear", chosen.baseline)
        about["baseline"] = told({"net": "linear", "method": "V-PBGD", "seed": seed, **found})
    if chosen.out:
        chosen.out.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
