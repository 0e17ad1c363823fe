from __future__ import annotations

import gzip
import hashlib
import io
import json
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from bvfim.data import cifar, files, npz
from bvfim.status import DataError

RNG = np.random.default_rng(0)
PIXELS = {
    name: RNG.integers(0, 256, (rows, 32, 32, 3), dtype=np.uint8) for name, rows in (("a", 4), ("b", 3), ("t", 2))
}
LABELS = {"a": [0, 1, 2, 0], "b": [1, 1, 0], "t": [2, 0]}


def batch(name: str, labels: list[int] | None = None) -> bytes:
    planes = PIXELS[name].transpose(0, 3, 1, 2).reshape(len(PIXELS[name]), 3072)
    return pickle.dumps({b"data": planes, b"labels": LABELS[name] if labels is None else labels}, protocol=2)


def archive(**contents: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in contents.items():
            entry = tarfile.TarInfo(f"tiny/{name}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def md5(name: str) -> str:
    return hashlib.md5(batch(name)).hexdigest()


TINY = cifar.CifarSource(
    "tiny",
    "tiny.tar",
    "https://example.invalid/tiny.tar.gz",
    ({"tiny/a": md5("a"), "tiny/b": md5("b")}, {"tiny/t": md5("t")}),
    b"labels",
    ("one", "two", "three"),
    None,
)
WHOLE = archive(**{name: batch(name) for name in PIXELS})


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BVFIM_DATA", str(tmp_path))

    def refuse(url: str) -> bytes:
        raise OSError("no network")

    monkeypatch.setattr(files, "_download", refuse)
    (tmp_path / "tiny").mkdir()
    return tmp_path / "tiny"


def check(note: str = "") -> None:
    data = TINY()
    assert data.note == note
    assert data.train.shape == (32, 32, 3)
    expected = np.concatenate([PIXELS["a"], PIXELS["b"]]).reshape(7, -1) / np.float32(255)
    np.testing.assert_array_equal(data.train.inputs, expected)
    assert data.train.labels.tolist() == LABELS["a"] + LABELS["b"]
    assert data.test.labels.tolist() == LABELS["t"]


@pytest.mark.parametrize("pack", [gzip.compress, bytes])
def test_the_archive_is_read_packed_or_not(home: Path, pack: type) -> None:
    (home / ("tiny.tar.gz" if pack is gzip.compress else "tiny.tar")).write_bytes(pack(WHOLE))
    check()


def test_an_absent_archive_is_downloaded_and_kept(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"put tiny\.tar\.gz into the folder"):
        TINY()
    monkeypatch.setattr(files, "_download", lambda url: gzip.compress(WHOLE))
    check()
    assert (home / "tiny.tar.gz").exists()


def test_every_cut_of_the_archive_is_refused_by_name(home: Path) -> None:
    packed = gzip.compress(WHOLE)
    for length in [*range(0, len(packed), 997), len(packed) - 1]:
        (home / "tiny.tar.gz").write_bytes(packed[:length])
        with pytest.raises(DataError, match=r"tiny\.tar\.gz: "):
            TINY()
    data = WHOLE.rindex(batch("t")) + len(batch("t"))  # what follows is padding
    for length in range(0, data, 2048):
        (home / "tiny.tar.gz").write_bytes(gzip.compress(WHOLE[:length]))
        with pytest.raises(DataError, match=r"tiny\.tar\.gz: "):
            TINY()


def test_another_batch_and_a_missing_one_are_refused(home: Path) -> None:
    (home / "tiny.tar").write_bytes(archive(a=batch("b"), b=batch("b"), t=batch("t")))
    with pytest.raises(DataError, match="tiny/a: not the expected file"):
        TINY()
    (home / "tiny.tar").write_bytes(archive(a=batch("a"), t=batch("t")))
    with pytest.raises(DataError, match="the archive does not contain tiny/b"):
        TINY()


@pytest.mark.parametrize(
    "wrong",
    [
        {b"data": np.zeros((2, 3072), np.uint8)},
        {b"data": np.zeros((2, 3072), np.float32), b"labels": [0, 1]},
        {b"data": np.zeros((2, 3071), np.uint8), b"labels": [0, 1]},
        {b"data": np.zeros((2, 3072), np.uint8), b"labels": [0]},
        [1, 2],
        Path("harm"),
    ],
)
def test_a_pickle_of_something_else_is_refused(wrong: object) -> None:
    with pytest.raises(DataError, match=r"^here: not a batch of CIFAR images"):
        cifar.batch(pickle.dumps(wrong), b"labels", "here")


def strips(home: Path) -> None:
    names = {"data_batch_1": "a", **{f"data_batch_{k}": "b" for k in range(2, 6)}, "test_batch": "t"}
    for file, name in names.items():
        Image.fromarray(PIXELS[name].reshape(len(PIXELS[name]), 1024, 3)).save(home / f"{file}.png")
    (home / "train_lables.json").write_text(json.dumps(LABELS["a"] + 4 * LABELS["b"]))
    (home / "test_lables.json").write_text(json.dumps(LABELS["t"]))


def test_strips_of_png_are_read(home: Path) -> None:
    strips(home)
    data = TINY()
    assert len(data.train) == 4 + 4 * 3
    np.testing.assert_array_equal(data.train.inputs[:4], PIXELS["a"].reshape(4, -1) / np.float32(255))
    assert data.note == "not verified against the published images: 16 training and 2 test rows"


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("train_lables.json", b"[1, 2]", "2 labels for 16 images"),
        ("train_lables.json", b"[1, 'x", "not a list of labels"),
        ("test_lables.json", b'["cat", "dog"]', "not a list of labels"),
        ("test_lables.json", b"[0.5, 1.2]", "not a list of labels"),
        ("test_lables.json", b"[1180591620717411303424, 1]", "not a list of labels"),
        ("test_lables.json", b"[0, 7]", "row 1 has the label 7, expected 0 to 2"),
        ("data_batch_3.png", b"no picture", "the image is damaged or truncated"),
    ],
)
def test_bad_strips_are_refused(home: Path, file: str, content: bytes, message: str) -> None:
    strips(home)
    (home / file).write_bytes(content)
    with pytest.raises(DataError, match=message):
        TINY()


