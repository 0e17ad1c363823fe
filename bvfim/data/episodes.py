"""Random few-shot tasks: N classes, M support images of each and further query images; many tasks at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from bvfim.data.fewshot import ClassImages
from bvfim.status import DataError

SYMMETRIES = (1, 4, 8)
"""Of a square, or some of them: none but itself, turned by 90 degrees at a time, and mirrored as well."""
SHIFT, TURN, STRETCH = 0.07, 0.15, 0.1
"""How far an image is moved at most: by a share of its side, by an angle, and by the logarithm of its size."""


class Tasks(NamedTuple):
    """Several tasks of the same size, stacked along the first dimension.

    Attributes:
        support: the support images (tasks, ways * shots, channels, side, side), or their features.
        query: the query images, likewise with ways * queries.
        support_labels, query_labels: class of each image within its task, 0 to ways - 1; the same in all tasks.

    Example:
        >>> import torch
        >>> from bvfim.data.episodes import Tasks
        >>> labels = torch.arange(5)
        >>> Tasks(torch.zeros(16, 5, 64), torch.zeros(16, 5, 64), labels, labels).query.shape
        torch.Size([16, 5, 64])
    """

    support: Tensor
    query: Tensor
    support_labels: Tensor
    query_labels: Tensor


@dataclass(frozen=True)
class Shape:
    """The size of a draw.

    Args:
        ways: N, the number of classes per task.
        shots: M, the number of support images per class.
        queries: the number of query images per class.
        tasks: the number of tasks drawn at once.
    """

    ways: int = 5
    shots: int = 1
    queries: int = 15
    tasks: int = 16

    def __post_init__(self) -> None:
        for name, least in (("ways", 2), ("shots", 1), ("queries", 1), ("tasks", 1)):
            number = getattr(self, name)
            if not isinstance(number, int) or number < least:
                raise DataError(f"{name} must be a whole number of at least {least}, not {number!r}")


def require_enough(images: ClassImages, shape: Shape, symmetries: int = 1) -> None:
    """Raise an error if the tasks need more classes, or more images per class, than there are.

    Example:
        >>> import numpy as np
        >>> from bvfim.data.episodes import Shape, require_enough
        >>> from bvfim.data.fewshot import ClassImages
        >>> require_enough(ClassImages(np.zeros((6, 1, 8, 8), np.uint8), np.full(2, 3), ("a", "b")), Shape(ways=3))
        Traceback (most recent call last):
        bvfim.status.DataError: 3 ways need 3 classes, but there are only 2
    """
    if symmetries not in SYMMETRIES:
        raise DataError(f"symmetries must be one of {SYMMETRIES}, not {symmetries!r}")
    classes = len(images) * symmetries
    if classes < shape.ways:
        raise DataError(f"{shape.ways} ways need {shape.ways} classes, but there are only {classes}")
    fewest = int(images.counts.min())
    if fewest < shape.shots + shape.queries:
        name = images.names[int(images.counts.argmin())]
        raise DataError(f"{shape.shots} shots and {shape.queries} queries: class {name} has only {fewest} images")


def moved_by(images: Tensor, amounts: Tensor) -> Tensor:
    """Shift, rotate and scale each image of a batch (n, channels, side, side) about its centre.

    Args:
        images: the images; pixels from outside the image are zero.
        amounts: rotation, scale and the two shifts of each image, (4, n) from 0 to 1; 0.5 leaves it unchanged.

    Example:
        >>> import torch
        >>> from bvfim.data.episodes import moved_by
        >>> images = torch.rand(3, 1, 8, 8)
        >>> torch.allclose(moved_by(images, torch.full((4, 3), 0.5)), images, atol=1e-6)
        True
    """
    by = 2 * amounts - 1
    turn, size, (across, down) = TURN * by[0], torch.exp(STRETCH * by[1]), 2 * SHIFT * by[2:]
    rows = [[size * turn.cos(), -size * turn.sin(), across], [size * turn.sin(), size * turn.cos(), down]]
    grid = functional.affine_grid(torch.stack([torch.stack(row, 1) for row in rows], 1), list(images.shape), False)
    return functional.grid_sample(images, grid, align_corners=False)


class Episodes:
    """An endless stream of :class:`Tasks`, drawn on the device, whose position can be saved and restored.

    The classes of a task are distinct, and so are the images of a class. Values are between 0 and 1.

    Args:
        images: the classes to draw from.
        shape: the size of a draw.
        symmetries: with 4, a class rotated by 90, 180 and 270 degrees counts as three more classes, as is usual for
            Omniglot; with 8, its mirror image and its rotations count as four more.
        moved: whether to shift, rotate and scale each image slightly, at random.
        seed: random seed of the draws.
        device: the device that holds the images.

    Example:
        >>> import numpy as np
        >>> from bvfim.data.episodes import Episodes, Shape
        >>> from bvfim.data.fewshot import ClassImages
        >>> images = ClassImages(np.zeros((60, 1, 8, 8), np.uint8), np.full(6, 10), tuple("abcdef"))
        >>> drawn = next(Episodes(images, Shape(ways=3, shots=1, queries=4, tasks=2)))
        >>> drawn.support.shape, drawn.query.shape
        (torch.Size([2, 3, 1, 8, 8]), torch.Size([2, 12, 1, 8, 8]))
    """

    def __init__(
        self,
        images: ClassImages,
        shape: Shape,
        *,
        symmetries: int = 1,
        moved: bool = False,
        seed: int = 0,
        device: Any = "cpu",
    ) -> None:
        require_enough(images, shape, symmetries)
        self.shape, self._symmetries, self._moved = shape, symmetries, moved
        self._pixels = torch.from_numpy(images.pixels).to(device)
        self._counts = torch.from_numpy(images.counts).to(device)
        self._first = self._counts.cumsum(0) - self._counts
        self._places = torch.arange(int(images.counts.max()), device=device)
        self._random = torch.Generator(device).manual_seed(seed)
        self._labels = [
            torch.arange(shape.ways, device=device).repeat_interleave(k) for k in (shape.shots, shape.queries)
        ]

    def __iter__(self) -> Iterator[Tasks]:
        return self

    def __next__(self) -> Tasks:
        """Draw the next tasks."""
        ways, shots, queries, tasks = self.shape.ways, self.shape.shots, self.shape.queries, self.shape.tasks
        drawn = self._uniform(tasks, self._symmetries * len(self._counts)).topk(ways).indices
        kind, turn = drawn % len(self._counts), drawn // len(self._counts)
        absent = self._places >= self._counts[kind][..., None]
        own = self._uniform(tasks, ways, len(self._places)).masked_fill(absent, -1.0).topk(shots + queries).indices
        images = self._turned(self._pixels[self._first[kind][..., None] + own], turn).float() / 255
        if self._moved:
            images = moved_by(images.flatten(0, 2), self._uniform(4, tasks * ways * (shots + queries))).view_as(images)
        return Tasks(images[:, :, :shots].flatten(1, 2), images[:, :, shots:].flatten(1, 2), *self._labels)

    def _uniform(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self._random, device=self._pixels.device)

    def _turned(self, images: Tensor, turn: Tensor) -> Tensor:
        """The images of each class, turned as often as it says; from four on, mirrored ones."""
        found = images
        for k in range(1, self._symmetries):
            own = torch.rot90(images if k < 4 else images.flip(-1), k % 4, (-2, -1))
            found = torch.where((turn == k)[(..., *[None] * 4)], own, found)
        return found

    def state_dict(self) -> dict[str, Any]:
        """The position of the stream."""
        return {"random": self._random.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved position."""
        self._random.set_state(state["random"])
