"""The follower of a pessimistic leader: closed forms of the worst answer, and the gradient of its value."""

from __future__ import annotations

import pytest
import torch

import bvfim
from bvfim.interior.batch import Batch
from bvfim.interior.lower import Interior
from bvfim.interior.pessimist import ascent
from bvfim.interior.pessimist.archive import distinct, ranked
from bvfim.interior.pessimist.ascent import Settings, ascended, inside
from bvfim.interior.pessimist.phi import Phi
from bvfim.interior.pessimist.pool import _order
from bvfim.interior.pessimist.response import Response
from bvfim.interior.pessimist.stages import begin
from bvfim.interior.space import Space

D = torch.float64


def interior(problem, x, y, rows=1, scouts=15):
    units = torch.ones(rows, x.numel() + y.numel(), dtype=D)
    sets = [problem.x_set], [problem.y_set]
    spaces = Space(x, sets[0], units[:, : x.numel()]), Space(y, sets[1], units[:, x.numel() :])
    batch = Batch(problem, *spaces, torch.zeros(rows, 3, dtype=torch.long))
    return Interior(batch, Space([x, y], sets[0] + sets[1], units), scouts, seed=0, stage=1)


def settings(mu2, tau, rows=1):
    return Settings(*(torch.full((rows,), v, dtype=D) for v in (mu2, tau, 1e-3 * mu2)))


ZERO, ONE = torch.zeros(1, dtype=D), torch.ones(1, dtype=D)


def test_points_that_are_near_count_once_and_the_best_come_first():
    points = torch.tensor([[[0.0], [1.0], [0.001], [2.0]]], dtype=D)
    scores = torch.tensor([[3.0, 1.0, 2.0, torch.inf]], dtype=D)
    assert distinct(points, scores.isfinite()).tolist() == [[True, True, False, False]]
    found, values, places = ranked(points, scores, 3)
    assert found[0, :, 0].tolist() == [1.0, 0.001, 1.0]
    assert values.tolist() == [[1.0, 2.0, torch.inf]]
    assert places[0, :2].tolist() == [1, 2]


@pytest.mark.parametrize(("mu2", "tau"), [(1.0, 1.0), (1e-2, 1e-3), (1e-6, 1e-6)])
def test_the_worst_answer_within_the_slack_of_a_parabola(mu2, tau):
    """F = y and f = y^2 / 2: 1 = tau y / s with s = mu2 - y^2 / 2, a quadratic equation for y."""
    problem = bvfim.Problem(lambda x, y: y.sum() + x.sum(), lambda x, y: (y**2).sum() / 2)
    own = interior(problem, ZERO, ZERO)
    at = own.batch.at(ZERO[None], torch.zeros(1, dtype=torch.long))
    start = torch.zeros(1, 1, 1, dtype=D)
    level = torch.full((1,), mu2, dtype=D)
    found = ascended(at, start, torch.ones(1, 1, dtype=torch.bool), level, settings(mu2, tau))
    exact = (tau**2 + 2 * mu2) ** 0.5 - tau
    assert found.y.item() == pytest.approx(exact, rel=5e-2)  # the value is what is solved for
    value = exact + tau * torch.tensor((mu2 - exact**2 / 2) / mu2).log().item()
    assert -found.cost.item() == pytest.approx(value, abs=2e-3 * tau)
    assert found.F.item() == pytest.approx(found.y.item())


def test_a_point_outside_is_pulled_towards_z_until_its_slack_is_positive():
    problem = bvfim.Problem(lambda x, y: y.sum() + x.sum(), lambda x, y: (y**2).sum())
    at = interior(problem, ZERO, ZERO).batch.at(ZERO[None], torch.zeros(1, dtype=torch.long))
    found = inside(at, ONE[None], ZERO[None], torch.tensor([0.2], dtype=D))
    assert found.item() == 0.4
    assert inside(at, ONE[None], ZERO[None], torch.tensor([2.0], dtype=D)).item() == 1.0


