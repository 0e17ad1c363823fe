"""Small problems that the tests share, with their closed forms where they have one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

import bvfim


@dataclass(frozen=True)
class Quadratic:
    """F = |y - t|^2 / 2 + x'Dx / 2,  f = y'Hy / 2 - y'(Bx + c), so y*(x) = H^-1 (Bx + c)."""

    H: Tensor
    B: Tensor
    c: Tensor
    D: Tensor
    t: Tensor

    @property
    def problem(self) -> bvfim.Problem:
        return bvfim.Problem(
            upper=lambda x, y: ((y - self.t) ** 2).sum() / 2 + (x * self.D * x).sum() / 2,
            lower=lambda x, y: y @ self.H @ y / 2 - y @ (self.B @ x + self.c),
        )

    def response(self, x: Tensor) -> Tensor:
        return torch.linalg.solve(self.H, self.B @ x + self.c)

    def gradient(self, x: Tensor) -> Tensor:
        return self.D * x + self.B.T @ torch.linalg.solve(self.H, self.response(x) - self.t)

    @property
    def optimum(self) -> Tensor:
        """The x where the hypergradient, which is affine, is zero."""
        return root_of_affine(self.gradient, len(self.D))

    def unrolled(self, x: Tensor, y: Tensor, steps: int, lr: float) -> Tensor:
        """d F(x, y_T(x)) / dx for gradient descent, by matrix powers."""
        n = len(self.t)
        contraction = torch.eye(n, dtype=y.dtype) - lr * self.H
        Z = torch.zeros(n, len(x), dtype=y.dtype)
        for _ in range(steps):
            y = y - lr * (self.H @ y - self.B @ x - self.c)
            Z = contraction @ Z + lr * self.B
        return self.D * x + Z.T @ (y - self.t)


def quadratic(m: int, n: int, seed: int = 0, spectrum: str = "random") -> Quadratic:
    g = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    eigenvalues = {
        "random": 0.5 + 2 * torch.rand(n, generator=g, dtype=torch.float64),
        "identity": torch.ones(n, dtype=torch.float64),
        "scaled": torch.full((n,), 37.0, dtype=torch.float64),
        "wide": torch.logspace(-1, 1, n, dtype=torch.float64),
    }[spectrum]
    Q = torch.linalg.qr(normal(n, n)).Q
    return Quadratic(Q @ torch.diag(eigenvalues) @ Q.T, normal(n, m), normal(n), normal(m).abs(), normal(n))


def root_of_affine(function: Callable[[Tensor], Tensor], size: int) -> Tensor:
    """The root of an affine map, from its values at zero and at the unit vectors."""
    at_zero = function(torch.zeros(size, dtype=torch.float64))
    columns = [function(e) - at_zero for e in torch.eye(size, dtype=torch.float64)]
    return -torch.linalg.solve(torch.stack(columns, 1), at_zero)


def summed(q: Quadratic, rows: int, spread: float = 0.3, seed: int = 0) -> bvfim.Problem:
    """The quadratic as a mean over rows, of which batches see some: the same F but for a constant, and the same f."""
    g = torch.Generator().manual_seed(seed)

    def around(mean: Tensor, noise: Tensor) -> Tensor:
        return mean + spread * (noise - noise.mean(0))

    def normal(like: Tensor) -> Tensor:
        return torch.randn(rows, *like.shape, generator=g, dtype=torch.float64)

    noise = normal(q.H)
    H, B, c, t = around(q.H, noise + noise.mT), *(around(a, normal(a)) for a in (q.B, q.c, q.t))

    def upper(x: Tensor, y: Tensor, i: Tensor) -> Tensor:
        return ((y - t[i]) ** 2).sum(1).mean() / 2 + (x * q.D * x).sum() / 2

    def lower(x: Tensor, y: Tensor, i: Tensor) -> Tensor:
        return ((H[i] @ y) @ y / 2 - (B[i] @ x + c[i]) @ y).mean()

    return bvfim.Problem(upper, lower)


def nested() -> tuple[bvfim.Problem, dict, dict]:
    """Nested trees, non-convex in both levels, all methods run on it."""

    def upper(x, y):
        return ((y["a"] - x["w"][0].sum()) ** 2).sum() + torch.cos(y["b"][0]).sum() + (x["w"][1] ** 2).sum()

    def lower(x, y):
        fit = ((y["a"] - torch.tanh(x["w"][0])) ** 2).sum() + ((y["b"][0] - x["w"][1]) ** 2).sum()
        return fit + 0.3 * torch.sin(2 * y["a"]).sum() + 0.1 * (y["a"].sum() * y["b"][0].sum())

    g = torch.Generator().manual_seed(3)
    x = {"w": [torch.randn(3, generator=g, dtype=torch.float64), torch.randn(2, generator=g, dtype=torch.float64)]}
    y = {
        "a": torch.randn(3, generator=g, dtype=torch.float64),
        "b": (torch.randn(2, generator=g, dtype=torch.float64),),
    }
    return bvfim.Problem(upper, lower), x, y


def sine_1d(a: float = 0.0) -> bvfim.Problem:
    return bvfim.testproblems.sine(a).problem


def relative(a: Tensor, b: Tensor) -> float:
    return float((a - b).norm() / b.norm())
