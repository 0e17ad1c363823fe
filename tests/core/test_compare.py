from __future__ import annotations

import math

import torch

import bvfim
from tests.problems import quadratic

Q = quadratic(3, 4)
X, Y = torch.zeros(3).double(), torch.zeros(4).double()


def test_one_row_a_method_with_what_it_cost():
    methods = [bvfim.RHG(10, 0.2), bvfim.CG(10, 0.2, cg_steps=4), bvfim.BVFIM(5, 5), bvfim.RHG(20, 0.2)]
    table = bvfim.compare(Q.problem, methods, X, Y, steps=5)
    assert list(table.index) == ["RHG", "CG", "BVFIM", "RHG 2"]
    assert (table["steps"] == 5).all()
    assert (table["lower_gap"] >= 0).all()
    assert table.loc["RHG 2", "lower_gap"] < table.loc["RHG", "lower_gap"]
    assert table.loc["RHG", "lower_evaluations"] == 5 * 19
    assert table.loc["BVFIM", "hvp_evaluations"] == 0
    assert (table["peak_mib"] > 0).all()
    assert (table["seconds"] > 0).all()


def test_the_gap_is_that_of_the_closed_form():
    table = bvfim.compare(Q.problem, {"short": bvfim.RHG(3, 0.1)}, X, Y, steps=1)
    solution = bvfim.solve(Q.problem, X, Y, bvfim.RHG(3, 0.1), steps=1)
    best = Q.problem.lower(solution.x, Q.response(solution.x))
    assert math.isclose(table.loc["short", "lower_gap"], solution.lower - float(best), rel_tol=1e-6)


def test_a_budget_of_gradients_stops_each_method():
    table = bvfim.compare(Q.problem, [bvfim.RHG(10), bvfim.BVFIM(10, 5)], X, Y, gradients=400, steps=10**6)
    spent = table[["upper_evaluations", "lower_evaluations", "hvp_evaluations", "jvp_evaluations"]].sum(axis=1)
    assert ((spent >= 400) & (spent < 450)).all()
    assert (table["status"] == "stopped").all()


def test_random_objectives_of_the_batches_see_the_same_seed():
    rows = torch.arange(12.0, dtype=torch.float64)
    loader = torch.utils.data.DataLoader(rows, batch_size=4, shuffle=True)
    problem = bvfim.Problem(lambda x, y, b: (y - b).square().mean(), lambda x, y, b: (y - x).square().mean())
    one = torch.ones(1).double()
    table = bvfim.compare(problem, [bvfim.RHG(3), bvfim.RHG(3)], one, one, steps=4, batches=loader)
    assert table["upper"].iloc[0] == table["upper"].iloc[1]
