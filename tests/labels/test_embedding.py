from __future__ import annotations

import numpy as np
import pytest
import torch

from bvfim.labels import embedding
from bvfim.labels.embedding import Embedding, agreement, chosen
from bvfim.status import DataError

PIXELS = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3))
PICTURES = (PIXELS / 255).astype(np.float32)


def colours(pictures):
    """What is seen: nine patches of a picture."""
    return np.ascontiguousarray(pictures[:, ::12, ::12].reshape(len(pictures), -1))


def test_rows_have_the_dimensions_asked_for_and_do_not_depend_on_units():
    own, other = (Embedding(PICTURES, lambda p, by=by: by * colours(p), 5)(PICTURES) for by in (1.0, 100.0))
    assert own.shape == (40, 5)
    assert own.dtype == np.float32
    np.testing.assert_allclose(np.abs(own), np.abs(other), atol=1e-3)


def test_what_is_hardly_seen_is_not_scaled_up():
    def faint(pictures):
        rows = colours(pictures)
        return np.concatenate([rows[:, :3], 1e-8 * rows[:, 3:6]], 1)

    found = Embedding(PICTURES, faint, 6)(PICTURES)
    assert found.shape[1] == 3, "the others are left out"


def test_the_directions_are_those_of_the_whole_eigendecomposition():
    rows = torch.randn(200, 30, generator=torch.Generator().manual_seed(0)) * 0.7 ** torch.arange(30)
    rows = rows - rows.mean(0)
    variances, directions = embedding._main(rows, 5, np.random.default_rng(0))
    exact = torch.linalg.eigh(torch.cov(rows.T))
    torch.testing.assert_close(variances, exact[0][-5:].flip(0), rtol=1e-4, atol=0)
    cosines = (directions * exact[1][:, -5:].flip(1)).sum(0).abs()
    torch.testing.assert_close(cosines, torch.ones(5), rtol=0, atol=1e-3)


def test_more_directions_than_images_are_not_asked_for():
    assert np.isfinite(Embedding(PICTURES[:4], colours, 5)(PICTURES[:4])).all()


def test_drawings_are_seen_by_patches_and_photographs_by_the_network(monkeypatch):
    monkeypatch.setattr(embedding.encoder, "encoded", lambda pictures: colours(pictures)[:, :2])
    labels = (PICTURES[:, 0, 0, 0] > 0.5).astype(int)
    assert chosen(PICTURES, labels).seen is embedding.encoder.encoded
    lines = np.zeros((40, 32, 32, 3), np.float32)
    lines[:20, 5::3], lines[20:, :, 5::3] = 1.0, 1.0
    lines += 0.1 * PICTURES
    assert isinstance(chosen(lines, np.repeat([0, 1], 20)).seen, embedding.Patches)


def test_patches_that_see_nothing_leave_it_to_the_network():
    plain = np.repeat(np.float32([0, 1]), 20)[:, None, None, None] * np.ones((1, 32, 32, 3), np.float32)
    found = chosen(plain, np.repeat(["dark", "bright"], 20))
    assert found.seen is embedding.encoder.encoded
    assert agreement(found.rows, np.repeat(["dark", "bright"], 20)) == 1.0


@pytest.mark.parametrize("count", [2, 40, 200])
def test_pictures_that_are_all_alike_are_refused(count):
    with pytest.raises(DataError, match="the images are all alike"):
        chosen(PICTURES[:1].repeat(count, 0), np.arange(count) % 2)


def test_one_picture_is_refused():
    with pytest.raises(DataError, match="needs at least 2 images, got 1"):
        Embedding(PICTURES[:1], colours, 5)


def test_a_large_set_is_compared_by_some_of_its_pictures(monkeypatch):
    monkeypatch.setattr(embedding, "COMPARED", 12)
    found = chosen(PICTURES, np.arange(40) % 2)
    assert len(found.rows) == 12
    assert len(found(PICTURES)) == 40


def test_a_single_row_agrees_with_nobody():
    assert agreement(np.zeros((1, 3), np.float32), np.array(["a"])) == 0.0