def test_the_gradient_of_phi_is_that_of_its_values(monkeypatch):
    """F = (x - 1)^2 + sin y + x y, f = (y - x)^2 (2 + x); y has to be better than a leader needs it."""
    monkeypatch.setattr(ascent, "SURE", 1e-9)
    problem = bvfim.Problem(
        lambda x, y: ((x - 1) ** 2 + torch.sin(y) + x * y).sum(), lambda x, y: ((y - x) ** 2 * (2 + x)).sum()
    )
    x, h = torch.tensor([[0.3]], dtype=D), 1e-3
    rows = torch.cat([x - h, x, x + h])
    own = interior(problem, ZERO, ZERO, rows=3)
    members = torch.zeros(3, dtype=torch.long)
    first = begin(own, rows, rows, torch.zeros(3, dtype=torch.bool)).response
    chosen = settings(0.1, 0.02, 3)
    phi = Phi(own, members, chosen, rows, first, torch.ones(3, dtype=D))
    for _ in range(6):  # each trial goes on from the last answer
        values = phi.trial(torch.arange(3), rows, 0, torch.full((3,), torch.inf, dtype=D))
        phi.known = phi.tried
    slope = phi.gradient(torch.arange(3), rows)[1, 0]
    assert slope.item() == pytest.approx((values[2] - values[0]).item() / (2 * h), rel=1e-4)


def test_what_a_rejected_trial_has_found_takes_free_places_only():
    def response(minima, f):
        points = torch.tensor(minima, dtype=D)[None, :, None]
        return Response(points, torch.tensor([f], dtype=D), points, torch.tensor([f], dtype=D), *2 * [ZERO])

    old = response([0.0, 1.0, 0.0, 0.0], [0.0, 0.1, torch.inf, torch.inf])
    new = old.reminded(response([5.0, 1.0, 6.0, 7.0], [-1.0, 0.1, 0.2, torch.inf]))
    assert new.branches[0, :, 0].tolist() == [0.0, 1.0, 5.0, 6.0]
    assert new.lowest.item() == 0.0


def test_every_other_start_of_a_pool_is_low_and_far_from_the_others():
    x = torch.tensor([[0.0], [0.1], [0.5], [0.9], [0.95]], dtype=D)
    F = torch.tensor([3.0, 1.0, 2.0, 0.0, 0.1], dtype=D)
    assert _order(x, F, 3).tolist() == [3, 0, 2]
    assert sorted(_order(x, F, 5).tolist()) == [0, 1, 2, 3, 4]


def ended(x, problem, seed=0):
    start = torch.tensor([x], dtype=D)
    return bvfim.solve(problem, start, start, bvfim.AdaptiveBVFIM(seed=seed), refit=False)


@pytest.mark.long
def test_a_start_that_sees_a_lower_F_beside_it_goes_on_from_there():
    """The worst F is x^2 + 1 below 1/2, where 0 is a local minimum, and x^2 above."""
    jump = bvfim.Problem(
        lambda x, y: (x**2 + y**2).sum(),
        lambda x, y: (x * y**2 - y**4 / 2).sum(),
        x_set=bvfim.Box(0.3, 1.0),
        y_set=bvfim.Box(-1.0, 1.0),
        follower="pessimistic",
    )
    found = ended(0.32, jump)
    assert found.status is bvfim.Status.NOT_ATTAINED
    assert found.x.item() == pytest.approx(0.5, abs=1e-3)
    assert found.upper == pytest.approx(0.25, abs=1e-3)


def test_a_kink_of_the_worst_F_is_no_jump():
    """y = 1 and y = -1 are equally good for the follower; at the worse of them F is |x - 1| + x^2 / 9."""
    kink = bvfim.Problem(
        lambda x, y: (y * (x - 1) + x**2 / 9).sum(),
        lambda x, y: ((y**2 - 1) ** 2).sum(),
        x_set=bvfim.Box(-3.0, 3.0),
        y_set=bvfim.Box(-2.0, 2.0),
        follower="pessimistic",
    )
    found = ended(-2.0, kink)
    assert found.status is bvfim.Status.CONVERGED
    assert found.x.item() == pytest.approx(1.0, abs=1e-2)
    assert found.upper == pytest.approx(1 / 9, abs=1e-2)
    assert found.certificate.multimodal
