from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from bvfim.data import tables
from bvfim.status import DataError

pytest.importorskip("pyarrow")
EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n"
PIXELS = np.random.default_rng(0).integers(0, 256, (3, 4, 4, 3), dtype=np.uint8)


def png(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def write(path: Path, **columns: object) -> Path:
    pd.DataFrame({"image": [png(p) for p in PIXELS], "label": [0, 1, 1], **columns}).to_parquet(path)
    return path


def test_pictures_and_labels_come_back(tmp_path):
    pixels, labels = tables.read(write(tmp_path / "t.parquet"), (4, 4, 3))
    np.testing.assert_array_equal(pixels, PIXELS)
    assert labels.tolist() == [0, 1, 1]
    grey, _ = tables.read(tmp_path / "t.parquet", (4, 4))
    assert grey.shape == (3, 4, 4)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"image": [png(PIXELS[0]), b"nothing", png(PIXELS[2])]}, "row 1: can't decode the image"),
        ({"image": [png(PIXELS[0]), png(PIXELS[1])[:40], png(PIXELS[2])]}, "row 1: can't decode the image"),
        (
            {"image": [png(PIXELS[0]), png(PIXELS[1]), png(PIXELS[2, :3])]},
            r"row 2: expected an image of shape \(4, 4, 3\), got \(3, 4, 3\)",
        ),
        (
            {"image": [png(PIXELS[0]), EPS, png(PIXELS[2])]},
            "row 1: can't decode the image",
        ),
        ({"image": [png(PIXELS[0]), None, png(PIXELS[2])]}, "row 1: expected an image, got NoneType"),
        ({"label": ["a", "b", "c"]}, "labels must be whole numbers"),
        ({"label": [0.7, 1.9, 1.0]}, "labels must be whole numbers"),
        ({"label": pd.array([0, None, 1], dtype="Int64")}, "labels must be whole numbers"),
    ],
)
def test_bad_rows_are_told(tmp_path, columns, message):
    path = write(tmp_path / "t.parquet", **columns)
    with pytest.raises(DataError, match=message) as caught:
        tables.read(path, (4, 4, 3))
    assert str(path) in str(caught.value)


def test_a_missing_column_is_told(tmp_path):
    pd.DataFrame({"picture": [1]}).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match="the table has no column 'image'; it has picture"):
        tables.read(tmp_path / "t.parquet", (4, 4, 3))


def test_every_cut_is_refused_by_name(tmp_path):
    path = write(tmp_path / "t.parquet")
    whole = path.read_bytes()
    for length in range(0, len(whole), 101):
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match=r"t\.parquet: the table"):
            tables.read(path, (4, 4, 3))


def test_without_pyarrow_a_line_says_what_to_install(tmp_path, monkeypatch):
    path = write(tmp_path / "t.parquet")

    def absent(content):
        raise ImportError("no engine")

    monkeypatch.setattr(pd, "read_parquet", absent)
    with pytest.raises(DataError, match=r"pip install 'bvfim\[parquet\]'"):
        tables.read(path, (4, 4, 3))
