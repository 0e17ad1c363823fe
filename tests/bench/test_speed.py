from __future__ import annotations

import torch

import bvfim
from bvfim.bench import speed
from bvfim.experiments import cleaning

CONFIG = speed.Config(data="digits", train=100, validation=100, hidden=8, z_steps=4, y_steps=3, steps=3, pairs=1)


def test_the_bare_loop_is_the_printed_recipe():
    """Otherwise the ratio compares two different things."""
    task = cleaning.problem("digits", train=100, validation=100, hidden=8, dtype=torch.float64)
    by_hand = speed.bare_loop(task, CONFIG)
    method = bvfim.BVFIM(4, 3, mu2=bvfim.LowerValue())
    solution = bvfim.solve(task.problem, task.x, task.y, method, steps=3)
    assert torch.allclose(by_hand, solution.x, atol=1e-9)
    assert solution.evaluations["upper"] == 3 * (3 + 1)
    assert solution.evaluations["lower"] == 3 * (4 + 3 + 2)


def test_the_report_has_ratios_and_memory():
    results = speed.run(CONFIG)
    assert results.tables["speed"].loc["bare loop", "ratio to the bare loop"] == 1.0
    peaks = results.summary["peak MiB by (Tz, Ty)"]
    assert peaks["10, 5"] == peaks["50, 25"]
