"""bvfim's methods as a solver of benchopt's bilevel suite: it goes into the suite's folder `solvers`.

`problems.py` goes into `benchmark_utils`, as `bvfim_problems.py`; `compare.py` puts both there.
"""

from __future__ import annotations

from functools import partial

import jax.numpy as jnp
import torch
from benchmark_utils import constants
from benchmark_utils.bvfim_problems import from_jax, problem
from benchopt import BaseSolver
from benchopt.stopping_criterion import SufficientProgressCriterion

import bvfim
from bvfim.schedules import power

WARM_UP = 3
"""Steps that are not timed, as the suite's own solvers compile before the clock runs."""


class Solver(BaseSolver):
    """A method of bvfim, on batches of consecutive rows as the suite draws them.

    ``step_size`` is that of the lower variables and ``step_size / outer_ratio`` that of x, as everywhere in the suite;
    StochasticBVFIM chooses its own and wants to know for how many ``steps`` it runs. ``multiplier`` is its setting, and
    ``x_step`` that of its optimiser of x. ``answer`` is what is judged: y, or z, the minimiser of the inner function
    alone.
    """

    name = "bvfim"
    requirements = ("bvfim",)
    stopping_criterion = SufficientProgressCriterion(patience=constants.PATIENCE, strategy="callback")
    parameters = {  # noqa: RUF012  # benchopt's own way
        "method": ["StochasticBVFIM", "BVFIM", "F2SA", "SOBA", "SABA"],
        "step_size": [0.1],
        "outer_ratio": [1.0],
        "batch_size": [64],
        "steps": [10_000],
        "multiplier": [None],
        "x_step": [0.1],
        "source": ["data"],
        "answer": ["y"],
        "eval_freq": [128],
        "random_state": [1],
    }

    @staticmethod
    def get_next(stop_val):
        """Evaluate each time that the callback is called."""
        return stop_val + 1

    def set_objective(self, f_inner, f_outer, n_inner_samples, n_outer_samples, inner_var0, outer_var0):
        """Take over the problem, and warm up."""
        torch.set_num_threads(1)
        self.problem = problem(f_inner, f_outer, self.source)
        self.rows = n_inner_samples, n_outer_samples
        self.start = from_jax(outer_var0).clone(), from_jax(inner_var0).clone()
        stepper, draw = self.begun()
        for _ in range(WARM_UP):
            stepper.step(draw())

    def begun(self):
        """A stepper at the start, and what draws its batches."""
        inner, outer = self.rows
        size, seed, x_step = self.batch_size, 2 * self.random_state, self.step_size / self.outer_ratio
        of_f = bvfim.Shuffled(inner, size, seed, blocks=True)
        of_F = bvfim.Shuffled(outer, size, seed + 1, blocks=True)
        methods = {
            "StochasticBVFIM": lambda: bvfim.StochasticBVFIM(multiplier=self.multiplier),
            "BVFIM": lambda: bvfim.BVFIM(z_lr=self.step_size, y_lr=self.step_size),
            "F2SA": lambda: bvfim.F2SA(lr=self.step_size),
            "SOBA": lambda: bvfim.SOBA(lr=power(self.step_size, -0.5)),
            "SABA": lambda: bvfim.SABA(self.step_size, lower_rows=inner, upper_rows=outer, size=size),
        }
        one_scale = partial(bvfim.OneScale, lr=self.x_step, wait=self.steps // 20)
        of_x = one_scale if self.method == "StochasticBVFIM" else partial(torch.optim.SGD, lr=x_step)
        slower = None
        if self.method == "SOBA":
            slower = lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda k: (k + 1) ** -0.5)  # noqa: E731
        stepper = bvfim.Stepper(
            self.problem, *self.start, methods[self.method](), of_x, scheduler=slower, steps=self.steps
        )
        return stepper, lambda: bvfim.Draw(next(of_F), next(of_f))

    def run(self, callback):
        """Steps, until the suite has seen enough or a run of known length is over."""
        self.stepper, draw = self.begun()
        while callback():
            for _ in range(self.eval_freq):
                if self.method == "StochasticBVFIM" and self.stepper.k == self.steps:
                    return
                self.stepper.step(draw())

    def get_result(self):
        """What the suite judges."""
        inner = self.stepper.method.minimiser(self.stepper.state) if self.answer == "z" else self.stepper.y
        return {"inner_var": jnp.array(inner.numpy()), "outer_var": jnp.array(self.stepper.x.numpy())}
