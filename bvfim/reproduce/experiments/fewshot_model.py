r"""The few-shot model: a convolutional network as x, a logistic layer for each task as y.

.. math:: f(x, y) = \sum_i \mathrm{CE}(x, y_i; D_i^{tr}), \qquad F(x, y) = \sum_i \mathrm{CE}(x, y_i; D_i^{val})

over the tasks i of a draw; CE is a mean over the images. The features of an image are the means of the channels of the
last of four blocks, brought to mean 0 and variance 1, so that all images weigh the same in a head's steps. They do not
depend on y, and are computed once for each upper step. In training each block normalises its channels by their mean and
variance over all images of a task, so that the query images take part in it, as in the works that the paper compares
itself to. To judge, this can be done too, or the moments are those of training images, and each query is told by
itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

import bvfim
from bvfim.core.descent import descend
from bvfim.data.episodes import Episodes, Tasks
from bvfim.dynamics import GradientDescent

BLOCKS, EPS = 4, 1e-5
Moments = tuple[Tensor, Tensor]
"""The variance and the mean of each channel."""
FITS = dict.fromkeys((0.03, 0.1, 0.3, 1.0, 3.0), (5, 10, 20, 50, 100))
"""The fits of a fresh head that are tried on validation classes: how many steps, of which size."""


def network(channels: int, width: int = 64, seed: int = 0, device: str = "cpu") -> list[dict[str, Tensor]]:
    """x: for each block the filters, and what the normalised channels are scaled by and moved to.

    Example:
        >>> from bvfim.reproduce.experiments.fewshot_model import network
        >>> [tuple(block["filters"].shape) for block in network(1)]
        [(64, 1, 3, 3), (64, 64, 3, 3), (64, 64, 3, 3), (64, 64, 3, 3)]
    """
    random = torch.Generator().manual_seed(seed)
    blocks = []
    for inputs in (channels, *[width] * (BLOCKS - 1)):
        filters = torch.randn(width, inputs, 3, 3, generator=random) * math.sqrt(2 / (9 * inputs))
        block = {"filters": filters, "scale": torch.ones(width), "shift": torch.zeros(width)}
        blocks.append({name: tensor.to(device) for name, tensor in block.items()})
    return blocks


def features(x: list[dict[str, Tensor]], images: Tensor, moments: Sequence[Moments] = ()) -> Tensor:
    """The images (tasks, n, channels, side, side) as features (tasks, n, d).

    Args:
        x: the network.
        images: what it is shown.
        moments: what the channels of each block are normalised by; where there are none, by those of their own task.

    Example:
        >>> import torch
        >>> from bvfim.reproduce.experiments.fewshot_model import features, network
        >>> features(network(1), torch.rand(2, 5, 1, 28, 28)).shape
        torch.Size([2, 5, 64])
    """
    return _shown(x, images, moments)[0]


@torch.no_grad()
def fixed_moments(x: list[dict[str, Tensor]], images: Tensor) -> list[Moments]:
    """The variance and mean of the channels of every block over all these images, to normalise others by.

    Example:
        >>> import torch
        >>> from bvfim.reproduce.experiments.fewshot_model import features, fixed_moments, network
        >>> x, images = network(1), torch.rand(1, 50, 1, 28, 28)
        >>> torch.allclose(features(x, images), features(x, images, fixed_moments(x, images)))
        True
    """
    return _shown(x, images.flatten(0, 1)[None], ())[1]


def _shown(x: list[dict[str, Tensor]], images: Tensor, moments: Sequence[Moments]) -> tuple[Tensor, list[Moments]]:
    """The features of the images, and what the channels of each block were normalised by."""
    tasks, count = images.shape[:2]
    found, used = images.flatten(0, 1), list[Moments]()
    for k, block in enumerate(x):
        maps = functional.conv2d(found, block["filters"], padding=1).unflatten(0, (tasks, count))
        used.append(moments[k] if moments else torch.var_mean(maps, (1, 3, 4), correction=0, keepdim=True))
        found = _activated(block, maps, used[k])
    means = found.mean((2, 3)).unflatten(0, (tasks, count))
    return functional.layer_norm(means, means.shape[-1:]), used


def _activated(block: dict[str, Tensor], maps: Tensor, moments: Moments) -> Tensor:
    """What a block makes of its channels (tasks, n, width, side, side), without the dimension of the tasks."""
    variance, mean = moments
    scale = block["scale"][:, None, None] * torch.rsqrt(variance + EPS)
    maps = torch.addcmul(block["shift"][:, None, None] - mean * scale, maps, scale)
    return functional.relu(functional.max_pool2d(maps.flatten(0, 1), 2, ceil_mode=True))


def heads(x: list[dict[str, Tensor]], tasks: int, ways: int) -> Tensor:
    """y: a logistic layer for each task, at zero, weights and offset of a class in a row.

    Args:
        x: the network.
        tasks, ways: how many tasks, and how many classes each has.

    Example:
        >>> from bvfim.reproduce.experiments.fewshot_model import heads, network
        >>> heads(network(1), tasks=16, ways=5).shape
        torch.Size([16, 5, 65])
    """
    return x[0]["filters"].new_zeros(tasks, ways, len(x[-1]["shift"]) + 1)


def embedded(x: list[dict[str, Tensor]], tasks: Tasks, moments: Sequence[Moments] = ()) -> Tasks:
    """The tasks with features in the place of images."""
    found, own = features(x, torch.cat([tasks.support, tasks.query], 1), moments), tasks.support.shape[1]
    return Tasks(found[:, :own], found[:, own:], tasks.support_labels, tasks.query_labels)


def scores(y: Tensor, inputs: Tensor) -> Tensor:
    """The logit of each class for each image of each task."""
    return torch.baddbmm(y[:, None, :, -1], inputs, y[..., :-1].mT)


def loss(y: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
    """The cross-entropy: the mean over the images of a task, summed over the tasks."""
    found = scores(y, inputs)
    return functional.cross_entropy(found.flatten(0, 1), labels.repeat(len(found)), reduction="sum") / len(labels)


ON_FEATURES = bvfim.Problem(
    upper=lambda x, y, tasks: loss(y, tasks.query, tasks.query_labels),
    lower=lambda x, y, tasks: loss(y, tasks.support, tasks.support_labels),
)
"""The problem over tasks whose images are features already."""


def problem(shared: bool = True) -> bvfim.Problem:
    """The bilevel problem over draws of :class:`bvfim.data.episodes.Episodes`.

    Args:
        shared: compute the features once for each upper step, through ``context``; else in every evaluation.

    Example:
        >>> from bvfim.reproduce.experiments.fewshot_model import problem
        >>> problem(shared=False).context is None
        True
    """
    if shared:
        return bvfim.Problem(ON_FEATURES.upper, ON_FEATURES.lower, context=embedded)
    return bvfim.Problem(
        lambda x, y, tasks: ON_FEATURES.upper(x, y, embedded(x, tasks)),
        lambda x, y, tasks: ON_FEATURES.lower(x, y, embedded(x, tasks)),
    )


@torch.no_grad()
def accuracies(
    x: list[dict[str, Tensor]],
    episodes: Episodes,
    count: int,
    fits: Mapping[float, Sequence[int]],
    moments: Sequence[Moments] = (),
) -> dict[tuple[float, int], Tensor]:
    """The share of queries that is told right in each of at least ``count`` tasks, by each fit of a fresh head.

    Args:
        x: the network.
        episodes: where the tasks are drawn from; whole draws are taken.
        count: how many.
        fits: numbers of steps of gradient descent on f, in ascending order, by their size.
        moments: as :func:`features` takes them.

    Returns:
        The accuracies by size and number of the steps.
    """
    draws = [embedded(x, next(episodes), moments) for _ in range(-(-count // episodes.shape.tasks))]
    support, query = (torch.cat([getattr(drawn, name) for drawn in draws]) for name in ("support", "query"))
    tasks = draws[0]._replace(support=support, query=query)
    at, found = ON_FEATURES.at(x, tasks), dict[tuple[float, int], Tensor]()
    for lr in fits:
        y, taken = heads(x, len(support), episodes.shape.ways), 0
        for steps in fits[lr]:
            y = descend(at, lambda at, y: at.lower_grad(y)[1], y, steps - taken, GradientDescent(lr))
            right = scores(y, query).argmax(-1) == tasks.query_labels
            found[lr, steps], taken = right.double().mean(1), steps
    return found
