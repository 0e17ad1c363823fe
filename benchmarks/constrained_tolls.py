"""Tolls on some arcs of a network: see benchmarks/constrained_large.py."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from scipy.optimize import LinearConstraint, minimize
from torch import Tensor

import bvfim

ARCS = [
    (0, 1), (0, 2), (0, 3), (1, 2), (1, 4), (2, 1), (2, 4), (2, 5), (3, 2), (3, 5),
    (4, 3), (4, 5), (4, 6), (4, 7), (5, 4), (5, 6), (5, 7), (6, 7), (6, 5), (1, 6),
]  # fmt: skip
"""From node to node; the flow goes from node 0 to node 7."""
TOLLED = [4, 6, 12, 13, 16, 17]
"""The arcs whose tolls the leader sets."""
CONGESTION, CAPACITY, DEAREST = 0.2, 3.0, 10.0
"""The weight of the squared flow, and the largest flow and toll of an arc."""
DEMAND = 4.0


class Tolls:
    """The network; x and y are the tolls of TOLLED and the flows of ARCS."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.cost = 1 + 4 * torch.rand(len(ARCS), generator=generator, dtype=torch.float64)
        self.cost[TOLLED] *= 0.3
        self.incidence = torch.zeros(7, len(ARCS), dtype=torch.float64)  # of all nodes but the last: that of it follows
        for i, (tail, head) in enumerate(ARCS):
            self.incidence[tail, i] = 1.0
            if head < 7:
                self.incidence[head, i] = -1.0
        self.demand = torch.zeros(7, dtype=torch.float64)
        self.demand[0] = DEMAND

    def prices(self, x: Tensor) -> Tensor:
        """What an arc costs without congestion."""
        return self.cost.index_add(0, torch.tensor(TOLLED), x)

    def upper(self, x: Tensor, y: Tensor) -> Tensor:
        """Minus the income."""
        return -(x * y[TOLLED]).sum()

    def lower(self, x: Tensor, y: Tensor) -> Tensor:
        """What the follower pays."""
        return (self.prices(x) * y).sum() + CONGESTION * y.square().sum() / 2

    def capacities(self, x: Tensor, y: Tensor) -> Tensor:
        """Flows are neither negative nor too large."""
        return torch.cat([-y, y - CAPACITY])

    def conservation(self, x: Tensor, y: Tensor) -> Tensor:
        """What leaves a node is what enters it, and the demand."""
        return self.incidence @ y - self.demand

    def problem(self) -> bvfim.Problem:
        """All of it."""
        return bvfim.Problem(
            self.upper, self.lower, x_set=bvfim.Box(0.0, DEAREST),
            lower_constraints=self.capacities, lower_equalities=self.conservation,
        )  # fmt: skip

    def exact(self, x: Tensor) -> Tensor:
        """The flow at x, by SciPy."""
        price, flow = self.prices(x).numpy(), LinearConstraint(self.incidence.numpy(), self.demand, self.demand)
        found = minimize(
            lambda y: price @ y + CONGESTION * y @ y / 2,
            np.full(len(ARCS), 0.5), jac=lambda y: price + CONGESTION * y, method="SLSQP",
            bounds=[(0, CAPACITY)] * len(ARCS), constraints=[flow], options={"ftol": 1e-12, "maxiter": 1000},
        )  # fmt: skip
        return torch.tensor(found.x)

    def judged(self, x: Tensor) -> float:
        """F at the exact flow."""
        return float(self.upper(x, self.exact(x)))

    def kkt(self, starts: int, relaxed: float = 1e-6) -> dict[str, Any]:
        """SLSQP on the conditions of the flow, with complementarity relaxed step by step, from many starts."""
        n, m, N = len(ARCS), len(TOLLED), self.incidence.numpy()
        rng, began, best = np.random.default_rng(0), time.process_time(), (np.inf, np.zeros(m))
        cost, demand = self.cost.numpy(), self.demand.numpy()

        def parts(w: np.ndarray) -> list[np.ndarray]:
            return np.split(w, np.cumsum([m, n, len(demand), n]))  # tolls, flows, potentials, multipliers of bounds

        def stationary(w: np.ndarray) -> np.ndarray:
            x, y, p, a, b = parts(w)
            price = cost.copy()
            price[TOLLED] += x
            return np.concatenate([price + CONGESTION * y + N.T @ p - a + b, N @ y - demand])

        def complementary(w: np.ndarray) -> np.ndarray:
            _, y, _, a, b = parts(w)
            return np.concatenate([a * y, b * (CAPACITY - y)])

        bounds = [(0, DEAREST)] * m + [(0, CAPACITY)] * n + [(None, None)] * len(demand) + [(0, None)] * 2 * n
        for _ in range(starts):
            x = torch.tensor(rng.uniform(0, DEAREST, m))
            w = np.concatenate([x.numpy(), self.exact(x).numpy(), np.zeros(len(demand)), np.ones(2 * n)])
            for t in (1.0, 1e-2, 1e-4, relaxed):
                rules = [
                    {"type": "eq", "fun": stationary},
                    {"type": "ineq", "fun": lambda w, t=t: t - complementary(w)},
                ]
                w = minimize(
                    lambda w: -w[:m] @ w[m : m + n][TOLLED], w, method="SLSQP", bounds=bounds, constraints=rules,
                    options={"maxiter": 200},
                ).x  # fmt: skip
            x = np.clip(w[:m], 0, DEAREST)
            best = min(best, (self.judged(torch.tensor(x)), x), key=lambda found: found[0])
        row = {"method": f"SLSQP on the KKT conditions, {starts} starts", "F at the exact y": best[0]}
        return {**row, "seconds of CPU": time.process_time() - began}
