"""Few-shot tasks drawn at random: N classes, M images of each to learn from, others to judge by; many tasks at once."""

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
    """Several tasks of the same size, each along the first dimension.

    Attributes:
        support: what each task is learned from: images (tasks, ways * shots, channels, side, side), or their features.
        query: what it is judged by, likewise with ways * queries.
        support_labels, query_labels: the class of each image within its task, from 0 to ways - 1; alike in all tasks.

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
    """How large a draw is.

    Args:
        ways: N, the classes of a task.
        shots: M, the images of a class to learn from.
        queries: the images of a class to judge by.
        tasks: how many tasks are drawn at once.
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
    """Refuse tasks with more classes, or with more images of a class, than there are.

    Example:
        >>> import numpy as np
        >>> from bvfim.data.episodes import Shape, require_enough
        >>> from bvfim.data.fewshot import ClassImages
        >>> require_enough(ClassImages(np.zeros((6, 1, 8, 8), np.uint8), np.full(2, 3), ("a", "b")), Shape(ways=3))
        Traceback (most recent call last):
        bvfim.status.DataError: 3 ways of 2 classes
    """
    if symmetries not in SYMMETRIES:
        raise DataError(f"symmetries must be one of {SYMMETRIES}, not {symmetries!r}")
    classes = len(images) * symmetries
    if classes < shape.ways:
        raise DataError(f"{shape.ways} ways of {classes} classes")
    fewest = int(images.counts.min())
    if fewest < shape.shots + shape.queries:
        name = images.names[int(images.counts.argmin())]
        raise DataError(f"{shape.shots} shots and {shape.queries} queries of class {name}, which has {fewest} images")


def moved_by(images: Tensor, amounts: Tensor) -> Tensor:
    """The images (n, channels, side, side), each shifted, turned and stretched about its centre.

    Args:
        images: what is moved; what comes in from outside is zero.
        amounts: how far each is turned, stretched and shifted along both sides, (4, n) from 0 to 1; halves do nothing.

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
    """An endless stream of :class:`Tasks`, drawn on the device, with a position that can be saved.

    The classes of a task are all different, and so are its images of a class. Values are between 0 and 1.

    Args:
        images: the classes to draw from.
        shape: the size of a draw.
        symmetries: with 4, a class turned by 90, 180 and 270 degrees is three further classes, as is usual with
            Omniglot; with 8, its mirror image, turned likewise, is four more.
        moved: whether each image is shifted, turned and stretched a little, at random.
        seed: of the draws.
        device: where the images are kept and drawn.

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
        """The next tasks."""
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
        """Where the stream stands."""
        return {"random": self._random.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to where a stream stood."""
        self._random.set_state(state["random"])
