"""What `context` saves: an upper step of BVFIM on few-shot tasks, features once a step against in every evaluation.

Both take the same tasks from the same start, in turns; the ratio is that of the medians of one run. Their numbers are
compared in the first step, and over some more in double precision, where rounding does not blur them. Exit code 1 if
the step with `context` is less than three times faster, or if the numbers differ.

    python benchmarks/context.py --device cuda
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

import bvfim
from bvfim import tree
from bvfim.data.episodes import Shape
from bvfim.reports.report import machine
from bvfim.reproduce.experiments import fewshot, fewshot_model
from bvfim.reproduce.experiments.fewshot_settings import Config, method

LEAST, COMPARED = 3.0, 4
"""How many times faster it must be, and the steps that are compared in double precision."""


class Clock:
    """The time of each step, the device's work included."""

    def __init__(self, device: str) -> None:
        self.device, self.times, self.last = device, list[float](), time.perf_counter()

    def __call__(self, run: bvfim.Run) -> None:
        """Note a step."""
        if self.device != "cpu":
            torch.cuda.synchronize()
        now = time.perf_counter()
        self.times.append(now - self.last)
        self.last = now


def solved(
    shared: bool, shape: Shape, count: int, config: Config, accelerate: str, dtype: torch.dtype = torch.float32
) -> tuple[list[float], NDArray[np.float64]]:
    """The seconds of the later ones of some upper steps from the start, and F in each."""
    draws = fewshot.stream("omniglot", "train", shape, config)
    x = tree.map(lambda t: t.to(dtype), fewshot_model.network(1, config.width, config.seed, config.device))
    clock = Clock(config.device)
    found = bvfim.solve(
        fewshot_model.problem(shared),
        x,
        fewshot_model.heads(x, shape.tasks, shape.ways),
        method("BVFIM", shape, config),
        partial(torch.optim.Adam, lr=config.x_lr),
        steps=count,
        batches=[
            drawn._replace(support=drawn.support.to(dtype), query=drawn.query.to(dtype))
            for drawn in islice(draws, count)
        ],
        callbacks=[clock],
        accelerate=accelerate,
    )
    return clock.times[count // 2 :], found.history["upper"].to_numpy()


def main() -> int:
    """Measure and write the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--accelerate", default="auto", help="as solve takes it")
    parser.add_argument("--tasks", type=int, default=1, help="of a draw; the paper takes 16")
    parser.add_argument("--steps", type=int, default=4, help="of each of the two in a round")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("out/context.json"))
    args = parser.parse_args()
    config, shape = Config(device=args.device), Shape(5, 1, 15, args.tasks)
    times: dict[bool, list[float]] = {True: [], False: []}
    uppers: dict[bool, NDArray[np.float64]] = {}
    for _ in range(args.rounds):
        for shared in times:
            own, uppers[shared] = solved(shared, shape, args.steps, config, args.accelerate)
            times[shared] += own
    ms = {shared: 1e3 * statistics.median(own) for shared, own in times.items()}
    first = float(abs(uppers[True][0] / uppers[False][0] - 1))
    double = [solved(shared, shape, COMPARED, config, args.accelerate, torch.float64)[1] for shared in times]
    apart = float(abs(double[0] / double[1] - 1).max())
    found = {
        "command": f"python benchmarks/context.py --device {args.device} --tasks {args.tasks} --steps {args.steps}",
        "machine": machine(),
        "settings": {"tasks": args.tasks, "steps": args.steps, "rounds": args.rounds, "accelerate": args.accelerate},
        "ms with context": ms[True],
        "ms without": ms[False],
        "ratio": ms[False] / ms[True],
        "relative difference of F, first step": first,
        f"relative difference of F, {COMPARED} steps in double precision": apart,
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))
    return int(found["ratio"] < LEAST or first > 1e-5 or apart > 1e-9)


if __name__ == "__main__":
    sys.exit(main())
