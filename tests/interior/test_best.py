"""A start is never worse than what it has seen: its first x with the answer to it among others."""

from __future__ import annotations

from unittest.mock import patch

import pytest
import torch

import bvfim
from bvfim.interior import stage
from bvfim.interior import tolerances as tol
from bvfim.interior.starts import Seen
from bvfim.testproblems import sine

D = torch.float64


def logit(steep):
    """y follows a probability whose logit is x.

    With p = sigmoid(steep x), F is 4 p^2 + 1 - p at the answer y = p, and lowest at p = 1/8, where it is 15/16. A y
    that may miss p stays near 0, where F falls towards p = 1: there F is 4 at the answer, and flat in x.
    """

    def p(x):
        return torch.sigmoid(steep * x)

    return bvfim.Problem(lambda x, y: (4 * y**2 + 1 - p(x)).sum(), lambda x, y: ((y - p(x)) ** 2).sum())


def run(problem, x, y=0.0):
    at = (torch.full((1,), value, dtype=D) for value in (x, y))
    return bvfim.solve(problem, *at, bvfim.AdaptiveBVFIM(), refit=False)


@pytest.mark.parametrize("steep", [1.0, 3.0, 10.0])
@pytest.mark.parametrize("first", [-0.5, 0.0, 0.5])
def test_a_logit_that_saturates_is_never_worse_than_its_start(steep, first):
    found = run(logit(steep), first)
    p = torch.sigmoid(torch.tensor(steep * first, dtype=D))
    at_start = float(4 * p**2 + 1 - p)
    assert found.upper <= at_start + tol.SEEN * found.method.tol * (1 + at_start)


@pytest.mark.parametrize("steep", [1.0, 3.0])
def test_from_there_the_optimum_is_found_that_was_out_of_sight(steep):
    with patch.object(stage, "with_answer", lambda interior, members, starts, *_: starts):
        lost = run(logit(steep), 0.0)
    assert lost.status is bvfim.Status.CONVERGED
    assert lost.upper == pytest.approx(4, abs=1e-2)
    found = run(logit(steep), 0.0)
    assert found.status is bvfim.Status.CONVERGED
    assert found.upper == pytest.approx(15 / 16, abs=1e-3)


def test_where_a_start_does_not_end_above_its_answer_nothing_but_one_value_is_asked_for():
    toy = sine(2)
    found = run(toy.problem, -6.0, -6.0)
    with patch.object(stage, "with_answer", lambda interior, members, starts, *_: starts):
        before = run(toy.problem, -6.0, -6.0)
    assert torch.equal(found.x, before.x)
    assert torch.equal(found.y, before.y)
    assert found.evaluations == before.evaluations | {"forward": before.evaluations["forward"] + 1}


def test_each_point_keeps_its_slot():
    problem, method = logit(1.0), bvfim.AdaptiveBVFIM()
    x, y = torch.full((1,), -2.0, dtype=D), torch.zeros(1, dtype=D)
    state = method.step(problem, x, method.init(problem, x, y), 0, None)[1]
    p = torch.sigmoid(x)
    assert state.starts.seen_F[0, Seen.ANSWER].item() == pytest.approx(float(4 * p**2 + 1 - p), abs=tol.NUDGE)
    assert state.starts.seen_F[0, Seen.LATE] == torch.inf
    lower = state.starts.noticed(Seen.LATE, state.starts.w, torch.zeros(1, dtype=D), torch.ones(1, dtype=torch.bool))
    assert torch.equal(lower.seen_F[:, Seen.ANSWER], state.starts.seen_F[:, Seen.ANSWER])
    assert lower.seen_F[0, Seen.LATE] == 0
