"""The processes of a run: sums over all of them, and what all of them agree on.

Every rank runs the same program on its own share of the rows. Values and gradients are summed here and nowhere else,
so that each rank takes every decision on the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from bvfim import tree
from bvfim.core.draw import Draw
from bvfim.distributed.mesh import as_sharded, by_rows, count, group_of, is_sharded, place_in
from bvfim.status import MethodError, ProblemError, RankError
from bvfim.tree import Tree

T = TypeVar("T")

PIECES = 3
"""A number in double precision, 53 bits, is the sum of three in single precision, 24 bits each."""
TOLD = 400
"""How many bytes of an error message reach the other ranks."""


class Share(NamedTuple):
    """The rows that an objective sees on this rank, and their part of all rows."""

    rows: int
    part: Tensor


class Shares(NamedTuple):
    """The share of F and of f."""

    upper: Share
    lower: Share


class World:
    """One process: it has all rows, and agrees with itself.

    Attributes:
        size, rank: the number of processes, and which one this is.
        sharded: whether every rank has rows of x of its own.
        group: the processes; None where there is one without a mesh.
        error: what failed on this rank, to be told to the others.
        void: whether a function failed on this rank in this step: then no further value of it is a number, so that no
            rank takes the step.
        broken: whether a rank was lost, after which nothing can be summed.
    """

    size, rank = 1, 0
    group: dist.ProcessGroup | None = None
    broken = void = False

    def __init__(self) -> None:
        self.sharded = False
        self.error: Exception | None = None

    def shares(self, batch: Any, like: Tensor) -> Shares | None:
        """What this rank's objectives count for; None where there is one process."""
        return None

    def sum(self, values: Sequence[Tensor], gradients: Sequence[Tensor]) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """The sums of values and of gradients over all ranks, in one all-reduce."""
        return values, gradients

    def sum_in_graph(self, gradient: Tree) -> Tree:
        """The sum of a gradient that is differentiated again."""
        return gradient

    def mean_square(self, square: Tensor, count: int) -> Tensor:
        """The mean square of entries like those of x, from the sum of squares and the number of those that are here."""
        return square / count

    def norm(self, x: Tree) -> Tensor:
        """The Euclidean norm of a tree like x."""
        return tree.norm(x)

    def local(self, x: Tree) -> Tree:
        """x with the rows of this rank."""
        return x

    def whole(self, x: Tree) -> Tree:
        """x as it was given: DTensors where every rank has some rows."""
        return x

    def attempt(self, action: Callable[[], T], otherwise: T) -> T:
        """What an action gives; where it fails on one of several ranks, the others are told at the next agreement."""
        return action()

    def agreed(self, flags: Sequence[float]) -> list[float]:
        """The largest value of each number over all ranks."""
        return [float(flag) for flag in flags]

    def mean(self, number: float) -> float:
        """The mean of a number over all ranks."""
        return number

    def together(self, action: Callable[[], T]) -> T:
        """What an action gives, which fails on every rank if it fails on one."""
        return action()

    def same(self, *trees: Tree) -> bool:
        """Whether all ranks hold the same values."""
        return True

    def told(self) -> str:
        """What failed on each rank, as one text."""
        return str(self.error or "")


ALONE = World()


