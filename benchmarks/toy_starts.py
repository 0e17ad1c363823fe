"""The toy from 400 starts: the share that ends within 1e-3 of the global optimum, for each method and step.

These are the maps of `bvfim reproduce toy`, counted.

    python benchmarks/toy_starts.py --out benchmarks/results/toy-starts-cpu.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from bvfim.reports.report import machine
from bvfim.reproduce.experiments import basins
from bvfim.reproduce.experiments.toy_settings import methods


def main() -> None:
    """Measure and write."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--side", type=int, default=basins.Config.side, help="starts along each of x and y")
    options.add_argument("--steps", type=int, default=basins.Config.steps, help="updates of x")
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    torch.set_num_threads(1)
    config = basins.Config(side=chosen.side, steps=chosen.steps)
    rows = []
    for label, method in methods(config.seed).items():
        own = label == "AdaptiveBVFIM"  # it chooses its own steps
        for rate in config.rates[:1] if own else config.rates:
            for a in config.a:
                found = basins.judged(basins.ends(method, a, rate, config), a)
                share = float((found == next(iter(basins.ENDS))).mean())
                rows.append({"method": label, "step": None if own else rate, "a": a, "share": share})
                print(json.dumps(rows[-1]), flush=True)
    if chosen.out:
        command = f"python benchmarks/toy_starts.py --side {chosen.side} --steps {chosen.steps}"
        about = {"command": command, "machine": machine(), "starts": config.side**2, "runs": rows}
        chosen.out.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
