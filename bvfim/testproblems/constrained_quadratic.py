"""Problems in several variables whose lower level is a strictly convex quadratic programme at each x."""

from __future__ import annotations

import math

import torch

from bvfim.core.problem import Problem
from bvfim.sets import Box
from bvfim.testproblems.base import TestProblem, vector
from bvfim.testproblems.collection import BOLIB

INF = math.inf


def quadratic() -> list[TestProblem]:
    """A new list of 10."""
    return [
        TestProblem(
            "MuuQuy2003Ex1",
            BOLIB,
            Problem(
                lambda x, y: y[0] ** 2 + y[1] ** 2 + x[0] ** 2 - 4 * x[0],
                lambda x, y: y[0] ** 2 + 0.5 * y[1] ** 2 + y[0] * y[1] + (1 - 3 * x[0]) * y[0] + (1 + x[0]) * y[1],
                x_set=Box(0.0, 2.0),
                y_set=Box(0.0, INF),
                lower_constraints=lambda x, y: -2 * x[0] + 2 * y[0] + y[1] - 1,
            ),
            vector(0.8461538461538461),
            vector(0.7692307692307693, 0.0),
            -2.0769230769230766,
            -0.591715976331361,
            "the published f is a misprint",
        ),
        TestProblem(
            "MuuQuy2003Ex2",
            BOLIB,
            Problem(
                lambda x, y: -7 * x[0] + 4 * x[1] + y[0] ** 2 + y[2] ** 2 - y[0] * y[2] - 4 * y[1],
                lambda x, y: (
                    y[0] ** 2
                    + 0.5 * y[1] ** 2
                    + 0.5 * y[2] ** 2
                    + y[0] * y[1]
                    + (1 - 3 * x[0]) * y[0]
                    + (1 + x[1]) * y[1]
                ),
                x_set=Box(0.0, INF),
                y_set=Box(0.0, INF),
                lower_constraints=lambda x, y: 2 * y[0] + y[1] - y[2] + x[0] - 2 * x[1] + 2,
                upper_constraints=lambda x, y: x[0] + x[1] - 1,
            ),
            vector(0.6111111111111112, 0.3888888888888889),
            vector(0.0, 0.0, 1.8333333333333333),
            0.6388888888888875,
            1.6805555555555554,
            "better than the published point",
        ),
        TestProblem(
            "Outrata1990Ex2c",
            BOLIB,
            Problem(
                lambda x, y: 0.5 * (y[0] - 3) ** 2 + 0.5 * (y[1] - 4) ** 2,
                lambda x, y: (
                    0.5 * (1 + x[0]) * y[0] ** 2
                    + 0.5 * (1 + 0.1 * x[0]) * y[1] ** 2
                    - (3 + 1.333 * x[0]) * y[0]
                    - x[0] * y[1]
                ),
                x_set=Box(0.0, INF),
                y_set=Box(0.0, INF),
                lower_constraints=lambda x, y: torch.stack([-0.333 * y[0] + y[1] - 2, y[0] - 0.333 * y[1] - 2]),
            ),
            vector(3.4561630074013836),
            vector(1.7070887251560487, 2.5684605454769645),
            1.860462387237361,
            -10.931477374302037,
            "",
        ),
        TestProblem(
            "Outrata1990Ex2d",
            BOLIB,
            Problem(
                lambda x, y: 0.5 * (y[0] - 3) ** 2 + 0.5 * (y[1] - 4) ** 2,
                lambda x, y: 0.5 * y[0] ** 2 + 0.5 * y[1] ** 2 - (3 + 1.333 * x[0]) * y[0] - x[0] * y[1],
                x_set=Box(0.0, INF),
                y_set=Box(0.0, INF),
                lower_constraints=lambda x, y: torch.stack(
                    [(0.1 * x[0] - 0.333) * y[0] + y[1] - x[0], y[0] - (0.333 + 0.1 * x[0]) * y[1] - 2]
                ),
            ),
            vector(2.856343120654986),
            vector(3.880745624087065, 3.040157306838671),
            0.8485054249818531,
            -22.950557598236337,
            "better than the published point",
        ),
        TestProblem(
            "Outrata1993Ex31",
            BOLIB,
            Problem(
                lambda x, y: 0.5 * (y[0] - 3) ** 2 + 0.5 * (y[1] - 4) ** 2,
                lambda x, y: (
                    (0.5 + 0.1 * x[0]) * y[0] ** 2
                    + (0.5 + 0.05 * x[0]) * y[1] ** 2
                    - (3 + 1.333 * x[0]) * y[0]
                    - x[0] * y[1]
                ),
                x_set=Box(0.0, INF),
                y_set=Box(0.0, INF),
                lower_constraints=lambda x, y: torch.stack(
                    [
                        (0.1 * x[0] - 0.333) * y[0] + y[1] + 0.1 * x[0] - 2,
                        y[0] - (0.333 + 0.1 * x[0]) * y[1] + 0.1 * x[0] - 2,
                    ]
                ),
            ),
            vector(1.9095179316175517),
            vector(2.978587858807584, 2.232151244523499),
            1.562873851015129,
            -11.682683870739336,
            "",
        ),
        TestProblem(
            "Outrata1990Ex1b",
            BOLIB,
            Problem(
                lambda x, y: 0.5 * (y[0] - 3) ** 2 + 0.5 * (y[1] - 4) ** 2 + x[0] ** 2 + x[1] ** 2 - 12.5,
                lambda x, y: 0.5 * y[0] ** 2 - 2 * y[0] * y[1] + 2.5 * y[1] ** 2 - x[0] * y[0] - x[1] * y[1],
                y_set=Box(0.0, INF),
                lower_constraints=lambda x, y: torch.stack([-0.333 * y[0] + y[1] - 2, y[0] - 0.333 * y[1] - 2]),
            ),
            vector(0.2788133570394823, 0.47487886910761323),
            vector(2.3438243320262195, 1.0325055015802382),
            -7.578458118915254,
            -0.5719023336875377,
            "better than the published point",
        ),
        TestProblem(
            "Outrata1990Ex1e",
            BOLIB,
            Problem(
                lambda x, y: 0.5 * (y[0] - 3) ** 2 + 0.5 * (y[1] - 4) ** 2 + 0.1 * x[0] ** 2 + 0.1 * x[1] ** 2 - 12.5,
                lambda x, y: (
                    0.5 * y[0] ** 2
                    + 3 * y[0] * y[1]
                    + 5 * y[1] ** 2
                    + x[0] * (y[0] - 3 * y[1])
                    - x[1] * (2 * y[0] - 3 * y[1])
                ),
                y_set=Box(0.0, INF),
                lower_constraints=lambda x, y: torch.stack([-0.333 * y[0] + y[1] - 2, y[0] - 0.333 * y[1] - 2]),
            ),
            vector(-0.4, 0.8),
            vector(2.0, 0.0),
            -3.92,
            -2.0,
            "better than the published point",
        ),
        TestProblem(
            "CalamaiVicente1994b",
            BOLIB,
            Problem(
                lambda x, y: (
                    0.5
                    * ((x[0] - 1) ** 2 + (x[1] - 1) ** 2 + (x[2] - 1) ** 2 + (x[3] - 1) ** 2 + y[0] ** 2 + y[1] ** 2)
                ),
                lambda x, y: 0.5 * y[0] ** 2 + 0.5 * y[1] ** 2 - x[0] * y[0] - x[1] * y[1],
                lower_constraints=lambda x, y: torch.stack(
                    [
                        x[0] - y[0] - 1,
                        x[1] - y[1] - 1,
                        x[0] + y[0] - 1.5,
                        x[1] + y[1] - 3,
                        1 - x[0] - y[0],
                        1 - x[1] - y[1],
                    ]
                ),
            ),
            vector(1.25, 0.5, 1.0, 1.0),
            vector(0.25, 0.5),
            0.3125,
            -0.40625,
            "",
        ),
        TestProblem(
            "FloudasEtal2013",
            BOLIB,
            Problem(
                lambda x, y: 2 * x[0] + 2 * x[1] - 3 * y[0] - 3 * y[1] - 60,
                lambda x, y: (y[0] - x[0] + 20) ** 2 + (y[1] - x[1] + 20) ** 2,
                x_set=Box(0.0, 50.0),
                y_set=Box(-10.0, 20.0),
                lower_constraints=lambda x, y: torch.stack(
                    [2 * y[0] - x[0] + 10, 2 * y[1] - x[1] + 10, x[0] + x[1] + y[0] - 2 * y[1] - 40]
                ),
            ),
            vector(0.0, 0.0),
            vector(-10.0, -10.0),
            0.0,
            200.0,
            "x = (0, 30), y = (-10, 10) is as good; (25, 30), (5, 10) is a local solution with F = 5",
        ),
        TestProblem(
            "Bard1988Ex2",
            BOLIB,
            Problem(
                lambda x, y: (y[0] + y[2]) * (y[0] + y[2] - 200) + (y[1] + y[3]) * (y[1] + y[3] - 160),
                lambda x, y: (y[0] - 4) ** 2 + (y[1] - 13) ** 2 + (y[2] - 35) ** 2 + (y[3] - 2) ** 2,
                x_set=Box(0.0, vector(10.0, 5.0, 15.0, 20.0)),
                y_set=Box(0.0, vector(20.0, 20.0, 40.0, 40.0)),
                lower_constraints=lambda x, y: torch.stack(
                    [
                        0.4 * y[0] + 0.7 * y[1] - x[0],
                        0.6 * y[0] + 0.3 * y[1] - x[1],
                        0.4 * y[2] + 0.7 * y[3] - x[2],
                        0.6 * y[2] + 0.3 * y[3] - x[3],
                    ]
                ),
                upper_constraints=lambda x, y: x[0] + x[1] + x[2] + x[3] - 40,
            ),
            vector(7.0, 3.0, 12.0, 18.0),
            vector(0.0, 10.0, 30.0, 0.0),
            -6600.0,
            54.0,
            "a river basin with two followers",
        ),
    ]