class Ranks(World):
    """The processes of a mesh with one dimension, or of a group.

    Args:
        mesh: the mesh, or the group.
        x: the upper variable as it was given. Where it holds DTensors that are sharded along their first dimension,
            each rank has rows of its own; :meth:`local` gives these.
    """

    def __init__(self, mesh: DeviceMesh | dist.ProcessGroup, x: Tree) -> None:
        super().__init__()
        self.group = group_of(mesh)
        self.rank, self.size = place_in(self.group)
        if self.rank < 0:
            raise MethodError("mesh: this process is not a part of it")
        self.given = tree.leaves(x)
        self.sharded = any(map(is_sharded, self.given))
        self.device = next((t.device for t in self.given if isinstance(t, Tensor)), torch.device("cpu"))
        if self.sharded and not all(is_sharded(t) and by_rows(t, self.group) for t in self.given):
            raise ProblemError(
                "x holds DTensors: then each of its tensors must be one, sharded along its first dimension (Shard(0)) "
                "on the mesh of the run"
            )

    # -- rows --

    def shares(self, batch: Any, like: Tensor) -> Shares:
        """The rows of the batch on this rank, relative to those of all ranks; equal shares where there is no batch.

        A batch has as many rows as its first tensor that has a dimension, and one where there is none.
        """
        draws = (batch.upper, batch.lower) if isinstance(batch, Draw) else (batch, batch)
        rows = [count(draw) for draw in draws]
        if batch is None:
            part = torch.full((2,), 1 / self.size, dtype=torch.float64, device=like.device)
        else:
            part = torch.tensor(rows, dtype=torch.float64).to(like.device)
            part = part / self._reduced(part.clone())
        return Shares(*(Share(n, p) for n, p in zip(rows, part.unbind(), strict=True)))

    # -- sums --

    def sum(self, values: Sequence[Tensor], gradients: Sequence[Tensor]) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """See :class:`World`.

        The values travel in places of their own for each rank, as pieces whose sum is exact: so they are added in
        double precision whatever the gradients are.
        """
        kind = torch.promote_types(gradients[0].dtype, torch.float32) if gradients else torch.float64
        numbers = torch.cat([v.detach().double().reshape(-1) for v in values]) if values else torch.zeros(0)
        pieces = torch.stack(_pieces(numbers, kind)).to(self.device)
        places = pieces.new_zeros(self.size, *pieces.shape)
        places[self.rank] = pieces
        flat = self._reduced(torch.cat([places.reshape(-1), *(g.detach().reshape(-1).to(kind) for g in gradients)]))
        found = flat[: places.numel()].view_as(places).double().sum((0, 1))
        rest = torch.split(flat[places.numel() :], [g.numel() for g in gradients])
        return (
            [f.reshape(v.shape) for f, v in zip(torch.split(found, [v.numel() for v in values]), values, strict=True)],
            [r.reshape(g.shape).to(g.dtype) for r, g in zip(rest, gradients, strict=True)],
        )

    def sum_in_graph(self, gradient: Tree) -> Tree:
        """One all-reduce, whose derivative is another one."""
        return tree.unravel(_Sum.apply(tree.flatten(gradient), self), gradient)

    def mean_square(self, square: Tensor, count: int) -> Tensor:
        """See :class:`World`; nothing is sent where every rank has all of x."""
        if not self.sharded:
            return square / count
        total = self._reduced(torch.stack([square, torch.full_like(square, count)]))
        return total[0] / total[1]

    def norm(self, x: Tree) -> Tensor:
        """See :class:`World`."""
        return self._reduced(tree.norm(x).double() ** 2).sqrt() if self.sharded else tree.norm(x)

    # -- x --

    def local(self, x: Tree) -> Tree:
        """See :class:`World`."""
        return tree.map(lambda t: t.to_local(), x) if self.sharded else x

    def whole(self, x: Tree) -> Tree:
        """See :class:`World`."""
        if not self.sharded:
            return x
        return tree.unflatten(x, [as_sharded(t, like) for t, like in zip(tree.leaves(x), self.given, strict=True)])

    # -- agreement --

    def attempt(self, action: Callable[[], T], otherwise: T) -> T:
        """See :class:`World`."""
        try:
            return action()
        except Exception as error:
            if self.broken:
                raise
            self.error, self.void = self.error or error, True
            return otherwise

    def agreed(self, flags: Sequence[float]) -> list[float]:
        """See :class:`World`."""
        vector = torch.tensor([float(flag) for flag in flags], dtype=torch.float64).to(self.device)
        found: list[float] = self._reduced(vector, dist.ReduceOp.MAX).tolist()
        return found

    def mean(self, number: float) -> float:
        """See :class:`World`."""
        return float(self._reduced(torch.tensor(number, dtype=torch.float64).to(self.device))) / self.size

    def together(self, action: Callable[[], T]) -> T:
        """See :class:`World`; where a rank was lost, each of the others acts for itself."""
        if self.broken:
            return action()
        earlier, (self.error, self.void) = (self.error, self.void), (None, False)
        wanted: Callable[[], Any] = action
        found = self.attempt(wanted, None)
        failed = self.agreed([self.error is not None])[0]
        told, own = self.told() if failed else "", self.error
        self.error, self.void = earlier
        if failed:
            raise own or RankError(told)
        return found

    def same(self, *trees: Tree) -> bool:
        """Told by sums of all numbers and of their squares, but for rows that lie on one rank alone."""
        own = torch.zeros(3, dtype=torch.float64, device=self.device)  # of one size even where the trees differ
        for i, t in enumerate((t for one in trees for t in tree.leaves(one) if not is_sharded(t)), 1):
            v = t.detach().double()
            own += i * torch.stack([torch.full_like(own[0], t.numel()), v.sum(), v.square().sum()]).nan_to_num()
        found = self._reduced(torch.cat([own, -own]), dist.ReduceOp.MAX)
        return bool((found[: len(own)] == -found[len(own) :]).all())

    def told(self) -> str:
        """See :class:`World`."""
        text = "" if self.error is None else f"rank {self.rank}: {type(self.error).__name__}: {self.error}"
        own = torch.zeros(TOLD, dtype=torch.uint8, device=self.device)
        data = text.encode()[:TOLD]
        own[: len(data)] = torch.tensor(list(data), dtype=torch.uint8)
        places = torch.zeros(self.size, TOLD, dtype=torch.uint8, device=self.device)
        places[self.rank] = own
        lines = [bytes(row).rstrip(b"\0").decode(errors="replace") for row in self._reduced(places).tolist()]
        return "; ".join(line for line in lines if line)

    def _reduced(self, t: Tensor, operation: Any = dist.ReduceOp.SUM) -> Tensor:
        try:
            dist.all_reduce(t, operation, group=self.group)
        except RuntimeError as error:
            self.broken = True
            raise RankError(f"a rank was lost, or did not answer in time ({error})") from error
        return t


class _Sum(torch.autograd.Function):
    """The sum over the ranks as a differentiable operation."""

    @staticmethod
    def forward(ctx: Any, vector: Tensor, world: Ranks) -> Tensor:
        ctx.world = world
        return world._reduced(vector.detach().clone())

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor, None]:
        found: Any = _Sum.apply(cotangents[0], ctx.world)
        return found, None


def _pieces(numbers: Tensor, kind: torch.dtype) -> list[Tensor]:
    """Numbers in double precision as sums of numbers of a type."""
    if kind == torch.float64:
        return [numbers]
    pieces = []
    for _ in range(PIECES):
        pieces.append(numbers.to(kind))
        numbers = numbers - pieces[-1].double()
    return pieces


def world_of(mesh: DeviceMesh | dist.ProcessGroup | None, x: Tree) -> World:
    """The processes of a run.

    Example:
        >>> import torch
        >>> from bvfim.distributed.world import world_of
        >>> world_of(None, torch.zeros(1)).size
        1
    """
    if mesh is not None:
        return Ranks(mesh, x)
    if any(is_sharded(t) for t in tree.leaves(x)):
        raise ProblemError("x holds DTensors, whose rows lie on several ranks: pass their mesh to solve")
    return World()
