"""A write that fails says why, and leaves the old file and nothing else."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch

from bvfim import checkpoint
from bvfim.status import CheckpointError
from tests.checkpoint import saved
from tests.checkpoint.saved import content, refused, same, written

good = saved.good


def test_folders_on_the_way_are_made(tmp_path):
    path = tmp_path / "a" / "b" / "run.safetensors"
    checkpoint.write(str(path), content)
    assert same(checkpoint.read(str(path)), content)


def test_a_path_below_a_file_or_onto_a_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("kept")
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "file" / "run.safetensors", tmp_path / "file" / "deeper" / "run", tmp_path / "folder"):
        with refused(path):
            checkpoint.write(path, content)
    assert (tmp_path / "file").read_text() == "kept"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]


@pytest.mark.parametrize("keep", [1, 2])
@pytest.mark.parametrize("broken", ["replace", "fsync"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(good, monkeypatch, broken, error, keep):
    def fail(*_):
        raise error

    monkeypatch.setattr(os, broken, fail)
    if isinstance(error, OSError):
        with refused(good) as caught:
            checkpoint.write(good, {"k": 4}, keep)
        assert "No space left on device" in str(caught.value)
    else:
        with pytest.raises(KeyboardInterrupt):
            checkpoint.write(good, {"k": 4}, keep)
    assert same(checkpoint.read(good), content)
    assert list(good.parent.iterdir()) == [good]


@contextlib.contextmanager
def largest_file(size):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_write_that_the_system_cuts_short_leaves_the_old_file_and_nothing_else(good):
    with largest_file(20_000), pytest.raises(CheckpointError, match=re.escape(f"{good}: ") + ".*File too large"):
        checkpoint.write(good, {"x": torch.zeros(10_000)}, keep=2)
    assert same(checkpoint.read(good), content)
    assert list(good.parent.iterdir()) == [good]


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EDQUOT, errno.ENOSPC], ids=os.strerror)
def test_a_folder_that_takes_no_new_file_is_named_with_the_reason(good, monkeypatch, number):
    def fail(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(tempfile, "mkstemp", fail)
    with pytest.raises(CheckpointError) as caught:
        checkpoint.write(good, {"k": 4}, keep=2)
    assert str(caught.value) == f"{good}: the checkpoint could not be written ({os.strerror(number)})"
    assert same(checkpoint.read(good), content)


@contextlib.contextmanager
def not_as_root():
    """Root writes into read-only folders."""
    user = os.geteuid()
    if user == 0:
        try:
            os.seteuid(65534)
        except OSError:
            pytest.skip("root writes into read-only folders, and can't become another user here")
    try:
        yield
    finally:
        os.seteuid(user)


def test_a_read_only_folder_is_refused_and_the_old_file_stays():
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder), 1, keep=2)
        path.parent.chmod(0o555)
        reason = re.escape(f"{path}: the checkpoint could not be written (Permission denied)")
        with not_as_root(), pytest.raises(CheckpointError, match=reason):
            checkpoint.write(path, {"k": 2}, keep=2)
        path.parent.chmod(0o755)
        assert checkpoint.read(path) == {"k": 1}
        assert list(path.parent.iterdir()) == [path]


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="there is no /proc here")
def test_a_folder_of_the_system_is_refused():
    with refused("/proc/self/run.safetensors"):
        checkpoint.write("/proc/self/run.safetensors", content)


def test_a_second_write_replaces_the_first(good):
    kept = checkpoint.read(good)
    checkpoint.write(good, {"k": 4})
    assert checkpoint.read(good) == {"k": 4}
    assert same(kept, content)
    assert list(good.parent.iterdir()) == [good]


@pytest.mark.parametrize(
    "item",
    [
        {1, 2},
        b"bytes",
        1j,
        object(),
        np.ones(2),
        len,
        Path("here"),
        pytest.param(torch.eye(2).to_sparse(), id="sparse-tensor"),
        pytest.param(torch.ones(2, dtype=torch.complex128), id="complex128-tensor"),
        pytest.param(torch.ones(2, device="meta"), id="meta-tensor"),
    ],
    ids=lambda item: type(item).__name__,
)
def test_what_a_checkpoint_cannot_hold_is_refused_and_the_old_file_stays(good, item):
    with pytest.raises(CheckpointError, match="checkpoint"):
        checkpoint.write(good, {"deep": [{"item": (item,)}]})
    assert same(checkpoint.read(good), content)
    assert list(good.parent.iterdir()) == [good]


def test_tensors_of_another_run_are_refused():
    a = torch.ones(2, 3)
    checkpoint.check_like([a], [a + 1], "x", "run")
    for other in ([], [a, a], [a.double()], [a.T], [a[0]]):
        with pytest.raises(CheckpointError, match=r"run: .*its x has different shapes or dtypes"):
            checkpoint.check_like([a], other, "x", "run")
