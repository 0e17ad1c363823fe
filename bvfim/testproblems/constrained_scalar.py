"""Problems with constraints in the lower level where x and y are one number each."""

from __future__ import annotations

import math

import torch

from bvfim.core.problem import Problem
from bvfim.sets import Box
from bvfim.testproblems.base import TestProblem, vector
from bvfim.testproblems.collection import BOLIB, BASBLib

INF = math.inf


def scalar() -> list[TestProblem]:
    """A new list of 14."""
    return [
        TestProblem(
            "Bard1988Ex1",
            f"{BOLIB}, {BASBLib}",
            Problem(
                lambda x, y: (x[0] - 5) ** 2 + (2 * y[0] + 1) ** 2,
                lambda x, y: (y[0] - 1) ** 2 - 1.5 * x[0] * y[0],
                x_set=Box(0.0, INF),
                y_set=Box(0.0, INF),
                lower_constraints=lambda x, y: torch.stack(
                    [-3 * x[0] + y[0] + 3, x[0] - 0.5 * y[0] - 4, x[0] + y[0] - 7]
                ),
            ),
            vector(1.0),
            vector(0.0),
            17.0,
            1.0,
            "",
        ),
        TestProblem(
            "ShimizuEtal1997a",
            BOLIB,
            Problem(
                lambda x, y: (x[0] - 5) ** 2 + (2 * y[0] + 1) ** 2,
                lambda x, y: (y[0] - 1) ** 2 - 1.5 * x[0] * y[0],
                lower_constraints=lambda x, y: torch.stack(
                    [-3 * x[0] + y[0] + 3, x[0] - 0.5 * y[0] - 4, x[0] + y[0] - 7]
                ),
            ),
            vector(0.9459459459459459),
            vector(-0.16216216216216217),
            16.891891891891895,
            1.5807158509861214,
            "on y = 3 x - 3, F = (x - 5)^2 + (6 x - 5)^2",
        ),
        TestProblem(
            "Dempe1992b",
            BOLIB,
            Problem(
                lambda x, y: (x[0] - 3.5) ** 2 + (y[0] + 4) ** 2,
                lambda x, y: (y[0] - 3) ** 2,
                lower_constraints=lambda x, y: y[0] ** 2 - x[0],
            ),
            vector(0.0),
            vector(0.0),
            28.25,
            9.0,
            "(1, 1), which is published, is an inflection; at the optimum the feasible set is one point",
        ),
        TestProblem(
            "Dempe1992b_boxed",
            BASBLib,
            Problem(
                lambda x, y: (x[0] - 3.5) ** 2 + (y[0] + 4) ** 2,
                lambda x, y: (y[0] - 3) ** 2,
                x_set=Box(1.0, 10.0),
                y_set=Box(1.0, 10.0),
                lower_constraints=lambda x, y: y[0] ** 2 - x[0],
            ),
            vector(1.0),
            vector(1.0),
            31.25,
            4.0,
            "",
        ),
        TestProblem(
            "LamparielloSagratella2017Ex31",
            BOLIB,
            Problem(
                lambda x, y: x[0] ** 2 + y[0] ** 2,
                lambda x, y: y[0],
                x_set=Box(1.0, INF),
                lower_constraints=lambda x, y: 1 - x[0] - y[0],
            ),
            vector(1.0),
            vector(0.0),
            1.0,
            0.0,
            "",
        ),
        TestProblem(
            "TuyEtal2007",
            f"{BOLIB}, {BASBLib}",
            Problem(
                lambda x, y: x[0] ** 2 + y[0] ** 2,
                lambda x, y: -y[0],
                x_set=Box(0.0, 5.0),
                lower_constraints=lambda x, y: torch.stack(
                    [3 * x[0] + y[0] - 15, x[0] + y[0] - 7, x[0] + 3 * y[0] - 15]
                ),
            ),
            vector(1.5),
            vector(4.5),
            22.5,
            -4.5,
            "(4.5, 1.5) is as good; x <= 5 in the place of y >= 0 above",
        ),
        TestProblem(
            "YeZhu2010Ex42",
            f"{BOLIB}, {BASBLib}",
            Problem(
                lambda x, y: (x[0] - 1) ** 2 + y[0] ** 2,
                lambda x, y: y[0] ** 3 - 3 * y[0],
                x_set=Box(-3.0, 2.0),
                lower_constraints=lambda x, y: x[0] - y[0],
            ),
            vector(1.0),
            vector(1.0),
            1.0,
            -2.0,
            "",
        ),
        TestProblem(
            "Yezza1996Ex41",
            BOLIB,
            Problem(
                lambda x, y: 0.5 * (y[0] - x[0] + 2) ** 2 + 0.5 * (y[0] - 2) ** 2,
                lambda x, y: 0.5 * y[0] ** 2 + x[0] - y[0],
                x_set=Box(0.0, INF),
                y_set=Box(0.0, INF),
                lower_constraints=lambda x, y: y[0] - x[0],
            ),
            vector(3.0),
            vector(1.0),
            0.5,
            2.5,
            "",
        ),
        TestProblem(
            "DempeDutta2012Ex24",
            f"{BOLIB}, {BASBLib}",
            Problem(
                lambda x, y: (x[0] - 1) ** 2 + y[0] ** 2,
                lambda x, y: x[0] ** 2 * y[0],
                lower_constraints=lambda x, y: y[0] ** 2,
            ),
            vector(1.0),
            vector(0.0),
            0.0,
            0.0,
            "Y is one point and has no interior; the published point solves the KKT system, which is another problem",
        ),
        TestProblem(
            "MitsosBarton2006Ex322",
            BOLIB,
            Problem(
                lambda x, y: (x[0] + 0.6) ** 2 + y[0] ** 2,
                lambda x, y: (
                    y[0] ** 4
                    + (2 / 15) * (1 - x[0]) * y[0] ** 3
                    + (-0.02 * x[0] ** 2 + 0.16 * x[0] - 0.4) * y[0] ** 2
                    + (0.004 * x[0] ** 3 - 0.036 * x[0] ** 2 + 0.08 * x[0]) * y[0]
                ),
                x_set=Box(-1.0, 1.0),
                y_set=Box(-1.0, 1.0),
                lower_constraints=lambda x, y: 0.01 * (1 + x[0] ** 2) - y[0] ** 2,
            ),
            vector(-0.5544554078679618),
            vector(0.45544554058389297),
            0.20950495031022823,
            -0.06559425296825303,
            "two branches of the lower solution, almost as low as each other at the optimum",
        ),
        TestProblem(
            "Bard1984a",
            f"{BOLIB}, {BASBLib}",
            Problem(
                lambda x, y: x[0] + y[0],
                lambda x, y: -5 * x[0] - y[0],
                x_set=Box(0.0, INF),
                y_set=Box(0.0, INF),
                lower_constraints=lambda x, y: torch.stack(
                    [2 - x[0] - 0.5 * y[0], -0.25 * x[0] + y[0] - 2, x[0] + 0.5 * y[0] - 8, x[0] - 2 * y[0] - 4]
                ),
            ),
            vector(0.8888888888888888),
            vector(2.2222222222222223),
            3.111111111111111,
            -6.666666666666667,
            "",
        ),
        TestProblem(
            "AnandalinghamWhite1990",
            f"{BOLIB}, {BASBLib}",
            Problem(
                lambda x, y: -x[0] - 3 * y[0],
                lambda x, y: -x[0] + 3 * y[0],
                x_set=Box(0.0, INF),
                y_set=Box(0.0, INF),
                lower_constraints=lambda x, y: torch.stack(
                    [
                        10 - x[0] - 2 * y[0],
                        x[0] - 2 * y[0] - 6,
                        2 * x[0] - y[0] - 21,
                        x[0] + 2 * y[0] - 38,
                        -x[0] + 2 * y[0] - 18,
                    ]
                ),
            ),
            vector(16.0),
            vector(11.0),
            -49.0,
            17.0,
            "the published f is a misprint",
        ),
        TestProblem(
            "LiuHart1994",
            f"{BOLIB}, {BASBLib}",
            Problem(
                lambda x, y: -x[0] - 3 * y[0],
                lambda x, y: y[0],
                x_set=Box(0.0, INF),
                y_set=Box(0.0, INF),
                lower_constraints=lambda x, y: torch.stack(
                    [-x[0] + y[0] - 3, x[0] + 2 * y[0] - 12, 4 * x[0] - y[0] - 12]
                ),
            ),
            vector(4.0),
            vector(4.0),
            -16.0,
            4.0,
            "",
        ),
        TestProblem(
            "HaurieSavardWhite1990",
            BOLIB,
            Problem(
                lambda x, y: x[0] + 5 * y[0],
                lambda x, y: -y[0],
                lower_constraints=lambda x, y: torch.stack(
                    [-3 * x[0] + 2 * y[0] - 6, 3 * x[0] + 4 * y[0] - 48, 2 * x[0] - 5 * y[0] - 9, 8 - x[0] - y[0]]
                ),
            ),
            vector(12.0),
            vector(3.0),
            27.0,
            -3.0,
            "",
        ),
    ]
