"""The examples run, and show what they say."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import bvfim
from bvfim.app import problem_file
from tests.torchrun import LIMIT, torchrun

EXAMPLES = Path(__file__).parent.parent / "examples"
CONSTRAINED = ("pricing_budget", "security_game", "svm_margins", "toll_network")


def ran(name, capsys):
    """The names that a script leaves behind, and what it prints."""
    names = runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    return names, capsys.readouterr().out


def figures(line):
    """The numbers of a line."""
    return [float(word) for word in re.findall(r"\d+(?:\.\d+)?(?:e-?\d+)?", line)]


def test_a_loop_of_ones_own_learns_which_rows_count(capsys):
    path = EXAMPLES / "own_loop.py"
    assert len(path.read_text().splitlines()) <= 25
    runpy.run_path(str(path))
    (share,) = re.findall(r"(\d+)% are right", capsys.readouterr().out)
    assert int(share) >= 90  # 70 before


@pytest.mark.long
def test_two_processes_learn_which_rows_count():
    script = str(EXAMPLES / "several_gpus.py")
    alone = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=LIMIT, check=False)
    for found in (alone, torchrun(script)):
        assert found.returncode == 0, found.stderr
        right, wrong = map(float, re.findall(r"\d\.\d+", found.stdout))
        assert right > 0.6
        assert wrong < 0.2


@pytest.mark.parametrize("name", CONSTRAINED)
def test_an_example_with_constraints_fits_a_page_and_is_a_problem_file(name):
    path = EXAMPLES / f"{name}.py"
    assert len(path.read_text().splitlines()) <= 100
    problem = problem_file.load(path).problem
    assert problem.stated or problem.follower == "pessimistic"


@pytest.mark.long
def test_tolls_earn_what_the_best_of_a_grid_does(capsys):
    names, printed = ran("toll_network", capsys)
    solution = names["solution"]
    assert solution.status is bvfim.Status.CONVERGED
    tolls, flows = solution.x.numpy(), names["settled"](solution.x.numpy())
    np.testing.assert_allclose(tolls, 3.1, atol=0.02)  # (3.1, 3.1) by Nelder-Mead over SciPy's traffic, 10.1158
    assert -solution.upper == pytest.approx(10.1158, abs=1e-3)
    np.testing.assert_allclose(solution.y, flows, atol=2e-3)
    # It takes as long on every way that is used: from home, that is what the ring road takes.
    waits = -solution.multipliers["lower_equalities"]
    assert float(waits[0]) == pytest.approx(12 + 0.2 * flows[5], abs=1e-2)
    assert float(waits[1]) == pytest.approx(5 + 0.5 * flows[3], abs=1e-2)
    *_, best = figures(printed.splitlines()[-1].rstrip("."))
    assert best <= 10.116


@pytest.mark.long
def test_prices_and_their_multipliers_are_those_of_the_closed_form(capsys):
    names, _ = ran("pricing_budget", capsys)
    solution, law = names["solution"], names["law"]

    def earned(law):
        """The best profit with bread at most at that price, where the law binds."""
        found = minimize_scalar(lambda wine: -names["profit"]((law, wine)), bounds=(0.3, 3), method="bounded")
        return -found.fun, found.x

    best, wine = earned(law)
    basket, coin = names["basket"]((law, wine))
    assert -solution.upper == pytest.approx(best, abs=1e-3)
    np.testing.assert_allclose(solution.x, [law, wine], atol=0.02)
    np.testing.assert_allclose(solution.y, basket, atol=0.02)
    assert float(solution.multipliers["lower_constraints"]) == pytest.approx(coin, abs=5e-3)
    of_law = (earned(law + 0.01)[0] - earned(law - 0.01)[0]) / 0.02
    assert float(solution.multipliers["upper_constraints"]) == pytest.approx(of_law, abs=0.01)
    assert solution.violation <= 1e-4


@pytest.mark.long
def test_multipliers_of_margins_are_dual_coefficients(capsys):
    names, printed = ran("svm_margins", capsys)
    solution = names["solution"]
    machine, loss = names["fitted"](float(solution.x))
    dual = np.zeros(20)
    dual[machine.support_] = np.abs(machine.dual_coef_[0])
    np.testing.assert_allclose(solution.multipliers["lower_constraints"], dual, atol=1e-3)
    assert solution.upper == pytest.approx(loss, abs=1e-4)
    assert solution.upper <= min(names["fitted"](x)[1] for x in np.linspace(-6, 4, 101)) + 1e-3
    np.testing.assert_allclose(solution.y["w"], machine.coef_[0], atol=1e-3)
    assert len(printed.splitlines()) == 4


@pytest.mark.long
def test_an_optimist_and_a_pessimist_guard_different_quarters(capsys):
    names, _ = ran("security_game", capsys)
    both = names["both"]
    best, worst = np.transpose([names["losses"](share) for share in np.linspace(0, 1, 10_001)])
    for solution, losses in ((both.optimistic, best), (both.pessimistic, worst)):
        assert solution.status is bvfim.Status.CONVERGED
        assert solution.upper == pytest.approx(losses.min(), abs=1e-3)
        assert float(solution.x) == pytest.approx(losses.argmin() / 10_000, abs=5e-3)
    assert both.worth == pytest.approx(worst.min() - best.min(), abs=2e-3)
