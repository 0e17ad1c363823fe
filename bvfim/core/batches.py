"""Streams of batches whose position can be saved: one draw per upper step and, for f, optionally per inner step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh

from bvfim.core.draw import Draw, Several
from bvfim.distributed.mesh import place_in
from bvfim.status import ProblemError

EPOCHS = 1_000_003
"""Seeds of epochs do not meet those of other seeds before this many epochs."""


@dataclass(frozen=True)
class Batches:
    """Separate streams for the two objectives: each objective gets its own batch, as its third argument.

    With ``every="inner"``, each inner step of the method draws a new batch of f. Quantities that a step compares share
    one further batch of f: the values f(x, z) and f(x, y) of the barrier, the y steps inside it, and the second-order
    products of CG and Neumann. A slack between two batches would measure their noise.

    A stream is a sequence of batches, a ``DataLoader`` (or any iterable that can be iterated repeatedly),
    or an endless iterator with ``state_dict`` and ``load_state_dict``. At its end a stream starts over.

    Args:
        upper: the stream for F.
        lower: the stream for f.
        every: ``"upper"`` draws once per upper step, ``"inner"`` also once per inner step.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(
        ...     upper=lambda x, y, target: ((y - target) ** 2).sum(),
        ...     lower=lambda x, y, shift: ((y - x - shift) ** 2).sum(),
        ... )
        >>> batches = bvfim.Batches(upper=[torch.tensor(1.0)], lower=[torch.tensor(0.1), torch.tensor(-0.1)])
        >>> start = torch.zeros(1)
        >>> bvfim.solve(problem, start, start, bvfim.RHG(lr=0.1), steps=3, batches=batches).status.value
        'max_steps'
    """

    upper: Any
    lower: Any
    every: str = "upper"

    def __post_init__(self) -> None:
        if self.every not in ("upper", "inner"):
            raise ProblemError(f"Batches: every must be upper or inner, not {self.every!r}")


class Shuffled:
    """An endless stream of batches of row numbers: every row once an epoch, in a new order each time.

    The numbers are made where the rows are, to gather a batch as ``rows[i]``; the rows of an incomplete last batch are
    left to the other epochs. The position can be saved, so that a resumed run goes on with what would have come next.

    Args:
        rows: the number of rows.
        size: the number of rows of a batch; all of them if there are fewer.
        seed: of the order.
        device: where the row numbers are wanted.
        mesh: a mesh of one dimension, or a process group: each of its ranks gets its share of every batch, and together
            they see what one process would see. ``rows`` and ``size`` are those of all ranks.
        blocks: shuffle blocks of consecutive rows instead of rows: the same batches every epoch, in a new order, for
            :class:`bvfim.SABA`, which remembers each. All rows are drawn: the last block may be smaller.

    Example:
        >>> import bvfim
        >>> stream = bvfim.Shuffled(rows=6, size=3, seed=1)
        >>> sorted([*next(stream).tolist(), *next(stream).tolist()])
        [0, 1, 2, 3, 4, 5]
    """

    def __init__(
        self,
        rows: int,
        size: int,
        seed: int = 0,
        device: str | torch.device = "cpu",
        mesh: DeviceMesh | ProcessGroup | None = None,
        blocks: bool = False,
    ) -> None:
        for name, number in (("rows", rows), ("size", size)):
            if type(number) is not int or number < 1:
                raise ProblemError(f"Shuffled: {name} must be a whole number of at least 1, not {number!r}")
        if type(seed) is not int:
            raise ProblemError(f"Shuffled: seed must be a whole number, not {seed!r}")
        try:
            self.device = torch.device(device)
        except (RuntimeError, TypeError) as error:
            raise ProblemError(f"Shuffled: device must be one that torch knows, not {device!r}") from error
        self.rows, self.size, self.seed = rows, min(size, rows), seed
        self._rank, self._ranks = place_in(mesh)
        if self.size < self._ranks:
            raise ProblemError(f"Shuffled: batches of {self.size} rows can't be shared by {self._ranks} ranks")
        self.blocks = blocks
        self._drawn = 0
        self._order: Sequence[torch.Tensor] | None = None

    def __iter__(self) -> Shuffled:
        """Itself: it has no end."""
        return self

    def __next__(self) -> torch.Tensor:
        """The next batch."""
        epoch, i = divmod(self._drawn, -(-self.rows // self.size) if self.blocks else self.rows // self.size)
        if i == 0 or self._order is None:
            self._order = self._shuffled(torch.Generator().manual_seed((self.seed * EPOCHS + epoch) % 2**63))
        self._drawn += 1
        batch = self._order[i]
        return batch.tensor_split(self._ranks)[self._rank]

    def _shuffled(self, generator: torch.Generator) -> Sequence[torch.Tensor]:
        """The batches of an epoch."""
        if not self.blocks:
            return torch.randperm(self.rows, generator=generator).to(self.device).split(self.size)
        blocks = torch.arange(self.rows, device=self.device).split(self.size)
        return [blocks[i] for i in torch.randperm(len(blocks), generator=generator).tolist()]

    def state_dict(self) -> dict[str, int]:
        """The number of batches drawn."""
        return {"drawn": self._drawn}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on after so many batches."""
        self._drawn = _position(state["drawn"])
        self._order = None


