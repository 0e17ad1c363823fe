"""Second derivatives of a large separable lower level from few gradients."""

from __future__ import annotations

import pytest
import torch

import bvfim
from bvfim.core.augmented import Augmented, blank
from bvfim.core.constraints import layout
from bvfim.interior.batch import Batch
from bvfim.interior.separable import placed, separable, signs
from bvfim.interior.space import Space

D = torch.float64
N, M = 40, 35


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=D)


def found(lower, **constraints):
    """What is found at two points, and the second derivatives of psi there by differentiating twice."""
    problem = bvfim.Problem(lambda x, y: x.sum() + y.sum(), lower, **constraints)
    x, z = random(2, M, seed=1), random(2, N, seed=2)
    batch = Batch(problem, Space(x[0], [None]), Space(z[0], [None]), torch.zeros(2, 3, dtype=torch.long))
    own = layout(problem, x[0], z[0], None)
    terms = blank(own, x)
    batch.augmented = Augmented(own, terms._replace(cap=torch.inf * terms.cap))
    at = batch.at(x, torch.arange(2))

    def psi(x, y):
        values = torch.cat([getattr(problem, kind)(x, y).reshape(-1) for kind in constraints])
        return lower(x, y) + batch.augmented._replace(terms=batch.augmented.terms.take(torch.tensor(0))).lower(values)

    dense = [torch.autograd.functional.hessian(psi, pair) for pair in zip(x, z, strict=True)]
    return separable(at, z), torch.stack([h[1][1] for h in dense]), torch.stack([h[1][0] for h in dense]), batch


def separate(x, y):
    """Every entry of y meets itself and at most one of x, in another order."""
    return (torch.linspace(0.5, 2, N, dtype=D) * y**2).sum() + (y[:M].flip(0).sin() * x).sum()


def test_one_entry_a_row_and_the_terms_of_constraints_are_found_from_few_gradients():
    rows = random(2, N, seed=3)
    got, K, C, batch = found(separate, lower_equalities=lambda x, y: rows @ y + x.sum())
    assert got.known.all()
    torch.testing.assert_close(got.K, K, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(got.C, C, rtol=1e-3, atol=1e-3)
    assert batch.counts[:, 1].max() < 15


@pytest.mark.parametrize(
    ("lower", "equality"),
    [
        (lambda x, y: separate(x, y) + y[0] * y[1], lambda x, y: y.sum()),
        (lambda x, y: separate(x, y) + x[0] * y.sum(), lambda x, y: y.sum()),
        (lambda x, y: separate(x, y) + (y.sum() ** 2) * 1e-2, lambda x, y: y.sum()),
        # a constraint that curves, where its multiplier is not zero
        (separate, lambda x, y: y.square().sum() - x.sum()),
    ],
)
def test_what_does_not_have_this_form_is_not_claimed_to(lower, equality):
    got, _, _, _ = found(lower, lower_equalities=equality)
    assert not got.known.any()
    assert not got.K.any()
    assert not got.C.any()


def test_places_are_read_from_signs():
    n = 37
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    matrix = torch.zeros(n, n, dtype=D)
    matrix[torch.arange(n), order] = random(n)
    matrix[3] = 0.0
    directions = torch.cat([torch.ones(1, n), signs(n)]).to(D)
    got, whole = placed((directions @ matrix.T)[None], n)
    assert bool(whole)
    assert torch.equal(got[0], matrix)


@pytest.mark.long
def test_the_gradients_of_a_large_problem_are_hardly_more_than_those_of_a_small_one():
    counts = []
    for n in (3, 60):
        test = bvfim.testproblems.lv_hba(n)
        x, y = torch.full_like(test.x, -20.0), torch.full_like(test.y, 10.0)
        solution = bvfim.solve(test.problem, x, y, bvfim.AdaptiveBVFIM(), refit=False)
        assert solution.status is bvfim.Status.CONVERGED
        assert solution.upper == pytest.approx(test.upper, rel=1e-3)
        counts.append(solution.evaluations["upper"] + solution.evaluations["lower"])
    assert counts[1] < 2 * counts[0]


def test_flat_entries_are_measured_or_not_claimed():
    flat = torch.logspace(0, -8, N, dtype=D)
    got, K, _, _ = found(
        lambda x, y: (flat * y**2).sum() / 2 - (x * y[:M]).sum(), lower_constraints=lambda x, y: y.sum() - 1e3
    )
    for one, known in zip(got.K, got.known, strict=True):
        assert not known or torch.allclose(one.diagonal(), K[0].diagonal(), rtol=1e-2, atol=0)


def test_multipliers_that_follow_x_are_in_C():
    problem = bvfim.Problem(
        lambda x, y: x.sum() + y.sum(),
        lambda x, y: (y**2).sum() + (y[:M] * x).sum(),
        lower_equalities=lambda x, y: y.sum() + x.sum(),
    )
    x, z = random(1, M, seed=1), random(1, N, seed=2)
    batch = Batch(problem, Space(x[0], [None]), Space(z[0], [None]), torch.zeros(1, 3, dtype=torch.long))
    terms = blank(layout(problem, x[0], z[0], None), x)
    terms = terms._replace(cap=torch.inf * terms.cap, slope=terms.slope + 0.5)
    batch.augmented = Augmented(layout(problem, x[0], z[0], None), terms)
    got = separable(batch.at(x, torch.arange(1)), z)
    assert got.known.all()
    assert batch.counts[0, 1] < 15
