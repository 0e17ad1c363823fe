"""Pictures as rows of numbers, by a small network that has learned to tell the hundred classes of CIFAR-100 apart.

Three stages of two residual blocks (He et al., Deep residual learning for image recognition, 2016). The weights come
with the package: ``benchmarks/encoder.py`` has made them from a copy with 200 images of each class. None of the classes
is one of CIFAR-10's.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load
from torch import Tensor, nn
from torch.nn import functional

WIDTH, BATCH = 32, 250
"""Channels of the first stage, and pictures that are encoded at once."""
MEAN, SPREAD = (0.507, 0.487, 0.441), (0.267, 0.256, 0.276)
"""Of the colours of the pictures that it learned from."""
WEIGHTS = "encoder.safetensors"


def _convolution(inputs: int, outputs: int, side: int, stride: int) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, side, stride, side // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs))


class Block(nn.Module):
    """Two convolutions, and a way around them.

    Args:
        inputs, outputs: channels.
        stride: of the first convolution.
    """

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.first = _convolution(inputs, outputs, 3, stride)
        self.second = _convolution(outputs, outputs, 3, 1)
        self.around = nn.Identity() if inputs == outputs else _convolution(inputs, outputs, 1, stride)

    def forward(self, maps: Tensor) -> Tensor:
        """What the block makes of channels."""
        found: Tensor = self.second(functional.relu(self.first(maps))) + self.around(maps)
        return functional.relu(found)


class Encoder(nn.Module):
    """The network, with the weights it starts to learn from.

    Args:
        width: channels of the first stage; each of the next has twice as many.

    Example:
        >>> import torch
        >>> from bvfim.labels.encoder import Encoder
        >>> Encoder(width=4)(torch.rand(2, 3, 32, 32)).shape
        torch.Size([2, 24])
    """

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.stem = _convolution(3, width, 3, 1)
        self.stages = nn.ModuleList(
            [
                nn.Sequential(Block(width, width), Block(width, width)),
                nn.Sequential(Block(width, 2 * width, 2), Block(2 * width, 2 * width)),
                nn.Sequential(Block(2 * width, 4 * width, 2), Block(4 * width, 4 * width)),
            ]
        )

    def forward(self, pictures: Tensor) -> Tensor:
        """The means of the channels after the second and after the third stage.

        Args:
            pictures: of shape (n, 3, side, side), between 0 and 1.
        """
        mean, spread = (pictures.new_tensor(numbers)[:, None, None] for numbers in (MEAN, SPREAD))
        maps, means = functional.relu(self.stem((pictures - mean) / spread)), list[Tensor]()
        for stage in self.stages:
            maps = stage(maps)
            means.append(maps.mean((2, 3)))
        return torch.cat(means[1:], 1)


def weights() -> bytes:
    """The file of weights that comes with the package."""
    return files("bvfim.labels").joinpath(WEIGHTS).read_bytes()


@cache
def learned() -> Encoder:
    """The network with the weights that come with the package."""
    found = Encoder()
    found.load_state_dict({name: weight.float() for name, weight in load(weights()).items()})
    return found.eval()


@torch.no_grad()
def encoded(pictures: NDArray[np.float32]) -> NDArray[np.float32]:
    """Pictures as rows: the mean of what the network makes of each of them and of its mirror image.

    Args:
        pictures: of shape (n, side, side, 3), between 0 and 1.

    Example:
        >>> import numpy as np
        >>> from bvfim.labels.encoder import encoded
        >>> pictures = np.random.default_rng(0).random((2, 32, 32, 3), np.float32)
        >>> rows = encoded(pictures)
        >>> rows.shape, bool(np.allclose(rows, encoded(pictures[:, :, ::-1]), atol=1e-4))
        ((2, 192), True)
    """
    network, found = learned(), list[Tensor]()
    for k in range(0, max(len(pictures), 1), BATCH):
        own = torch.from_numpy(np.ascontiguousarray(pictures[k : k + BATCH])).permute(0, 3, 1, 2)
        found.append((network(own) + network(own.flip(3))) / 2)
    rows: NDArray[np.float32] = torch.cat(found).numpy()
    return rows
