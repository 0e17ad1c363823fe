"""More than half of the labels wrong: the label cleaner with trusted rows, and cleanlab with the same ones.

1000 rows of digits. Labels are wrong symmetrically, which leaves the right label the most frequent one of
its class up to nine wrong ones in ten; or flipped to the next class, so that from half of them on most rows of every
label belong to another class. cleanlab (``pip install 'bvfim[peers]'``) has the trusted rows in its folds. Run it as
``python -m benchmarks.mostly_wrong``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from bvfim.data import balanced_split, pair_flip, symmetric
from bvfim.reports.report import machine
from bvfim.reproduce.bench.label_columns import Task, pool
from bvfim.reproduce.bench.labels import accuracy, measures
from bvfim.reproduce.bench.rivals import cleaner, cleanlab

NOISY, TRUSTED = 1000, (50, 200)
NOISES = {"pair flip": (pair_flip, (0.6, 0.8)), "symmetric": (symmetric, (0.8,))}


def drawn(noise: str, rate: float, trusted: int, seed: int) -> Task:
    """A draw of digits; each class has as many rows as another."""
    rows = pool("digits")
    chosen, sure = balanced_split(rows.labels, [NOISY, trusted], rows.classes, seed)
    test = np.setdiff1d(np.arange(len(rows.labels)), [*chosen, *sure])
    truth = rows.labels[chosen]
    given, _ = NOISES[noise][0](truth, rate, rows.classes, seed=seed)
    inputs = rows.inputs[np.concatenate([chosen, sure])]
    return Task(inputs, given, rows.labels[sure], truth, rows.inputs[test], rows.labels[test], rows.classes)


def saved(rows: list[dict[str, Any]], out: Path | None) -> pd.DataFrame:
    """The means over draws; written to a file, if there is one."""
    table = pd.DataFrame(rows).groupby(["noise", "rate", "trusted", "contestant"], sort=False)
    means = table[["F1", "AUROC", "accuracy", "expected rate"]].mean().round(5)
    if out:
        about = {"command": "python -m benchmarks.mostly_wrong", "machine": machine()}
        columns = means.reset_index().to_dict("records")
        out.write_text(json.dumps({**about, "columns": columns, "runs": rows}, indent=1) + "\n")
    return means


def main() -> None:
    """Measure, and write a file as it goes."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, default=1)
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    torch.set_num_threads(1)
    plan = [(noise, rate, trusted) for noise, (_, rates) in NOISES.items() for rate in rates for trusted in TRUSTED]
    rows: list[dict[str, Any]] = []
    for seed in range(chosen.seeds):
        for noise, rate, trusted in plan:
            task = drawn(noise, rate, trusted, seed)
            about = {"noise": noise, "rate": rate, "trusted": trusted, "seed": seed}
            for name, found in (("LabelCleaner", cleaner(task, seed)), ("cleanlab", cleanlab(task, seed, True))):
                expected = float(found.p_wrong.mean()) if found.p_wrong is not None else float("nan")
                figures = {**measures(task.wrong, found), "accuracy": accuracy(task, found)}
                rows.append({**about, "contestant": name, **figures, "expected rate": expected})
                print(json.dumps(rows[-1]), flush=True)
            means = saved(rows, chosen.out)
    print(means.to_string())


if __name__ == "__main__":
    main()
