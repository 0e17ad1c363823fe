from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bvfim.data import files, miniimagenet
from bvfim.data.fewshot import load
from bvfim.status import DataError

LABELS = {"train": ["n03", "n01", "n03", "n01", "n03"], "val": ["n05", "n05"], "test": ["n02", "n04"]}
EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n"


def shade(part: str, row: int) -> int:
    return 10 + 100 * list(LABELS).index(part) + 10 * row


def picture(level: int, size: tuple[int, int] = (84, 84)) -> Image.Image:
    return Image.new("RGB", size, (level, 255 - level, 7))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small folder in the usual layout; the colour of each picture tells its part and row."""
    monkeypatch.setenv("BVFIM_DATA", str(tmp_path))
    monkeypatch.setattr(files, "_download", lambda url: pytest.fail(f"nothing is to be downloaded from {url}"))
    home = tmp_path / "miniimagenet"
    (home / "images").mkdir(parents=True)
    for part, labels in LABELS.items():
        names = [f"{part}{row}.png" for row in range(len(labels))]
        for row, name in enumerate(names):
            picture(shade(part, row)).save(home / "images" / name)
        table(home, part, *map(",".join, zip(names, labels, strict=True)))
    return home


def table(home: Path, part: str, *rows: str, header: str = "filename,label") -> None:
    (home / f"{part}.csv").write_text("\n".join([header, *rows]) + "\n")


def check(order: tuple[int, ...] = (1, 3, 0, 2, 4)) -> None:
    data = load("miniimagenet")
    assert [part.names for part in (data.train, data.validation, data.test)] == [
        ("n01", "n03"),
        ("n05",),
        ("n02", "n04"),
    ]
    assert [part.counts.tolist() for part in (data.train, data.validation, data.test)] == [[2, 3], [2], [1, 1]]
    assert data.train.pixels.shape == (5, 3, 84, 84)
    expected = np.array([[shade("train", row), 255 - shade("train", row), 7] for row in order])
    np.testing.assert_array_equal(data.train.pixels, np.broadcast_to(expected[:, :, None, None], (5, 3, 84, 84)))
    assert data.test.pixels[:, 0, 0, 0].tolist() == [shade("test", 0), shade("test", 1)]
    assert data.note == (
        "not verified against the published images; 2, 1 and 2 classes, not 64, 16 and 20; "
        "1 to 3 images per class, not 600"
    )


def test_the_usual_layout_is_read_and_sorted_by_class(home):
    check()


def test_tables_from_other_systems_are_read(home):
    for part in LABELS:
        path = home / f"{part}.csv"
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n") + b"\r\n")
    check()


def test_pictures_may_lie_in_a_folder_a_class(home):
    for part, labels in LABELS.items():
        for row, label in enumerate(labels):
            (home / "images" / label).mkdir(exist_ok=True)
            name = f"{part}{row}.png"
            (home / "images" / name).rename(home / "images" / label / name)
    check()


def test_parts_may_be_folders(home):
    for part, labels in LABELS.items():
        for row, label in enumerate(labels):
            (home / part / label).mkdir(parents=True, exist_ok=True)
            (home / "images" / f"{part}{row}.png").rename(home / part / label / f"{row}.PNG")
        (home / f"{part}.csv").unlink()
        (home / part / ".hidden").mkdir()
    (home / "train/n01/._1.png").write_bytes(b"no picture")
    (home / "train/n01/notes.txt").write_bytes(b"no picture")
    check()
    (home / "val/n01").mkdir()
    with pytest.raises(DataError, match="val/n01: no images in this folder"):
        load("miniimagenet")
    picture(1).save(home / "val/n01/x.png")
    with pytest.raises(DataError, match=r"val/n01/x\.png: class n01 is in both val and train"):
        load("miniimagenet")
    (home / "val/n01/x.png").write_bytes(b"nothing")
    (home / "val/n01").rename(home / "val/n09")
    with pytest.raises(DataError, match=r"val/n09/x\.png: can't decode the image"):
        load("miniimagenet")
    (home / "test").rename(home / "other")
    with pytest.raises(DataError, match="test: can't read the folder"):
        load("miniimagenet")
    (home / "test").mkdir()
    with pytest.raises(DataError, match="test: no class folders"):
        load("miniimagenet")


def test_pictures_of_other_sizes_and_modes_become_84_by_84_in_colour(home):
    rng = np.random.default_rng(0)
    large = Image.fromarray(rng.integers(0, 256, (120, 200, 3), dtype=np.uint8))
    large.save(home / "images/train1.png")
    picture(90, (20, 30)).save(home / "images/train3.png")
    picture(90).convert("L").save(home / "images/train0.png")
    picture(90).convert("P").save(home / "images/train2.png")
    # Known by its content, not its name: ImageNet has such files.
    picture(90).convert("CMYK").save(home / "images/train4.png", "JPEG", quality=100)
    pixels = load("miniimagenet").train.pixels
    small = np.asarray(large.resize((84, 84), Image.Resampling.LANCZOS)).transpose(2, 0, 1)
    np.testing.assert_array_equal(pixels[0], small)
    assert pixels[1, :, 40, 40].tolist() == [90, 165, 7]
    assert len(set(pixels[2, :, 0, 0].tolist())) == 1
    assert np.abs(pixels[3:, :, 40, 40].astype(int) - [90, 165, 7]).max() < 60


def test_what_is_absent_is_told(home, monkeypatch):
    (home / "val.csv").unlink()
    with pytest.raises(DataError, match=r"val\.csv: can't read the file"):
        load("miniimagenet")
    monkeypatch.setenv("BVFIM_DATA", str(home / "empty"))
    with pytest.raises(DataError, match=r"can't be downloaded: put train\.csv, val\.csv and test\.csv .* or set BVFIM"):
        load("miniimagenet")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"val\.csv: the file is empty, not 'filename,label'"),
        (b"\n\n", r"val\.csv: the file is empty"),
        (b"filename,label\n", r"val\.csv: the table lists no images"),
        (b"file,class\nval0.png,n05\n", r"val\.csv: the header is 'file,class', not 'filename,label'"),
        (b"val0.png,n05\n", r"val\.csv: the header is 'val0.png,n05'"),
        (b"filename,label\nval0.png,n05\nval1.png\n", r"val\.csv, row 1: 'val1.png' is not a file name and"),
        (b"filename,label\nval0.png,\n", r"val\.csv, row 0: 'val0.png,' is not a file name and"),
        (b"filename,label\nval0.png,n05,3\n", r"val\.csv, row 0: 'val0.png,n05,3' is not a file name and"),
        (b"filename,label\nval0.png,n05\n\nval0.png,n05\n", r"val\.csv, row 1: image val0.png is also in row 0"),
        (b"filename,label\nval0.png,n05\nval9.png,n05\n", r"row 1: there is no image val9.png in \S+images or .* n05"),
        (b"filename,label\n" + b"v" * 5000 + b",n05\n", r"val\.csv, row 0: there is no image v"),
        (b"filename,label\nval\0.png,n05\n", r"val\.csv(, row 0: there is no image|: not a CSV table)"),
        (b"filename,label\nval0.png,n05\nval1.png,n03\n", r"row 1: val1.png: class n03 is in both val and train"),
        (b"filename,label\nval\xff.png,n05\n", r"val\.csv: not a CSV table"),
        (b'filename,label\n"val0.png,n05\n', r"val\.csv: not a CSV table"),
        (b"filename,label\n" + b"v" * 200_000, r"val\.csv: not a CSV table"),
        (b"\x1f\x8bfilename", r"val\.csv: the gzip file is damaged"),
    ],
)
def test_a_bad_table_is_refused_by_name_and_row(home, content, message):
    (home / "val.csv").write_bytes(content)
    with pytest.raises(DataError, match=message):
        load("miniimagenet")


@pytest.mark.parametrize("content", [b"", b"nothing", EPS, None])
def test_a_damaged_picture_is_refused_by_name_and_row(home, content):
    path = home / "images/train2.png"
    path.write_bytes(path.read_bytes()[:150] if content is None else content)
    with pytest.raises(DataError, match=r"train\.csv, row 2: train2\.png: can't decode the image"):
        load("miniimagenet")


def test_of_two_damaged_pictures_the_first_is_told(home, monkeypatch):
    monkeypatch.setattr(miniimagenet, "BLOCK", 1)
    for name in ("train3.png", "train0.png"):
        (home / "images" / name).write_bytes(b"")
    with pytest.raises(DataError, match=r"row 3: train3\.png"):
        load("miniimagenet")


def test_the_pictures_are_held_once(home):
    table(home, "train", *(f"train0.png,m{row:03d}" for row in range(600)))
    measured = """
import tracemalloc
from bvfim.data.fewshot import load
load("miniimagenet")  # what is imported on the way is not to be counted
tracemalloc.start()
pixels = load("miniimagenet").train.pixels
print(len(pixels), tracemalloc.get_traced_memory()[1] / pixels.nbytes)
"""
    # In a process of its own: what threads of other tests take would be counted too.
    found = subprocess.run([sys.executable, "-c", measured], check=True, capture_output=True, text=True).stdout.split()
    assert found[0] == "600"
    assert float(found[1]) < 1.4, "a copy would double it"
