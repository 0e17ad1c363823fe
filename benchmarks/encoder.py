"""Make the weights of bvfim.labels.encoder: a small network learns to tell the hundred classes of CIFAR-100 apart.

Minutes on a GPU; sums on a GPU are not taken in a fixed order, so that two runs give weights of the same worth, not the
same bits. Every twentieth image can be held out, to see what was learned.

    python benchmarks/encoder.py --device cuda --out encoder.safetensors
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from bvfim.data.cifar import CIFAR100, SHAPE
from bvfim.data.dataset import Dataset
from bvfim.labels.encoder import MEAN, Encoder

SIDE = SHAPE[0]
ROOM, HOLE, LIGHT, SMOOTHED, MIXED, PURE = 4, 6, 0.3, 0.1, 0.4, 0.1
"""How far a crop may move, the size of a hole, how far light and contrast may change, the smoothing of the labels, the
parameter of the shares that two images are mixed by, and the share of the epochs, at the end, without mixing."""
BATCH, RATE, DECAY, WARM = 256, 0.2, 5e-4, 5
"""Images of a step, the highest step size, the weight decay, and the epochs in which the step size rises."""


def changed(images: Tensor, random: torch.Generator) -> Tensor:
    """Crops of the images, mirrored or not, in other light, with a hole; bytes to numbers between 0 and 1 or so."""
    count, device, own = len(images), images.device, torch.arange(SIDE, device=images.device)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, generator=random, device=device)

    top, left = (uniform(2, count, 1) * (2 * ROOM + 1)).long()
    columns = own + left
    columns = torch.where(uniform(count, 1) < 0.5, columns.flip(1), columns)
    wide = functional.pad(images, (ROOM,) * 4)
    each = torch.arange(count, device=device)[:, None, None]
    found = wide[each, :, (own + top)[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).float() / 255
    mean = found.mean((1, 2, 3), keepdim=True)
    contrast, light = 1 + LIGHT * (2 * uniform(2, count, 1, 1, 1) - 1)
    found = (found - mean) * contrast + mean * light
    row, column = (uniform(2, count, 1, 1) * SIDE).long()
    hole = ((own[:, None] - row).abs() < HOLE) & ((own - column).abs() < HOLE)
    grey = found.new_tensor(MEAN)[:, None, None]
    return torch.where(hole[:, None], grey, found).contiguous(memory_format=torch.channels_last)


def pictures(data: Dataset, device: str) -> tuple[Tensor, Tensor]:
    """All images as bytes, channels first, and their labels."""
    inputs = np.concatenate([data.train.inputs, data.test.inputs]).reshape(-1, *SHAPE)
    labels = torch.from_numpy(np.concatenate([data.train.labels, data.test.labels]))
    pixels = torch.from_numpy(np.rint(255 * inputs).astype(np.uint8)).permute(0, 3, 1, 2).contiguous()
    return pixels.to(device), labels.to(device)


def train(images: Tensor, labels: Tensor, epochs: int, seed: int) -> tuple[Encoder, nn.Linear]:
    """The network and the layer that tells the classes, learned from the images."""
    device = images.device
    torch.manual_seed(seed)
    random = torch.Generator(device).manual_seed(seed)
    encoder = Encoder().to(device).to(memory_format=torch.channels_last)
    width = encoder.stages[-1][-1].second[0].out_channels
    head = nn.Linear(width, int(labels.max()) + 1).to(device)
    each = len(labels) // BATCH
    total = epochs * each
    weights = [*encoder.parameters(), *head.parameters()]
    sgd = torch.optim.SGD(weights, lr=RATE, momentum=0.9, nesterov=True, weight_decay=DECAY)
    rate = torch.optim.lr_scheduler.LambdaLR(
        sgd, lambda k: min(1.0, (k + 1) / (WARM * each)) * (1 + math.cos(math.pi * k / total)) / 2
    )

    @torch.compile(disable=device.type == "cpu")
    def loss(own: Tensor, first: Tensor, second: Tensor, share: Tensor) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16):
            scores = head(encoder(own)[:, -width:])
        one, other = (functional.cross_entropy(scores.float(), to, label_smoothing=SMOOTHED) for to in (first, second))
        return share * one + (1 - share) * other

    began, mix = time.perf_counter(), torch.distributions.Beta(MIXED, MIXED)
    for epoch in range(epochs):
        order = torch.randperm(len(labels), generator=random, device=device)
        for rows in order[: each * BATCH].split(BATCH):
            partner = torch.randperm(BATCH, generator=random, device=device)
            share = mix.sample().to(device) if epoch < (1 - PURE) * epochs else torch.ones((), device=device)
            own = changed(images[rows], random)
            value = loss(torch.lerp(own[partner], own, share), labels[rows], labels[rows][partner], share)
            sgd.zero_grad()
            value.backward()
            sgd.step()
            rate.step()
        if epoch % 10 == 9 or epoch == epochs - 1:
            print(f"epoch {epoch + 1}, loss {value.item():.3f}, {time.perf_counter() - began:.0f} s", flush=True)
    return encoder.eval(), head


def main() -> None:
    """Train, look at what was held out, write the weights as 16-bit numbers."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--epochs", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--hold-out", action="store_true", help="every twentieth image, to see what was learned")
    parser.add_argument("--out", type=Path, default=Path("out/encoder.safetensors"))
    args = parser.parse_args()
    images, labels = pictures(CIFAR100(), args.device)
    held = (torch.arange(len(labels), device=args.device) % 20 == 19) & args.hold_out
    encoder, head = train(images[~held], labels[~held], args.epochs, args.seed)
    if args.hold_out:
        with torch.no_grad():
            found = head(encoder(images[held].float() / 255)[:, -head.in_features :]).argmax(1)
        print(f"held out: {100 * (found == labels[held]).double().mean():.1f} per cent of {len(found)} told right")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    state = encoder.state_dict().items()
    save_file({name: weight.half().cpu().contiguous() for name, weight in state if "num_batches" not in name}, args.out)


if __name__ == "__main__":
    main()
