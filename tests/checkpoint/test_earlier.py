"""The checkpoints before the newest: how many are kept, and when they are taken instead."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from pathlib import Path

import pytest

from bvfim import checkpoint
from bvfim.status import BvfimWarning, CheckpointError
from tests.checkpoint.saved import written


def left(folder):
    """The numbers that were saved, by the endings of the files; damaged files are left out."""
    found = {}
    for path in sorted(folder.glob("run*")):
        with contextlib.suppress(CheckpointError):
            found[path.name.removeprefix("run.safetensors")] = checkpoint.read(path)["k"]
    return found


def test_as_many_as_asked_for_are_kept(tmp_path):
    for keep, expected in ((1, {"": 4}), (2, {"": 4, ".old-1": 3}), (3, {"": 4, ".old-1": 3, ".old-2": 2})):
        folder = tmp_path / str(keep)
        written(folder, 1, 2, 3, 4, keep=keep)
        assert left(folder) == expected
    written(folder, 5, 6, keep=2)
    assert left(folder) == {"": 6, ".old-1": 5, ".old-2": 2}


def test_without_hard_links_the_ones_before_are_kept_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", refuse_links)
    written(tmp_path, 1, 2, 3, keep=2)
    assert left(tmp_path) == {"": 3, ".old-1": 2}


def test_the_newest_good_one_is_found_and_the_damage_told(tmp_path, recwarn):
    path = written(tmp_path, 1, 2, 3, keep=3)
    assert checkpoint.newest(path) == (path, {"k": 3})
    assert not recwarn.list
    path.write_bytes(path.read_bytes()[:-1])
    second, third = (Path(f"{path}.old-{i}") for i in (1, 2))
    with pytest.warns(BvfimWarning) as caught:
        assert checkpoint.newest(path) == (second, {"k": 2})
    (warning,) = caught.list
    assert str(warning.message).startswith(f"{path}: the checkpoint is damaged or truncated (")
    assert str(warning.message).endswith(f"; using {second} instead")
    assert Path(warning.filename) == Path(__file__)
    second.unlink()
    with pytest.warns(BvfimWarning, match=re.escape(f"; using {third} instead")):
        assert checkpoint.newest(path) == (third, {"k": 1})
    path.unlink()
    with pytest.warns(BvfimWarning, match=re.escape(f"{path}: there is no such checkpoint; using {third} instead")):
        assert checkpoint.newest(path) == (third, {"k": 1})


def test_where_none_is_good_each_is_named(tmp_path):
    path = written(tmp_path, 1, 2, keep=2)
    path.write_text("")
    Path(f"{path}.old-1").write_text("nonsense")
    with pytest.raises(CheckpointError) as caught:
        checkpoint.newest(path)
    one, other = str(caught.value).split("; ")
    assert one.startswith(f"{path}: the checkpoint is damaged")
    assert other.startswith(f"{path}.old-1: the checkpoint is damaged")
    with pytest.raises(CheckpointError, match=r"nowhere/run: there is no such checkpoint$"):
        checkpoint.newest(tmp_path / "nowhere" / "run")


def test_the_tenth_is_older_than_the_second_and_other_files_are_none_of_ours(tmp_path):
    for name, k in (("old-10", 10), ("old-2", 2), ("old-1.old-1", 0), ("old-", 0), ("old-x", 0), ("older", 0)):
        checkpoint.write(tmp_path / f"run[1].{name}", {"k": k})
    with pytest.warns(BvfimWarning, match="no such checkpoint"):
        assert checkpoint.newest(tmp_path / "run[1]")[1] == {"k": 2}
    (tmp_path / "run[1].old-2").unlink()
    with pytest.warns(BvfimWarning, match="no such checkpoint"):
        assert checkpoint.newest(tmp_path / "run[1]")[1] == {"k": 10}


def test_what_a_killed_write_left_is_removed_and_nothing_else(tmp_path):
    others = [
        ".run.safetensors.tmp",
        ".run.safetensors.abc.tmp",
        ".run.safetensors.b.abcdefgh.tmp",
        "run.tmp",
        ".run.abcdefgh.tmp",
    ]
    for name in (".run.safetensors.abcd1234.tmp", ".run.safetensors.abcd_234.old", *others):
        (tmp_path / name).write_text("torn")
    written(tmp_path, 1, 2, keep=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*others, "run.safetensors", "run.safetensors.old-1"])


class Killed(BaseException):
    pass


def killed_at(patch, n):
    """From the n-th operation on, nothing reaches the disk any more, as after a kill."""
    count = iter(range(1000))

    def until_then(real):
        def operation(*given, **options):
            if next(count) >= n:
                raise Killed
            return real(*given, **options)

        return operation

    for name in ("fsync", "link", "replace", "unlink"):
        patch.setattr(os, name, until_then(getattr(os, name)))


def refuse_links(*_, **__):
    raise OSError(errno.EOPNOTSUPP, "no links here")


@pytest.mark.filterwarnings("ignore::bvfim.BvfimWarning")
@pytest.mark.parametrize("links", [True, False], ids=["links", "copies"])
@pytest.mark.parametrize("damaged", [[], [""], ["", ".old-1"], [".old-1"]], ids=["none", "newest", "newer", "older"])
@pytest.mark.parametrize("keep", [1, 2, 3])
def test_at_every_moment_of_a_write_there_is_a_good_one(tmp_path, monkeypatch, keep, damaged, links):
    """Killed before each of its operations; also where the newest are damaged, and only an older one is good."""
    if not links:
        monkeypatch.setattr(os, "link", refuse_links)
    ends = []
    for n in range(12):
        folder = tmp_path / str(n)
        path = written(folder, 1, 2, 3, keep=3)
        for name in damaged:
            Path(f"{path}{name}").write_text("damaged")
        before = max(left(folder).values())
        with monkeypatch.context() as patch, contextlib.suppress(Killed):
            killed_at(patch, n)
            checkpoint.write(path, {"k": 4}, keep)
        ends.append(checkpoint.newest(path)[1]["k"])
        written(folder, 5, keep=keep)
        assert not list(folder.glob(".*"))
    assert set(ends) == {before, 4}
    assert ends == sorted(ends)
