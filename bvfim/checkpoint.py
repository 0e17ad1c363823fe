"""Runs on disk: one safetensors file with the tensors and, in its header, the rest as JSON.

Nothing in a checkpoint is executed when it is read. A file is written beside its final place and then
moved there, so that a crash leaves the old one or the new one, never a torn one.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from bvfim.status import CheckpointError

FORMAT = "bvfim-checkpoint-1"
_DTYPES = {torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64}
_DTYPES |= {torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool}


def write(path: str | os.PathLike[str], content: dict[str, Any]) -> None:
    """Save a nesting of dicts, lists, tuples, numbers, strings, ``None`` and tensors, atomically.

    Example:
        >>> import tempfile, torch, bvfim
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     bvfim.checkpoint.write(f"{folder}/run.safetensors", {"k": 3, "x": torch.ones(2)})
        ...     bvfim.checkpoint.read(f"{folder}/run.safetensors")
        {'k': 3, 'x': tensor([1., 1.])}
    """
    tensors: dict[str, Tensor] = {}
    text = json.dumps(_pack(content, tensors))
    target = Path(path)
    try:
        data = save(tensors, metadata={"format": FORMAT, "content": text, "digest": _digest(text, tensors)})
    except SafetensorError as error:
        raise CheckpointError(f"{target}: the checkpoint could not be written ({error})") from error
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(target)
        except BaseException:
            Path(temporary).unlink()
            raise
    except OSError as error:
        raise CheckpointError(f"{target}: the checkpoint could not be written ({error.strerror or error})") from error


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The content of a checkpoint, on the CPU.

    Example:
        >>> import tempfile, bvfim
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     bvfim.checkpoint.write(f"{folder}/run.safetensors", {"k": 3})
        ...     bvfim.checkpoint.read(f"{folder}/run.safetensors")["k"]
        3
    """
    source = Path(path)
    if not source.is_file():
        raise CheckpointError(f"{source}: there is no such checkpoint")
    try:
        with safe_open(str(source), framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise CheckpointError(f"{source}: this is not a checkpoint of bvfim")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
        if metadata.get("digest") != _digest(metadata.get("content", ""), tensors):
            raise CheckpointError(f"{source}: the checkpoint is damaged (its digest does not fit)")
        content = _unpack(json.loads(metadata["content"]), tensors)
        if not isinstance(content, dict):
            raise TypeError("its content is not a dict")
    except CheckpointError:
        raise
    except (SafetensorError, OSError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{source}: the checkpoint is damaged or cut short ({error})") from error
    return content


def _digest(text: str, tensors: dict[str, Tensor]) -> str:
    found = hashlib.blake2b(text.encode(), digest_size=16)
    for name in sorted(tensors):
        t = tensors[name]
        found.update(f"{name} {t.dtype} {tuple(t.shape)}".encode())
        found.update(t.cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _pack(item: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(item, Tensor):
        if item.layout != torch.strided or item.is_meta or item.dtype not in _DTYPES:
            raise CheckpointError(
                f"a checkpoint can't hold a tensor of {item.layout} and {item.dtype} on {item.device}"
            )
        name = str(len(tensors))
        tensors[name] = item.detach().clone().contiguous()
        return {"tensor": name}
    if isinstance(item, dict):
        return {"dict": [[_pack(k, tensors), _pack(v, tensors)] for k, v in item.items()]}
    if isinstance(item, list | tuple):
        return {type(item).__name__ if type(item) is list else "tuple": [_pack(v, tensors) for v in item]}
    if item is None or isinstance(item, bool | int | float | str):
        return item
    raise CheckpointError(f"a checkpoint can't hold a {type(item).__name__}")


def _unpack(item: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(item, dict):
        return item
    ((kind, value),) = item.items()
    if kind == "tensor":
        return tensors[value]
    if kind == "dict":
        return {_unpack(k, tensors): _unpack(v, tensors) for k, v in value}
    values = [_unpack(v, tensors) for v in value]
    return {"list": list, "tuple": tuple}[kind](values)


def check_like(found: list[Tensor], expected: list[Tensor], what: str, path: str | os.PathLike[str]) -> None:
    """Refuse tensors that do not have the number, shapes and dtypes of ``expected``."""
    a = [(tuple(t.shape), t.dtype) for t in found]
    b = [(tuple(t.shape), t.dtype) for t in expected]
    if a != b:
        raise CheckpointError(f"{path}: the checkpoint belongs to another run: its {what} has other shapes or dtypes")


def random_state() -> dict[str, Any]:
    """The state of torch's random generators."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {"cpu": torch.get_rng_state(), "cuda": cuda}


def restore_random_state(state: dict[str, Any]) -> None:
    """The inverse of :func:`random_state`; generators of devices that are not here are passed over."""
    torch.set_rng_state(state["cpu"])
    if torch.cuda.is_available() and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])
