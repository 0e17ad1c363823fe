"""Learn the weights of the sources: ``python -m examples.data_mixture``, or with torchrun on several devices."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from examples.data_mixture.compare import arguments
from examples.data_mixture.learn import learned
from examples.data_mixture.texts import obtained
from examples.data_mixture.train import chosen


@contextmanager
def processes(device: str) -> Iterator[tuple[DeviceMesh | None, str]]:
    """The mesh of all processes that torchrun has started, and the device of this one; no mesh without torchrun."""
    if "LOCAL_RANK" not in os.environ:
        yield None, device
        return
    if device == "cuda":
        device = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(device)
    mesh = init_device_mesh(device.partition(":")[0], (int(os.environ["WORLD_SIZE"]),))
    try:
        yield mesh, device
    finally:
        dist.destroy_process_group()


def main() -> None:
    """Learn the weights, print them, and write them into a file."""
    parser = arguments(__doc__)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    texts, settings = obtained(given.texts), chosen(given.size, given.steps, given.quick)
    with processes(settings.device) as (mesh, device):
        settings = replace(settings, device=device)
        result = learned(texts, settings, given.seed, mesh)
        if mesh is not None and mesh.get_rank() > 0:
            return
    weights = dict(zip(texts.sources, result.weights.tolist(), strict=True))
    for name, weight in weights.items():
        print(f"{name:12} {weight:6.1%}")
    print(f"{result.seconds:.0f} s")
    if given.out is not None:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        record = {"settings": asdict(settings), "seed": given.seed, "seconds": result.seconds, "weights": weights}
        given.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
