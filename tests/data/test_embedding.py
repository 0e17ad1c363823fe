from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from bvfim.data import embedding
from bvfim.data.dataset import Dataset, images
from bvfim.data.embedding import Embedding, Settings, embedded

SMALL = Settings(filters=8, dimensions=5, grid=2, patches=400)
PIXELS = np.random.default_rng(0).integers(0, 256, (40, 12, 12, 3))


def dataset(labels: int = 0) -> Dataset:
    train, test = (images(part, 255, np.full(len(part), labels)) for part in (PIXELS[:30], PIXELS[30:]))
    return Dataset("tiny", train, test, ("0", "1"))


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("BVFIM_DATA", str(tmp_path))
    return tmp_path / "cache"


def test_rows_have_the_dimensions_asked_for_and_come_again_from_the_same_seed():
    pictures = (PIXELS / 255).astype(np.float32)
    first, again, other = (Embedding(pictures, replace(SMALL, seed=seed))(pictures) for seed in (0, 0, 1))
    assert first.shape == (40, 5)
    assert first.dtype == np.float32
    assert np.array_equal(first, again)
    assert not np.allclose(first, other)


def test_the_convolution_is_the_product_of_normalised_patches_and_filters():
    pictures = (PIXELS / 255).astype(np.float32)
    own = Embedding(pictures, SMALL)
    patches = functional.unfold(torch.from_numpy(pictures).permute(0, 3, 1, 2), 6).transpose(1, 2).double()
    centred = patches - patches.mean(-1, keepdim=True)
    normalised = centred / torch.sqrt(centred.square().mean(-1, keepdim=True) + 0.01)
    found = ((normalised - own._mean.double()) @ own._filters.double()).transpose(1, 2).reshape(40, 8, 7, 7)
    both = torch.cat([found, -found], 1).sub(0.25).clamp(min=0)
    expected = functional.adaptive_avg_pool2d(both, 2).flatten(1).sqrt()
    torch.testing.assert_close(torch.cat(list(own._pooled(pictures))).double(), expected, rtol=0, atol=1e-3)


def test_the_directions_are_those_of_the_whole_eigendecomposition():
    rows = torch.randn(200, 30, generator=torch.Generator().manual_seed(0)) * 0.7 ** torch.arange(30)
    rows = rows - rows.mean(0)
    variances, directions = embedding._main(rows, 5, np.random.default_rng(0))
    exact = torch.linalg.eigh(torch.cov(rows.T))
    torch.testing.assert_close(variances, exact[0][-5:].flip(0), rtol=1e-4, atol=0)
    cosines = (directions * exact[1][:, -5:].flip(1)).sum(0).abs()
    torch.testing.assert_close(cosines, torch.ones(5), rtol=0, atol=1e-3)


def test_more_directions_than_images_are_not_asked_for():
    pictures = (PIXELS[:4] / 255).astype(np.float32)
    assert np.isfinite(Embedding(pictures, SMALL)(pictures)).all()


def test_what_is_kept_is_read_again_and_not_made_anew(home, monkeypatch):
    made = embedded(dataset(), SMALL)
    monkeypatch.setattr(embedding, "Embedding", None)
    assert all(np.array_equal(a, b) for a, b in zip(made, embedded(dataset(), SMALL), strict=True))
    assert [path.suffix for path in home.iterdir()] == [".npz"]


def test_labels_are_not_seen(home):
    made = embedded(dataset(), SMALL)
    (path,) = home.iterdir()
    path.unlink()
    assert all(np.array_equal(a, b) for a, b in zip(made, embedded(dataset(labels=1), SMALL), strict=True))
    assert path.exists()  # the labels are no part of the key either


def test_other_settings_and_other_images_are_kept_apart(home):
    embedded(dataset(), SMALL)
    embedded(dataset(), replace(SMALL, threshold=0.3))
    cut = dataset()
    embedded(replace(cut, test=images(PIXELS[30:35], 255, np.zeros(5))), SMALL)
    assert len(list(home.iterdir())) == 3


def test_a_damaged_file_is_made_anew(home):
    made = embedded(dataset(), SMALL)
    (path,) = home.iterdir()
    path.write_bytes(path.read_bytes()[:100])
    assert np.array_equal(embedded(dataset(), SMALL)[0], made[0])
    assert path.stat().st_size > 100


def test_a_folder_that_cannot_be_written_costs_only_time(home):
    home.write_text("a file where the folder should be")
    assert embedded(dataset(), SMALL)[0].shape == (30, 5)


def test_a_set_without_test_images_has_no_test_rows(home):
    alone = replace(dataset(), test=images(PIXELS[:0], 255, np.zeros(0)))
    assert embedded(alone, SMALL)[1].shape == (0, 5)
