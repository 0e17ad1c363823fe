r"""The toy of Shen and Chen (ICML 2023, Section 6.1), as MLS-Bench's task optimization-bilevel scores it.

.. math:: F(x, y) = \frac{\cos(4y + 2)}{1 + e^{2 - 4x}} + \frac12 \ln\big((4x - 2)^2 + 1\big), \qquad
          f(x, y) = (x + y)^2 + x \sin^2(x + y), \qquad 0 \le x \le 3.

f(x, .) is lowest at y = -x, where it is 0, so that the value function is F(x, -x): its lowest point is ``OPTIMUM``, and
it has two more local minima, at 0.382 and 2.830. The suite scores steps, \|x + y\| and the gradient of the penalised
objective that its method itself descends; how far x ends from the optimum it never asks.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

import bvfim

OPTIMUM = 1.2151455
X, FIRST_X, FIRST_Y = (0.0, 3.0), (0.0, 3.5), (-5.0, 8.5)
"""The set of x, and what the starts are drawn from; V-PBGD projects those of x beyond 3 after its first step."""
STATIONARY, LIMIT = 1e-5, 20_000
"""The suite stops a start at a projected gradient as small as this, or after so many steps."""
COUNTED = {"upper": "F gradients", "lower": "f gradients", "forward": "values"}
ALPHA = 0.1
"""The step of V-PBGD times gamma; and that of z where it has to find the value function itself."""
BASIN, NEAR = 0.1, 1e-3
"""How close to the optimum x ends in its basin, and how close is said to be there."""
NU, CENTRAL_NU = 1e-3, 3e-3
"""One over the weight of f, for a penalty and for a central difference."""
T, LR, X_STEP, LONGEST = 3, 0.25, 0.07, 500
"""The steps of y and of z for one of x, their size and that of x, and the most steps of x. The first three were chosen
on this toy, among 4 x 4 x 6 settings, as V-PBGD's step was by those who wrote it."""

Derivative = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
Term = tuple[Tensor, Tensor, Tensor]
"""A part a F(x, p) + b f(x, p) of an objective: p, a and b, with a row for each start."""


def upper(x: Tensor, y: Tensor) -> Tensor:
    """F."""
    return (torch.cos(4 * y + 2) / (1 + torch.exp(2 - 4 * x)) + torch.log((4 * x - 2) ** 2 + 1) / 2).sum()


def lower(x: Tensor, y: Tensor) -> Tensor:
    """The lower objective, f."""
    return ((x + y) ** 2 + x * torch.sin(x + y) ** 2).sum()


