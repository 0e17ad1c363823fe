"""A step of the single loop on large networks: beside the same passes by hand, and beside plain training.

A GPT of 124 million parameters in single precision (matrices multiplied in bfloat16), and one of a billion in bfloat16,
on random bytes. By hand: F and f at y and f at z, forward and backward, and AdamW on both networks. Plain: one network,
one batch, AdamW. All are timed in turn, in rounds; the peak memory is that of a step.

    python benchmarks/large_networks.py --out benchmarks/results/large-networks-h200.json
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import bvfim
from bvfim.reports.report import machine
from examples.data_mixture.learn import Rows
from examples.data_mixture.model import ByteGPT

MIB = 2**20
SIZES = {"124M": (13, 896, 14), "1B": (20, 2048, 16)}
"""Blocks, width and heads."""
SOURCES = 4


def network(size: str, device: str, kind: torch.dtype) -> ByteGPT:
    """A network at its random start."""
    return ByteGPT(*SIZES[size]).to(device, kind)


def adamw(parameters: Any) -> torch.optim.Optimizer:
    """The optimiser of every network here."""
    return torch.optim.AdamW(parameters, 1e-4, fused=True)


def losses(model: nn.Module, batch: Rows, half: bool) -> Tensor:
    """A loss for each row."""
    with torch.autocast(batch.tokens.device.type, torch.bfloat16, enabled=half):
        return model(batch.tokens)


def upper(x: Tensor, model: nn.Module, batch: Rows, half: bool) -> Tensor:
    """F."""
    return losses(model, batch, half).mean()


def lower(x: Tensor, model: nn.Module, batch: Rows, half: bool) -> Tensor:
    """f: the weights are a softmax over the sources."""
    return (len(x) * torch.softmax(x, 0)[batch.source] * losses(model, batch, half)).mean()


def by_hand(x: Tensor, y: nn.Module, z: nn.Module, batch: Rows, half: bool) -> Callable[[], None]:
    """The passes of a step, with a weight of one for f."""
    of_y, of_z = adamw(y.parameters()), adamw(z.parameters())

    def step() -> None:
        at_y, at_z = (x.detach().clone().requires_grad_() for _ in range(2))
        upper(at_y, y, batch, half).backward()
        lower(at_y, y, batch, half).backward()
        lower(at_z, z, batch, half).backward()
        of_y.step()
        of_z.step()
        for module in (y, z):
            module.zero_grad(set_to_none=True)
        assert at_y.grad is not None
        assert at_z.grad is not None
        x.sub_(0.01 * (at_y.grad - at_z.grad))

    return step


def plain(y: nn.Module, batch: Rows, half: bool) -> Callable[[], None]:
    """A step of training."""
    optimizer = adamw(y.parameters())

    def step() -> None:
        losses(y, batch, half).mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def ours(x: Tensor, y: nn.Module, z: nn.Module, batch: Rows, half: bool) -> Callable[[], None]:
    """A step of the library."""
    problem = bvfim.Problem(partial(upper, half=half), partial(lower, half=half))
    method = bvfim.StochasticBVFIM(y_optimizer=adamw)
    stepper = bvfim.Stepper(problem, x, bvfim.Twins(y, z), method, steps=1000)
    both = bvfim.Draw(batch, batch)

    def step() -> None:
        stepper.step(both)

    return step


def measured(way: str, size: str, rows: int, length: int, device: str, steps: int) -> dict[str, Any]:
    """The time of a step, and its peak memory, of a fresh start."""
    half = size != "1B"
    kind = torch.float32 if half else torch.bfloat16
    torch.manual_seed(0)
    tokens = torch.randint(256, (rows, length + 1), device=device, dtype=torch.uint8)
    batch = Rows(tokens, torch.arange(rows, device=device) % SOURCES)
    networks = [network(size, device, kind) for _ in range(1 if way == "plain" else 2)]
    x = torch.zeros(SOURCES, device=device)
    count = sum(p.numel() for p in networks[0].parameters())
    step = plain(networks[0], batch, half) if way == "plain" else WAYS[way](x, *networks, batch, half)
    for _ in range(3):
        step()
    wait(device)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(steps):
        began = time.perf_counter()
        step()
        wait(device)
        times.append(time.perf_counter() - began)
    peak = torch.cuda.max_memory_allocated() / MIB if device == "cuda" else float("nan")
    found = {"way": way, "size": size, "parameters": count, "rows": rows, "length": length}
    del networks, step
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
    return {**found, "ms": 1e3 * statistics.median(times), "peak MiB": peak}


WAYS: dict[str, Any] = {"by hand": by_hand, "ours": ours}


def wait(device: str) -> None:
    """For the device."""
    if device == "cuda":
        torch.cuda.synchronize()


def summary(rows: list[dict[str, Any]], size: str) -> dict[str, Any]:
    """Ratios of medians over the rounds, and the memory that the formula says.

    y and z with their gradients, and two numbers of AdamW for each parameter: with the plain run's 4 n entries and its
    activations, 8 n entries and the same activations. Gradients of both are there when the last pass begins.
    """
    of = {way: [row for row in rows if row["way"] == way and row["size"] == size] for way in ("plain", *WAYS)}
    ms = {way: statistics.median(row["ms"] for row in found) for way, found in of.items()}
    first = of["plain"][0]
    entry = (2 if size == "1B" else 4) / MIB
    activations = first["peak MiB"] - 4 * first["parameters"] * entry
    return {
        "size": size,
        "parameters": first["parameters"],
        "ms": ms,
        "ours to by hand": ms["ours"] / ms["by hand"],
        "ours to plain": ms["ours"] / ms["plain"],
        "peak MiB": of["ours"][0]["peak MiB"],
        "peak MiB by the formula": 8 * first["parameters"] * entry + activations,
    }


def main() -> None:
    """Measure and write."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--sizes", default="124M,1B")
    options.add_argument("--rows", type=int, default=16)
    options.add_argument("--length", type=int, default=512)
    options.add_argument("--steps", type=int, default=10)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--device", default="cuda")
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    rows = []
    for size in chosen.sizes.split(","):
        for _ in range(chosen.rounds if size == "124M" else 1):
            for way in ("plain", *WAYS):
                rows.append(measured(way, size, chosen.rows, chosen.length, chosen.device, chosen.steps))
                print(json.dumps(rows[-1]), flush=True)
    found = [summary(rows, size) for size in chosen.sizes.split(",")]
    print(json.dumps(found, indent=1))
    if chosen.out:
        command = " ".join(["python", "benchmarks/large_networks.py", *sys.argv[1:]])
        about = {"command": command, "machine": machine(), "summary": found, "runs": rows}
        chosen.out.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
