"""Bilevel problems with constraints of the upper level on y, and problems whose follower is pessimistic."""

from __future__ import annotations

import math

import torch

from bvfim.core.problem import Problem
from bvfim.sets import Box
from bvfim.testproblems.base import TestProblem, vector
from bvfim.testproblems.collection import BOLIB, BASBLib

INF = math.inf


def coupled() -> list[TestProblem]:
    """A new list of 5 problems with upper-level constraints that involve y."""
    return [
        TestProblem(
            "Colson2002BIPA1",
            BOLIB,
            Problem(
                lambda x, y: (10 - x[0]) ** 3 + (10 - y[0]) ** 3,
                lambda x, y: (x[0] + 2 * y[0] - 15) ** 4,
                x_set=Box(0.0, 5.0),
                y_set=Box(0.0, 20.0),
                lower_constraints=lambda x, y: x[0] + y[0] - 20,
                upper_constraints=lambda x, y: -x[0] + y[0],
            ),
            vector(5.0),
            vector(5.0),
            250.0,
            0.0,
            "",
        ),
        TestProblem(
            "AiyoshiShimizu1984Ex2",
            BOLIB,
            Problem(
                lambda x, y: 2 * x[0] + 2 * x[1] - 3 * y[0] - 3 * y[1] - 60,
                lambda x, y: (y[0] - x[0] + 20) ** 2 + (y[1] - x[1] + 20) ** 2,
                x_set=Box(0.0, 50.0),
                y_set=Box(-10.0, 20.0),
                lower_constraints=lambda x, y: torch.stack([2 * y[0] - x[0] + 10, 2 * y[1] - x[1] + 10]),
                upper_constraints=lambda x, y: x[0] + x[1] + y[0] - 2 * y[1] - 40,
            ),
            vector(0.0, 0.0),
            vector(-10.0, -10.0),
            0.0,
            200.0,
            "5, which is published as global, is local",
        ),
        TestProblem(
            "SinhaMaloDeb2014TP8",
            BOLIB,
            Problem(
                lambda x, y: (2 * x[0] + 2 * x[1] - 3 * y[0] - 3 * y[1] - 60) ** 2,
                lambda x, y: (y[0] - x[0] + 20) ** 2 + (y[1] - x[1] + 20) ** 2,
                x_set=Box(0.0, 50.0),
                y_set=Box(-10.0, 20.0),
                lower_constraints=lambda x, y: torch.stack([2 * y[0] - x[0] + 10, 2 * y[1] - x[1] + 10]),
                upper_constraints=lambda x, y: x[0] + x[1] + y[0] - 2 * y[1] - 40,
            ),
            vector(0.0, 0.0),
            vector(-10.0, -10.0),
            0.0,
            200.0,
            "",
        ),
        TestProblem(
            "NieWangYe2017Ex52",
            BOLIB,
            Problem(
                lambda x, y: x[0] * y[0] + x[1] * y[1] + x[0] * x[1] * y[0] * y[1] * y[2],
                lambda x, y: x[0] * y[0] ** 2 + x[1] ** 2 * y[1] * y[2] - y[0] * y[2] ** 2,
                x_set=Box(-1.0, 1.0),
                lower_constraints=lambda x, y: torch.stack(
                    [1 - (y[0] ** 2 + y[1] ** 2 + y[2] ** 2), y[0] ** 2 + y[1] ** 2 + y[2] ** 2 - 2]
                ),
                upper_constraints=lambda x, y: y[0] * y[1] - x[0] ** 2,
            ),
            vector(-1.0, -1.0),
            vector(1.1097122537583985, 0.3143330791290865, -0.8183724269693373),
            -1.7095094051819406,
            -2.2319142041463143,
            "published to three digits; y is stationary on the outer sphere, to rounding",
        ),
        TestProblem(
            "NieWangYe2017Ex61",
            BOLIB,
            Problem(
                lambda x, y: -(3 * x[0] * x[1] - x[0] ** 2) * y[0] ** 3 - y[0] ** 2 * y[1] + x[1] ** 3 * y[1],
                lambda x, y: y[0] * y[1] ** 2 - y[1] ** 3 - y[0] ** 2 * (x[1] - x[0] ** 2),
                x_set=Box(-1.0, 1.0),
                lower_constraints=lambda x, y: y[0] ** 2 + y[1] ** 2 - 1,
                upper_constraints=lambda x, y: (x[0] ** 2 - 1) * y[0] - y[1],
            ),
            vector(0.5712186878017265, -1.0),
            vector(-0.1638388245374499, 0.9864871208354353),
            -1.0219391409148615,
            -1.08384572505097,
            "published to three digits; y is stationary on the circle, and x1 along it, to rounding",
        ),
    ]


