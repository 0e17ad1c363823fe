"""Problems in several variables whose lower level has constraints and is linear, fractional, or not convex."""

from __future__ import annotations

import math

import torch

from bvfim.core.problem import Problem
from bvfim.sets import Box
from bvfim.testproblems.base import TestProblem, vector
from bvfim.testproblems.collection import BOLIB, BASBLib

INF = math.inf


def general() -> list[TestProblem]:
    """A new list of 8."""
    return [
        TestProblem(
            "BenAyedBlair1990a",
            BOLIB,
            Problem(
                lambda x, y: -1.5 * x[0] - 6 * y[0] - y[1],
                lambda x, y: -y[0] - 5 * y[1],
                x_set=Box(0.0, 1.0),
                y_set=Box(0.0, INF),
                lower_constraints=lambda x, y: torch.stack(
                    [x[0] + 3 * y[0] + y[1] - 5, 2 * x[0] + y[0] + 3 * y[1] - 5]
                ),
            ),
            vector(1.0),
            vector(0.0, 1.0),
            -2.5,
            -5.0,
            "",
        ),
        TestProblem(
            "HuHuangZhang2009",
            BOLIB,
            Problem(
                lambda x, y: -4 * x[0] - y[0] - y[1],
                lambda x, y: -x[0] - 3 * y[0],
                x_set=Box(0.0, INF),
                y_set=Box(0.0, INF),
                lower_constraints=lambda x, y: torch.stack(
                    [x[0] + y[0] + y[1] - 25 / 9, x[0] + y[1] - 2, y[0] + y[1] - 8 / 9]
                ),
            ),
            vector(2.0),
            vector(0.7777777777777778, 0.0),
            -8.777777777777779,
            -4.333333333333334,
            "better than the published point",
        ),
        TestProblem(
            "FloudasZlobec1998",
            f"{BOLIB}, {BASBLib}",
            Problem(
                lambda x, y: x[0] ** 3 * y[0] + y[1],
                lambda x, y: -y[1],
                x_set=Box(0.0, 1.0),
                y_set=Box(vector(-1.0, 0.0), vector(1.0, 100.0)),
                lower_constraints=lambda x, y: torch.stack([x[0] * y[0] - 10, y[0] ** 2 + x[0] * y[1] - 1]),
            ),
            vector(1.0),
            vector(0.0, 1.0),
            1.0,
            -1.0,
            "y1 = 1 / x blows up as x falls to 0",
        ),
        TestProblem(
            "NieWangYe2017Ex34",
            f"{BOLIB}, {BASBLib}",
            Problem(
                lambda x, y: x[0] + y[0] + y[1],
                lambda x, y: x[0] * (y[0] + y[1]),
                x_set=Box(2.0, 3.0),
                y_set=Box(vector(0.0, -INF), INF),
                lower_constraints=lambda x, y: -(y[0] ** 2) + y[1] ** 2 + (y[0] ** 2 + y[1] ** 2) ** 2,
            ),
            vector(2.0),
            vector(0.0, 0.0),
            2.0,
            0.0,
            "the feasible set is a lobe of a lemniscate and y its cusp, where KKT fails",
        ),
        TestProblem(
            "DempeLohse2011Ex31a",
            BOLIB,
            Problem(
                lambda x, y: (x[0] - 0.5) ** 2 + (x[1] - 0.5) ** 2 - 3 * y[0] - 3 * y[1],
                lambda x, y: x[0] * y[0] + x[1] * y[1],
                y_set=Box(0.0, INF),
                lower_constraints=lambda x, y: torch.stack([y[0] + y[1] - 2, -y[0] + y[1]]),
            ),
            vector(0.0, 0.5),
            vector(2.0, 0.0),
            -5.75,
            0.0,
            "better than the published point, which was called unique",
        ),
        TestProblem(
            "CalveteGale1999P1",
            f"{BOLIB}, {BASBLib}",
            Problem(
                lambda x, y: -8 * x[0] - 4 * x[1] + 4 * y[0] - 40 * y[1] - 4 * y[2],
                lambda x, y: (1 + x[0] + x[1] + 2 * y[0] - y[1] + y[2]) / (6 + 2 * x[0] + y[0] + y[1] - 3 * y[2]),
                x_set=Box(0.0, INF),
                y_set=Box(0.0, INF),
                lower_constraints=lambda x, y: torch.stack(
                    [
                        -y[0] + y[1] + y[2] - 1,
                        2 * x[0] - y[0] + 2 * y[1] - 0.5 * y[2] - 1,
                        2 * x[1] + 2 * y[0] - y[1] - 0.5 * y[2] - 1,
                    ]
                ),
            ),
            vector(0.0, 0.9),
            vector(0.0, 0.6, 0.4),
            -29.200000000000003,
            0.31481481481481477,
            "",
        ),
        TestProblem(
            "LVHBA_LLC_n3",
            "Yao et al., ICLR 2024",
            Problem(
                lambda x, y: (
                    0.5 * ((x[0] - y[3]) ** 2 + (x[1] - y[4]) ** 2 + (x[2] - y[5]) ** 2)
                    + 0.5 * ((y[0] - 1) ** 2 + (y[1] - 1) ** 2 + (y[2] - 1) ** 2)
                ),
                lambda x, y: (
                    0.5 * (y[0] ** 2 + y[1] ** 2 + y[2] ** 2)
                    - x[0] * y[0]
                    - x[1] * y[1]
                    - x[2] * y[2]
                    + y[3]
                    + y[4]
                    + y[5]
                ),
                lower_equalities=lambda x, y: x.sum() + y.sum(),
            ),
            vector(-0.3, -0.3, -0.3),
            vector(0.7, 0.7, 0.7, -0.4, -0.4, -0.4),
            0.15000000000000005,
            0.1649999999999997,
            "in every coordinate x = -0.3 and y = (0.7, -0.4), F = 0.05 n; the lower solutions are an affine set",
        ),
        TestProblem(
            "SinhaMaloDeb2014TP3",
            BOLIB,
            Problem(
                lambda x, y: -(x[0] ** 2) - 3 * x[1] ** 2 - 4 * y[0] + y[1] ** 2,
                lambda x, y: 2 * x[0] ** 2 + y[0] ** 2 - 5 * y[1],
                x_set=Box(0.0, INF),
                y_set=Box(0.0, INF),
                lower_constraints=lambda x, y: torch.stack(
                    [-(x[0] ** 2) + 2 * x[0] - x[1] ** 2 + 2 * y[0] - y[1] - 3, -x[1] - 3 * y[0] + 4 * y[1] + 4]
                ),
                upper_constraints=lambda x, y: x[0] ** 2 + 2 * x[1] - 4,
            ),
            vector(0.0, 2.0),
            vector(1.875, 0.90625),
            -18.6787109375,
            -1.015625,
            "",
        ),
    ]
