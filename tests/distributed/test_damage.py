"""Sharded checkpoints on one process: what may go wrong with them, and what is in their files."""

from __future__ import annotations

import errno
import json
import os
import pickle
import re
import shutil
import tempfile

import pytest
import torch

from bvfim.distributed import files, metadata
from bvfim.distributed.storage import load, peek, save
from bvfim.status import CheckpointError
from tests.distributed.test_storage import (
    NUMBERS,
    assert_alone,
    assert_whole,
    blank,
    change_byte,
    failing,
    whole,
)


@pytest.fixture
def path(tmp_path):
    """A good checkpoint."""
    save(tmp_path / "run", whole(), NUMBERS)
    return tmp_path / "run"


def shard(path):
    (file,) = path.glob("shards-*/rank-0.safetensors")
    return file


def refused(path, reason=""):
    """The error names the path or a file in it."""
    return pytest.raises(CheckpointError, match=rf"^{re.escape(str(path))}(/\S+)?: .*{reason}")


def test_a_process_alone_saves_and_loads(path):
    tensors = blank()
    parameter = torch.nn.Parameter(torch.zeros(8, 3, dtype=torch.float64))
    assert load(path, {**tensors, "even": parameter}) == (NUMBERS, [None])
    assert torch.equal(parameter, whole()["even"])
    assert_whole({**tensors, "even": parameter.detach()})
    shutil.move(path, path.with_name("elsewhere"))
    assert peek(path.with_name("elsewhere")).numbers == NUMBERS


def test_a_later_checkpoint_takes_the_place_of_the_earlier_one(path):
    (path / "notes.txt").write_text("kept")
    (path / "shards-abcd123_").mkdir()  # of a save that was killed
    save(path, {"x": torch.ones(2)}, {"k": 4}, local=[1])
    assert peek(path) == ({"k": 4}, [[1]])
    x = torch.zeros(2)
    load(path, {"x": x})
    assert x.tolist() == [1, 1]
    (path / "notes.txt").unlink()
    assert_alone(path, {"k": 4})


def test_no_tensors_and_no_numbers_are_a_checkpoint(tmp_path):
    save(tmp_path / "deep" / "run", {}, None)
    assert load(tmp_path / "deep" / "run", {}) == (None, [None])


def test_a_save_killed_at_any_moment_leaves_the_old_or_the_new(path, monkeypatch):
    class Killed(BaseException):
        pass

    moments = {"mkdtemp": tempfile, "save_file": files, "fsync": os, "replace": os, "rmtree": shutil}
    for moment, module in moments.items():
        with monkeypatch.context() as patch:
            for name, module in {
                "mkdtemp": files.tempfile,
                "rmtree": shutil,
                "save_file": files,
            }.items():
                if name == moment or name == "rmtree":  # nothing is tidied up after a kill
                    patch.setattr(module, name, failing(Killed()))
            if moment in ("fsync", "replace"):
                patch.setattr(os, moment, failing(Killed()))
            with pytest.raises(BaseException):  # noqa: B017, PT011 (torch makes its own of it)
                save(path, whole(), moment)
        tensors = blank()
        assert load(path, tensors).numbers == (moment if moment == "rmtree" else NUMBERS)
        assert_whole(tensors)
    save(path, whole(), 5)
    assert_alone(path, 5)


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        ({0: 1}, "a dict with the key 0"),
        ({"x": torch.ones(1)}, "a Tensor is nothing that JSON can hold"),
        (b"bytes", "a bytes is nothing that JSON can hold"),
    ],
)
def test_numbers_that_would_not_come_back_are_refused(path, numbers, reason):
    with refused(path, reason):
        save(path, whole(), numbers)
    holds_itself = []
    holds_itself.append(holds_itself)
    with refused(path, "recursion"):
        save(path, whole(), None, local=holds_itself)
    assert_alone(path, NUMBERS)


def test_tensors_that_can_not_be_saved_are_named(path):
    for tensor in (torch.ones(2, device="meta"), torch.eye(2).to_sparse(), torch.ones(2, dtype=torch.complex128)):
        with refused(path, "the tensor 'odd' has layout"):
            save(path, {"odd": tensor}, 1)
    with refused(path, "'odd': not a tensor with a str for its name, but a float"):
        save(path, {"odd": 1.0}, 1)
    assert_alone(path, NUMBERS)


