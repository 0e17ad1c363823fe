"""Checkpoints that are none, or of another run: a sentence, and what was there stays."""

from __future__ import annotations

import os

import pytest
import torch
from safetensors.torch import save_file

import bvfim
from bvfim import callbacks, checkpoint
from bvfim.status import CheckpointError
from tests.adversarial.small import ZERO, refused, solve

TWO = torch.zeros(2, dtype=torch.float64)
DAMAGE = {
    "there is no such checkpoint": lambda path: path.unlink(),
    "there is no such checkpoint: a folder": lambda path: (path.unlink(), path.mkdir()),
    "the checkpoint is damaged or truncated": lambda path: path.write_bytes(path.read_bytes()[:300]),
    "the checkpoint is damaged or truncated: empty": lambda path: path.write_bytes(b""),
    "the checkpoint is damaged or truncated: garbage": lambda path: path.write_bytes(os.urandom(1000)),
    "the checkpoint is damaged or truncated: a pickle": lambda path: torch.save({"x": ZERO}, path),
    "the checkpoint is damaged or truncated: text": lambda path: path.write_text("not a checkpoint"),
    "this is not a bvfim checkpoint": lambda path: save_file({"x": ZERO}, path),
    "its digest does not match": lambda path: path.write_bytes(path.read_bytes()[:-1] + b"?"),
    "the checkpoint belongs to another run": lambda path: checkpoint.write(path, {}),
}
ABSURD = {
    "a negative number of steps": {"k": -1},
    "half a step": {"k": 1.5},
    "x of another shape": {"x": [TWO]},
    "x of another dtype": {"x": [ZERO.float()]},
    "a state of words": {"state": ["a", "b"]},
    "positions that are words": {"draws": "here"},
    "counts of nothing known": {"evaluations": {"guesses": 3}},
    "an optimiser that is a number": {"optimizer": 3},
    "no random state": {"random": None},
    "a random state of zeros": {"random": {"cpu": TWO, "cuda": []}},
    "seconds that are a word": {"seconds": "long"},
}


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "run.safetensors"
    solve(callbacks=[callbacks.Checkpoint(path)])
    return path


@pytest.mark.parametrize("what", DAMAGE)
def test_a_file_that_is_no_checkpoint_of_ours_gets_its_sentence(what, saved):
    DAMAGE[what](saved)
    refused(lambda: solve(steps=4, resume=saved), what.partition(":")[0])


@pytest.mark.parametrize("what", ABSURD)
def test_a_valid_digest_with_absurd_contents_gets_a_sentence(what, saved):
    checkpoint.write(saved, {**checkpoint.read(saved), **ABSURD[what]})
    refused(lambda: solve(steps=4, resume=saved), str(saved))


OTHER = {
    "its method is RHG, not CG": {"method": bvfim.CG},
    "its optimizer is Adam, not SGD": {"optimizer": lambda p: torch.optim.SGD(p, 0.1)},
    "its scheduler is NoneType, not StepLR": {"scheduler": lambda o: torch.optim.lr_scheduler.StepLR(o, 3)},
    "its x has different shapes or dtypes": {"x": TWO, "y": TWO},
}


@pytest.mark.parametrize("sentence", OTHER)
def test_a_checkpoint_of_another_run_is_told_from_ours(sentence, saved):
    refused(lambda: solve(steps=4, resume=saved, **OTHER[sentence]), sentence)


CONTENT = {
    "a checkpoint can't hold a object": {"a": object()},
    "a checkpoint can't hold a complex": {"a": 1j},
    "a checkpoint can't hold a set": {"a": {1}},
    "a checkpoint can't hold a function": {"a": {"b": [solve]}},
    "on meta": {"a": torch.zeros(1, device="meta")},
    "dtype torch.complex128": {"a": torch.zeros(1, dtype=torch.complex128)},
    "layout torch.sparse_coo": {"a": TWO.to_sparse()},
    "a checkpoint holds a dict, not a list": [1],
    "recursion": (itself := {}, itself.update(a=itself))[0],
}


@pytest.mark.parametrize("sentence", CONTENT)
def test_what_can_not_be_saved_leaves_the_last_checkpoint_as_it_is(sentence, saved):
    before = saved.read_bytes()
    refused(lambda: checkpoint.write(saved, CONTENT[sentence]), sentence)
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


@pytest.mark.parametrize(
    "path",
    ["", "file/run", "x" * 300, "/proc/run.safetensors"],
    ids=["a folder", "in a file", "too long", "not writable"],
)
def test_a_place_that_can_not_be_written_gets_its_sentence(path, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="the checkpoint could not be written"):
        solve(callbacks=[callbacks.Checkpoint(tmp_path / path)])


@pytest.mark.parametrize("path", [3, None, [], b"run", "a\0b"], ids=repr)
def test_a_path_that_is_none_gets_its_sentence(path):
    refused(lambda: checkpoint.read(path), "the path of a checkpoint must be a str or a path, not")
    if path is not None:
        refused(lambda: solve(resume=path), "the path of a checkpoint must be a str or a path, not")


def test_a_path_in_any_script_is_written_and_read(tmp_path):
    path = tmp_path / "é 漢字 😀" / "run [1].safetensors"
    whole = solve(steps=4)
    solve(callbacks=[callbacks.Checkpoint(path)])
    assert torch.equal(solve(steps=4, resume=path).x, whole.x)
    assert solve(steps=1, resume=path).steps == 2
