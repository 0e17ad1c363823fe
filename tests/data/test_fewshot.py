from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from bvfim.data import cifar, files, omniglot
from bvfim.data.dataset import Dataset, images
from bvfim.data.fewshot import NAMES, ClassImages, FewShot, grouped, load
from bvfim.status import DataError

CIFAR_SPLIT = ("cifar100", "fewshot_splits.json")
OMNIGLOT_SPLIT = ("omniglot", "split_vinyals_class_ids.json")
THINGS = cifar.CIFAR100.classes


@pytest.fixture
def listed(real):
    """A function that gives what a file of class lists holds, or skips where it is not there."""

    def read(folder: str, file: str):
        path = Path(os.environ.get("BVFIM_DATA", ""), real(folder), file)
        if not path.exists():
            pytest.skip(f"{folder} has no {file} in it")
        return json.loads(path.read_text())

    return read


def every(data: FewShot) -> list[ClassImages]:
    return [data.train, data.validation, data.test]


@given(st.lists(st.integers(-1, 4), max_size=60))
def test_images_of_a_class_stay_together_and_in_order(labels: list[int]) -> None:
    labels = [0, 1, 2, 3, 4, *labels]
    pixels = np.arange(len(labels), dtype=np.uint8).reshape(-1, 1, 1, 1)
    found = grouped(pixels, labels, "abcde")
    assert found.counts.sum() == len(found.pixels) == sum(label >= 0 for label in labels)
    assert (found.counts.dtype, found.pixels.dtype, found.names) == (np.int64, np.uint8, tuple("abcde"))
    for label, rows in enumerate(np.split(found.pixels.ravel(), found.counts.cumsum()[:-1])):
        assert rows.tolist() == [row for row, of in enumerate(labels) if of == label]
    again = grouped(found.pixels, np.repeat(np.arange(5), found.counts), found.names)
    np.testing.assert_array_equal(again.pixels, found.pixels)
    np.testing.assert_array_equal(again.counts, found.counts)


def test_grouping_copies_and_makes_rows_whole() -> None:
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 2, 2, 3).transpose(0, 3, 1, 2)
    found = grouped(pixels, [0, 0], ["a"])
    assert found.pixels.flags["C_CONTIGUOUS"]
    found.pixels[:] = 0
    assert pixels.max() == 23


IMAGES = np.zeros((3, 1, 2, 2), np.uint8)


@pytest.mark.parametrize(
    ("pixels", "counts", "names", "message"),
    [
        (IMAGES.astype(np.float32), [2, 1], "ab", r"pixels must be uint8 .*, not float32 \(3, 1, 2, 2\)"),
        (IMAGES[0], [2, 1], "ab", r"pixels must be .*, not uint8 \(1, 2, 2\)"),
        (IMAGES[:, :, :1], [2, 1], "ab", r"pixels must be .*, not uint8 \(3, 1, 1, 2\)"),
        (IMAGES, [2, 1], "abc", r"counts has shape \(2,\), but there are 3 class names"),
        (IMAGES, [3, 0], "ab", "class b has no images"),
        (IMAGES, [2, 2], "ab", "class counts add up to 4 images, but there are 3"),
    ],
)
def test_what_does_not_fit_is_refused(pixels, counts, names, message) -> None:
    with pytest.raises(DataError, match=message):
        ClassImages(pixels, np.array(counts), tuple(names))


@pytest.mark.parametrize("labels", [[0, 1], [0, 1, 2], [[0], [1], [1]]])
def test_labels_that_do_not_fit_are_refused(labels) -> None:
    with pytest.raises(DataError, match="do not match 3 images of 2 classes"):
        grouped(IMAGES, labels, ["a", "b"])


def test_unknown_names_are_refused_with_a_near_one() -> None:
    assert NAMES == ("omniglot", "cifar-fs", "miniimagenet")
    with pytest.raises(DataError, match="no few-shot data set is called 'cifar-sf'; did you mean 'cifar-fs'"):
        load("cifar-sf")


def made_cifar(train: int, test: int, note: str = "") -> Dataset:
    """As many images of each class, in an order that is not sorted; each shows its label, its part and every level."""
    parts = []
    for part, count in enumerate((train, test)):
        labels = np.tile(np.arange(100)[::-1], count)
        pixels = np.broadcast_to((np.arange(1024) % 256).reshape(32, 32, 1), (len(labels), 32, 32, 3)).astype(np.uint8)
        pixels[:, 0, 0] = np.stack([labels, np.full_like(labels, part), np.repeat(np.arange(count), 100)], axis=1)
        parts.append(images(pixels, 255, labels))
    return Dataset("cifar100", parts[0], parts[1], THINGS, note)


def test_both_parts_of_cifar_are_pooled_and_the_bytes_are_exact(monkeypatch) -> None:
    monkeypatch.setattr(cifar, "CIFAR100", lambda: made_cifar(3, 2, "cut"))
    data = load("CIFAR-FS")
    assert data.name == "cifar-fs"
    assert data.note == "cut; 5 images per class, not 600"
    assert [len(part) for part in every(data)] == [64, 16, 20]
    for part in every(data):
        assert part.pixels.shape == (5 * len(part), 3, 32, 32)
        assert part.counts.tolist() == [5] * len(part)
        label, of, number = part.pixels[:, :, 0, 0].T
        assert [THINGS[k] for k in label[::5]] == list(part.names)
        assert of.tolist() == [0, 0, 0, 1, 1] * len(part)
        assert number.tolist() == [0, 1, 2, 0, 1] * len(part)
        np.testing.assert_array_equal(part.pixels[:, 2, 8:16].reshape(-1, 256), [np.arange(256)] * len(part.pixels))


