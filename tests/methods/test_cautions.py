"""BVFIM speaks up where the schedules break tau ln(mu2) -> 0, and nowhere else."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import bvfim
from bvfim.schedules import constant, geometric, harmonic, join
from tests.problems import nested

FALLING = geometric(1.0, 1 / 1.01)
BROKEN = {
    "harmonic tau": {"tau": harmonic(1.0), "mu2": FALLING},
    "harmonic tau, large mu2": {"tau": harmonic(0.1), "mu2": geometric(4.0, 0.98)},
    "constant tau": {"tau": 0.1, "mu2": FALLING},
    "constant schedule of tau": {"tau": constant(1e-8), "mu2": FALLING},
    "mu2 = exp(-1/tau)": {"tau": harmonic(1.0), "mu2": lambda k: math.exp(-(k + 1))},
    "a much slower tau": {"tau": geometric(1.0, 0.9999), "mu2": FALLING},
    "tau stops falling": {"tau": join([FALLING, constant(0.3)], [100]), "mu2": FALLING},
}
SOUND = {
    "defaults": {},
    "constants": {"tau": 1.0, "mu2": 1e-3},
    "constant schedules": {"tau": constant(1.0), "mu2": constant(1e-30)},
    "only tau falls": {"mu2": 0.01},
    "mu2 stays large": {"tau": 1.0, "mu2": geometric(100.0, 0.995)},
    "harmonic both": {"tau": harmonic(1.0), "mu2": harmonic(1.0)},
    "root and harmonic": {"tau": lambda k: (k + 1) ** -0.5, "mu2": harmonic(1.0)},
    "tau = 0": {"tau": 0.0},
    "mu2 passes 1 in the middle": {"tau": geometric(1.0, 0.98), "mu2": geometric(0.98**-250, 0.98)},
    "the published mu2": {"tau": harmonic(1.0), "mu2": bvfim.LowerValue()},
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_schedules_are_told(name):
    (caution,) = bvfim.BVFIM(**BROKEN[name]).cautions(500)
    assert "Theorem 1 needs tau ln(mu2) -> 0" in caution
    assert "same geometric schedule" in caution


@pytest.mark.parametrize("name", SOUND)
def test_sound_schedules_are_not(name):
    assert bvfim.BVFIM(**SOUND[name]).cautions(500) == []


def test_the_numbers_are_the_products_in_the_middle_and_at_the_end():
    (caution,) = bvfim.BVFIM(tau=0.25, mu2=lambda k: math.exp(-k)).cautions(101)
    assert "tau |ln mu2| is 12.5 in the middle of the run and 25 at its end" in caution


@given(st.integers(0, 10**7), st.integers(1, 1000))
def test_the_defaults_never_warn(steps, repeats):
    assert bvfim.BVFIM(repeats=repeats).cautions(steps) == []


@settings(max_examples=1000)
@given(
    st.floats(1e-12, 20),
    st.floats(1, 50),
    st.floats(-30, 30),
    st.floats(1e-3, 1e3),
    st.one_of(st.integers(1, 300), st.integers(200, 10**6)),
)
def test_no_geometric_pair_whose_tau_falls_no_slower_than_mu2_warns(slowness, faster, log_mu2, tau, steps):
    """For every length of the run, not only the long ones: with t = -ln mu2, see the comment in ``cautions``."""
    mu2 = geometric(math.exp(log_mu2), math.exp(-slowness))
    assume(math.exp(-slowness * faster) > 0)  # a rate of zero makes no schedule
    method = bvfim.BVFIM(mu2=mu2, tau=geometric(tau, math.exp(-slowness * faster)))
    assert method.cautions(steps) == []


@given(st.floats(0.005, 1), st.integers(200, 600))
def test_every_harmonic_tau_with_a_geometric_mu2_warns(slowness, steps):
    """Until mu2 reaches the smallest float, where it stops to fall."""
    steps = min(steps, int(600 / slowness))
    fallen = slowness * (steps - 1) >= 2
    method = bvfim.BVFIM(mu2=geometric(1.0, math.exp(-slowness)), tau=harmonic(1.0))
    assert bool(method.cautions(steps)) == fallen


def test_short_runs_are_left_alone_and_their_schedules_unasked():
    def never(k):
        raise AssertionError

    assert bvfim.BVFIM(mu2=never, tau=never).cautions(9) == []
    assert bvfim.BVFIM(mu2=never, tau=never, repeats=100).cautions(900) == []


def test_only_stages_of_the_run_are_asked_for():
    tables = [math.exp(-k) for k in range(34)], [1.0] * 34
    mu2, tau = ([*table].__getitem__ for table in tables)
    assert bvfim.BVFIM(mu2=mu2, tau=tau, repeats=3).cautions(100)  # stages 0 to 33


FAILING = [(lambda k: 1 / (20 - k), 20), (lambda k: math.nan, 0), (lambda k: None, 0), (lambda k: 1 - k / 15, 15)]


@pytest.mark.parametrize(("bad", "step"), FAILING)
@pytest.mark.parametrize("name", ["mu2", "tau"])
def test_a_schedule_that_fails_does_so_at_its_step(bad, step, name):
    problem, x, y = nested()
    method = bvfim.BVFIM(z_steps=1, y_steps=1, **{"mu2": geometric(1.0, 0.8), "tau": 1.0, name: bad})
    reached = []
    raised = pytest.raises((ZeroDivisionError, bvfim.MethodError, TypeError))
    with pytest.warns(bvfim.BvfimWarning, match="fails within the 30 steps"), raised:
        bvfim.solve(problem, x, y, method, steps=30, callbacks=[lambda run: reached.append(run.k)])
    assert len(reached) == step


def test_solve_warns_once_and_points_to_its_caller():
    problem, x, y = nested()
    method = bvfim.BVFIM(z_steps=1, y_steps=1, tau=1.0, mu2=geometric(1.0, 0.8))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        bvfim.solve(problem, x, y, method, steps=12)
    assert [warning.category for warning in seen] == [bvfim.BvfimWarning]
    assert seen[0].filename == __file__
    bvfim.solve(problem, x, y, bvfim.BVFIM(z_steps=1, y_steps=1), steps=12)  # a warning would be an error here


def test_a_batch_of_starts_warns_once():
    toy = bvfim.testproblems.sine()
    starts = torch.linspace(-1, 1, 4, dtype=torch.float64)[:, None]
    method = bvfim.BVFIM(z_steps=1, y_steps=1, tau=1.0, mu2=geometric(1.0, 0.8))
    with pytest.warns(bvfim.BvfimWarning, match="Theorem 1") as seen:
        bvfim.solve_many(toy.problem, starts, starts, method, steps=12)
    assert len(seen) == 1


def test_the_other_methods_have_nothing_to_say():
    assert bvfim.RHG().cautions(500) == []
