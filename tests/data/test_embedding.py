from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from bvfim.data import embedding
from bvfim.data.dataset import Dataset, images
from bvfim.data.embedding import Embedding, agreement, chosen, embedded
from bvfim.status import DataError

PIXELS = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3))
PICTURES = (PIXELS / 255).astype(np.float32)


def dataset(labels: int = 0) -> Dataset:
    train, test = (images(part, 255, np.full(len(part), labels)) for part in (PIXELS[:30], PIXELS[30:]))
    return Dataset("tiny", train, test, ("0", "1"))


def colours(pictures):
    """What is seen: nine patches of a picture."""
    return np.ascontiguousarray(pictures[:, ::12, ::12].reshape(len(pictures), -1))


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("BVFIM_DATA", str(tmp_path))
    return tmp_path / "cache"


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


def test_what_is_kept_is_read_again_and_not_made_anew(home, monkeypatch):
    made = embedded(dataset(), 5)
    monkeypatch.setattr(embedding, "Embedding", None)
    assert all(np.array_equal(a, b) for a, b in zip(made, embedded(dataset(), 5), strict=True))
    assert [path.suffix for path in home.iterdir()] == [".npz"]


def test_labels_are_not_seen(home):
    made = embedded(dataset(), 5)
    (path,) = home.iterdir()
    path.unlink()
    assert all(np.array_equal(a, b) for a, b in zip(made, embedded(dataset(labels=1), 5), strict=True))
    assert path.exists()  # the labels are no part of the key either


def test_other_dimensions_and_other_images_are_kept_apart(home):
    embedded(dataset(), 5)
    embedded(dataset(), 4)
    cut = dataset()
    embedded(replace(cut, test=images(PIXELS[30:35], 255, np.zeros(5))), 5)
    assert len(list(home.iterdir())) == 3


def test_other_weights_of_the_network_are_kept_apart(home, monkeypatch):
    embedded(dataset(), 5)
    monkeypatch.setattr(embedding.encoder, "weights", lambda: b"others")
    embedded(dataset(), 5)
    assert len(list(home.iterdir())) == 2


def test_a_damaged_file_is_made_anew(home):
    made = embedded(dataset(), 5)
    (path,) = home.iterdir()
    path.write_bytes(path.read_bytes()[:100])
    assert np.array_equal(embedded(dataset(), 5)[0], made[0])
    assert path.stat().st_size > 100


def test_a_folder_that_cannot_be_written_costs_only_time(home):
    home.write_text("a file where the folder should be")
    assert embedded(dataset(), 5)[0].shape == (30, 5)


def test_a_set_without_test_images_has_no_test_rows(home):
    alone = replace(dataset(), test=images(PIXELS[:0], 255, np.zeros(0)))
    assert embedded(alone, 5)[1].shape == (0, 5)


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
    with pytest.raises(DataError, match="the pictures are all alike"):
        chosen(PICTURES[:1].repeat(count, 0), np.arange(count) % 2)


def test_one_picture_is_refused():
    with pytest.raises(DataError, match="two pictures or more, not from 1"):
        Embedding(PICTURES[:1], colours, 5)


def test_a_large_set_is_compared_by_some_of_its_pictures(monkeypatch):
    monkeypatch.setattr(embedding, "COMPARED", 12)
    found = chosen(PICTURES, np.arange(40) % 2)
    assert len(found.rows) == 12
    assert len(found(PICTURES)) == 40


def test_a_single_row_agrees_with_nobody():
    assert agreement(np.zeros((1, 3), np.float32), np.array(["a"])) == 0.0
