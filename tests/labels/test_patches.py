from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch.nn import functional

from bvfim.labels.patches import Patches, Settings

SMALL = Settings(filters=8, grid=2, patches=400)
PIXELS = np.random.default_rng(0).integers(0, 256, (40, 12, 12, 3))


def test_rows_come_again_from_the_same_seed():
    pictures = (PIXELS / 255).astype(np.float32)
    first, again, other = (Patches(pictures, replace(SMALL, seed=seed))(pictures) for seed in (0, 0, 1))
    assert first.shape == (40, 8 * 2 * 4)
    assert first.dtype == np.float32
    assert np.array_equal(first, again)
    assert not np.allclose(first, other)


def test_the_convolution_is_the_product_of_normalised_patches_and_filters():
    pictures = (PIXELS / 255).astype(np.float32)
    own = Patches(pictures, SMALL)
    patches = functional.unfold(torch.from_numpy(pictures).permute(0, 3, 1, 2), 6).transpose(1, 2).double()
    centred = patches - patches.mean(-1, keepdim=True)
    normalised = centred / torch.sqrt(centred.square().mean(-1, keepdim=True) + 0.01)
    found = ((normalised - own._mean.double()) @ own._filters.double()).transpose(1, 2).reshape(40, 8, 7, 7)
    both = torch.cat([found, -found], 1).sub(0.25).clamp(min=0)
    expected = functional.adaptive_avg_pool2d(both, 2).flatten(1).sqrt()
    torch.testing.assert_close(torch.from_numpy(own(pictures)).double(), expected, rtol=0, atol=1e-3)
