"""Linear systems A q = b over trees, given only v -> A v, for a symmetric A.

Neither solver synchronises with the host while it runs: a mask keeps the iterate of a solve that has ended or
broken down, so that it can be captured in a graph. Both are tested against ``torch.linalg.solve``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from bvfim import tree
from bvfim.tree import Tree

EXACT_LIMIT = 512
"""CG reorthogonalises its residuals for up to this many unknowns, if the exact solution is expected."""


class LinearResult(NamedTuple):
    """An approximate solution and how it was reached, as scalar tensors."""

    solution: Tree
    residual: Tensor
    """|b - A q| / |b|; for a Neumann series, before its last term, which saves a product."""
    curvature: Tensor
    """CG: the smallest p'Ap / p'p encountered. Neumann: the largest growth from one term to the next."""
    steps: Tensor
    """The number of steps that changed the iterate."""
    breakdown: Tensor
    """1 if the solve stopped early because A does not suit the method, else 0."""


def cg(matvec: Callable[[Tree], Tree], b: Tree, steps: int) -> LinearResult:
    r"""Conjugate gradients for a positive definite A, from q = 0.

    .. math:: \alpha = \frac{r^\top r}{p^\top A p},\quad q \mathrel{+}= \alpha p,\quad
              r \mathrel{-}= \alpha A p,\quad p \leftarrow r + \frac{r_+^\top r_+}{r^\top r} p

    It stops when the residual reaches rounding level. At a direction whose curvature
    :math:`p^\top A p / p^\top p` is negative or at rounding level, A is not positive definite: the last good
    iterate is returned and ``breakdown`` is set. If that is the first direction, b, the answer is
    :math:`b\, b^\top b / |b^\top A b|`. With as many steps as unknowns the caller expects the exact
    solution, which rounding spoils because the residuals lose orthogonality; they are then reorthogonalised,
    at the cost of storing them (n squared numbers, for n up to 512) and one more product.

    Example:
        >>> import torch
        >>> from bvfim.core.linear import cg
        >>> A = torch.tensor([[3.0, 1.0], [1.0, 2.0]])
        >>> cg(lambda v: A @ v, torch.tensor([1.0, 0.0]), steps=2).solution
        tensor([ 0.4000, -0.2000])
    """
    A, r = _on_vectors(matvec, b), tree.flatten(b)
    q, p = torch.zeros_like(r), r
    rr = bb = torch.sum(r * r)
    eps = torch.finfo(bb.dtype).eps
    active = bb > 0
    breakdown = torch.zeros_like(active)
    lowest, highest = torch.full_like(bb, torch.inf), torch.zeros_like(bb)
    size = r.numel()
    rounding = 10 * eps * size
    taken = torch.zeros_like(bb)
    exact = steps >= size <= EXACT_LIMIT
    steps = min(steps, size) if exact else steps
    earlier = r.new_zeros(steps if exact else 0, size)
    for step in range(steps):
        Ap = A(p)
        pAp, pp = torch.sum(p * Ap), torch.sum(p * p)
        curvature = pAp / pp
        lowest = torch.where(active, torch.minimum(lowest, curvature), lowest)
        highest = torch.where(active, torch.maximum(highest, curvature.abs()), highest)
        # A curvature at rounding level is that of a singular A: dividing by it would return noise.
        sound = (curvature > rounding * highest) & curvature.isfinite()
        breakdown = breakdown | (active & ~sound)
        if step == 0:  # with q = 0 there would be no answer at all: |curvature| gives one of the right size
            q = torch.where(active & ~sound & (pAp.abs() > 0) & pAp.isfinite(), p * (rr / pAp.abs()), q)
        active = active & sound
        alpha = torch.where(active, rr / pAp, torch.zeros_like(rr))
        if exact:
            earlier[step] = torch.where(active, r / rr.sqrt(), 0.0)
        q, r = torch.addcmul(q, p, alpha), torch.where(active, torch.addcmul(r, Ap, -alpha), r)
        r = _orthogonal(r, earlier[: step + 1]) if exact else r
        rr_next = torch.sum(r * r)
        p = torch.addcmul(r, p, torch.where(active, rr_next / rr, torch.zeros_like(rr)))
        rr = torch.where(active, rr_next, rr)
        taken = taken + active
        active = active & (rr > (eps * eps) * bb)
    if exact:
        # The residuals that were kept orthogonal are no longer those of q.
        true = tree.flatten(b) - A(q)
        rr = torch.where(taken > 0, torch.sum(true * true), rr)
    residual = torch.where(bb > 0, (rr / bb).sqrt(), torch.zeros_like(bb))
    return LinearResult(tree.unravel(q, b), residual, lowest, taken, breakdown.to(bb.dtype))


def _on_vectors(matvec: Callable[[Tree], Tree], like: Tree) -> Callable[[Tensor], Tensor]:
    """The map on vectors: one operation where a tree takes one for each leaf."""
    return lambda v: tree.flatten(matvec(tree.unravel(v, like)))


def _orthogonal(r: Tensor, unit: Tensor) -> Tensor:
    """What is left of r off the orthonormal rows of ``unit``; once more for what rounding leaves."""
    for _ in range(2):
        r = r - unit.T @ (unit @ r)
    return r


def neumann(matvec: Callable[[Tree], Tree], b: Tree, terms: int, eta: float) -> LinearResult:
    r"""The truncated Neumann series :math:`q = \eta \sum_{j=0}^{J} (I - \eta A)^j b`, with J = ``terms``.

    It converges to :math:`A^{-1} b` at the rate :math:`\max |1 - \eta \lambda(A)|`. For a symmetric A
    the terms can only grow if that rate exceeds one, so the sum stops before the first term that is larger than
    its predecessor, and ``breakdown`` is set.

    Example:
        >>> import torch
        >>> from bvfim.core.linear import neumann
        >>> A = torch.tensor([[3.0, 1.0], [1.0, 2.0]])
        >>> neumann(lambda v: A @ v, torch.tensor([1.0, 0.0]), terms=60, eta=0.4).solution
        tensor([ 0.4000, -0.2000])
    """
    A, q = _on_vectors(matvec, b), tree.flatten(b)
    length = left = first = torch.linalg.vector_norm(q)
    last = q
    active = first > 0
    growth = torch.zeros_like(first)
    taken = torch.ones_like(first)
    breakdown = torch.zeros_like(active)
    slack = 1 + 10 * torch.finfo(first.dtype).eps
    for _ in range(terms):
        last = last - eta * A(last)  # once the sum has ended, of no consequence
        next_length = torch.linalg.vector_norm(last)
        ratio = next_length / length
        growth = torch.where(active, torch.maximum(growth, ratio), growth)
        # b - A (eta sum_{j<J} (I - eta A)^j b) telescopes to (I - eta A)^J b: the sum so far has left this much.
        left = torch.where(active, next_length, left)
        breakdown = breakdown | (active & ~(ratio <= slack))
        active = active & (ratio <= slack)
        length = torch.where(active, next_length, length)
        q = torch.where(active, q + last, q)
        taken = taken + active
        active = active & (length > 0)
    residual = torch.where(first > 0, left / first, torch.zeros_like(first))
    return LinearResult(tree.unravel(eta * q, b), residual, growth, taken, breakdown.to(first.dtype))


def dense(matvec: Callable[[Tree], Tree], b: Tree) -> LinearResult:
    """The least-norm solution from the dense matrix, one product per column: the reference for small systems.

    Example:
        >>> import torch
        >>> from bvfim.core.linear import dense
        >>> A = torch.tensor([[3.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
        >>> dense(lambda v: A @ v, torch.tensor([1.0, 0.0], dtype=torch.float64)).solution
        tensor([ 0.4000, -0.2000], dtype=torch.float64)
    """
    vector = tree.flatten(b)
    basis = torch.eye(vector.numel(), dtype=vector.dtype, device=vector.device)
    matrix = torch.stack([tree.flatten(matvec(tree.unravel(e, b))) for e in basis])
    matrix = (matrix + matrix.T) / 2
    solution = torch.linalg.pinv(matrix, hermitian=True) @ vector
    residual = torch.linalg.vector_norm(vector - matrix @ solution) / torch.linalg.vector_norm(vector)
    spectrum = torch.linalg.eigvalsh(matrix)
    rounding = vector.numel() * torch.finfo(vector.dtype).eps * spectrum.abs().amax()
    lowest = torch.where(spectrum[0].abs() <= rounding, torch.zeros_like(rounding), spectrum[0])
    steps = torch.full_like(lowest, vector.numel())
    return LinearResult(
        tree.unravel(solution, b), residual.nan_to_num(0.0), lowest, steps, (lowest < 0).to(lowest.dtype)
    )


def report(result: LinearResult) -> dict[str, Tensor]:
    """What the history reports of a linear solve."""
    return {
        "residual": result.residual,
        "curvature": result.curvature,
        "linear_steps": result.steps,
        "breakdown": result.breakdown,
    }
