"""Small bilevel problems from the literature with known optima and no lower-level constraints except boxes."""

from __future__ import annotations

import math

import torch

from bvfim.core.problem import Problem
from bvfim.sets import Box
from bvfim.testproblems.base import TestProblem, vector
from bvfim.testproblems.toy import sine

BOLIB = "BOLIB (Zhou, Zemkoho and Tin, 2020)"
BASBLib = "BASBLib (Paulavicius and Adjiman, 2019)"
SMD = "SMD (Sinha, Malo and Deb, 2014)"
BDA = "Liu et al., ICML 2020"
EDGE = math.pi / 2 - 1e-5
"""Just inside the range where the tangent is finite."""


def collection() -> list[TestProblem]:
    """A new list of the problems: convex and nonconvex, boxed and free, with multiple or jumping lower solutions.

    Example:
        >>> import bvfim
        >>> len(bvfim.testproblems.collection())
        21
    """
    return [
        TestProblem(
            "LamparielloSagratella2017Ex32",
            BOLIB,
            Problem(
                lambda x, y: x[0] ** 2 + y[0] ** 2,
                lambda x, y: (x[0] + y[0] - 1) ** 2,
                x_set=None,
                y_set=None,
            ),
            vector(0.5),
            vector(0.5),
            0.5,
            0.0,
            "",
        ),
        TestProblem(
            "MacalHurter1997",
            f"{BOLIB}, {BASBLib}",
            Problem(
                lambda x, y: (x[0] - 1) ** 2 + (y[0] - 1) ** 2,
                lambda x, y: 0.5 * y[0] ** 2 + 500 * y[0] - 50 * x[0] * y[0],
                x_set=None,
                y_set=None,
            ),
            vector(10.01639344262295),
            vector(0.819672131147513),
            81.32786885245902,
            -0.33593120128995224,
            "y*(x) = 50 x - 500: badly scaled",
        ),
        TestProblem(
            "b_1998_02",
            BASBLib,
            Problem(
                lambda x, y: 0.5 * (x[0] - 0.8) ** 2 + 0.5 * (x[1] - 0.2) ** 2 + 0.5 * (y[0] - 1) ** 2,
                lambda x, y: 0.5 * y[0] ** 2 - y[0] - x[0] * y[0] + 2 * x[1] * y[0],
                x_set=Box(0.0, 1.0),
                y_set=Box(0.0, 1.0),
            ),
            vector(0.8, 0.2),
            vector(1.0),
            0.0,
            -0.9,
            "",
        ),
        TestProblem(
            "DeSilva1978",
            f"{BOLIB}, {BASBLib}",
            Problem(
                lambda x, y: (x[0] - 1) ** 2 + (x[1] - 1) ** 2 + y[0] ** 2 + y[1] ** 2 - 2,
                lambda x, y: (y[0] - x[0]) ** 2 + (y[1] - x[1]) ** 2,
                x_set=None,
                y_set=Box(0.5, 1.5),
            ),
            vector(0.5, 0.5),
            vector(0.5, 0.5),
            -1.0,
            0.0,
            "",
        ),
        TestProblem(
            "DempeEtal2012",
            BOLIB,
            Problem(
                lambda x, y: x[0],
                lambda x, y: x[0] * y[0],
                x_set=Box(-1.0, 1.0),
                y_set=Box(0.0, 1.0),
            ),
            vector(-1.0),
            vector(1.0),
            -1.0,
            -1.0,
            "",
        ),
        TestProblem(
            "HatzEtal2013",
            BOLIB,
            Problem(
                lambda x, y: -x[0] + 2 * y[0] + y[1],
                lambda x, y: (x[0] - y[0]) ** 2 + y[1] ** 2,
                x_set=None,
                y_set=Box(0.0, math.inf),
            ),
            vector(0.0),
            vector(0.0, 0.0),
            0.0,
            0.0,
            "the optimum lies at a kink of y*(x)",
        ),
        TestProblem(
            "MorganPatrone2006a",
            BOLIB,
            Problem(
                lambda x, y: -(x[0] + y[0]),
                lambda x, y: x[0] * y[0],
                x_set=Box(-0.5, 0.5),
                y_set=Box(-1.0, 1.0),
            ),
            vector(0.0),
            vector(1.0),
            -1.0,
            0.0,
            "the lower solution jumps at the optimum",
        ),
        TestProblem(
            "KleniatiAdjiman2014Ex3",
            f"{BOLIB}, {BASBLib}",
            Problem(
                lambda x, y: x[0] - y[0],
                lambda x, y: x[0] * y[0] ** 2 / 2 - x[0] * y[0] ** 3,
                x_set=Box(-1.0, 1.0),
                y_set=Box(-1.0, 1.0),
            ),
            vector(0.0),
            vector(1.0),
            -1.0,
            0.0,
            "the lower solution jumps at the optimum",
        ),
        TestProblem(
            "MitsosBarton2006Ex310",
            f"{BOLIB}, {BASBLib}",
            Problem(
                lambda x, y: y[0],
                lambda x, y: x[0] * (16 * y[0] ** 4 + 2 * y[0] ** 3 - 8 * y[0] ** 2 - 1.5 * y[0] + 0.5),
                x_set=Box(0.1, 1.0),
                y_set=Box(-1.0, 1.0),
            ),
            vector(0.1),
            vector(0.5),
            0.5,
            -0.1,
            "every x is optimal",
        ),
        TestProblem(
            "MitsosBarton2006Ex312",
            f"{BOLIB}, {BASBLib}",
            Problem(
                lambda x, y: -x[0] + x[0] * y[0] + 10 * y[0] ** 2,
                lambda x, y: -x[0] * y[0] ** 2 + 0.5 * y[0] ** 4,
                x_set=Box(-1.0, 1.0),
                y_set=Box(-1.0, 1.0),
            ),
            vector(0.0),
            vector(0.0),
            0.0,
            0.0,
            "",
        ),
        TestProblem(
            "MitsosBarton2006Ex315",
            f"{BOLIB}, {BASBLib}",
            Problem(
                lambda x, y: x[0] + y[0],
                lambda x, y: x[0] * y[0] ** 2 / 2 - y[0] ** 3 / 3,
                x_set=Box(-1.0, 1.0),
                y_set=Box(-1.0, 1.0),
            ),
            vector(-1.0),
            vector(1.0),
            0.0,
            -0.8333333333333333,
            "",
        ),
        TestProblem(
            "MitsosBarton2006Ex317",
            f"{BOLIB}, {BASBLib}",
            Problem(
                lambda x, y: (x[0] + 0.5) ** 2 + y[0] ** 2 / 2,
                lambda x, y: x[0] * y[0] ** 2 / 2 + y[0] ** 4 / 4,
                x_set=Box(-1.0, 1.0),
                y_set=Box(-1.0, 1.0),
            ),
            vector(-0.25),
            vector(0.5),
            0.1875,
            -0.015625,
            "a second optimum at y = -0.5",
        ),
        TestProblem(
            "MitsosBarton2006Ex319",
            f"{BOLIB}, {BASBLib}",
            Problem(
                lambda x, y: (x[0] - 1 + y[0] / 2) * y[0],
                lambda x, y: (-x[0] + y[0] ** 2 / 2) * y[0] ** 2,
                x_set=Box(-1.0, 1.0),
                y_set=Box(-1.0, 1.0),
            ),
            vector(0.18858048469644503),
            vector(0.4342585459106649),
            -0.2580756164910357,
            -0.01778129960417307,
            "",
        ),
        TestProblem(
            "PaulaviciusAdjiman2017a",
            f"{BOLIB}, {BASBLib}",
            Problem(
                lambda x, y: x[0] ** 2 + y[0] ** 2,
                lambda x, y: x[0] * y[0] ** 2 - y[0] ** 4 / 2,
                x_set=Box(-1.0, 1.0),
                y_set=Box(-1.0, 1.0),
            ),
            vector(0.5),
            vector(0.0),
            0.25,
            0.0,
            "",
        ),
        TestProblem(
            "SMD1",
            SMD,
            Problem(
                lambda x, y: x[0] ** 2 + y[0] ** 2 + y[1] ** 2 + x[1] ** 2 + (x[1] - torch.tan(y[2])) ** 2,
                lambda x, y: x[0] ** 2 + y[0] ** 2 + y[1] ** 2 + (x[1] - torch.tan(y[2])) ** 2,
                x_set=Box(-5.0, 10.0),
                y_set=Box(vector(-5.0, -5.0, -EDGE), vector(10.0, 10.0, EDGE)),
            ),
            vector(0.0, 0.0),
            vector(0.0, 0.0, 0.0),
            0.0,
            0.0,
            "",
        ),
        TestProblem(
            "SMD3",
            SMD,
            Problem(
                lambda x, y: x[0] ** 2 + y[0] ** 2 + y[1] ** 2 + x[1] ** 2 + (x[1] ** 2 - torch.tan(y[2])) ** 2,
                lambda x, y: (
                    x[0] ** 2
                    + 2
                    + (y[0] ** 2 - torch.cos(2 * math.pi * y[0]))
                    + (y[1] ** 2 - torch.cos(2 * math.pi * y[1]))
                    + (x[1] ** 2 - torch.tan(y[2])) ** 2
                ),
                x_set=Box(-5.0, 10.0),
                y_set=Box(vector(-5.0, -5.0, -EDGE), vector(10.0, 10.0, EDGE)),
            ),
            vector(0.0, 0.0),
            vector(0.0, 0.0, 0.0),
            0.0,
            0.0,
            "a Rastrigin lower level",
        ),
        TestProblem(
            "SMD5",
            SMD,
            Problem(
                lambda x, y: (
                    x[0] ** 2
                    - ((y[1] - y[0] ** 2) ** 2 + (y[0] - 1) ** 2)
                    + x[1] ** 2
                    - (torch.abs(x[1]) - y[2] ** 2) ** 2
                ),
                lambda x, y: x[0] ** 2 + (y[1] - y[0] ** 2) ** 2 + (y[0] - 1) ** 2 + (torch.abs(x[1]) - y[2] ** 2) ** 2,
                x_set=Box(-5.0, 10.0),
                y_set=Box(-5.0, 10.0),
            ),
            vector(0.0, 0.0),
            vector(1.0, 1.0, 0.0),
            0.0,
            0.0,
            "the levels are in conflict",
        ),
        TestProblem(
            "BDA_counterexample",
            BDA,
            Problem(
                lambda x, y: 0.5 * (x[0] - y[1]) ** 2 + 0.5 * (y[0] - 1) ** 2,
                lambda x, y: 0.5 * y[0] ** 2 - x[0] * y[0],
                x_set=Box(-100.0, 100.0),
                y_set=None,
            ),
            vector(1.0),
            vector(1.0, 1.0),
            0.0,
            -0.5,
            "f does not depend on the second entry of y",
        ),
        sine(a=2.0),
        sine(a=2.0, n=10, c=2.0),
        sine(a=0.0),
    ]
