"""The kin of BVFIM beside figures that others published of them: V-PBGD, BOME, F2SA, MEHA, SOBA and SABA.

- vpbgd: the toy of Shen and Chen's repository, 1000 starts, gamma 10: mean steps until the projected gradient is below
  1e-5, mean |x + y|, and how many end there. MLS-Bench's run of their code has 260.7, 0.030 and all. Their derivative
  of F in x has a slip, (1 + e^2) for (1 + e)^2: once as printed and once right. Their code knows that f* = 0, so it
  needs no z: once so, and once with one step of z, as in the paper.
- bome: the coreset toy of BOME's repository, its steps, its three starts: y has to reach the point of a convex hull
  that is nearest to a goal. The paper shows that as a picture.
- f2sa: benchopt's "simulated" problem with 20 and 5 dimensions, drawn anew from its recipe, 60 steps of x with 20 of y
  each and nu = 0.01, by the squared norm of the exact hypergradient. A trial by this project's authors inside benchopt
  took it from 6.85 to 2.2e-5; a paper's figure was not at hand.
- meha: the toy with a lower level that is convex and no more, n from 2 to 1000: seconds and gradients until the error
  is 1 %, beside BVFIM with four settings. A review of MEHA's paper says 30 to 98 times less time than BVFIM.
- cleaning: benchopt's hyper-cleaning of MNIST, its split, its best steps for SOBA and SABA, batches of 64: test error
  at the end. benchopt's published runs end at 13.6 % for both where half of the labels are redrawn, at 14.3 % (SABA)
  and 14.5 % (SOBA) for 70 %, and at 17.1 % and 17.2 % for 90 %.

    python benchmarks/kin.py --out benchmarks/results/kin-cpu.json
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import bvfim
import bvfim.data
from bvfim.methods import Choice
from bvfim.reports.report import machine

D = torch.float64
Row = dict[str, Any]


class PrintedSigmoid(torch.autograd.Function):
    """1 / (1 + e) with e = exp(2 - 4 x), and the derivative as it is printed: 4 e / (1 + e^2)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """The value."""
        ctx.save_for_backward(x)
        return torch.sigmoid(4 * x - 2)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """The slip."""
        (x,) = ctx.saved_tensors
        e = torch.exp(2 - 4 * x)
        return gradients[0] * 4 * e / (1 + e**2)


def toy(printed: bool) -> bvfim.Problem:
    """Many starts at once, one an entry: their steps do not see each other."""

    def upper(x: Tensor, y: Tensor) -> Tensor:
        sigmoid = PrintedSigmoid.apply(x) if printed else torch.sigmoid(4 * x - 2)
        return (torch.cos(4 * y + 2) * sigmoid + 0.5 * torch.log((4 * x - 2) ** 2 + 1)).sum()

    def lower(x: Tensor, y: Tensor) -> Tensor:
        return ((x + y) ** 2 + x * torch.sin(x + y) ** 2).sum()

    return bvfim.Problem(upper, lower, x_set=bvfim.Box(0.0, 3.0))


def vpbgd(starts: int = 1000, most: int = 20_000) -> Iterator[Row]:
    """Steps until the projected gradient is small, as their script counts them."""
    alpha, optimum = 0.1, 1.2151455
    for printed in (True, False):
        for known in (True, False):
            for seed in range(3):
                generator = torch.Generator().manual_seed(seed)
                x = 3.5 * torch.rand(starts, generator=generator, dtype=D)
                y = -5 + 13.5 * torch.rand(starts, generator=generator, dtype=D)
                method, problem = bvfim.VPBGD(x_lr=alpha, y_lr=alpha, z_lr=alpha, gamma=10.0), toy(printed)
                state = method.init(problem, x, y)
                steps = torch.full((starts,), -1)
                ends = torch.zeros(starts, 2, dtype=D)
                for k in range(most):
                    if known:
                        state = state._replace(z=-x)
                    new, following, _ = method.step(problem, x, state, k, None)
                    moved = torch.stack([x - new, state.y - following.y]).norm(dim=0) / (alpha / method.gamma)
                    done = (moved <= 1e-5) & (steps < 0)
                    steps[done], ends[done] = k, torch.stack([x, state.y], 1)[done]
                    if (steps >= 0).all():
                        break
                    x, state = new, following
                ended = steps >= 0
                yield {
                    "derivative": "printed" if printed else "right",
                    "f*": "known" if known else "one step of z",
                    "seed": seed,
                    "mean steps": steps[ended].double().mean().item(),
                    "standard error": (steps[ended].double().std() / ended.sum() ** 0.5).item(),
                    "mean |x + y|": ends[ended].sum(1).abs().mean().item(),
                    "ended": ended.double().mean().item(),
                    "within 0.05 of x*": ((ends[:, 0] - optimum).abs() < 0.05)[ended].double().mean().item(),
                }


