r"""The maps :math:`y_{t+1} = \Phi_t(x, y_t)` that explicit methods differentiate through.

A dynamics turns a direction d (for example, the lower gradient) into a step. It is pure and differentiable:
``init(y)`` returns its memory, ``step(y, d, memory, t)`` the next y and memory. Each lower solve starts
with fresh memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from bvfim import tree
from bvfim.schedules import require
from bvfim.status import MethodError
from bvfim.tree import Tree


@runtime_checkable
class Dynamics(Protocol):
    """The interface of a lower-level optimiser for explicit methods. Any class with these two methods qualifies.

    Example:
        >>> import torch, bvfim
        >>> class SignDescent:
        ...     def init(self, y):
        ...         return ()
        ...     def step(self, y, d, memory, t):
        ...         return y - 0.1 * torch.tanh(10 * d), memory
        >>> bvfim.RHG(steps=3, dynamics=SignDescent()).steps
        3
    """

    def init(self, y: Tree) -> Tree:
        """The memory before the first step."""
        ...

    def step(self, y: Tree, d: Tree, memory: Tree, t: int) -> tuple[Tree, Tree]:
        """Step t (counted from zero) from y along -d."""
        ...


@dataclass(frozen=True)
class GradientDescent:
    """y <- y - lr d.

    Example:
        >>> import torch, bvfim
        >>> bvfim.dynamics.GradientDescent(0.1).step(torch.tensor(1.0), torch.tensor(2.0), (), 0)
        (tensor(0.8000), ())
    """

    lr: float = 0.01

    def __post_init__(self) -> None:
        require(self, "lr", above=0, schedule=False)

    def init(self, y: Tree) -> Tree:
        """No memory."""
        return ()

    def step(self, y: Tree, d: Tree, memory: Tree, t: int) -> tuple[Tree, Tree]:
        """One step."""
        return tree.axpy(-self.lr, d, y), memory


@dataclass(frozen=True)
class Adaptive:
    r"""y <- y - s_t d_t with a step size adapted to the local curvature (Malitsky and Mishchenko, 2020).

    .. math:: s_t = \min\Big(\sqrt{1 + s_{t-1} / s_{t-2}}\; s_{t-1},\;
              \frac{|y_t - y_{t-1}|}{2\,|d_t - d_{t-1}|}\Big), \qquad s_0 = \text{lr}

    s_1 is the second term alone; if d has not changed, the step size stays the same. No objective values are needed.
    Derivatives through a trajectory treat the step sizes as constants, including the first, which is not adapted to
    the curvature: there lr must be a stable step size for gradient descent.

    Args:
        lr: the first step size; if it is too large, the second step corrects it.

    Example:
        >>> import torch, bvfim
        >>> rule, y, memory = bvfim.dynamics.Adaptive(lr=0.1), torch.tensor([1.0]), ()
        >>> for t in range(30):  # of f = 50 y^2, where steps of 0.1 diverge
        ...     y, memory = rule.step(y, 100 * y, memory, t)
        >>> bool(y.abs() < 1e-6)
        True
    """

    lr: float = 0.1

    def __post_init__(self) -> None:
        require(self, "lr", above=0, schedule=False)

    def init(self, y: Tree) -> Tree:
        """Empty memory."""
        return ()

    def step(self, y: Tree, d: Tree, memory: Tree, t: int) -> tuple[Tree, Tree]:
        """One step; the memory holds y, d, the step size and its growth."""
        if t == 0:
            size = torch.full_like(tree.norm(tree.detach(y)), self.lr)
            return tree.axpy(-size, d, y), (y, d, size, torch.full_like(size, torch.inf))
        before, direction, last, ratio = memory
        moved, turned = (tree.norm(tree.detach(tree.sub(a, b))) for a, b in ((y, before), (d, direction)))
        size = torch.where(turned > 0, torch.minimum(torch.sqrt(1 + ratio) * last, moved / (2 * turned)), last)
        growth = size / last
        return tree.axpy(-size, d, y), (y, d, size, growth)


@dataclass(frozen=True)
class Momentum:
    """v <- beta v + d; y <- y - lr v (Polyak's heavy ball, as in torch.optim.SGD).

    Example:
        >>> import torch, bvfim
        >>> ball = bvfim.dynamics.Momentum(lr=0.1, beta=0.5)
        >>> y = torch.tensor(1.0)
        >>> y, memory = ball.step(y, torch.tensor(1.0), ball.init(y), 0)
        >>> ball.step(y, torch.tensor(1.0), memory, 1)[0]
        tensor(0.7500)
    """

    lr: float = 0.01
    beta: float = 0.9

    def __post_init__(self) -> None:
        require(self, "lr", above=0, schedule=False)
        require(self, "beta", at_least=0, schedule=False)

    def init(self, y: Tree) -> Tree:
        """v = 0."""
        return tree.zeros_like(y)

    def step(self, y: Tree, d: Tree, memory: Tree, t: int) -> tuple[Tree, Tree]:
        """One step."""
        v = tree.axpy(self.beta, memory, d)
        return tree.axpy(-self.lr, v, y), v


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma and Ba, 2015), differentiable even where an entry of d is zero.

    It scales each entry by itself, so in a ``y_set`` that is no box y comes to rest away from the lower-level
    solution: take :class:`Adaptive` there.

    The second moment enters as sqrt(v + floor): the square root alone has no derivative at v = 0,
    and one dead unit would turn the whole hypergradient into NaN.

    Example:
        >>> import torch, bvfim
        >>> adam = bvfim.dynamics.Adam(lr=0.1)
        >>> y = torch.tensor(1.0)
        >>> adam.step(y, torch.tensor(5.0), adam.init(y), 0)[0]
        tensor(0.9000)
    """

    lr: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    floor: float = 1e-16

    def __post_init__(self) -> None:
        require(self, "lr", above=0, schedule=False)
        for name in ("beta1", "beta2", "eps", "floor"):
            require(self, name, at_least=0, schedule=False)
        for name in ("beta1", "beta2"):
            if getattr(self, name) >= 1:
                raise MethodError(f"Adam: {name} must be below 1, not {getattr(self, name)!r}")

    def init(self, y: Tree) -> Tree:
        """Both moments zero."""
        return tree.zeros_like(y), tree.zeros_like(y)

    def step(self, y: Tree, d: Tree, memory: Tree, t: int) -> tuple[Tree, Tree]:
        """One step."""
        first, second = memory
        first = tree.map(lambda m, g: self.beta1 * m + (1 - self.beta1) * g, first, d)
        second = tree.map(lambda v, g: self.beta2 * v + (1 - self.beta2) * g * g, second, d)
        bias1, bias2 = 1 - self.beta1 ** (t + 1), 1 - self.beta2 ** (t + 1)

        def move(p: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            floor = max(self.floor, torch.finfo(v.dtype).tiny)
            return p - self.lr / bias1 * m / (torch.sqrt(v / bias2 + floor) + self.eps)

        return tree.map(move, y, first, second), (first, second)
