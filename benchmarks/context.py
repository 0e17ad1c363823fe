"""What `context` saves: an upper step of BVFIM on few-shot tasks, features once a step against in every evaluation.

Both take the same tasks from the same start, in turns; the ratio is that of the medians of one run, and the numbers of
the two are compared. Exit code 1 if the step with `context` is less than three times faster, or if the numbers differ.

    python benchmarks/context.py --device cuda
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch

import bvfim
from bvfim.data.episodes import Shape
from bvfim.experiments import fewshot, fewshot_model
from bvfim.experiments.fewshot import Config
from bvfim.report import machine

LEAST, SOON = 3.0, 4
"""How many times faster it must be, and the step at which the numbers are compared once more: rounding, above all that
of a GPU's products, grows from step to step."""


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


def steps(shared: bool, shape: Shape, count: int, config: Config, accelerate: str) -> tuple[list[float], Any]:
    """The seconds of each of some upper steps from the start, and where they led."""
    draws = fewshot.stream("omniglot", "train", shape, config)
    x = fewshot_model.network(1, config.width, config.seed, config.device)
    y = fewshot_model.heads(x, shape.tasks, shape.ways)
    method, adam = fewshot.method("BVFIM", shape.tasks, config), partial(torch.optim.Adam, lr=config.x_lr)
    clock, stated = Clock(config.device), fewshot_model.problem(shared)
    found = bvfim.solve(
        stated, x, y, method, adam, steps=count, batches=draws, callbacks=[clock], accelerate=accelerate
    )
    return clock.times[count // 2 :], found


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
    if args.steps < SOON:
        parser.error(f"--steps must be at least {SOON}")
    config, shape = Config(device=args.device), Shape(5, 1, 15, args.tasks)
    times: dict[bool, list[float]] = {True: [], False: []}
    ends: dict[bool, Any] = {}
    for _ in range(args.rounds):
        for shared in times:
            own, ends[shared] = steps(shared, shape, args.steps, config, args.accelerate)
            times[shared] += own
    ms = {shared: 1e3 * statistics.median(own) for shared, own in times.items()}
    uppers = [ends[shared].history["upper"].to_numpy() for shared in times]
    first = float(abs(uppers[0][0] / uppers[1][0] - 1))
    soon = float(abs(uppers[0][SOON - 1] / uppers[1][SOON - 1] - 1))
    found = {
        "command": f"python benchmarks/context.py --device {args.device} --tasks {args.tasks} --steps {args.steps}",
        "machine": machine(),
        "settings": {"tasks": args.tasks, "steps": args.steps, "rounds": args.rounds},
        "ms with context": ms[True],
        "ms without": ms[False],
        "ratio": ms[False] / ms[True],
        "relative difference of F, first step": first,
        f"relative difference of F, step {SOON}": soon,
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))
    return int(found["ratio"] < LEAST or first > 1e-5 or soon > 1e-3)


if __name__ == "__main__":
    sys.exit(main())