def bome() -> Iterator[Row]:
    """x are weights of four points through a softmax, y follows their mean, F is its distance to a goal."""
    goal = torch.tensor([3.0, -2.0], dtype=D)
    points = torch.tensor([[1.0, 3.0], [3.0, 1.0], [-2.0, 2.0], [-3.0, -2.0]], dtype=D)
    problem = bvfim.Problem(
        upper=lambda x, y: 0.1 * ((y - goal) ** 2).sum(),
        lower=lambda x, y: ((torch.softmax(x, 0) @ points - y) ** 2).sum(),
    )
    side = points[3] - points[1]  # the goal's nearest point lies on the side from the second to the fourth
    nearest = points[1] + ((goal - points[1]) @ side / (side @ side)).clamp(0, 1) * side
    best = float(problem.upper(None, nearest))
    for start in ((0.0, 3.0), (-3.0, 1.0), (3.5, -1.0)):
        for steps in (1, 10, 100):
            method = bvfim.BOME(x_lr=0.05, y_lr=0.05, lr=0.1 if steps == 1 else 0.05, eta=0.5, steps=steps)
            y = torch.tensor(start, dtype=D)
            found = bvfim.solve(problem, torch.zeros(4, dtype=D), y, method, steps=5000, refit=False, progress=False)
            at_x = torch.softmax(found.x, 0) @ points
            yield {
                "start": start,
                "T": steps,
                "F": found.upper,
                "F at the lower solution": float(problem.upper(None, at_x)),
                "best F": best,
                "distance to the nearest point": float((at_x - nearest).norm()),
                "gap": found.lower,
            }


def simulated(n: int, m: int, rows: int = 1024, seed: int = 0) -> tuple[bvfim.Problem, Callable[[Tensor], Tensor]]:
    """The means of benchopt's "simulated" problem, and its exact hypergradient; redrawn until phi is convex."""
    g = np.random.default_rng(seed)

    def spectrum(size: int, low: float, flat: bool) -> np.ndarray:
        """The mean of rank-one matrices whose expectation has eigenvalues from 0.1 to 1, the first 1 if flat."""
        values = np.r_[low, np.logspace(-0.5, 0, size - 1)] if flat else np.logspace(-0.5, 0, size)
        left = np.linalg.svd(g.standard_normal((size, 1)))[0]
        drawn = g.standard_normal((rows, size)) @ (left @ np.diag(values) @ left.T)
        return drawn.T @ drawn / rows

    def cross() -> np.ndarray:
        left, _, right = np.linalg.svd(g.standard_normal((m, n)))
        scale = np.zeros((m, n))
        scale[:m, :m] = np.diag(np.logspace(-1, -1, m))
        drawn = g.standard_normal((rows, n))
        return (drawn @ (left @ scale).T).T @ (drawn @ right.T) / rows

    def level() -> tuple[Tensor, ...]:
        parts = (spectrum(n, 0, False), spectrum(m, 0, True), cross())
        linear = (g.standard_normal((rows, n)).mean(0), g.standard_normal((rows, m)).mean(0))
        return tuple(torch.from_numpy(part) for part in (*parts, *linear))

    while True:
        (H, _, C, a, _), (A, B, K, c, b) = level(), level()
        response = -torch.linalg.solve(H, C.T)
        half = K @ response
        if torch.linalg.eigvalsh(response.T @ A @ response + B + half + half.T).min() > 1e-12:
            break
    problem = bvfim.Problem(
        upper=lambda x, y: y @ A @ y / 2 + x @ B @ x / 2 + x @ K @ y + c @ y + b @ x,
        lower=lambda x, y: y @ H @ y / 2 + x @ C @ y + a @ y,
    )

    def gradient(x: Tensor) -> Tensor:
        y = -torch.linalg.solve(H, C.T @ x + a)
        return B @ x + K @ y + b - C @ torch.linalg.solve(H, A @ y + K.T @ x + c)

    return problem, gradient