def test_tensors_that_do_not_fit_are_named_and_none_is_touched(path):
    for wrong, reason in {
        "absent": "it has no tensor 'absent'",
        "even": r"it has the tensor 'even' as float64 of shape \(8, 3\), not as float32 of shape \(8, 3\)",
        "scalar": r"it has the tensor 'scalar' as bfloat16 of shape \(\), not as float32 of shape \(8, 3\)",
    }.items():
        tensors = {**blank(), wrong: torch.ones(8, 3)}
        with refused(path, reason):
            load(path, tensors)
        assert all((tensor == 1).all() for tensor in tensors.values())
    with refused(path, "the tensor 'even' to fill is on the meta device"):
        load(path, {"even": whole()["even"].to("meta")})


def test_what_is_no_checkpoint_is_refused(tmp_path):
    (tmp_path / "file").write_text("text")
    (tmp_path / "empty").mkdir()
    for name in ("nowhere", "file", "empty", "n" * 300):
        for action in (peek, lambda path: load(path, {})):
            with refused(tmp_path / name):
                action(tmp_path / name)
    with refused(tmp_path / "file"):
        save(tmp_path / "file", {}, 1)
    assert (tmp_path / "file").read_text() == "text"


def test_a_shard_cut_anywhere_or_changed_is_refused_before_a_tensor_is_touched(path):
    file = shard(path)
    raw = file.read_bytes()
    tensors = blank()
    for length in range(0, len(raw), 17):
        file.write_bytes(raw[:length])
        with refused(file):
            load(path, tensors)
    for at in range(0, len(raw), 17):
        file.write_bytes(raw)
        change_byte(file, at)
        with refused(file):
            load(path, tensors)
    file.unlink()
    with refused(file):
        load(path, tensors)
    assert all((tensor == 1).all() for tensor in tensors.values())
    assert peek(path).numbers == NUMBERS


def test_metadata_cut_anywhere_or_changed_is_refused(path):
    file = path / "metadata.json"
    raw = file.read_bytes()
    for length in range(0, len(raw), 11):
        file.write_bytes(raw[:length])
        with refused(path):
            peek(path)
    for at in range(len(raw)):
        file.write_bytes(raw[:at] + bytes([raw[at] ^ (1 << at % 8)]) + raw[at + 1 :])
        try:
            assert peek(path).numbers == NUMBERS  # 1E-300 is another spelling of the same number
        except CheckpointError as error:
            assert str(error).startswith(str(path))  # noqa: PT017 (nearly all raise)


