import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import bvfim
from bvfim import tree
from bvfim.core.descent import Probe, descend, descend_inside
from bvfim.dynamics import GradientDescent

quick = settings(max_examples=60, deadline=None, derandomize=True)


def scalar(value):
    return torch.tensor(value, dtype=torch.float64)


def same(y):
    return y


def somewhere(y_set=None):
    """A problem at a point, for its set alone."""
    return bvfim.Problem(lambda x, y: y, lambda x, y: y, y_set=y_set).at(scalar(0.0))


def test_descend_is_the_loop_written_out():
    def gradient(at, y):
        return {"a": torch.cos(y["a"]) + y["b"], "b": 2 * y["b"] - 1}

    start = {"a": torch.tensor([0.5, -0.3], dtype=torch.float64), "b": scalar(0.2)}
    a, b = start["a"].tolist(), start["b"].item()
    for _ in range(7):
        slope = [math.cos(v) + b for v in a], 2 * b - 1
        a = [min(max(v - 0.3 * s, -0.6), 0.6) for v, s in zip(a, slope[0], strict=True)]
        b = min(max(b - 0.3 * slope[1], -0.6), 0.6)
    found = descend(somewhere(bvfim.Box(-0.6, 0.6)), gradient, start, 7, GradientDescent(0.3))
    torch.testing.assert_close(tree.flatten(found), torch.tensor([*a, b], dtype=torch.float64), rtol=1e-14, atol=1e-15)
    assert start["b"] == 0.2


def test_descend_with_no_step_returns_the_start():
    y = scalar(1.0)
    assert descend(somewhere(), lambda at, y: y, y, 0, GradientDescent(0.1)) is y


class Region:
    """Minimise ``inner`` where ``outer`` is below ``level``; outside, minimise ``outer``. Counts its evaluations."""

    def __init__(self, inner, outer, level):
        self.inner, self.outer, self.level = inner, outer, level
        self.probes = self.checks = 0

    def evaluate(self, y):
        far = self.outer(y)
        inside = far < self.level
        return inside, torch.where(inside, self.inner(y), far)

    def probe(self, y):
        self.probes += 1
        y = tree.variable(y)
        inside, merit = self.evaluate(y)
        return Probe(inside, merit.detach(), tree.grad(merit, y))

    def check(self, y):
        self.checks += 1
        inside, merit = self.evaluate(y)
        return inside, merit

    def run(self, y, steps, lr, project=same):
        return descend_inside(self.probe, self.check, y, steps, lr, project)

    def reference(self, y, steps, lr, project=same):
        """The rule in the docstring with branches on the host; every accepted point, and the drops so far."""
        best, scale, dropped, path = self.probe(y), 1.0, 0, [(y, 0)]
        for _ in range(steps):
            trial = project(y - lr * scale * best.direction)
            found = self.probe(trial)
            if found.inside and (not best.inside or found.merit <= best.merit):
                good = True
            else:
                good = not found.inside and not best.inside and bool(found.merit <= best.merit)
            if good:
                y, best, scale = trial, found, min(2 * scale, 1.0)
            else:
                scale, dropped = scale / 2, dropped + 1
            path.append((y, dropped))
        return path


wiggles = st.lists(st.tuples(st.floats(-1, 1), st.floats(0.5, 6), st.floats(0, 6)), min_size=1, max_size=3)


def wiggly(terms):
    return lambda y: sum(a * torch.sin(w * y + s) for a, w, s in terms) + 0.1 * y**2