def pessimistic() -> list[TestProblem]:
    """A new list of 5 pessimistic problems, without lower-level constraints, whose optimum is attained."""
    return [
        TestProblem(
            "LucchettiEtal1987",
            BOLIB,
            Problem(
                lambda x, y: 0.5 * (1 - x[0]) + x[0] * y[0],
                lambda x, y: (x[0] - 1) * y[0],
                x_set=Box(0.0, 1.0),
                y_set=Box(0.0, 1.0),
                follower="pessimistic",
            ),
            vector(0.0),
            vector(1.0),
            0.5,
            -1.0,
            "the lower solution is [0, 1] at x = 1; an optimist gets 0 there",
        ),
        TestProblem(
            "MitsosBarton2006Ex311",
            BOLIB,
            Problem(
                lambda x, y: y[0],
                lambda x, y: x[0] * (16 * y[0] ** 4 + 2 * y[0] ** 3 - 8 * y[0] ** 2 - 1.5 * y[0] + 0.5),
                x_set=Box(-1.0, 1.0),
                y_set=Box(-0.8, 1.0),
                follower="pessimistic",
            ),
            vector(0.5),
            vector(0.5),
            0.5,
            -0.5,
            "any x in (0, 1] is as good; an optimist gets -0.8 at 0",
        ),
        TestProblem(
            "MitsosBarton2006Ex319",
            BOLIB,
            Problem(
                lambda x, y: y[0] * (x[0] + 0.5 * y[0] - 1),
                lambda x, y: -x[0] * y[0] ** 2 + 0.5 * y[0] ** 4,
                x_set=Box(-1.0, 1.0),
                y_set=Box(-1.0, 1.0),
                follower="pessimistic",
            ),
            vector(-0.5),
            vector(0.0),
            -0.0,
            0.0,
            "any x <= 0 is as good; an optimist gets -0.2581",
        ),
        TestProblem(
            "MitsosBarton2006Ex324",
            BOLIB,
            Problem(
                lambda x, y: x[0] ** 2 - y[0],
                lambda x, y: ((1 + 0.1 * x[0] - y[0]) ** 2 - 0.5 - 0.5 * x[0]) ** 2,
                x_set=Box(0.0, 1.0),
                y_set=Box(0.0, 3.0),
                follower="pessimistic",
            ),
            vector(0.0),
            vector(0.2928932188134524),
            -0.2928932188134524,
            1.232595164407831e-32,
            "two lower solutions at every x; an optimist gets -1.7549",
        ),
        TestProblem(
            "StoSiPBA_synthetic_n4",
            "Cao et al., NeurIPS 2025",
            Problem(
                lambda x, y: (
                    (x[0] - 1) ** 2
                    + (x[1] - 1) ** 2
                    + (x[2] - 1) ** 2
                    + (x[3] - 1) ** 2
                    - 2 * torch.sqrt((y[0] - 1) ** 2 + (y[1] - 1) ** 2 + (y[2] - 1) ** 2 + (y[3] - 1) ** 2)
                ),
                lambda x, y: 10 * (y[0] + y[1] + y[2] + y[3] - x[0] ** 2 - x[1] ** 2 - x[2] ** 2 - x[3] ** 2) ** 2 / 4,
                x_set=Box(-0.9, 0.9),
                y_set=Box(-0.9, 0.9),
                follower="pessimistic",
            ),
            vector(0.5, 0.5, 0.5, 0.5),
            vector(0.25, 0.25, 0.25, 0.25),
            -2.0,
            0.0,
            "x = 1/2, y = 1/4 and F = -n / 2 for any n",
        ),
    ]


def unattained() -> list[TestProblem]:
    """A new list of 5 pessimistic problems whose infimum is approached and not attained; x is the limit."""
    return [
        TestProblem(
            "MorganPatrone2006a",
            BOLIB,
            Problem(
                lambda x, y: -(x[0] + y[0]),
                lambda x, y: x[0] * y[0],
                x_set=Box(-0.5, 0.5),
                y_set=Box(-1.0, 1.0),
                follower="pessimistic",
            ),
            vector(0.0),
            vector(1.0),
            -1.0,
            0.0,
            "as x rises to 0",
        ),
        TestProblem(
            "MitsosBarton2006Ex314",
            f"{BOLIB}, {BASBLib}",
            Problem(
                lambda x, y: (x[0] - 0.25) ** 2 + y[0] ** 2,
                lambda x, y: y[0] ** 3 / 3 - x[0] * y[0],
                x_set=Box(-1.0, 1.0),
                y_set=Box(-1.0, 1.0),
                follower="pessimistic",
            ),
            vector(0.25),
            vector(0.5),
            0.25,
            -1 / 12,
            "as x falls to 1/4, where y = -1 is as low as y = 1/2",
        ),
        TestProblem(
            "KleniatiAdjiman2014Ex3",
            BOLIB,
            Problem(
                lambda x, y: x[0] - y[0],
                lambda x, y: x[0] * y[0] ** 2 / 2 - x[0] * y[0] ** 3,
                x_set=Box(-1.0, 1.0),
                y_set=Box(-1.0, 1.0),
                follower="pessimistic",
            ),
            vector(0.0),
            vector(1.0),
            -1.0,
            0.0,
            "as x falls to 0",
        ),
        TestProblem(
            "Yezza1996Ex31",
            BOLIB,
            Problem(
                lambda x, y: -(4 * x[0] - 3) * y[0] + 2 * x[0] + 1,
                lambda x, y: -(1 - 4 * x[0]) * y[0] - 2 * x[0] - 2,
                x_set=Box(0.0, 1.0),
                y_set=Box(0.0, 1.0),
                follower="pessimistic",
            ),
            vector(0.25),
            vector(0.0),
            1.5,
            -2.5,
            "as x falls to 1/4",
        ),
        TestProblem(
            "PaulaviciusAdjiman2017a",
            BASBLib,
            Problem(
                lambda x, y: x[0] ** 2 + y[0] ** 2,
                lambda x, y: x[0] * y[0] ** 2 - y[0] ** 4 / 2,
                x_set=Box(-1.0, 1.0),
                y_set=Box(-1.0, 1.0),
                follower="pessimistic",
            ),
            vector(0.5),
            vector(0.0),
            0.25,
            0.0,
            "as x falls to 1/2, where y = 1 and y = -1 are as low as y = 0",
        ),
    ]