def tiny_cifar(labels: np.ndarray) -> Dataset:
    part = images(np.zeros((len(labels), 2, 2, 3)), 255, labels)
    return Dataset("cifar100", part, part, THINGS)


def test_600_images_a_class_have_nothing_to_note(monkeypatch) -> None:
    monkeypatch.setattr(cifar, "CIFAR100", lambda: tiny_cifar(np.tile(np.arange(100), 300)))
    assert load("cifar-fs").note == ""


def test_a_class_without_images_is_named(monkeypatch) -> None:
    monkeypatch.setattr(cifar, "CIFAR100", lambda: tiny_cifar(np.array([0, 1, 3])))
    with pytest.raises(DataError, match=r"^cifar100: class baby has no images$"):
        load("cifar-fs")


def zipped(top: str, names: list[str]) -> bytes:
    drawing = np.full((28, 28), 255, np.uint8)
    drawing[10:20, 10:20] = 0
    picture = io.BytesIO()
    Image.fromarray(drawing).convert("1").save(picture, "PNG")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(f"{top}/{name}/0001_01.png", picture.getvalue())
    return buffer.getvalue()


def published(home: Path, monkeypatch, **names: list[str]) -> FewShot:
    """The data set from archives as they are published, with one drawing of each character."""
    contents = {top: zipped(top, members) for top, members in names.items()}
    known = {top: (hashlib.md5(content).hexdigest(), len(names[top])) for top, content in contents.items()}
    monkeypatch.setenv("BVFIM_DATA", str(home))
    monkeypatch.setattr(omniglot, "_ZIPS", known)
    monkeypatch.setattr(files, "_download", lambda url: contents[url.rsplit("/", 1)[-1].removesuffix(".zip")])
    return load("omniglot")


def test_characters_are_parted_by_alphabet_but_for_one(tmp_path, monkeypatch) -> None:
    background = ["Arcadian/character01", "Hebrew/character01", "Syriac_(Estrangelo)/character01"]
    evaluation = ["Gurmukhi/character41", "Gurmukhi/character42", "Syriac_(Serto)/character01"]
    data = published(tmp_path, monkeypatch, images_background=background, images_evaluation=evaluation)
    assert data.train.names == (*background[::2], evaluation[0])
    assert data.validation.names == (background[1],)
    assert data.test.names == tuple(evaluation[1:])
    assert data.train.pixels.shape == (3, 1, 28, 28)
    assert set(np.unique(data.train.pixels)) == {0, 255}
    assert data.note == ""


def test_the_characters_are_those_of_vinyals(listed, tmp_path, monkeypatch) -> None:
    split = listed(*OMNIGLOT_SPLIT)
    data = load("omniglot")
    with np.load(files.found(omniglot.PACKED)) as packed:
        alphabets = packed["alphabet_names"][packed["alphabet_id"]]
        number = {f"{a}/character{c + 1:02d}": int(k) for a, c, k in
                  zip(alphabets, packed["character_in_alphabet"], packed["class_id"], strict=True)}  # fmt: skip
        drawn = {name: packed["images"][packed["class_id"] == number[name]] for name in ("N_Ko/character33",)}
    for part, key in zip(every(data), ("train", "val", "test"), strict=True):
        assert sorted(number[name] for name in part.names) == split[key]
        assert part.counts.tolist() == [20] * len(part)
    assert [len(part) for part in every(data)] == [1028, 172, 423]
    assert data.note == ""
    place = data.train.names.index("N_Ko/character33")
    np.testing.assert_array_equal(data.train.pixels[20 * place : 20 * place + 20, 0], drawn["N_Ko/character33"])
    names = sorted(number, key=number.__getitem__)
    again = published(tmp_path, monkeypatch, images_background=names[:964], images_evaluation=names[964:])
    assert [part.names for part in every(again)] == [part.names for part in every(data)]


@pytest.mark.long
def test_the_classes_are_those_of_cifar_fs(listed, monkeypatch) -> None:
    pytest.importorskip("pyarrow")
    split = listed(*CIFAR_SPLIT)["cifar-fs"]
    raw = cifar.CIFAR100()
    monkeypatch.setattr(cifar, "CIFAR100", lambda: raw)
    data = load("cifar-fs")
    for part, key in zip(every(data), ("train", "val", "test"), strict=True):
        assert sorted(part.names) == sorted(split[key]["class_names"])
        assert part.pixels.shape == (part.counts.sum(), 3, 32, 32)
    assert data.note.startswith(raw.note)
    whales = raw.train.inputs[raw.train.labels == raw.classes.index("whale")].reshape(-1, 32, 32, 3)
    first = data.test.counts[: data.test.names.index("whale")].sum()
    again = data.test.pixels[first : first + len(whales)].transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(again / np.float32(255), whales)
