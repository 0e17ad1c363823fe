"""The label cleaner's bilevel network by the single loop, beside the nested recipe that the cleaner uses.

The same problem, folds and start; the single loop takes batches of 256 rows for 40 passes over the noisy rows. Judged
by what the whole cleaner then finds, on the columns of `bvfim bench labels`, one draw.

    python benchmarks/cleaner_network.py --out benchmarks/results/cleaner-network-cpu.json
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional

import bvfim
from bvfim.labels import network
from bvfim.reports.report import machine
from bvfim.reproduce.bench.label_columns import columns, task
from bvfim.reproduce.bench.labels import accuracy, measures
from bvfim.reproduce.bench.rivals import CONTESTANTS, OURS

SIZE, PASSES = 256, 40
"""Rows of a batch, and passes over the noisy rows."""
NOISY = 2000
"""Rows with labels that may be wrong."""

Trained = Callable[..., Any]


def single_loop(
    inputs: np.ndarray, given: np.ndarray, trusted: np.ndarray, classes: int, fold: np.ndarray, seed: int, config: Any
) -> Any:
    """As :func:`bvfim.labels.network.trained`, by StochasticBVFIM at its defaults; all rows are used."""
    folds, n = int(fold.max()) + 1, len(given)

    def side(rows: slice, labels: np.ndarray) -> Callable[[dict[str, Tensor], Tensor], Tensor]:
        columns = network._columns(inputs[rows])
        targets = torch.from_numpy(labels)
        left_in = torch.from_numpy(np.stack([fold[rows] != k for k in range(folds)])).float()
        share = left_in / left_in.mean(1, keepdim=True)

        def losses(y: dict[str, Tensor], i: Tensor) -> Tensor:
            logits = network._logits(y, columns[:, i])
            each = functional.cross_entropy(logits, targets[i].expand(folds, -1), reduction="none")
            return share[:, i] * each

        return losses

    noisy, sure = side(slice(n), given), side(slice(n, None), trusted)
    problem = bvfim.Problem(
        upper=lambda x, y, i: sure(y, i).mean(1).sum(),
        lower=lambda x, y, i: (torch.sigmoid(x[:, i]) * noisy(y, i)).mean(1).sum(),
    )
    streams = [bvfim.Shuffled(len(rows), min(SIZE, len(rows)), seed + j) for j, rows in enumerate((trusted, given))]
    start = network._start(inputs.shape[1], config.hidden, classes, folds, seed)
    steps = max(200, PASSES * n // min(SIZE, n))
    batches = bvfim.Batches(upper=streams[0], lower=streams[1])
    found = bvfim.solve(
        problem, torch.zeros(folds, n), start, batches=batches, steps=steps, refit=False, progress=False
    )
    own = network.Network({key: t.detach() for key, t in found.y.items()})
    return own, own.by_fold(inputs)[fold, np.arange(len(inputs))]


WAYS: dict[str, Trained] = {"nested": network.trained, "single loop": single_loop}


def main() -> None:
    """Measure and write."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", default="digits,mnist,cifar10n")
    options.add_argument("--trusted", default="50,500,5000")
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for column in columns(tuple(chosen.data.split(",")), (), tuple(map(int, chosen.trusted.split(",")))):
        own = task(column, NOISY, 0)
        for way, trained in WAYS.items():
            spent: list[float] = []

            def timed(*args: Any, trained: Trained = trained, spent: list[float] = spent) -> Any:
                began = time.perf_counter()
                found = trained(*args)
                spent.append(time.perf_counter() - began)
                return found

            with patch.object(network, "trained", timed):
                found = CONTESTANTS[OURS](own, 0)
            about = {"column": str(column), "group": column.group, "network": way}
            rows.append(
                {**about, **measures(own.wrong, found), "accuracy": accuracy(own, found), "seconds": sum(spent)}
            )
            print(json.dumps(rows[-1]), flush=True)
    means = pd.DataFrame(rows).groupby(["group", "network"]).mean(numeric_only=True)
    print(means.to_string())
    if chosen.out:
        command = f"python benchmarks/cleaner_network.py --data {chosen.data} --trusted {chosen.trusted}"
        groups = means.reset_index().to_dict("records")
        file = {"command": command, "machine": machine(), "means": groups, "runs": rows}
        chosen.out.write_text(json.dumps(file, indent=1) + "\n")


if __name__ == "__main__":
    main()
