"""Two instances of one network, as y and z: networks that are called as modules, and may be sharded over a mesh."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from bvfim.core.problem import Problem
from bvfim.distributed.mesh import is_sharded
from bvfim.status import ProblemError
from bvfim.tree import Tree


@runtime_checkable
class Sharded(Protocol):
    """A module that ``fully_shard`` was applied to."""

    def reshard(self) -> None:
        """Free what was gathered."""
        ...

    def set_requires_gradient_sync(self, requires_gradient_sync: bool) -> None:
        """Whether backward passes sum gradients over the ranks."""
        ...


@dataclass(frozen=True)
class Twins:
    """Two instances of one network, which :class:`bvfim.StochasticBVFIM` trains as y and z.

    The objectives are functions of ``(x, module, batch)`` and call the module as any training loop does: so it may be
    sharded by FSDP2's ``fully_shard``, in mixed precision, with activation checkpoints, compiled. Passes are ordinary
    ones, forward and backward, and no module is differentiated twice. Both modules are changed in place; the second
    starts where the first one does.

    Args:
        y: the network, whose parameters are the start; ``solution.y`` has them by name at the end.
        z: another instance of it, such as ``make()`` for a second time.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(
        ...     upper=lambda x, net, rows: (net(rows) - 1).square().mean(),
        ...     lower=lambda x, net, rows: (net(rows) - x).square().mean(),
        ... )
        >>> make = lambda: torch.nn.Linear(1, 1, dtype=torch.float64)
        >>> x, rows = torch.zeros(1, dtype=torch.float64), torch.randn(8, 1, dtype=torch.float64)
        >>> solution = bvfim.solve(problem, x, bvfim.Twins(make(), make()), batches=[rows], steps=400)
        >>> print(f"{solution.x.item():.1f}")
        1.0
    """

    y: nn.Module
    z: nn.Module

    def __post_init__(self) -> None:
        for name, module in (("y", self.y), ("z", self.z)):
            if not isinstance(module, nn.Module):
                raise ProblemError(f"Twins: {name} must be a torch module, not a {type(module).__name__}")
        if {id(p) for p in self.y.parameters()} & {id(p) for p in self.z.parameters()}:
            raise ProblemError("Twins: y and z share parameters: make two instances of the network")
        kinds = [[(name, p.shape, p.dtype) for name, p in m.named_parameters()] for m in (self.y, self.z)]
        if kinds[0] != kinds[1] or not kinds[0]:
            raise ProblemError("Twins: y and z must be two instances of one network, with the same parameters")
        sharded = {is_sharded(p) for m in (self.y, self.z) for p in m.parameters()}
        if len(sharded) > 1:
            raise ProblemError("Twins: shard all parameters of both networks, or none of them")

    def shard(
        self, mesh: DeviceMesh, parts: Callable[[nn.Module], Iterable[nn.Module]] = lambda m: (), **how: Any
    ) -> Twins:
        """Both networks, sharded over the mesh by FSDP2's ``fully_shard``.

        Args:
            mesh: the mesh, of one dimension.
            parts: the modules that are gathered one by one, such as ``lambda m: m.blocks``; then the rest at once.
            how: options of ``fully_shard``, such as ``mp_policy``.
        """
        try:
            from torch.distributed.fsdp import fully_shard
        except ImportError as error:
            raise ProblemError(
                f"networks are sharded by FSDP2, which torch {torch.__version__} lacks: 2.6 has it"
            ) from error
        for module in (self.y, self.z):
            for part in (*parts(module), module):
                fully_shard(part, mesh=mesh, **how)
        return self

    @property
    def sharded(self) -> bool:
        """Whether the parameters are sharded."""
        return is_sharded(next(self.y.parameters()))

    def start(self) -> tuple[Tree, Tree]:
        """The parameters of y, by name, and those of z, set to the same values: the modules' own memory."""
        y, z = (own(module) for module in (self.y, self.z))
        copy_to(z, y)
        return y, z


def own(module: nn.Module) -> dict[str, Tensor]:
    """The parameters of a module by name: its own memory, on a mesh the shards of this rank.

    Example:
        >>> import torch
        >>> from bvfim.distributed.twins import own
        >>> sorted(own(torch.nn.Linear(1, 1)))
        ['bias', 'weight']
    """
    return {name: p.detach() for name, p in module.named_parameters()}


@torch.no_grad()
def copy_to(tree: dict[str, Tensor], values: dict[str, Tensor]) -> None:
    """Put values into the tensors of a tree."""
    for name, t in tree.items():
        t.copy_(values[name])


def run_on(problem: Problem, module: nn.Module) -> Problem:
    """The problem whose objectives call the module, whatever their second argument: it has these parameters."""
    if problem.context is not None or problem.y_set is not None:
        raise ProblemError("Twins: networks that are called as modules have no context and no y_set")

    def called(objective: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def value(x: Tree, y: Tree, batch: Any) -> Tensor:
            found = objective(x, module, batch)
            if isinstance(module, Sharded) and not torch.is_grad_enabled():
                module.reshard()  # what was gathered for this pass would be used again, after the parameters moved
            return found

        return value

    return Problem(called(problem.upper), called(problem.lower), x_set=problem.x_set)
