"""What random patches see in small colour images: each serves as a filter, whose responses are pooled over a grid.

After Coates, Lee and Ng, An analysis of single-layer networks in unsupervised feature learning, 2011: patches are
normalised and whitened, some of them serve as filters, both halves of the responses are pooled. No label is seen. The
square root evens the pooled responses out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from bvfim.labels.arrays import Float32

BATCH = 20
"""Images whose patches are in memory at once."""


@dataclass(frozen=True)
class Settings:
    """Of the patches.

    Args:
        filters: how many patches serve as filters.
        grid: how many cells the responses are pooled over, along each side.
        threshold: below which a response counts as none.
        side: of a patch, in pixels.
        patches: how many the whitening is learned from.
        whitening: what is added to the variances before they are evened out.
        contrast: what is added to the variance of a patch before it is scaled to one.
        seed: of the patches.
    """

    filters: int = 400
    grid: int = 3
    threshold: float = 0.25
    side: int = 6
    patches: int = 30_000
    whitening: float = 0.1
    contrast: float = 0.01
    seed: int = 0


DEFAULT = Settings()


class Patches:
    """The filters, learned from images; called, they give the pooled responses of others.

    Args:
        images: of shape (n, side, side, channels), between 0 and 1.
        settings: what is learned.

    Example:
        >>> import numpy as np
        >>> from bvfim.labels.patches import Patches, Settings
        >>> images = np.random.default_rng(0).random((50, 12, 12, 3), np.float32)
        >>> Patches(images, Settings(filters=8, grid=2, patches=500))(images).shape
        (50, 64)
    """

    def __init__(self, images: Float32, settings: Settings = DEFAULT) -> None:
        self.settings = settings
        rng = np.random.default_rng(settings.seed)
        patches = self._normalised(self._sampled(images, rng))
        self._mean = patches.mean(0)
        variances, directions = torch.linalg.eigh(torch.cov((patches - self._mean).T))
        whiten = directions @ torch.diag(1.0 / torch.sqrt(variances + settings.whitening)) @ directions.T
        chosen = torch.from_numpy(rng.permutation(len(patches))[: settings.filters])
        self._filters = whiten @ functional.normalize((patches[chosen] - self._mean) @ whiten, dim=1).T

    def __call__(self, images: Float32) -> Float32:
        """What is seen in the images."""
        found = [self._responses(images[k : k + BATCH]) for k in range(0, max(len(images), 1), BATCH)]
        rows: Float32 = torch.cat(found).numpy()
        return rows

    def _responses(self, images: Float32) -> Tensor:
        """As if each patch were normalised and multiplied by the filters, which is one convolution."""
        pixels, side = torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2), self.settings.side
        mean, square = (functional.avg_pool2d(p.mean(1, keepdim=True), side, 1) for p in (pixels, pixels.square()))
        filters = self._filters.T.reshape(-1, pixels.shape[1], side, side)
        sums, shift = self._filters.sum(0)[:, None, None], (self._mean @ self._filters)[:, None, None]
        found = (functional.conv2d(pixels, filters) - sums * mean) / self._spread(square - mean.square()) - shift
        halves = ((sign * found - self.settings.threshold).clamp_(min=0) for sign in (1, -1))
        cells = [functional.adaptive_avg_pool2d(half, self.settings.grid) for half in halves]
        return torch.cat(cells, 1).flatten(1).sqrt()

    def _sampled(self, images: Float32, rng: np.random.Generator) -> Tensor:
        """Patches from anywhere, each laid out as :func:`torch.nn.functional.unfold` does."""
        side, count = self.settings.side, self.settings.patches
        last = images.shape[1] - side + 1
        places = zip(*(rng.integers(0, high, count) for high in (len(images), last, last)), strict=True)
        found = [images[i, a : a + side, b : b + side].transpose(2, 0, 1).ravel() for i, a, b in places]
        return torch.from_numpy(np.stack(found))

    def _normalised(self, patches: Tensor) -> Tensor:
        """Of mean zero, and of equal contrast where there is any."""
        centred = patches - patches.mean(-1, keepdim=True)
        return centred / self._spread(centred.square().mean(-1, keepdim=True))

    def _spread(self, variance: Tensor) -> Tensor:
        return torch.sqrt(variance + self.settings.contrast)
