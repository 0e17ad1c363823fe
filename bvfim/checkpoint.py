"""Checkpoints: one safetensors file with the tensors, and everything else as JSON in its header.

Reading a checkpoint executes no code. A file is written next to its destination and then moved there, so that
a crash leaves either the old or the new file, never a partial one. Earlier checkpoints can be kept as
``run.safetensors.old-1``, ``old-2`` and so on, in case the newest is damaged.
"""

from __future__ import annotations

import glob
import hashlib
import itertools
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from bvfim.status import CheckpointError, warn

if sys.platform != "win32":
    import fcntl

FORMAT = "bvfim-checkpoint-1"
TRIES = 5
"""How often a file is written where another process removes it."""
_DTYPES = {torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64}
_DTYPES |= {torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool}


def write(path: str | os.PathLike[str], content: dict[str, Any], keep: int = 1) -> None:
    """Save a nesting of dicts, lists, tuples, numbers, strings, ``None`` and tensors, atomically.

    A process killed at any time leaves a valid file, and partial files that it left are removed. Where two processes
    write to one path, the last one counts. A link is followed.

    Args:
        path: the file to write or replace.
        content: what to save.
        keep: how many files to keep: this one and its predecessors.

    Example:
        >>> import tempfile, torch, bvfim
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     bvfim.checkpoint.write(f"{folder}/run.safetensors", {"k": 3, "x": torch.ones(2)})
        ...     bvfim.checkpoint.read(f"{folder}/run.safetensors")
        {'k': 3, 'x': tensor([1., 1.])}
    """
    target = as_path(path)
    tensors: dict[str, Tensor] = {}
    if not isinstance(content, dict):
        raise CheckpointError(f"{target}: a checkpoint holds a dict, not a {type(content).__name__}")
    try:
        text = json.dumps(pack(content, tensors))
        tensors = {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}
        if target.is_symlink():  # the link stays, and what it points to is written
            target = target.resolve()
        if target.exists() and not target.is_file():
            raise CheckpointError(f"{target}: the checkpoint could not be written (it is not a regular file)")
    except (OSError, RecursionError) as error:  # a name that is too long, or a dict that holds itself
        raise CheckpointError(f"{target}: the checkpoint could not be written ({error})") from error
    try:
        data = save(tensors, metadata={"format": FORMAT, "content": text, "digest": _digest(text, tensors)})
    except SafetensorError as error:
        raise CheckpointError(f"{target}: the checkpoint could not be written ({error})") from error
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for ending in ("tmp", "old"):
            for stray in target.parent.glob(f".{glob.escape(target.name)}.????????.{ending}"):
                if _abandoned(stray):
                    stray.unlink(missing_ok=True)
        for attempt in range(TRIES):
            try:
                _put(target, data, keep)
                break
            except FileNotFoundError:  # another run on this path took our partial file for one that was left behind
                if attempt == TRIES - 1:
                    raise
    except OSError as error:
        raise CheckpointError(f"{target}: the checkpoint could not be written ({error.strerror or error})") from error


def as_path(given: str | os.PathLike[str]) -> Path:
    """The path of a checkpoint, with an error for anything that is none.

    Example:
        >>> from bvfim.checkpoint import as_path
        >>> as_path(3)
        Traceback (most recent call last):
        bvfim.status.CheckpointError: the path of a checkpoint must be a str or a path, not 3
    """
    if not isinstance(given, str | os.PathLike) or "\0" in os.fspath(given):
        raise CheckpointError(f"the path of a checkpoint must be a str or a path, not {given!r}")
    return Path(given)


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Whether there is a checkpoint that several processes wrote: a folder; see :mod:`bvfim.distributed.storage`.

    Example:
        >>> from bvfim.checkpoint import is_folder
        >>> is_folder("run.safetensors")
        False
    """
    try:
        return (as_path(path) / "metadata.json").is_file()
    except OSError:  # a name that is too long, say
        return False


def _put(target: Path, data: bytes, keep: int) -> None:
    """Write a file beside the target, and move it there."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    temporary = Path(name)
    before = temporary.with_suffix(".old")
    try:
        with os.fdopen(handle, "wb") as file:
            if sys.platform != "win32":
                fcntl.flock(file, fcntl.LOCK_EX)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            if keep > 1 and target.is_file():
                _link(before, target)
            # The new one comes first: the one before it may be damaged, and the only good one the oldest.
            temporary.replace(target)
        if before.exists():
            shift(before, target, keep)
    finally:
        temporary.unlink(missing_ok=True)
        before.unlink(missing_ok=True)


def _abandoned(partial: Path) -> bool:
    """Whether nobody is writing a partial file: whoever does so holds a lock on it."""
    if sys.platform == "win32":
        return True
    try:
        with partial.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _link(new: Path, existing: Path) -> None:
    """A hard link to a file, or a copy where the file system has no hard links."""
    try:
        new.hardlink_to(existing)
    except OSError:
        shutil.copyfile(existing, new)