def f2sa() -> Iterator[Row]:
    """The squared norm of the hypergradient at the end, by order and by the step of x."""
    for seed in range(5):
        problem, gradient = simulated(20, 5, seed=seed)
        x, y = torch.full((5,), -2.0, dtype=D), torch.zeros(20, dtype=D)
        for order in (1, 2):
            for lr in (0.3, 1.0):
                found = bvfim.solve(
                    problem, x, y, bvfim.F2SA(order, nu=0.01, steps=20, lr=0.9), steps=60, refit=False, progress=False,
                    optimizer=lambda p, lr=lr: torch.optim.SGD(p, lr),
                )  # fmt: skip
                yield {
                    "seed": seed,
                    "order": order,
                    "step of x": lr,
                    "at the start": float(gradient(x) @ gradient(x)),
                    "at the end": float(gradient(found.x) @ gradient(found.x)),
                }


def meha(limit: float = 15.0) -> Iterator[Row]:
    """f = |y1|^2 / 2 - x'y1 does not see y2; F = |x - y2|^2 / 2 + |y1 - e|^2 / 2 is least at x = y1 = y2 = e."""
    problem = bvfim.Problem(
        upper=lambda x, y: ((x - y[1]) ** 2).sum() / 2 + ((y[0] - 1) ** 2).sum() / 2,
        lower=lambda x, y: (y[0] ** 2).sum() / 2 - (x * y[0]).sum(),
    )
    grid = itertools.product((5, 25), (0.9, 1 / 1.01))
    methods: dict[str, Choice] = {"MEHA": bvfim.MEHA(alpha=0.3, beta=0.3, eta=0.3, gamma=2.0, c=1.0, p=0.25)}
    for steps, rate in grid:
        down = bvfim.schedules.geometric(1.0, rate)
        methods[f"BVFIM, {steps} inner steps, rate {rate:.2f}"] = bvfim.BVFIM(
            steps, steps, z_lr=0.3, y_lr=0.1, mu1=down, mu2=down, theta=down, tau=down
        )
    for n in (2, 100, 1000):
        for name, method in methods.items():
            options = {"optimizer": lambda p: torch.optim.SGD(p, 0.3)} if isinstance(method, bvfim.BVFIM) else {}
            x, y = torch.zeros(n, dtype=D), torch.zeros(2, n, dtype=D)
            bvfim.Stepper(problem, x, y, method, **options).step()  # what only the first step of a process pays
            stepper = bvfim.Stepper(problem, x, y, method, **options)
            began, error = time.perf_counter(), 1.0
            while error > 0.01 and time.perf_counter() - began < limit:
                stepper.step()
                error = float((stepper.x - 1).norm()) / n**0.5
            row = stepper.row
            yield {
                "n": n,
                "method": name,
                "steps": stepper.k,
                "gradients": row["upper_evaluations"] + row["lower_evaluations"],
                "seconds": time.perf_counter() - began,
                "error": error,
            }


BEST = {0.5: ((1.0, 1e-4), (0.1, 1e-3)), 0.7: ((1.0, 1e-4), (0.01, 1e-4)), 0.9: ((1.0, 1e-3), (0.1, 1e-3))}
"""benchopt's best steps of SOBA and of SABA, by the share of labels redrawn: of y, and by what it is divided for x."""