def _position(saved: Any) -> int:
    """A saved number of batches."""
    if type(saved) is not int or saved < 0:
        raise ProblemError(f"the saved position of batches is {saved!r}, not a number of batches")
    return saved


class Stream:
    """An endless stream over one source, with a position that can be saved and restored.

    Args:
        source: where the batches come from.
        name: what it is called in error messages.
    """

    def __init__(self, source: Any, name: str = "batches") -> None:
        self._source, self._name = source, name
        self._position = 0
        self._iterator: Iterator[Any] | None = None
        self._rng: torch.Tensor | None = None
        self._stateful = hasattr(source, "state_dict") and hasattr(source, "load_state_dict")
        self._indexed = not self._stateful and hasattr(source, "__getitem__") and hasattr(source, "__len__")
        number = isinstance(source, torch.Tensor) and source.dim() == 0
        alone = number or isinstance(source, str | bytes | dict | type)
        if alone or not (self._indexed or hasattr(source, "__iter__")):
            raise ProblemError(f"{name} must be a sequence or an iterable of batches, not a {type(source).__name__}")
        if hasattr(source, "__next__") and not self._stateful:
            raise ProblemError(
                f"{name} must not be a one-shot iterator or generator: it can't start over or resume from a "
                "checkpoint; give a sequence, a DataLoader, or an object with state_dict and load_state_dict"
            )
        if self._indexed and len(source) == 0:
            raise ProblemError(f"{name} is empty")

    def draw(self) -> Any:
        """The next batch."""
        if self._indexed:
            batch = self._source[self._position % len(self._source)]
            self._position += 1
            return batch
        batch, found = self._next()
        if not found:
            drawn, self._iterator, self._position = self._position, None, 0
            batch, found = self._next()
            if not found and drawn:
                raise ProblemError(f"{self._name} ran out after {drawn} draws and does not start over: it must not end")
            if not found:
                raise ProblemError(f"{self._name} is empty")
        self._position += 1
        return batch

    def _next(self) -> tuple[Any, bool]:
        if self._iterator is None:
            self._rng = self._get_rng()
            self._iterator = iter(self._source)
        try:
            return next(self._iterator), True
        except StopIteration:
            return None, False

    def state_dict(self) -> dict[str, Any]:
        """The position of the stream."""
        if self._stateful:
            return {"source": self._source.state_dict()}
        if self._indexed:
            return {"position": self._position}
        now = self._get_rng()  # may be ahead of the epoch's: another loader can share the generator
        return {"position": self._position, "rng": self._rng if self._position else now, "now": now}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved position: restart the epoch with its own random state, and skip ahead."""
        self._iterator = None
        if self._stateful:
            self._source.load_state_dict(state["source"])
            return
        self._position = _position(state["position"])
        if self._indexed:
            return
        self._set_rng(state["rng"])
        for _ in range(self._position):
            if not self._next()[1]:
                raise ProblemError(f"{self._name} has fewer batches than when the checkpoint was written")
        self._set_rng(state["now"])

    def _generator(self) -> torch.Generator | None:
        inner = getattr(self._source, "batch_sampler", None)
        for holder in (self._source, getattr(self._source, "sampler", None), inner, getattr(inner, "sampler", None)):
            generator = getattr(holder, "generator", None)
            if generator is not None:
                return generator
        return None

    def _get_rng(self) -> torch.Tensor:
        generator = self._generator()
        return torch.get_rng_state() if generator is None else generator.get_state()

    def _set_rng(self, state: torch.Tensor) -> None:
        generator = self._generator()
        if generator is None:
            torch.set_rng_state(state)
        else:
            generator.set_state(state)


class Draws:
    """The source of batches for the loop: none, one stream, or a pair.

    Args:
        batches: what :func:`bvfim.solve` was given.
        turns: of the method; the number of draws of f per upper step, beside the last, if inner steps have their own.
    """

    def __init__(self, batches: Any, turns: int = 1) -> None:
        self._pair = isinstance(batches, Batches)
        sources = {"batches": batches}
        if isinstance(batches, Batches):
            sources = {"batches.upper": batches.upper, "batches.lower": batches.lower}
        self._streams = [] if batches is None else [Stream(source, name) for name, source in sources.items()]
        self._several = turns + 1 if isinstance(batches, Batches) and batches.every == "inner" else 0

    @property
    def given(self) -> bool:
        """Whether there are batches at all."""
        return bool(self._streams)

    def draw(self) -> Any:
        """The next batch, the next pair of batches, or ``None``."""
        if self._several:
            upper, lower = self._streams
            return Draw(upper.draw(), Several(tuple(lower.draw() for _ in range(self._several))))
        drawn = [stream.draw() for stream in self._streams]
        if self._pair:
            return Draw(*drawn)
        return drawn[0] if drawn else None

    def state_dict(self) -> list[dict[str, Any]]:
        """The position of each stream."""
        return [stream.state_dict() for stream in self._streams]

    def load_state_dict(self, states: list[dict[str, Any]]) -> None:
        """Restore the position of each stream."""
        for stream, state in zip(self._streams, states, strict=True):
            stream.load_state_dict(state)
