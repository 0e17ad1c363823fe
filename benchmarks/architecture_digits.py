"""A search for an architecture: StochasticBVFIM at its defaults beside a DARTS-like step that gets the same seconds.

The task is whether a digit is odd, which a linear classifier gets right in 90 per cent of the rows and a network in 97:
operations matter. 64 inputs go through a linear layer to node 0, of width 16; nodes 1 to 3 are sums over all earlier
nodes, each seen through its own edge; a linear layer leads from node 3 to two classes. Each of the six edges mixes five
operations by softmax(x_edge): zero, identity, linear + ReLU, linear + tanh, and the mean of three neighbours. y is all
weights, f the cross-entropy on 600 training rows, F that on 600 validation rows, in batches of 64; x starts at 0. The
rival is TRHG(steps, keep=1) with Adam on x, in four settings, each for the seconds that StochasticBVFIM took. Judged by

- "test": the accuracy, on 597 other rows, of the architecture with the heaviest operation on each edge, trained anew
  on the training rows: bvfim.refit, 1000 steps of Adam from 0.01 down to 0. "test without zero": zero is never chosen,
  as in DARTS; without this rule an x that cuts all ways to the last node is worth a guess;
- "F anew": F, on all validation rows, of the mixture at x trained anew in the same way; "share": the mean over edges
  of the heaviest operation's share, 0.2 at the start.

Beside them stand ten architectures drawn at random ("random") and the mixture of x = 0 ("start").

    python benchmarks/architecture_digits.py --out benchmarks/results/architecture-digits-cpu.json
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional

import bvfim
from bvfim.reports.report import machine
from bvfim.reproduce.experiments.architecture import EDGES, OPERATIONS, Network, Search, network

STEPS, RETRAIN, RANDOM = 1000, 1000, 10
RIVALS = {
    f"TRHG({steps}, keep=1, lr={lr}), Adam {x_lr}": (bvfim.TRHG(steps, 1, lr), partial(torch.optim.Adam, lr=x_lr))
    for steps, lr, x_lr in ((1, 0.1, 0.003), (1, 0.1, 0.01), (5, 0.1, 0.01), (5, 0.1, 0.03))
}
COLUMNS = ["test", "test without zero", "F anew", "seconds", "steps", "share"]


class Judged(Search):
    """The problem, and what judges an x."""

    def anew(self, x: Tensor) -> Network:
        """The network trained from the start at a fixed x."""
        problem, batches = self.problem(seed=7)
        adam = partial(torch.optim.Adam, lr=0.01)
        return bvfim.refit(problem, x, self.y, batches=batches, steps=RETRAIN, optimizer=adam).y

    def value(self, x: Tensor) -> float:
        """F of the mixture, trained anew."""
        with torch.no_grad():
            return float(self.loss(x, self.anew(x), torch.arange(600, 1200)))

    def test(self, choice: Tensor) -> float:
        """The accuracy of one architecture, trained anew."""
        x = 1e4 * functional.one_hot(choice, len(OPERATIONS)).float()
        found = network(x, self.anew(x), self.inputs[1200:]).argmax(1)
        return float((found == self.labels[1200:]).double().mean())

    def judged(self, x: Tensor, seconds: float, steps: int) -> dict[str, Any]:
        """What x is worth."""
        chosen = x.argmax(1)
        names = ["-".join(map(str, edge)) + " " + OPERATIONS[c] for edge, c in zip(EDGES, chosen.tolist(), strict=True)]
        about = {"seconds": seconds, "steps": steps, "architecture": names, "share": x.softmax(1).amax(1).mean().item()}
        tests = {"test": self.test(chosen), "test without zero": self.test(1 + x[:, 1:].argmax(1))}
        return {**tests, "F anew": self.value(x), **about}

    def solved(self, method: Any, optimizer: Any, steps: int, limit: float | None = None) -> dict[str, Any]:
        """One run, judged."""
        problem, batches = self.problem(seed=0)
        options: dict[str, Any] = {"steps": steps, "batches": batches, "time_limit": limit, "refit": False}
        began = time.perf_counter()
        found = bvfim.solve(problem, self.x, self.y, method, optimizer, **options)
        return self.judged(found.x, time.perf_counter() - began, found.steps)


def measured(seed: int, note: Callable[[dict[str, Any]], None], steps: int, random: int) -> None:
    """All methods on one seed."""
    search = Judged(seed)
    ours = search.solved(bvfim.StochasticBVFIM(), None, steps)
    note({"method": "StochasticBVFIM", "seed": seed, **ours})
    for name, how in RIVALS.items():
        note({"method": name, "seed": seed, **search.solved(*how, 10**6, ours["seconds"])})
    generator = torch.Generator().manual_seed(seed)
    for choice in torch.randint(len(OPERATIONS), (random, len(EDGES)), generator=generator):
        note({"method": "random", "seed": seed, "test": search.test(choice)})
    note({"method": "start", "seed": seed, "F anew": search.value(search.x)})


def main() -> None:
    """Measure and write."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--steps", type=int, default=STEPS, help="of StochasticBVFIM")
    options.add_argument("--random", type=int, default=RANDOM, help="random architectures a seed")
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []

    def note(row: dict[str, Any]) -> None:
        rows.append(row)
        print(json.dumps(row), flush=True)

    for seed in range(chosen.seeds):
        measured(seed, note, chosen.steps, chosen.random)
    table = pd.DataFrame(rows).groupby("method")[COLUMNS].mean()
    print(table.sort_values("F anew").to_string(float_format="%.4f"))
    if chosen.out:
        command = "python benchmarks/architecture_digits.py"
        command += f" --seeds {chosen.seeds} --steps {chosen.steps} --random {chosen.random}"
        chosen.out.write_text(json.dumps({"command": command, "machine": machine(), "runs": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