def shift(before: Path, target: Path, keep: int) -> None:
    """Make ``before`` the first of the older checkpoints, and shift each of these by one.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from bvfim.checkpoint import shift
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = Path(folder) / "run"
        ...     run.touch()
        ...     shift(run, run, keep=2)
        ...     [path.name for path in Path(folder).iterdir()]
        ['run.old-1']
    """
    names = [before, *(target.with_name(f"{target.name}.old-{i}") for i in range(1, keep))]
    for source, place in reversed(list(itertools.pairwise(names))):
        if source.exists():
            source.replace(place)


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The content of a checkpoint, on the CPU.

    Example:
        >>> import tempfile, bvfim
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     bvfim.checkpoint.write(f"{folder}/run.safetensors", {"k": 3})
        ...     bvfim.checkpoint.read(f"{folder}/run.safetensors")["k"]
        3
    """
    source = as_path(path)
    try:
        if not source.is_file():
            raise CheckpointError(f"{source}: there is no such checkpoint")
        with safe_open(str(source), framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise CheckpointError(f"{source}: this is not a bvfim checkpoint")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
        if metadata.get("digest") != _digest(metadata.get("content", ""), tensors):
            raise CheckpointError(f"{source}: the checkpoint is damaged (its digest does not match)")
        content = unpack(json.loads(metadata["content"]), tensors)
        if not isinstance(content, dict):
            raise TypeError("its content is not a dict")
    except CheckpointError:
        raise
    except (SafetensorError, OSError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{source}: the checkpoint is damaged or truncated ({error})") from error
    return content


def newest(path: str | os.PathLike[str]) -> tuple[Path, dict[str, Any]]:
    """The newest readable checkpoint among ``path`` and its predecessors, and its content.

    If an older one is used, a warning says what is wrong with the newer ones.

    Example:
        >>> import tempfile, warnings, bvfim
        >>> with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")
        ...     for k in (1, 2):
        ...         bvfim.checkpoint.write(f"{folder}/run.safetensors", {"k": k}, keep=2)
        ...     with open(f"{folder}/run.safetensors", "w") as file:
        ...         _ = file.write("damaged")
        ...     found, content = bvfim.checkpoint.newest(f"{folder}/run.safetensors")
        >>> found.name, content
        ('run.safetensors.old-1', {'k': 1})
    """
    target, wrong = as_path(path), []
    start = f"{target.name}.old-"
    ages = [p.name.removeprefix(start) for p in target.parent.glob(f"{glob.escape(start)}*")]
    older = sorted(int(age) for age in ages if age.isdecimal())
    for source in [target, *(target.with_name(f"{start}{i}") for i in older)]:
        try:
            content = read(source)
        except CheckpointError as error:
            wrong.append(str(error))
            continue
        if wrong:
            warn(f"{'; '.join(wrong)}; using {source} instead")
        return source, content
    raise CheckpointError("; ".join(wrong))


def _digest(text: str, tensors: dict[str, Tensor]) -> str:
    found = hashlib.blake2b(text.encode(), digest_size=16)
    for name in sorted(tensors):
        t = tensors[name]
        found.update(f"{name} {t.dtype} {tuple(t.shape)}".encode())
        found.update(t.cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def pack(item: Any, tensors: dict[str, Tensor]) -> Any:
    """What JSON can hold of a nesting, from which :func:`unpack` makes it again; its tensors are put into a dict.

    Example:
        >>> import torch
        >>> from bvfim.checkpoint import pack, unpack
        >>> tensors = {}
        >>> pack((3, torch.ones(1)), tensors)
        {'tuple': [3, {'tensor': '0'}]}
        >>> unpack({"tuple": [3, {"tensor": "0"}]}, tensors)
        (3, tensor([1.]))
    """
    if isinstance(item, Tensor):
        if item.layout != torch.strided or item.is_meta or item.dtype not in _DTYPES:
            raise CheckpointError(
                f"a checkpoint can't hold a tensor with layout {item.layout} and dtype {item.dtype} on {item.device}"
            )
        name = str(len(tensors))
        tensors[name] = item
        return {"tensor": name}
    if isinstance(item, dict):
        return {"dict": [[pack(k, tensors), pack(v, tensors)] for k, v in item.items()]}
    if isinstance(item, list | tuple):
        return {"list" if type(item) is list else "tuple": [pack(v, tensors) for v in item]}
    if item is None or isinstance(item, bool | int | float | str):
        return item
    raise CheckpointError(f"a checkpoint can't hold a {type(item).__name__}")


def unpack(item: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The inverse of :func:`pack`.

    Example:
        >>> from bvfim.checkpoint import unpack
        >>> unpack({"dict": [["k", 3]]}, {})
        {'k': 3}
    """
    if not isinstance(item, dict):
        return item
    ((kind, value),) = item.items()
    if kind == "tensor":
        return tensors[value]
    if kind == "dict":
        return {unpack(k, tensors): unpack(v, tensors) for k, v in value}
    values = [unpack(v, tensors) for v in value]
    return {"list": list, "tuple": tuple}[kind](values)


def check_like(found: list[Tensor], expected: list[Tensor], what: str, path: str | os.PathLike[str]) -> None:
    """Reject tensors that do not match ``expected`` in number, shapes and dtypes."""
    a = [(tuple(t.shape), t.dtype) for t in found]
    b = [(tuple(t.shape), t.dtype) for t in expected]
    if a != b:
        raise CheckpointError(
            f"{path}: the checkpoint belongs to another run: its {what} has different shapes or dtypes"
        )


def random_state() -> dict[str, Any]:
    """The state of torch's random generators."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {"cpu": torch.get_rng_state(), "cuda": cuda}


def restore_random_state(state: dict[str, Any]) -> None:
    """The inverse of :func:`random_state`; generators of devices that are not available are skipped."""
    torch.set_rng_state(state["cpu"])
    if torch.cuda.is_available() and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])
