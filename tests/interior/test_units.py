"""The units of the interior point: the same path however x, y, F and f are measured."""

from __future__ import annotations

import pytest
import torch

import bvfim
from bvfim.interior.batch import Batch
from bvfim.interior.space import Space
from bvfim.interior.units import units

D = torch.float64
MANY = 20
"""Of the random problems, those that every run of CI tries: all sizes, and nearly every pair of factors."""


def vector(*entries):
    return torch.tensor(entries, dtype=D)


def quadratic(a=1.0, b=1.0, c=1.0, d=1.0):
    """x in units of a, y of b, F of c, f of d; the optimum is x = 2.5 a, F = 0.5 c."""
    return bvfim.Problem(
        lambda x, y: c * ((x / a - 2) ** 2 + (y / b - 2) ** 2).sum(), lambda x, y: d * ((y / b - x / a + 1) ** 2).sum()
    )


def random_problem(seed, a=1.0, b=1.0, c=1.0, d=1.0, shift=0.0, order=None):
    """A smooth lower level of condition about ten, and a curved F; in any units, with x and y in any order."""
    generator = torch.Generator().manual_seed(seed)
    n, m = 1 + seed % 3, 1 + seed % 2
    A, B, p, q = (torch.randn(s, dtype=D, generator=generator) for s in ((m, n), (m, m), (n,), (m,)))
    H = B @ B.mT + torch.eye(m, dtype=D)
    to_x, to_y = (slice(None), slice(None)) if order is None else (order[:n], order[n:])

    def upper(x, y):
        x, y = (x / a)[to_x], (y / b)[to_y]
        return c * (((x - p) ** 2).sum() + ((y - q) ** 2).sum() + 0.1 * (y**4).sum())

    def lower(x, y):
        x, y = (x / a)[to_x], (y / b)[to_y]
        return d * (0.5 * y @ H @ y - y @ (A @ x) + 0.1 * (y**4).sum()) + shift

    start = torch.randn(n + m, dtype=D, generator=generator)
    return bvfim.Problem(upper, lower), start[:n], start[n:]


@pytest.mark.parametrize(("a", "b"), [(1, 1e-4), (1e-5, 1), (1e6, 1), (1e6, 1e-6), (1e-6, 1e6)])
def test_a_quadratic_is_solved_in_any_units(a, b):
    found = bvfim.solve(quadratic(a, b), vector(0.0), vector(0.0))
    assert found.status is bvfim.Status.CONVERGED
    assert found.upper == pytest.approx(0.5, abs=1e-3)
    assert found.x.item() / a == pytest.approx(2.5, abs=0.01)


@pytest.mark.parametrize("seed", range(4))
def test_powers_of_two_change_no_bit(seed):
    plain, x, y = random_problem(seed)
    other, _, _ = random_problem(seed, 2.0**13, 2.0**-9, 2.0**5, 2.0**-7)
    first = bvfim.solve(plain, x, y, refit=False)
    second = bvfim.solve(other, x * 2.0**13, y * 2.0**-9, refit=False)
    assert second.status is first.status
    assert second.evaluations == first.evaluations
    assert torch.equal(second.x, first.x * 2.0**13)
    assert torch.equal(second.y, first.y * 2.0**-9)


@pytest.mark.long
@pytest.mark.parametrize("seed", [pytest.param(i, marks=pytest.mark.slow if i >= MANY else ()) for i in range(100)])
def test_other_factors_shifts_and_orders_give_the_same_answer(seed):
    plain, x, y = random_problem(seed)
    found = [bvfim.solve(plain, x, y, refit=False)]
    a, b = 10.0 ** (seed % 7 - 3), 10.0 ** (seed % 5 - 2)
    scaled, _, _ = random_problem(seed, a, b, 3e3, 7e-4, shift=0.3)
    found.append(bvfim.solve(scaled, x * a, y * b, refit=False))
    backwards = torch.cat([torch.arange(len(v)).flip(0) for v in (x, y)])
    turned, _, _ = random_problem(seed, order=backwards)
    found.append(bvfim.solve(turned, x.flip(0), y.flip(0), refit=False))
    assert all(s.status is bvfim.Status.CONVERGED for s in found)
    F = [found[0].upper, found[1].upper / 3e3, found[2].upper]
    assert max(F) - min(F) < 2e-3 * (1 + abs(F[0]))


def measured(problem, x, y):
    spaces = [Space(v, [s]) for v, s in ((x, problem.x_set), (y, problem.y_set))]
    batch = Batch(problem, *spaces, torch.zeros(1, 3, dtype=torch.long))
    generator = torch.Generator().manual_seed(0)
    numbers = torch.rand(1, 5, len(x) + len(y), dtype=D, generator=generator)
    return units(batch, torch.cat([x, y])[None], torch.zeros(1, dtype=torch.long), lambda *_: numbers)[0]


def test_entries_of_other_units_get_their_own():
    size = vector(1e-3, 1.0, 1e3)
    problem = bvfim.Problem(
        lambda x, y: ((x - 1) ** 2).sum() + ((y / size - 1) ** 2).sum(), lambda x, y: ((y / size - x) ** 2).sum()
    )
    found = measured(problem, torch.full((3,), 3.0, dtype=D), torch.zeros(3, dtype=D))
    ratio = found[3:] / size
    assert ratio.max() / ratio.min() < 8


def test_a_finite_box_is_measured_by_its_width():
    problem = bvfim.Problem(
        lambda x, y: (x**2 + y**2).sum(), lambda x, y: ((y - x) ** 2).sum(), bvfim.Box(0, 1e-4), bvfim.Box(-1e5, 1e5)
    )
    assert measured(problem, vector(5e-5), vector(0.0)).tolist() == [2.0**-17, 2.0**14]


def test_where_nothing_is_known_the_start_gives_the_unit():
    problem = bvfim.Problem(lambda x, y: (x + y).sum(), lambda x, y: (x * y).sum())
    assert measured(problem, vector(0.0), vector(1000.0)).tolist() == [1.0, 1024.0]
