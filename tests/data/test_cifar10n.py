from __future__ import annotations

import io
import pickle
import zipfile

import numpy as np
import pytest
import torch

from bvfim.data import cifar10n, files, human, load
from bvfim.status import DataError

COLUMNS = {key: np.arange(6, dtype=np.int64) % (2 + i) for i, key in enumerate(cifar10n.KINDS.values())}


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("BVFIM_DATA", str(tmp_path))
    (tmp_path / "noisy-labels").mkdir()
    with pytest.raises(DataError) as refused:
        cifar10n._checked(COLUMNS, "")
    monkeypatch.setattr(cifar10n, "_SHA256", str(refused.value).split("sha256 ")[1][:-1])
    return tmp_path / "noisy-labels"


def saved() -> bytes:
    buffer = io.BytesIO()
    torch.save(COLUMNS, buffer)
    return buffer.getvalue()


def test_the_packed_labels_are_read(home):
    np.savez(home / "cifar10n_train.npz", **{key: c.astype(np.int8) for key, c in COLUMNS.items()})
    assert human("worse").tolist() == COLUMNS["worse_label"].tolist()
    assert human("worse").dtype == np.int64


def test_the_authors_file_is_downloaded_and_read(home, monkeypatch):
    monkeypatch.setattr(files, "_download", lambda url: saved())
    assert human("aggregate").tolist() == COLUMNS["aggre_label"].tolist()
    assert (home / "CIFAR-10_human.pt").exists()


@pytest.mark.parametrize("content", [b"", b"x" * 50, saved()[:500]])
def test_damaged_files_are_refused_by_name(home, content):
    for name in ("CIFAR-10_human.pt", "cifar10n_train.npz"):
        (home / name).write_bytes(content)
        with pytest.raises(DataError, match=f"{name}: the file is damaged, truncated or a different file"):
            human("worse")


def test_a_pickle_with_more_than_arrays_is_refused(home):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("x/data.pkl", b"cos\nsystem\n(S'echo harm'\ntR.")
    (home / "CIFAR-10_human.pt").write_bytes(buffer.getvalue())
    with pytest.raises(DataError, match=r"the pickle refers to (os|posix)\.system, which is not allowed"):
        human("worse")


def test_a_flipped_bit_is_refused_by_name(home):
    path = home / "cifar10n_train.npz"
    np.savez_compressed(path, **COLUMNS)
    whole = path.read_bytes()
    for position in range(0, len(whole), 7):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 4]) + whole[position + 1 :])
        try:
            found = human("worse")
        except DataError as error:
            assert "cifar10n_train.npz: " in str(error)  # noqa: PT017 (some bits do not matter)
        else:
            assert found.tolist() == COLUMNS["worse_label"].tolist()


def test_labels_that_wrap_around_are_refused(home):
    np.savez(home / "cifar10n_train.npz", **{key: column + 256 for key, column in COLUMNS.items()})
    with pytest.raises(DataError, match=": not the labels of CIFAR-10N"):
        human("worse")


@pytest.mark.parametrize("column", [None, "x", {}, [10**30], np.zeros((2, 3), int), np.full(6, 0.5)])
def test_columns_that_are_no_labels_are_refused(home, column):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("x/data.pkl", pickle.dumps({**COLUMNS, "worse_label": column}, 2))
    (home / "CIFAR-10_human.pt").write_bytes(buffer.getvalue())
    with pytest.raises(DataError, match=r"CIFAR-10_human\.pt: "):
        human("worse")


def test_other_labels_are_refused(home):
    np.savez(home / "cifar10n_train.npz", **{key: (c + 1).astype(np.int8) for key, c in COLUMNS.items()})
    with pytest.raises(DataError, match=": not the labels of CIFAR-10N"):
        human("worse")


def test_an_unknown_kind_gets_a_hint():
    with pytest.raises(DataError, match="did you mean 'worse'"):
        human("worst")


@pytest.mark.long
def test_the_real_labels_fit_the_real_images(real):
    real("noisy-labels")
    clean = human("clean")
    assert (human("worse") != clean).mean() == pytest.approx(0.402, abs=1e-3)
    assert (human("aggregate") != clean).mean() == pytest.approx(0.0901, abs=1e-3)
    labels = load(real("cifar10")).train.labels
    np.testing.assert_array_equal(labels, clean[: len(labels)])
