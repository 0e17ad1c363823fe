"""What ``bvfim bench speed`` times: a bare loop written by hand, a paused ``solve``, and the matrix products alone."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import torch
from torch import Tensor

import bvfim
from bvfim.core.accelerate import recorded
from bvfim.methods import Estimator
from bvfim.reproduce.bench.peers.base import Budget
from bvfim.reproduce.experiments import cleaning


class Bare:
    """BVFIM as printed, written out by hand on two lists of tensors, with no library at all."""

    def __init__(self, task: cleaning.Task, budget: Budget) -> None:
        self.upper, self.lower, self.keys = task.problem.upper, task.problem.lower, list(task.y)
        self.budget, self.k = budget, 0
        self.x = task.x.clone().requires_grad_()
        self.optimizer = torch.optim.Adam([self.x], lr=budget.x_lr)
        self.z = [t.clone().requires_grad_() for t in task.y.values()]
        self.own = [t.clone().requires_grad_() for t in task.y.values()]

    @property
    def y(self) -> dict[str, Tensor]:
        """The network."""
        return self._named(self.own)

    def _named(self, tensors: list[Tensor]) -> dict[str, Tensor]:
        return dict(zip(self.keys, tensors, strict=True))

    def step(self) -> Tensor:
        """One upper step: T/2 steps on z, T/4 on y, each of which takes two gradients, and one on x."""
        z, y, lr, upper, lower = self.z, self.own, self.budget.lr, self.upper, self.lower
        mu1 = theta = tau = 1.01**-self.k
        fixed = self.x.detach()
        for _ in range(self.budget.T // 2):
            grads = torch.autograd.grad(lower(fixed, self._named(z)), z)
            with torch.no_grad():
                for p, g in zip(z, grads, strict=True):
                    p -= lr * (g + mu1 * p)
        with torch.no_grad():
            weight = tau / (lower(fixed, self._named(z)) + mu1 / 2 * sum((p * p).sum() for p in z))
        for _ in range(self.budget.T // 4):
            first = torch.autograd.grad(upper(fixed, self._named(y)), y)
            second = torch.autograd.grad(lower(fixed, self._named(y)), y)
            with torch.no_grad():
                for p, a, b in zip(y, first, second, strict=True):
                    p -= lr * (a + theta * p + weight * b)
        ended = [self._named([p.detach() for p in v]) for v in (y, z)]
        value = upper(self.x, ended[0]) + weight * (lower(self.x, ended[0]) - lower(self.x, ended[1]))
        (gradient,) = torch.autograd.grad(value, self.x)
        self.x.grad = gradient
        self.optimizer.step()
        self.k += 1
        return gradient


class Solving:
    """``bvfim.solve`` in a thread of its own, held after every step until the next is asked for."""

    def __init__(self, task: cleaning.Task, method: Estimator, budget: Budget, accelerate: str = "auto") -> None:
        self.task, self.method, self.accelerate = task, method, accelerate
        self.asked, self.done, self.stopped = threading.Semaphore(0), threading.Semaphore(0), False
        self.run: Any = None
        self.error: BaseException | None = None

        def solve() -> None:
            try:
                adam = partial(torch.optim.Adam, lr=budget.x_lr)
                self.asked.acquire()
                how: dict[str, Any] = {"steps": 10**9, "callbacks": [self._hold], "accelerate": accelerate}
                ended = bvfim.solve(task.problem, task.x, task.y, method, adam, **how)
                self.error = RuntimeError(str(ended))
            except BaseException as error:
                self.error = error
            self.done.release()

        self.thread = threading.Thread(target=solve, daemon=True)
        self.thread.start()

    def _hold(self, run: Any) -> bool:
        self.run = run
        self.done.release()
        self.asked.acquire()
        return self.stopped

    def step(self) -> Tensor:
        """One upper step."""
        self.asked.release()
        self.done.acquire()
        if self.error is not None:
            raise self.error
        return self.run.following.parameters[0].grad

    @property
    def accelerated(self) -> bool:
        """Whether the step is still taken as it was asked for: what can't be compiled or recorded runs otherwise."""
        estimate = self.run.following.estimate
        plainly = getattr(estimate, "plain", None) is not None
        return self.accelerate == "none" or (not plainly and (self.accelerate != "compile" or estimate.compile))

    def once(self) -> None:
        """One hypergradient in the caller's thread, where its memory can be watched."""
        bvfim.hypergradient(self.task.problem, self.task.x, self.task.y, self.method)

    def stop(self) -> None:
        """Let the solve end."""
        self.stopped = True
        self.asked.release()
        self.thread.join()

    @property
    def x(self) -> Tensor:
        """The upper variable."""
        return self.run.x

    @property
    def y(self) -> dict[str, Tensor]:
        """The network."""
        return self.run.state.y


class Products:
    """The matrix products of T gradients of the network alone, on a CUDA device as a graph: the hardware's floor."""

    def __init__(self, task: cleaning.Task, budget: Budget, inputs: Tensor) -> None:
        hidden, weight = task.y["hidden"], task.y["weight"]
        error = torch.randn(len(weight), len(inputs), dtype=hidden.dtype, device=hidden.device)

        def gradient() -> tuple[Tensor, ...]:
            inside = hidden @ inputs.T
            back = weight.T @ error
            return weight @ inside, error @ inside.T, back @ inputs

        def products() -> None:
            for _ in range(budget.T):
                gradient()

        self.step = products
        if hidden.is_cuda:
            graph, _ = recorded(products)
            self.step = graph.replay