class Cleaning:
    """benchopt's problem, with its split and its noise."""

    def __init__(self, ratio: float) -> None:
        from sklearn.model_selection import train_test_split
        from sklearn.preprocessing import StandardScaler

        mnist, rng = bvfim.data.load("mnist"), np.random.RandomState(32)
        X, V, labels, valid = train_test_split(
            mnist.train.inputs, mnist.train.labels, test_size=5000, train_size=20_000, random_state=rng
        )
        redrawn = rng.rand(len(X)) < ratio
        labels[redrawn] = rng.randint(0, 10, redrawn.sum())
        scaler = StandardScaler().fit(X)
        self.X, self.V, self.T = (
            torch.from_numpy(scaler.transform(a).astype(np.float32)) for a in (X, V, mnist.test.inputs)
        )
        self.labels, self.valid, self.test = map(torch.from_numpy, (labels, valid, mnist.test.labels))
        entropy = torch.nn.functional.cross_entropy
        self.problem = bvfim.Problem(
            upper=lambda x, y, i: entropy(self.V[i] @ y, self.valid[i]),
            lower=lambda x, y, i: (
                (torch.sigmoid(x[i]) * entropy(self.X[i] @ y, self.labels[i], reduction="none")).mean()
                + 0.2 * (y**2).sum()
            ),
        )

    def error(self, y: Tensor) -> float:
        """On the test rows."""
        return float(((self.T @ y).argmax(1) != self.test).double().mean())


def cleaning(seconds: float, seeds: int) -> Iterator[Row]:
    """The test error at the end of the time, and where it was lowest."""
    x, y = torch.full((20_000,), -2.0), torch.zeros(784, 10)
    for ratio, (soba, saba) in BEST.items():
        task = Cleaning(ratio)
        down = bvfim.schedules.power(1.0, -0.5)
        rivals = {
            "SOBA": (bvfim.SOBA(bvfim.schedules.power(soba[0], -0.5)), soba[0] / soba[1], down),
            "SABA": (bvfim.SABA(saba[0], 20_000, 5000, 64), saba[0] / saba[1], bvfim.schedules.constant(1.0)),
        }
        for name, (method, step, schedule) in rivals.items():
            for seed in range(seeds):
                batches = bvfim.Batches(
                    upper=bvfim.Shuffled(5000, 64, seed + 100, blocks=True),
                    lower=bvfim.Shuffled(20_000, 64, seed, blocks=True),
                )
                looks: list[float] = []

                def look(run: bvfim.Run, task: Cleaning = task, looks: list[float] = looks) -> None:
                    if run.k % 512 == 0:
                        looks.append(task.error(run.y))

                found = bvfim.solve(
                    task.problem, x, y, method, steps=10**7, batches=batches, time_limit=seconds, callbacks=[look],
                    optimizer=lambda p, step=step: torch.optim.SGD(p, step),
                    scheduler=lambda o, schedule=schedule: torch.optim.lr_scheduler.LambdaLR(o, schedule),
                    refit=False, progress=False,
                )  # fmt: skip
                yield {
                    "ratio": ratio,
                    "method": name,
                    "seed": seed,
                    "steps": found.steps,
                    "seconds": found.seconds,
                    "test error": task.error(found.y),
                    "lowest": min(looks, default=1.0),
                }


def main() -> None:
    """Measure and write."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = ("vpbgd", "bome", "f2sa", "meha", "cleaning")
    options.add_argument("--only", nargs="+", choices=parts, default=parts)
    options.add_argument("--starts", type=int, default=1000)
    options.add_argument("--seconds", type=float, default=60.0, help="of each run of hyper-cleaning")
    options.add_argument("--seeds", type=int, default=1, help="of hyper-cleaning")
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    torch.set_num_threads(1)
    runs: dict[str, Callable[[], Iterator[Row]]] = {
        "vpbgd": lambda: vpbgd(chosen.starts),
        "bome": bome,
        "f2sa": f2sa,
        "meha": meha,
        "cleaning": lambda: cleaning(chosen.seconds, chosen.seeds),
    }
    found: dict[str, list[Row]] = {}
    for part in chosen.only:
        found[part] = []
        for row in runs[part]():
            found[part].append(row)
            print(part, json.dumps(row), flush=True)
        if chosen.out:
            command = " ".join(["python benchmarks/kin.py", *sys.argv[1:]])
            about = {"command": command, "machine": machine(), **found}
            chosen.out.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
