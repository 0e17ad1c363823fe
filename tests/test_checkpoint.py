import contextlib
import errno
import math
import os
import random
import re
import resource
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from bvfim import checkpoint
from bvfim.status import BvfimWarning, CheckpointError

dtypes = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]


def same(a, b):
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        alike = a.dtype == b.dtype and a.shape == b.shape
        return alike and torch.equal(a.contiguous().view(-1).view(torch.uint8), b.view(-1).view(torch.uint8))
    if isinstance(a, dict):
        return list(map(repr, a)) == list(map(repr, b)) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b or (a != a and b != b)


def round_trip(content, folder):
    path = Path(folder) / "run.safetensors"
    checkpoint.write(path, content)
    return checkpoint.read(path)


plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
keys = st.integers() | st.text(max_size=5) | st.tuples(st.integers(), st.text(max_size=2))
tensors = st.builds(
    lambda shape, dtype: (10 * torch.randn(shape)).to(getattr(torch, dtype)),
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
    st.sampled_from(dtypes),
)
nested = st.recursive(
    plain | tensors,
    lambda inner: (
        st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple) | st.dictionaries(keys, inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.dictionaries(keys, nested, max_size=4))
def test_any_nesting_comes_back_as_it_was(content):
    with tempfile.TemporaryDirectory() as folder:
        assert same(content, round_trip(content, folder))


def test_named_cases_come_back_as_they_were(tmp_path):
    base = torch.arange(12, dtype=torch.float64).reshape(3, 4)
    content = {
        0: "int key",
        "0": "string key",
        (1, "a"): "tuple key",
        "numbers": [1, -(2**70), 1.5, math.nan, math.inf, -math.inf, -0.0, 5e-324, True, False, None],
        "text": ["", 'quotes " and \\', "\N{GREEK SMALL LETTER MU}\n\0", "tensor"],
        "like the format": {"tensor": "0", "dict": [], "list": [{"tuple": ()}]},
        "empty": [{}, [], (), torch.zeros(0, 2)],
        "0-dim": torch.tensor(2.5, dtype=torch.float64),
        "not contiguous": base.T,
        "strided": base[:, ::2],
        "expanded": torch.ones(1, 3).expand(4, 3),
        "shared": (base, base, base[1]),
        "variable": torch.ones(2, requires_grad=True).detach(),
        "not a number": torch.tensor([math.nan, math.inf, -0.0]),
        "dtypes": [torch.ones(3).to(getattr(torch, d)) for d in dtypes],
    }
    assert same(content, round_trip(content, tmp_path))


def test_a_tensor_that_needs_a_gradient_comes_back_without(tmp_path):
    found = round_trip({"x": torch.ones(2, requires_grad=True), "p": torch.nn.Parameter(torch.ones(2))}, tmp_path)
    assert not found["x"].requires_grad
    assert type(found["p"]) is torch.Tensor


def test_tensors_that_shared_memory_come_back_apart(tmp_path):
    base = torch.zeros(3)
    found = round_trip({"a": base, "b": base}, tmp_path)
    found["a"][0] = 1
    assert found["b"][0] == 0


def test_the_states_of_optimisers_and_schedulers_come_back(tmp_path):
    p = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))
    optimizer = torch.optim.Adam([p], 0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    for _ in range(3):
        optimizer.zero_grad()
        p.square().sum().backward()
        optimizer.step()
        scheduler.step()
    content = {"optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
    assert same(content, round_trip(content, tmp_path))


def test_the_random_state_comes_back(tmp_path):
    torch.manual_seed(3)
    state = round_trip({"random": checkpoint.random_state()}, tmp_path)
    expected = torch.rand(4)
    torch.manual_seed(4)
    checkpoint.restore_random_state(state["random"])
    assert torch.equal(torch.rand(4), expected)


# -- what can't be read --

content = {"k": 3, 1: (None, 2.5, True), "x": torch.arange(6, dtype=torch.float64).reshape(2, 3), "rows": [{"a": "b"}]}


@pytest.fixture
def good(tmp_path):
    path = tmp_path / "run.safetensors"
    checkpoint.write(path, content)
    return path


def refused(path):
    return pytest.raises(CheckpointError, match=re.escape(str(path)))


def header_end(raw):
    return 8 + int.from_bytes(raw[:8], "little")


def test_a_file_cut_anywhere_is_refused(good):
    raw = good.read_bytes()
    for length in range(len(raw)):
        good.write_bytes(raw[:length])
        with refused(good):
            checkpoint.read(good)


def flips(raw, begin, end):
    for i in range(begin, end):
        for bit in range(8):
            yield raw[:i] + bytes([raw[i] ^ (1 << bit)]) + raw[i + 1 :]


@pytest.mark.parametrize("part", ["length", "header"])
def test_a_flipped_bit_in_the_header_never_ends_in_another_error(good, part):
    raw = good.read_bytes()
    for damaged in flips(raw, 0, 8) if part == "length" else flips(raw, 8, header_end(raw)):
        good.write_bytes(damaged)
        with contextlib.suppress(CheckpointError):
            checkpoint.read(good)


@pytest.mark.parametrize("part", ["length", "header", "tensors"])
def test_a_flipped_bit_is_noticed(good, part):
    raw = good.read_bytes()
    end = header_end(raw)
    missed = 0
    for damaged in flips(raw, *{"length": (0, 8), "header": (8, end), "tensors": (end, len(raw))}[part]):
        good.write_bytes(damaged)
        try:
            checkpoint.read(good)
            missed += 1
        except CheckpointError:
            pass
        except Exception:
            missed += 1
    assert missed == 0


def test_random_bytes_are_refused(tmp_path):
    path, chance = tmp_path / "noise", random.Random(0)
    for length in [0, 1, 7, 8, 9, 16, *[chance.randrange(2000) for _ in range(60)]]:
        path.write_bytes(chance.randbytes(length))
        with refused(path):
            checkpoint.read(path)
        path.write_bytes(max(length - 8, 0).to_bytes(8, "little") + chance.randbytes(max(length - 8, 0)))
        with refused(path):
            checkpoint.read(path)


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}, {"format": "bvfim-checkpoint-0", "content": "{}"}])
def test_the_safetensors_file_of_someone_else_is_refused(tmp_path, metadata):
    path = tmp_path / "model.safetensors"
    save_file({"w": torch.ones(2)}, path, metadata)
    with pytest.raises(CheckpointError, match=f"{re.escape(str(path))}: this is not a checkpoint of bvfim"):
        checkpoint.read(path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "{}",
        "3",
        "null",
        '{"list": []}',
        '{"dict": 3}',
        '{"dict": [["a"]]}',
        '{"dict": [["a", {}]]}',
        '{"dict": [["a", {"tensor": "7"}]]}',
        '{"dict": [["a", {"tensor": []}]]}',
        '{"dict": [["a", {"pickle": ["b"]}]]}',
        '{"dict": [[{"list": []}, 1]]}',
        "[" * 100_000,
    ],
    ids=lambda text: text[:40] or "empty",
)
def test_a_header_that_makes_no_sense_is_refused(tmp_path, text):
    path = tmp_path / "run.safetensors"
    save_file({"0": torch.ones(2)}, path, {"format": checkpoint.FORMAT, "content": text})
    with refused(path):
        checkpoint.read(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path in (tmp_path / "nowhere", tmp_path):
        with refused(path):
            checkpoint.read(path)


# -- what can't be written --


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
        with pytest.raises(CheckpointError, match=r"run: .*its x has other shapes or dtypes"):
            checkpoint.check_like([a], other, "x", "run")


# -- the ones before --


def written(folder, *numbers, keep):
    path = folder / "run.safetensors"
    for k in numbers:
        checkpoint.write(path, {"k": k}, keep)
    return path


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
    assert str(warning.message).startswith(f"{path}: the checkpoint is damaged or cut short (")
    assert str(warning.message).endswith(f"; {second} is taken instead")
    assert Path(warning.filename) == Path(__file__)
    second.unlink()
    with pytest.warns(BvfimWarning, match=re.escape(f"; {third} is taken instead")):
        assert checkpoint.newest(path) == (third, {"k": 1})
    path.unlink()
    with pytest.warns(BvfimWarning, match=re.escape(f"{path}: there is no such checkpoint; {third} is taken")):
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
