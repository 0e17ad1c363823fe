"""Theorem 1, seen: phi and phi_k are what they are said to be, and do what the theorem says."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pandas as pd
import pytest
import torch

from bvfim.reproduce.experiments import theorem
from bvfim.reproduce.experiments.resumable import How
from bvfim.reproduce.experiments.theorem import PROBLEMS, SCHEDULES, Config, phi, phi_k
from bvfim.reproduce.experiments.theorem_report import excess

pytestmark = pytest.mark.long

CONFIG = Config(points=60, lower_points=400, stages=5)
SINE, WELLS = PROBLEMS["sine"], PROBLEMS["double well"]


@pytest.fixture(scope="module")
def results():
    return theorem.run(CONFIG)


def table(results, schedule, problem):
    return results.tables[f"theorem-{schedule}"].loc[problem]


def column(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def test_phi_of_the_sine_is_its_closed_form():
    x = torch.linspace(-2, 2, 57, dtype=torch.float64)
    turns = 2 * math.pi * torch.arange(-2, 3)
    expected = x**2 + ((-math.pi / 2 - x[:, None] + turns) ** 2).amin(1)
    assert torch.allclose(phi(SINE, x, CONFIG), expected, atol=1e-6)


def test_phi_of_the_double_well_jumps_at_the_tie_and_takes_the_lower_value_there():
    left, tie, right = phi(WELLS, column(-1e-6, 0.0, 1e-6), CONFIG).tolist()
    assert tie == pytest.approx(0.25, abs=1e-6)
    assert left == pytest.approx(0.25, abs=1e-5)
    assert right == pytest.approx(0.25 + 2, abs=1e-5)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_phi_k_by_hand_where_y_and_z_are_zero(schedule):
    """At x = -pi/2 every term is least at y = z = 0, and the slack there is mu2."""
    for k in range(1, 7):
        own = SCHEDULES[schedule]
        mu2, tau = own.mu2(k - 1), own.tau(k - 1)
        found = phi_k(SINE, column(-math.pi / 2), k, own, CONFIG).item()
        assert found == pytest.approx(math.pi**2 / 4 - tau * math.log(mu2), abs=1e-8)


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("k", [1, 3])
def test_phi_k_is_the_least_of_a_million_values(problem, k):
    plane, own = PROBLEMS[problem], SCHEDULES["falling"]
    mu1, mu2, theta, tau = (s(k - 1) for s in (own.mu1, own.mu2, own.theta, own.tau))
    y = torch.linspace(-plane.y, plane.y, 1_000_001, dtype=torch.float64)
    for x in (-0.7, 0.003, 0.02, 0.6):
        f = plane.lower(torch.tensor(x), y)
        slack = (f + mu1 / 2 * y**2).min() + mu2 - f
        barrier = plane.upper(torch.tensor(x), y) + theta / 2 * y**2 - tau * slack.log()
        expected = barrier[slack > 0].min().item()
        assert phi_k(plane, column(x), k, own, CONFIG).item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_minimisers_and_minima_converge_stage_by_stage(results, problem):
    stages = table(results, "falling", problem)
    for name in ("|argmin - x*|", "|min - phi*|", "liminf half", "limsup half"):
        assert stages[name].is_monotonic_decreasing, name
    assert stages["|argmin - x*|"].iloc[-1] < 0.02
    assert stages["|min - phi*|"].iloc[-1] < 0.05
    assert stages["liminf half"].iloc[-1] < 0.35
    assert stages["limsup half"].iloc[-1] < 0.003


def test_the_optimum_is_the_right_one(results):
    sine, wells = (table(results, "falling", problem).iloc[-1] for problem in PROBLEMS)
    assert sine["argmin phi_k"] == pytest.approx(-math.pi / 4, abs=0.02)
    assert sine["min phi_k"] + sine["|min - phi*|"] == pytest.approx(math.pi**2 / 8, abs=1e-6)
    # -F_x = 1 meets tau / slack with slack = mu2 + mu1 / 2 - x, all of them equal: x = mu2 / 2.
    assert wells["argmin phi_k"] == pytest.approx(wells["mu2"] / 2, rel=0.01)


def test_convergence_is_not_uniform_where_phi_jumps(results):
    assert (table(results, "falling", "double well")["sup |phi_k - phi|"] > 1.6).all()
    assert table(results, "falling", "sine")["sup |phi_k - phi|"].is_monotonic_decreasing


@pytest.mark.parametrize("problem", PROBLEMS)
def test_broken_schedules_leave_phi_k_above_by_what_is_predicted(results, problem):
    stages = table(results, "broken", problem)
    assert stages["-tau ln(mu2)"].tolist() == pytest.approx([1.0] * CONFIG.stages)
    for name in ("median phi_k - phi", "|min - phi*|", "limsup half"):
        assert 0.93 < stages[name].iloc[-1] < 1.0001, name
    assert stages["median phi_k - phi"].is_monotonic_increasing
    assert stages["|argmin - x*|"].iloc[-1] < 0.02


def test_the_solver_warns_of_the_broken_schedules_only(results):
    assert results.summary["warned"] == {"falling": False, "broken": True}
    assert "bvfim.solve warns about these" in results.sections[1].ours


def test_excess_of_shifted_and_lowered_functions():
    x = np.linspace(-1, 1, 201)
    step = np.where(x > 0.005, 2.0, 0.0)
    later = np.where(x > 0.105, 2.0, 0.0)
    assert excess(x, step, later) == pytest.approx(0.1, abs=1e-6)  # it reaches 0.1 further
    assert excess(x, later, step) == 0
    assert excess(x, 0 * x, 0 * x - 0.3) == pytest.approx(0.3)
    assert excess(x, np.abs(x), np.abs(x) - 0.3) == pytest.approx(0.3)


def test_parts_can_be_sent_to_processes_and_saved(tmp_path):
    quick = Config().quick()
    sent = pickle.loads(pickle.dumps(theorem.parts(quick)))
    theorem.run(quick, How(folder=tmp_path))
    for name, part in sent.items():
        pd.testing.assert_frame_equal(pd.read_csv(tmp_path / f"{name}.csv"), part())


def test_every_section_shows_what_there_is(results):
    for section in results.sections:
        assert section.paper
        assert section.ours
        assert set(section.figures) <= set(results.figures)
        assert set(section.tables) <= set(results.tables)
