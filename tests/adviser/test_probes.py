"""What the probes measure, against closed forms."""

import math

import pytest
import torch

import bvfim
from bvfim.adviser import probes
from bvfim.adviser.facts import probed


def at_of(lower, x, upper=None):
    return bvfim.Problem(upper or (lambda x, y: (y**2).sum() + (x**2).sum()), lower).at(x)


def quadratic(n, seed=0):
    """A symmetric positive definite matrix."""
    M = torch.randn(n, n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return M @ M.T / n + 0.1 * torch.eye(n, dtype=torch.float64)


class Once(torch.autograd.Function):
    """A square that can be differentiated once."""

    @staticmethod
    def forward(ctx, y):
        ctx.save_for_backward(y)
        return y**2

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        return 2 * g * ctx.saved_tensors[0]


def test_ritz_values_are_the_eigenvalues_where_all_steps_are_taken():
    A = quadratic(8)
    x = torch.zeros(8, dtype=torch.float64)
    at = at_of(lambda x, y: y @ A @ y / 2 - x @ y, x)
    found = probes.ritz(lambda v: probes.product(at, x, v), x)
    assert torch.allclose(found, torch.linalg.eigvalsh(A), atol=1e-6)


def test_ritz_values_of_a_long_y_lie_within_the_spectrum_and_near_its_upper_end():
    A = quadratic(60, 1)
    x = torch.zeros(60, dtype=torch.float64)
    at = at_of(lambda x, y: y @ A @ y / 2 - x @ y, x)
    found, true = probes.ritz(lambda v: probes.product(at, x, v), x), torch.linalg.eigvalsh(A)
    assert len(found) == probes.LANCZOS
    assert true[0] - 1e-6 <= found[0]
    assert 0.97 * true[-1] <= found[-1] <= true[-1] + 1e-6


def test_a_product_that_is_not_finite_gives_no_curvature():
    like = torch.zeros(3, dtype=torch.float64)
    assert math.isnan(float(probes.ritz(lambda v: v * math.nan, like)[-1]))


@pytest.mark.parametrize(("shift", "count"), [(0.0, 1), (0.3, 2)])
def test_wells_of_different_depth_are_counted(shift, count):
    """(y^2 - 1)^2 + shift y: two minima, equally deep without the shift."""
    x = torch.zeros(1, dtype=torch.float64)
    at = at_of(lambda x, y: ((y**2 - 1) ** 2 + shift * y).sum() + 0 * x.sum(), x)
    found = probes.lower_level(at, x + 0.9, 100, whole=True)
    assert found.minima == count
    assert found.reached
    assert found.fall == pytest.approx(float(at.lower(x + 0.9) - at.lower(x + (1 if shift == 0 else 0.9598))), abs=1e-3)


def test_a_convex_lower_level_at_its_minimum_has_one():
    x = torch.zeros(5, dtype=torch.float64)
    assert probes.lower_level(at_of(lambda x, y: ((y - x) ** 2).sum(), x), x, 100, whole=True).minima == 1


def test_descents_that_were_cut_off_are_no_minima():
    """A strictly convex f whose curvatures differ by a million takes more than a few iterations."""
    x = torch.zeros(6, dtype=torch.float64)
    scales = torch.logspace(0, 6, 6, dtype=torch.float64)
    at = at_of(lambda x, y: torch.cosh(scales.sqrt() * (y - 1)).log().sum() + 0 * x.sum(), x)
    assert [probes.lower_level(at, x, n, whole=True).minima for n in (5, 12, 500)] == [1, 1, 1]


def test_flat_where_F_points_along_a_direction_that_f_does_not_see():
    x = torch.zeros(2, dtype=torch.float64)
    seen = at_of(lambda x, y: (y[0] - 1) ** 2 + 0 * (x + y).sum(), x, lambda x, y: (y[0] - 3) ** 2)
    unseen = at_of(lambda x, y: (y[0] - 1) ** 2 + 0 * (x + y).sum(), x, lambda x, y: (y[1] - 3) ** 2)
    assert probes.lower_level(seen, x, 50, True).flat == pytest.approx(1, abs=1e-6)
    assert probes.lower_level(unseen, x, 50, True).flat == pytest.approx(0, abs=1e-6)


def test_common_estimates_the_share_of_the_squared_gradient_that_is_no_noise():
    generator, d = torch.Generator().manual_seed(0), 20_000
    mean = torch.full((d,), 0.5, dtype=torch.float64)  # |mean|^2 = d/4, noise d: a fifth
    rows = [mean + torch.randn(d, generator=generator, dtype=torch.float64) for _ in range(8)]
    assert probes.common(rows) == pytest.approx(0.2, abs=0.01)
    assert probes.common([row - mean for row in rows]) == pytest.approx(0, abs=0.01)
    assert probes.common([mean, mean]) == pytest.approx(1)


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e4])
def test_the_length_of_x_goes_with_its_units(unit):
    x, y = torch.full((4,), 2.0, dtype=torch.float64) * unit, torch.zeros(4, dtype=torch.float64)
    problem = bvfim.Problem(lambda x, y: (y**2).sum(), lambda x, y: (torch.exp(x / unit) * (y - 1) ** 2).sum())
    assert probes.length_of_x(problem, x, y, None) / unit == pytest.approx(1, rel=0.2)


