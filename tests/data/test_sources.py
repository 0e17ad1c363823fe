from __future__ import annotations

import gzip
import hashlib
import struct
from pathlib import Path

import numpy as np
import pooch
import pytest
import requests

from bvfim.data import files, folder, load, sources
from bvfim.status import DataError

ARRAYS = {
    "train-images-idx3-ubyte": np.arange(3 * 2 * 2, dtype=np.uint8).reshape(3, 2, 2) * 20,
    "train-labels-idx1-ubyte": np.array([0, 1, 1], dtype=np.uint8),
    "t10k-images-idx3-ubyte": np.full((1, 2, 2), 255, dtype=np.uint8),
    "t10k-labels-idx1-ubyte": np.array([1], dtype=np.uint8),
}
CONTENT = {
    name: struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()
    for name, array in ARRAYS.items()
}
TINY = sources.IdxSource(
    "tiny",
    "https://example.invalid/tiny/",
    ("no", "yes"),
    {name: hashlib.md5(content).hexdigest() for name, content in CONTENT.items()},
)
IMAGES = "train-images-idx3-ubyte"


def refuse(url: str) -> bytes:
    raise requests.exceptions.ConnectionError(f"no route to {url}")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the four files, and no network."""
    monkeypatch.setenv("BVFIM_DATA", str(tmp_path))
    monkeypatch.setattr(files, "_download", refuse)
    (tmp_path / "tiny").mkdir()
    for name, content in CONTENT.items():
        (tmp_path / "tiny" / f"{name}.gz").write_bytes(gzip.compress(content))
    return tmp_path


def check_tiny() -> None:
    data = TINY()
    assert data.name == "tiny"
    assert data.classes == ("no", "yes")
    assert (len(data.train), len(data.test)) == (3, 1)
    assert data.train.shape == (2, 2)
    assert data.train.inputs.dtype == np.float32
    assert data.train.labels.dtype == np.int64
    np.testing.assert_allclose(data.train.inputs, ARRAYS[IMAGES].reshape(3, 4) / 255, rtol=1e-6)
    np.testing.assert_array_equal(data.train.labels, [0, 1, 1])
    np.testing.assert_array_equal(data.test.inputs, np.ones((1, 4)))


def test_compressed_files_are_read() -> None:
    check_tiny()


@pytest.mark.parametrize("level", [1, 9])
def test_files_compressed_anew_are_read(home: Path, level: int) -> None:
    (home / "tiny" / f"{IMAGES}.gz").write_bytes(gzip.compress(CONTENT[IMAGES], level, mtime=level))
    check_tiny()


def test_plain_files_are_read(home: Path) -> None:
    for name, content in CONTENT.items():
        (home / "tiny" / f"{name}.gz").unlink()
        (home / "tiny" / name).write_bytes(content)
    check_tiny()


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_every_truncation_is_refused_by_name(home: Path, suffix: str) -> None:
    (home / "tiny" / f"{IMAGES}.gz").unlink()
    path = home / "tiny" / f"{IMAGES}{suffix}"
    whole = gzip.compress(CONTENT[IMAGES]) if suffix else CONTENT[IMAGES]
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(DataError) as caught:
            TINY()
        assert str(caught.value).startswith(f"{path}: ")


def test_every_corrupted_byte_of_the_stream_is_refused_by_name(home: Path) -> None:
    path = home / "tiny" / f"{IMAGES}.gz"
    whole = gzip.compress(CONTENT[IMAGES])
    # The first ten bytes are gzip's header, part of which (the time) does not matter.
    for position in range(10, len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0xFF]) + whole[position + 1 :])
        with pytest.raises(DataError) as caught:
            TINY()
        assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize("foreign", [b"", b"<html></html>", CONTENT["train-labels-idx1-ubyte"]])
@pytest.mark.parametrize("pack", [gzip.compress, bytes])
def test_foreign_content_is_refused_by_checksum(home: Path, foreign: bytes, pack: type) -> None:
    path = home / "tiny" / f"{IMAGES}.gz"
    path.write_bytes(pack(foreign))
    with pytest.raises(DataError, match=r"not the expected file \(its content has md5") as caught:
        TINY()
    assert str(path) in str(caught.value)


def test_a_wrong_magic_number_is_refused_even_with_the_right_checksum(home: Path) -> None:
    content = b"\0\0\x0d" + CONTENT[IMAGES][3:]
    (home / "tiny" / f"{IMAGES}.gz").write_bytes(gzip.compress(content))
    source = sources.IdxSource("tiny", TINY.url, TINY.classes, {**TINY.md5, IMAGES: hashlib.md5(content).hexdigest()})
    with pytest.raises(DataError, match=rf"{IMAGES}.gz: entries must be unsigned bytes"):
        source()


def test_what_is_not_a_file_is_refused_by_name(home: Path) -> None:
    path = home / "tiny" / f"{IMAGES}.gz"
    path.unlink()
    path.mkdir()
    with pytest.raises(DataError, match="can't read the file") as caught:
        TINY()
    assert str(path) in str(caught.value)


def test_offline_says_what_to_put_where(home: Path) -> None:
    (home / "tiny" / f"{IMAGES}.gz").unlink()
    with pytest.raises(DataError) as caught:
        TINY()
    assert str(caught.value) == (
        f"could not download https://example.invalid/tiny/{IMAGES}.gz (ConnectionError): put {IMAGES}.gz into "
        f"the folder {home / 'tiny'}, or set BVFIM_DATA to a folder that contains tiny/{IMAGES}.gz"
    )


def test_absent_files_are_downloaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def serve(url: str) -> bytes:
        asked.append(url)
        return gzip.compress(CONTENT[url.removeprefix(TINY.url).removesuffix(".gz")])

    monkeypatch.setattr(files, "_download", serve)
    fresh = tmp_path / "not" / "yet"
    monkeypatch.setenv("BVFIM_DATA", str(fresh))
    check_tiny()
    check_tiny()
    assert sorted(asked) == sorted(f"{TINY.url}{name}.gz" for name in CONTENT)
    assert sorted(path.name for path in (fresh / "tiny").iterdir()) == sorted(f"{name}.gz" for name in CONTENT)


def test_a_bad_download_is_refused_and_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = tmp_path / "fresh"
    monkeypatch.setenv("BVFIM_DATA", str(fresh))
    monkeypatch.setattr(files, "_download", lambda url: b"<html>not found</html>")
    with pytest.raises(DataError, match=r"^https://example.invalid/tiny/.*: not the expected file"):
        TINY()
    assert not fresh.exists()


def test_a_broken_store_leaves_nothing_behind(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    path = home / "tiny" / f"{IMAGES}.gz"
    path.unlink()
    before = sorted((home / "tiny").iterdir())
    monkeypatch.setattr(files, "_download", lambda url: gzip.compress(CONTENT[IMAGES]))
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(DataError, match=r"can't store the downloaded file \(No space left on device\)") as caught:
        TINY()
    assert str(path) in str(caught.value)
    assert sorted((home / "tiny").iterdir()) == before


class Answer:
    headers = {"content-length": "150000"}  # noqa: RUF012 (a stand-in)

    def raise_for_status(self) -> None:
        pass

    def iter_content(self, chunk_size: int) -> list[bytes]:
        return [b"a" * chunk_size, b"b" * (150_000 - chunk_size)]


@pytest.mark.parametrize("terminal", [False, True])
def test_the_downloader_shows_its_progress_on_a_terminal_only(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(requests, "get", lambda url, **options: Answer())
    for name in ("TTY_COMPATIBLE", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    content = files._download("https://example.invalid/some/file.gz")
    assert len(content) == 150_000
    out, err = capsys.readouterr()
    assert out == ""
    assert ("file.gz" in err) == terminal
    assert ("100%" in err) == terminal


def test_the_folder_is_that_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert folder() == tmp_path
    monkeypatch.setenv("BVFIM_DATA", "~/somewhere")
    assert folder() == Path.home() / "somewhere"
    monkeypatch.setenv("BVFIM_DATA", "")
    assert folder() == Path(pooch.os_cache("bvfim"))
    monkeypatch.delenv("BVFIM_DATA")
    assert folder() == Path(pooch.os_cache("bvfim"))


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("minst", "did you mean 'mnist'?"),
        ("fashion_mnist", "did you mean 'fashion-mnist'?"),
        ("digit", "did you mean 'digits'?"),
        ("cifar", "did you mean 'cifar10'?"),
        ("zzz", "choose from digits, mnist, fashion-mnist, cifar10, cifar100, omniglot"),
        ("", "choose from digits, mnist, fashion-mnist, cifar10, cifar100, omniglot"),
    ],
)
def test_unknown_names_get_a_hint(name: str, hint: str) -> None:
    with pytest.raises(DataError) as caught:
        load(name)
    assert str(caught.value) == f"no data set is called {name!r}; {hint}"


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_known_files_are_asked_for_under_their_names(name: str) -> None:
    with pytest.raises(DataError, match=rf"put t.*-ubyte\.gz into .* contains {name}/t.*-ubyte\.gz$"):
        load(name)


def test_digits_need_no_file() -> None:
    data = load("Digits")
    assert data.name == "digits"
    assert data.train.shape == (8, 8)
    for split in (data.train, data.test):
        assert split.inputs.shape == (len(split), 64)
        assert split.inputs.dtype == np.float32
        assert split.labels.dtype == np.int64
        assert (split.inputs.min(), split.inputs.max()) == (0, 1)
    train, test = np.bincount(data.train.labels), np.bincount(data.test.labels)
    np.testing.assert_array_equal(test, (train + test) // 5)
    np.testing.assert_array_equal(load("digits").test.inputs, data.test.inputs)
    rows = np.concatenate([data.train.inputs, data.test.inputs])
    assert len(np.unique(rows, axis=0)) == len(rows) == 1797


@pytest.mark.parametrize("where", ["~nosuchuser/x", "x" * 5000])
def test_an_impossible_folder_is_told(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BVFIM_DATA", where)
    with pytest.raises(DataError):
        TINY()
