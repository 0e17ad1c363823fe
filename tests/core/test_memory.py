"""Peak memory is counted, and the methods need what the paper says."""

from __future__ import annotations

import pytest
import torch

import bvfim
from bvfim.core.memory import PeakMemory
from tests.problems import quadratic

N = 5000


def peak(method):
    problem = bvfim.Problem(
        lambda x, y: (y - x.sum()).square().sum(), lambda x, y: torch.cosh(y - x.mean()).sum() + (y**2).sum()
    )
    x, y = torch.ones(3).double(), torch.zeros(N).double()
    with PeakMemory() as memory:
        bvfim.hypergradient(problem, x, y, method)
    return memory.peak / (8 * N)


def test_views_and_inplace_operations_cost_nothing():
    t = torch.zeros(100, dtype=torch.float64)
    with PeakMemory() as memory:
        u = t.view(10, 10).add_(1)
        v = u.T + 1
        del v
        w = u * 2
    assert memory.peak == 800
    assert w.sum() == 200


def test_an_error_inside_still_closes_the_count():
    with pytest.raises(ValueError, match="inside"), PeakMemory():
        raise ValueError("inside")
    with PeakMemory() as memory:
        torch.zeros(10, dtype=torch.float64)
    assert memory.peak == 80


@pytest.mark.parametrize("kind", [lambda t: bvfim.BVFIM(t, t), lambda t: bvfim.BVFIM(t, t, mu2=bvfim.LowerValue(1e6))])
def test_bvfim_memory_does_not_grow_with_its_steps(kind):
    assert peak(kind(5)) == peak(kind(80))
    assert peak(kind(5)) < 16


def test_implicit_memory_does_not_grow_with_its_steps():
    assert peak(bvfim.CG(5, cg_steps=5)) == peak(bvfim.CG(80, cg_steps=80))
    assert peak(bvfim.Neumann(5, terms=5)) == peak(bvfim.Neumann(80, terms=80))


def test_reverse_methods_store_the_iterates_they_need_and_no_more():
    short, long = peak(bvfim.RHG(10)), peak(bvfim.RHG(110))
    assert long - short == pytest.approx(100, abs=1)
    assert peak(bvfim.TRHG(110, keep=10)) == pytest.approx(short, abs=2)


def test_truncation_halves_what_rhg_stores():
    assert peak(bvfim.TRHG(200, keep=100)) < 0.6 * peak(bvfim.RHG(200))


def test_a_network_sized_problem_is_quadratic_free():
    q = quadratic(3, 40)
    with PeakMemory() as memory:
        bvfim.hypergradient(q.problem, torch.ones(3).double(), torch.ones(40).double(), bvfim.BVFIM())
    assert memory.peak < 40 * 40 * 8
