from __future__ import annotations

import hashlib
import io
import zipfile

import numpy as np
import pytest
from PIL import Image

from bvfim.data import files, load, omniglot
from bvfim.status import DataError


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("BVFIM_DATA", str(tmp_path))
    (tmp_path / "omniglot").mkdir()
    return tmp_path / "omniglot"


def packed(**changes):
    arrays = {
        "images": np.zeros((4, 28, 28), np.uint8),
        "alphabet_names": np.array(["Greek", "Latin"]),
        "alphabet_id": np.array([0, 0, 1, 1]),
        "character_in_alphabet": np.array([0, 1, 0, 0]),
        "is_evaluation": np.array([False, False, True, True]),
        **changes,
    }
    buffer = io.BytesIO()
    np.savez(buffer, **{key: value for key, value in arrays.items() if value is not None})
    return buffer.getvalue()


def test_the_packed_file_is_read(home, monkeypatch):
    (home / "omniglot_28.npz").write_bytes(packed())
    with pytest.raises(DataError, match=": not the drawings of Omniglot") as refused:
        load("omniglot")
    monkeypatch.setattr(omniglot, "_PACKED_SHA256", str(refused.value).split("sha256 ")[1][:-1])
    (home / "omniglot_28.npz").write_bytes(packed())
    data = load("omniglot")
    assert data.classes == ("Greek/character01", "Greek/character02", "Latin/character01")
    assert data.train.labels.tolist() == [0, 1]
    assert data.test.labels.tolist() == [2, 2]
    assert data.train.shape == (28, 28)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"nothing",
        packed()[:300],
        packed(images=None),
        packed(images=np.zeros((4, 20, 20), np.uint8)),
        packed(images=np.zeros((4, 28, 28))),
        packed(images=np.zeros((4, 28, 7), np.uint32)),
        packed(character_in_alphabet=np.zeros((2, 2), int)),
        packed(is_evaluation=np.array([0, 0, 1, 1], np.uint8)),
        packed()[:200] + bytes(40) + packed()[240:],
        packed(alphabet_id=np.array([0, 0, 1, 9])),
        packed(images=np.array([None] * 4)),
    ],
)
def test_a_bad_packed_file_is_refused_by_name(home, content):
    (home / "omniglot_28.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"omniglot_28\.npz: "):
        load("omniglot")


def zipped(top):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for character in (1, 2):
            picture = io.BytesIO()
            drawing = np.full((105, 105), 255, np.uint8)
            drawing[40:60, 40:60] = 0
            Image.fromarray(drawing).convert("1").save(picture, "PNG")
            archive.writestr(f"{top}/Greek_{top[-4:]}/character{character:02d}/0001_01.png", picture.getvalue())
    return buffer.getvalue()


def test_the_published_archives_are_downloaded_and_made_small(home, monkeypatch):
    contents = {top: zipped(top) for top in omniglot._ZIPS}
    known = {top: (hashlib.md5(content).hexdigest(), 2) for top, content in contents.items()}
    monkeypatch.setattr(omniglot, "_ZIPS", known)
    monkeypatch.setattr(files, "_download", lambda url: contents[url.rsplit("/", 1)[-1].removesuffix(".zip")])
    data = load("omniglot")
    assert data.classes[0] == "Greek_ound/character01"
    assert (data.train.labels.tolist(), data.test.labels.tolist()) == ([0, 1], [2, 3])
    drawing = data.train.inputs[0].reshape(28, 28)
    assert drawing[13, 13] > 0.9
    assert drawing[0, 0] == 0
    assert sorted(path.name for path in home.iterdir()) == ["images_background.zip", "images_evaluation.zip"]
    (home / "images_evaluation.zip").write_bytes(contents["images_evaluation"][:-1])
    with pytest.raises(DataError, match=r"images_evaluation\.zip: not the expected file"):
        load("omniglot")


def test_the_real_characters(real):
    data = load(real("omniglot"))
    assert (len(data.train), len(data.test), len(data.classes)) == (19280, 13180, 1623)
    assert np.bincount(data.train.labels).tolist() == [20] * 964
    assert 0.05 < data.train.inputs.mean() < 0.12