class Runs:
    """What runs a command where a pickle is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_pickle_is_refused_and_never_loaded(path):
    for file in (path / "metadata.json", shard(path)):
        for protocol in (0, 4):
            good = file.read_bytes()
            file.write_bytes(pickle.dumps(Runs(path / "executed"), protocol))
            with refused(file):
                load(path, blank())
            file.write_bytes(good)
    shutil.copy(path / "metadata.json", path / ".metadata")  # what torch's own reader would load
    (path / ".metadata").write_bytes(pickle.dumps(Runs(path / "executed")))
    load(path, blank())
    assert not (path / "executed").exists()


def forge(path, change):
    """Change the metadata, with a digest that fits."""
    file = path / "metadata.json"
    content = json.loads(file.read_text())
    del content["digest"]
    change(content)
    file.write_text(json.dumps({**content, "digest": metadata._digest_of(content)}))


def first(content, name="even"):
    return content["tensors"][name]["chunks"][0]


def renamed(name):
    """The shards are said to be in another file."""

    def change(content):
        (digest,) = content["files"].values()
        content["files"] = {name: digest}
        for tensor in content["tensors"].values():
            for chunk in tensor["chunks"]:
                chunk["file"] = name

    return change


FORGED = {
    "offset beyond the end": lambda c: first(c).update(offsets=[4, 0]),
    "absurd offset": lambda c: first(c).update(offsets=[2**62, 2**62]),
    "offset too large for torch": lambda c: first(c).update(offsets=[2**70, 0]),
    "negative offset": lambda c: first(c).update(offsets=[-1, 0]),
    "offset of another kind": lambda c: first(c).update(offsets=[0.0, False]),
    "offsets of another length": lambda c: first(c).update(offsets=[0]),
    "absurd size": lambda c: (first(c).update(sizes=[2**62, 2**62]), c["tensors"]["even"].update(size=[2**62, 2**62])),
    "a part left out": lambda c: first(c).update(sizes=[7, 3]),
    "no chunk": lambda c: c["tensors"]["even"].update(chunks=[]),
    "the same chunk twice": lambda c: c["tensors"]["even"]["chunks"].append(dict(first(c))),
    "chunks that overlap": lambda c: c["tensors"]["even"].update(
        chunks=[{**first(c), "sizes": [4, 3]}, {**first(c), "offsets": [3, 0], "sizes": [4, 3]}]
    ),
    "a scalar twice": lambda c: c["tensors"]["scalar"]["chunks"].append(dict(first(c, "scalar"))),
    "an unknown dtype": lambda c: c["tensors"]["even"].update(dtype="__class__"),
    "another key": lambda c: first(c).update(key="nowhere"),
    "a key of another kind": lambda c: first(c).update(key=[[]]),
    "another tensor's key": lambda c: first(c).update(key=first(c, "uneven")["key"]),
    "a file that is not listed": lambda c: first(c).update(file="shards-aaaaaaaa/rank-0.safetensors"),
    "a file of another kind": lambda c: first(c).update(file=[]),
    "another file": renamed("shards-aaaaaaaa/rank-0.safetensors"),
    "a name that leads out": renamed("../run/shards-aaaaaaaa/rank-0.safetensors"),
    "a name with a way out": renamed("shards-aaaaaaaa/../../rank-0.safetensors"),
    "an absolute name": renamed("/etc/passwd"),
    "a name of another kind": renamed("metadata.json"),
    "no files": lambda c: c.update(files=None),
    "digests of another kind": lambda c: c.update(files=dict.fromkeys(c["files"], 3)),
    "no tensors": lambda c: c.update(tensors=[]),
    "a tensor of another kind": lambda c: c["tensors"].update(even=3),
    "chunks of another kind": lambda c: c["tensors"]["even"].update(chunks=[3]),
    "local of another kind": lambda c: c.update(local={}),
    "no numbers": lambda c: c.pop("numbers"),
    "another format": lambda c: c.update(format="bvfim-sharded-0"),
}


@pytest.mark.parametrize("case", FORGED)
def test_metadata_that_make_no_sense_are_refused(path, case):
    forge(path, FORGED[case])
    tensors = {"even": torch.ones(8, 3, dtype=torch.float64), "scalar": torch.ones((), dtype=torch.bfloat16)}
    with refused(path):
        load(path, tensors)
    assert all((tensor == 1).all() for tensor in tensors.values())


def test_shards_of_another_shape_or_dtype_are_refused(path):
    forge(path, lambda c: (first(c).update(sizes=[3, 8]), c["tensors"]["even"].update(size=[3, 8])))
    with refused(shard(path), "another shape or dtype than metadata.json says"):
        load(path, {"even": torch.ones(3, 8, dtype=torch.float64)})
    save(path, whole(), 1)
    forge(path, lambda c: c["tensors"]["even"].update(dtype="int64"))
    with refused(shard(path), "another shape or dtype than metadata.json says"):
        load(path, {"even": torch.ones(8, 3, dtype=torch.int64)})


@pytest.mark.parametrize(
    "text",
    [
        *("", "nonsense", "{}", "3", "null", "[]", '{"format": []}', '{"format": "bvfim-sharded-1"}', "[" * 100_000),
        '{"format": "bvfim-sharded-1", "digest": "", "numbers": ' + "[" * 100_000 + "]" * 100_000 + "}",
    ],
    ids=lambda text: text[:60] or "empty",
)
def test_json_of_someone_else_is_refused(path, text):
    (path / "metadata.json").write_text(text)
    with refused(path):
        peek(path)


def test_links_are_refused(path, tmp_path):
    for file in (path / "metadata.json", shard(path), shard(path).parent):
        file.rename(tmp_path / file.name)
        file.symlink_to(tmp_path / file.name)
        with refused(path, "this is no regular file of its folder"):
            load(path, blank())
        file.unlink()
        (tmp_path / file.name).rename(file)
    (tmp_path / "link").symlink_to(path)
    assert load(tmp_path / "link", blank()).numbers == NUMBERS
    save(tmp_path / "link", whole(), 2)
    assert_alone(path, 2)


@pytest.mark.skipif(not hasattr(files, "fcntl"), reason="there are no locks here")
def test_of_two_runs_that_save_at_once_the_second_is_refused(path, monkeypatch):
    real = files.save_file

    def meanwhile(*given):
        with refused(path, "another run is writing a checkpoint there"):
            save(path, whole(), "second")
        real(*given)

    monkeypatch.setattr(files, "save_file", meanwhile)
    save(path, whole(), "first")
    assert_alone(path, "first")
    monkeypatch.setattr(files.fcntl, "flock", failing(OSError(errno.ENOTSUP, "no locks here")))
    monkeypatch.setattr(files, "save_file", real)
    save(path, whole(), "without locks")
    assert_alone(path, "without locks")