def right(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of F."""
    e = torch.exp(2 - 4 * x)
    in_x = 4 * e * torch.cos(4 * y + 2) / (1 + e) ** 2 + (16 * x - 8) / ((4 * x - 2) ** 2 + 1)
    return in_x, -4 * torch.sin(4 * y + 2) / (1 + e)


def of_the_suite(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """What the suite takes for it: 1 + e^2 stands where (1 + e)^2 belongs."""
    e = torch.exp(2 - 4 * x)
    in_x = 4 * e * torch.cos(4 * y + 2) / (1 + e**2) + (16 * x - 8) / ((4 * x - 2) ** 2 + 1)
    return in_x, right(x, y)[1]


def of_f(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of f."""
    s, c = torch.sin(x + y), torch.cos(x + y)
    in_y = 2 * (x + y + x * s * c)
    return in_y + s**2, in_y


def starts(seed: int, count: int) -> tuple[Tensor, Tensor]:
    """x and y of the suite's starts, a row each."""
    draw = random.Random(seed).uniform
    rows = torch.tensor([(draw(*FIRST_X), draw(*FIRST_Y)) for _ in range(count)], dtype=torch.float64)
    return rows[:, :1], rows[:, 1:]


def v_pbgd(x: Tensor, y: Tensor, gradient: Derivative, gamma: float, told: bool) -> dict[str, Any]:
    """V-PBGD from all starts, until each is stationary.

    Args:
        x, y: the starts.
        gradient: of F.
        gamma: the weight of f beside F.
        told: whether the method knows that the value function is 0, as in the suite; otherwise z tracks the minimiser
            of f by a step for each of x, from y, which takes two more gradients of f.
    """
    alpha, z = ALPHA / gamma, y
    taken, success = torch.zeros_like(x), torch.zeros_like(x, dtype=torch.bool)
    for _ in range(LIMIT):
        z = -x if told else z - ALPHA * of_f(x, z)[1]
        (F_x, F_y), (f_x, f_y), (of_value, _) = gradient(x, y), of_f(x, y), of_f(x, z)
        next_x, next_y = (x - alpha * (F_x + gamma * (f_x - of_value))).clamp(*X), y - alpha * (F_y + gamma * f_y)
        size = torch.hypot(x - next_x, y - next_y) / alpha
        x, y = (torch.where(success, old, new) for old, new in ((x, next_x), (y, next_y)))
        taken += ~success
        success |= size <= STATIONARY
        if success.all():
            break
    counts = {"F gradients": taken.mean(), "f gradients": taken.mean() * (1 if told else 3)}
    return {"steps": float(taken.mean()), **ends(x, y, success), **{kind: float(n) for kind, n in counts.items()}}


def adaptive(x: Tensor, y: Tensor, tol: float) -> dict[str, Any]:
    """AdaptiveBVFIM from all starts; success is its own certificate."""
    problem = bvfim.Problem(upper, lower, x_set=bvfim.Box(*X))
    found = bvfim.solve_many(problem, x.clamp(*X), y, bvfim.AdaptiveBVFIM(tol=tol), refit=False)
    success = torch.tensor([s.status is bvfim.Status.CONVERGED for s in found])[:, None]
    x, y = (torch.stack([getattr(s, name) for s in found]) for name in ("x", "y"))
    counts = {shown: sum(s.evaluations[kind] for s in found) / len(found) for kind, shown in COUNTED.items()}
    own = sum(float(s.history["grad_norm"].iloc[-1]) <= STATIONARY for s in found)
    about = {"steps": sum(s.steps for s in found) / len(found), **ends(x, y, success), **counts}
    return {**about, "gradient of its last barrier at most 1e-5": own}


def of_f2sa(x: Tensor, state: Any) -> list[Term]:
    """What F2SA of the second order descends: a central difference of minima."""
    half, weight = torch.full_like(x, 0.5), torch.full_like(x, 0.5 / CENTRAL_NU)
    return [(state.y, half, weight), (state.other, half, -weight)]


def of_penalty(x: Tensor, state: Any) -> list[Term]:
    """What F2SA of the first order and BVFIM with a fixed weight descend: as V-PBGD, with z that finds f*."""
    z = state.z if isinstance(state, bvfim.methods.BVFIMState) else state.other
    weight = torch.full_like(x, 1 / NU)
    return [(state.y, torch.ones_like(x), weight), (z, torch.zeros_like(x), -weight)]


class Stationary:
    """Notes for each start the first step after which the objective of its method is stationary, by the suite's rule.

    That is: the projected gradient in x, and the gradients in y and in z, together. The gradients that it takes to see
    this are counted, though a method has them at its next step anyway.
    """

    def __init__(self, terms: Callable[[Tensor, Any], list[Term]]) -> None:
        self.terms = terms
        self.success, self.found = torch.empty(0), dict[str, Tensor]()

    def __call__(self, run: Any) -> bool:
        """After a step of a batch of starts; true once all are stationary."""
        x, state = run.x, run.state.own
        parts = self.terms(x, state)
        in_x = torch.stack([a * right(x, p)[0] + b * of_f(x, p)[0] for p, a, b in parts]).sum(0)
        others = [a * right(x, p)[1] + b * of_f(x, p)[1] for p, a, b in parts]
        size = torch.stack([x - (x - in_x).clamp(*X), *others]).norm(dim=0)
        checks = {"upper": sum(bool(a.any()) for _, a, _ in parts), "lower": len(parts), "forward": 0}
        counts = {kind: run.batch.tables[-1][f"{kind}_evaluations"] + checks[kind] for kind in COUNTED}
        here = {"x": x, "y": state.y, "steps": torch.full_like(x, run.k)}
        here |= {kind: torch.full_like(x, number) for kind, number in counts.items()}
        if run.k == 1:
            self.success, self.found = torch.zeros_like(x, dtype=torch.bool), here
        self.found = {name: torch.where(self.success, self.found[name], new) for name, new in here.items()}
        self.success = self.success | (size <= STATIONARY)
        return bool(self.success.all())


def of_library(x: Tensor, y: Tensor, method: Any, terms: Callable[[Tensor, Any], list[Term]]) -> dict[str, Any]:
    """A method of the library from all starts, each until its own objective is stationary."""
    problem, watch = bvfim.Problem(upper, lower, x_set=bvfim.Box(*X)), Stationary(terms)
    optimizer = partial(torch.optim.SGD, lr=X_STEP)
    bvfim.solve_many(problem, x.clamp(*X), y, method, LONGEST, optimizer=optimizer, callbacks=[watch], refit=False)
    found = watch.found
    counts = {shown: float(found[kind].mean()) for kind, shown in COUNTED.items()}
    return {"steps": float(found["steps"].mean()), **ends(found["x"], found["y"], watch.success), **counts}


def ends(x: Tensor, y: Tensor, success: Tensor) -> dict[str, Any]:
    """What the suite scores of the ends, then what it never asks."""
    F_x, F_y = right(x, -x)
    of_value = F_x - F_y  # the derivative of F(x, -x)
    projected = (x - (x - of_value).clamp(*X)).abs()
    far = (x - OPTIMUM).abs()
    return {
        "success rate": float(success.double().mean()),
        "|x + y|": float((x + y).abs().mean()),
        "median |x - x*|": float(far.median()),
        "in the basin of x*": int((far < BASIN).sum()),
        "at x*": int((far < NEAR).sum()),
        "median projected gradient of the value function": float(projected.median()),
    }


def measure(seed: int, count: int) -> list[dict[str, Any]]:
    """Every method on the suite's starts."""
    x, y = starts(seed, count)
    plain = bvfim.LowerValue(weight=1 / NU)
    fixed = bvfim.BVFIM(T, T, LR, LR * NU, mu1=0.0, mu2=plain, theta=0.0)
    runs: dict[str, Callable[[], dict[str, Any]]] = {
        "V-PBGD, as in the suite": lambda: v_pbgd(x, y, of_the_suite, 10, told=True),
        "V-PBGD, right derivative": lambda: v_pbgd(x, y, right, 10, told=True),
        "V-PBGD, right derivative, gamma 100": lambda: v_pbgd(x, y, right, 100, told=True),
        "V-PBGD, right derivative, gamma 1000": lambda: v_pbgd(x, y, right, 1000, told=True),
        "V-PBGD, right derivative, finds the value function": lambda: v_pbgd(x, y, right, 10, told=False),
        "AdaptiveBVFIM": lambda: adaptive(x, y, 1e-3),
        "AdaptiveBVFIM, tol 0.1": lambda: adaptive(x, y, 0.1),
        "F2SA, order 1": lambda: of_library(x, y, bvfim.F2SA(1, NU, T, LR), of_penalty),
        "BVFIM, weight fixed": lambda: of_library(x, y, fixed, of_penalty),
        "F2SA, order 2": lambda: of_library(x, y, bvfim.F2SA(2, CENTRAL_NU, T, LR), of_f2sa),
    }
    rows = []
    for name, run in runs.items():
        began = time.perf_counter()
        rows.append({"method": name, **run(), "seconds": time.perf_counter() - began})
    return rows