def test_the_length_of_x_that_changes_nothing_is_its_size():
    x = torch.full((3,), 5.0, dtype=torch.float64)
    problem = bvfim.Problem(lambda x, y: (y - 1).sum() + x.sum(), lambda x, y: (y**2).sum() + x.sum())
    assert probes.length_of_x(problem, x, x, None) == pytest.approx(5)


def test_facts_of_a_problem_that_can_be_differentiated_once_only():
    x = torch.ones(3, dtype=torch.float64)
    problem = bvfim.Problem(lambda x, y: (y**2).sum(), lambda x, y: Once.apply(y - x).sum())
    facts = probed(problem, x, 0 * x, None)
    assert not facts.twice
    assert facts.largest == pytest.approx(2, rel=1e-4)


def test_facts_of_draws_with_a_lower_level_each():
    """Least squares: rows of one regression have a gradient in common, regressions of their own have none."""
    generator = torch.Generator().manual_seed(0)
    A = torch.randn(16, 40, 6, generator=generator, dtype=torch.float64)
    w = torch.randn(16, 6, generator=generator, dtype=torch.float64)
    x = torch.zeros(6, dtype=torch.float64)
    for own in (False, True):
        targets = torch.einsum("bij,bj->bi", A, w if own else w[:1].expand(16, 6))
        lower = lambda x, y, i, t=targets: ((A[i] @ y - t[i]) ** 2).mean() + 0 * x.sum()  # noqa: E731
        problem = bvfim.Problem(lambda x, y: ((y - x) ** 2).sum(), lower)
        facts = probed(problem, x, x, list(range(16)))
        assert facts.batches
        assert facts.sampled
        assert (facts.common < 0.2) if own else (facts.common > 0.8)


def test_a_problem_with_constraints_is_not_descended_without_them():
    x = torch.zeros(2, dtype=torch.float64)
    problem = bvfim.Problem(lambda x, y: (y**2).sum(), lambda x, y: -y.sum(), lower_constraints=lambda x, y: y - x)
    facts = probed(problem, x, x, None)
    assert facts.stated == ("lower_constraints",)
    assert math.isnan(facts.largest)


def test_draws_that_agree_in_value_alone_are_draws_all_the_same():
    """At y = 0 a softmax says the same of every label, and its gradient does not."""
    x = torch.zeros(3, dtype=torch.float64)
    problem = bvfim.Problem(lambda x, y: (y**2).sum(), lambda x, y, i: torch.logsumexp(y, 0) - y[i] + 0 * x.sum())
    facts = probed(problem, x, x, [0, 1, 2])
    assert facts.sampled
    assert facts.common < 0


def test_a_concave_f_has_a_step_all_the_same():
    x = torch.zeros(1, dtype=torch.float64)
    problem = bvfim.Problem(
        lambda x, y: (y**2).sum(), lambda x, y: -2 * (y - x) ** 2 @ torch.ones(1).double(), y_set=bvfim.Box(-1, 1)
    )
    assert probed(problem, x, x + 0.1, None).largest == pytest.approx(4, rel=1e-3)
