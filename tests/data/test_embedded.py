"""Rows of photographs that are kept beside the data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bvfim.data import embedded as module
from bvfim.data.dataset import Dataset, images
from bvfim.data.embedded import embedded

PIXELS = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3))


def dataset(labels: int = 0) -> Dataset:
    train, test = (images(part, 255, np.full(len(part), labels)) for part in (PIXELS[:30], PIXELS[30:]))
    return Dataset("tiny", train, test, ("0", "1"))


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("BVFIM_DATA", str(tmp_path))
    return tmp_path / "cache"


def test_what_is_kept_is_read_again_and_not_made_anew(home, monkeypatch):
    made = embedded(dataset(), 5)
    monkeypatch.setattr(module, "Embedding", None)
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
    monkeypatch.setattr(module.encoder, "weights", lambda: b"others")
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
