"""How long the label cleaner takes for a large table: 50,000 rows of 784 columns with 500 trusted ones.

MNIST's images with 40 per cent symmetric noise. Exit code 1 if it takes five minutes or more.

    python benchmarks/large.py
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from sklearn.metrics import roc_auc_score

import bvfim
from bvfim import data
from bvfim.reports.report import machine
from bvfim.reproduce.experiments.cleaning import f1

LIMIT, TRUSTED, NOISE = 300.0, 500, 0.4


def main() -> int:
    """Measure and write the seconds."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--out", type=Path, default=Path("out/large.json"))
    args = parser.parse_args()
    images = data.load("mnist").train
    rows, labels = images.inputs[: args.rows + TRUSTED], images.labels[: args.rows + TRUSTED]
    given, wrong = data.symmetric(labels[: args.rows], NOISE, 10, seed=0)
    began = time.perf_counter()
    cleaner = bvfim.LabelCleaner(random_state=0)
    found = cleaner.find_label_issues(
        rows[: args.rows], given, X_trusted=rows[args.rows :], y_trusted=labels[args.rows :]
    )
    seconds = time.perf_counter() - began
    measured = {
        "command": " ".join(["python", *sys.argv]),
        "machine": machine(),
        "settings": {"rows": args.rows, "columns": rows.shape[1], "trusted": TRUSTED, "noise": NOISE},
        "seconds": seconds,
        "F1": f1(wrong, found["is_label_issue"].to_numpy()),
        "AUROC": float(roc_auc_score(wrong, found["p_wrong"])),
        "verdict": str(cleaner.verdict_),
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(measured, indent=1) + "\n")
    print(json.dumps(measured, indent=1))
    return int(seconds >= LIMIT)


if __name__ == "__main__":
    sys.exit(main())