@quick
@given(wiggles, wiggles, st.floats(-0.5, 2), st.floats(-4, 4), st.floats(0.01, 3), st.booleans())
def test_once_inside_never_outside_and_the_merit_never_rises(inner, outer, level, start, lr, boxed):
    region = Region(wiggly(inner), wiggly(outer), level)
    project = (lambda y: y.clamp(-3, 3)) if boxed else same
    y, steps = project(scalar(start)), 15
    # A run of s steps is the beginning of any longer one, so that runs of all lengths show the whole path.
    runs = [region.run(y, s, lr, project) for s in range(steps + 1)]
    states = [region.evaluate(found) for found, _, _ in runs]
    for (found, inside, _), (truly, _) in zip(runs, states, strict=True):
        assert inside == truly
        assert torch.equal(project(found), found)
    for (was, before), (now, after) in itertools.pairwise(states):
        assert now or not was
        if was == now:
            assert after <= before
    for (found, _, dropped), (expected, drops) in zip(runs, region.reference(y, steps, lr, project), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
        assert dropped == drops


@pytest.mark.parametrize("lr", [0.05, 0.5, 5.0])
def test_a_wiggly_level_set_is_not_left(lr):
    region = Region(lambda y: (y - 3) ** 2, lambda y: torch.sin(3 * y) + 0.1 * y**2, -0.5)
    for start in torch.linspace(-3, 3, 61, dtype=torch.float64):
        found, inside, _ = region.run(start, 12, lr)
        was, before = region.evaluate(start)
        now, after = region.evaluate(found)
        assert inside == now
        assert now or not was
        assert (now and not was) or after <= before


def test_a_start_outside_moves_in_where_it_can():
    region = Region(lambda y: ((y - 2) ** 2).sum(), lambda y: (y**2).sum(), 1.0)
    start = torch.tensor([3.0, -4.0], dtype=torch.float64)
    found, inside, dropped = region.run(start, 30, 0.1)
    assert inside
    assert (found**2).sum() < 1
    assert dropped > 0  # (2, 2) lies outside, so the descent inside has to stop at the rim
    assert found.sum() > 0


def test_a_start_outside_stays_outside_where_nothing_is_inside_and_says_so():
    region = Region(lambda y: y, lambda y: y**2 + 1, 0.5)
    found, inside, dropped = region.run(scalar(3.0), 60, 0.1)
    assert not inside
    assert dropped == 0
    assert abs(found) < 1e-4


@pytest.mark.parametrize("steps", [1, 2, 5, 20])
@pytest.mark.parametrize("lr", [0.1, 1e3])
def test_the_price_is_one_probe_for_each_step_and_one_check(steps, lr):
    region = Region(lambda y: (y - 1) ** 2, lambda y: y**2, 4.0)
    region.run(scalar(0.5), steps, lr)
    assert (region.probes, region.checks) == (steps, 1)


def test_inside_a_wide_region_it_is_plain_descent():
    region = Region(lambda y: (y - 1) ** 2, lambda y: y**2, 1e6)
    found, inside, dropped = region.run(scalar(5.0), 12, 0.2)
    expected = descend(somewhere(), lambda at, y: 2 * (y - 1), scalar(5.0), 12, GradientDescent(0.2))
    torch.testing.assert_close(found, expected, rtol=1e-14, atol=0)
    assert inside
    assert dropped == 0


def test_a_step_that_is_far_too_long_is_halved_until_it_helps():
    # From y = 1 the trial 1 - c 2 lr is good from c lr <= 1 on: for lr = 100 at the eighth trial, c = 1/128.
    region = Region(lambda y: y**2, lambda y: y**2, 1e12)
    for steps in range(1, 8):
        found, _, dropped = region.run(scalar(1.0), steps, 100.0)
        assert found == 1
        assert dropped == steps
    found, _, dropped = region.run(scalar(1.0), 8, 100.0)
    torch.testing.assert_close(found, scalar(1 - 200 / 128))
    assert dropped == 7


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_trial_that_is_not_finite_is_dropped(bad):
    region = Region(lambda y: torch.where(y < 0.5, bad * torch.ones_like(y), y), lambda y: y, 10.0)
    found, inside, dropped = region.run(scalar(1.0), 6, 1.0)
    assert inside
    assert 0.5 <= found < 1
    assert dropped > 0


def test_trees_are_moved_as_a_whole():
    def probe(y):
        return Probe(torch.tensor(True), tree.dot(y, y), tree.scale(2.0, y))

    start = {"a": torch.ones(2, dtype=torch.float64), "b": [scalar(2.0)]}
    found, _, _ = descend_inside(probe, lambda y: probe(y)[:2], start, 3, 0.25, same)
    torch.testing.assert_close(tree.flatten(found), tree.flatten(start) / 8)