def test_known_pixels_and_labels_need_no_note(home: Path) -> None:
    strips(home)
    train = np.concatenate([PIXELS["a"], *[PIXELS["b"]] * 4])
    labels = np.array(LABELS["a"] + 4 * LABELS["b"]), np.array(LABELS["t"])
    known = npz.sha256(train, labels[0]), npz.sha256(PIXELS["t"], labels[1])
    source = cifar.CifarSource("tiny", "tiny.tar", "", TINY.members, b"labels", TINY.classes, known)
    assert source().note == ""
    (home / "test_lables.json").write_text(json.dumps(LABELS["t"][::-1]))
    assert source().note == "a subset, or lossy or modified images: 16 training and 2 test rows"


def encoded(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def test_tables_of_images_are_read_and_a_missing_test_part_is_empty(home: Path) -> None:
    pytest.importorskip("pyarrow")
    pd.DataFrame({"image": [encoded(p) for p in PIXELS["a"]], "label": LABELS["a"]}).to_parquet(home / "train.parquet")
    data = TINY()
    np.testing.assert_array_equal(data.train.inputs, PIXELS["a"].reshape(4, -1) / np.float32(255))
    assert (len(data.test), data.test.inputs.shape) == (0, (0, 3072))
    assert data.note == "not verified against the published images: 4 training and 0 test rows"


def test_the_names_of_the_published_classes() -> None:
    assert len(cifar.CIFAR10.classes) == 10
    assert len(set(cifar.CIFAR100.classes)) == 100
    assert list(cifar.CIFAR100.classes) == sorted(cifar.CIFAR100.classes)
