"""What the paper itself reports, for tables that set ours beside it (Liu et al., ICML 2021)."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Order:
    """An order of growth as the paper prints it, and the exponents it means for n, m and T.

    Time counts evaluations, each of cost c = c(m, n), so c itself has the exponent zero here.
    """

    time_text: str
    memory_text: str
    time: dict[str, float]
    memory: dict[str, float]


_REVERSE = Order("O(cT)", "O(m + nT)", {"n": 0, "m": 0, "T": 1}, {"n": 1, "m": 0, "T": 1})
_IMPLICIT = Order("O(c(T + J))", "O(m + n)", {"n": 0, "m": 0, "T": 1}, {"n": 1, "m": 0, "T": 0})

COMPLEXITY = {
    "FHG": Order("O(cmT)", "O(mn)", {"n": 0, "m": 1, "T": 1}, {"n": 1, "m": 1, "T": 0}),
    "RHG": _REVERSE,
    "TRHG": Order("O(cT)", "O(m + nK)", _REVERSE.time, _REVERSE.memory),
    "BDA": _REVERSE,
    "CG": _IMPLICIT,
    "Neumann": _IMPLICIT,
    "BVFIM": Order("O(c(Tz + Ty))", "O(m + n)", {"n": 0, "m": 0, "T": 1}, {"n": 1, "m": 0, "T": 0}),
}
"""Table 2; TRHG (here with K = T/2) and BDA, which it leaves out, go through K and T steps like RHG."""

CLEANING = {
    "mnist": {
        "RHG": (87.90, 89.36, 0.4131),
        "TRHG": (88.57, 89.77, 0.2623),
        "CG": (89.19, 85.96, 0.1799),
        "Neumann": (87.54, 89.58, 0.1723),
        "BDA": (87.15, 90.38, 0.6694),
        "BVFIM": (90.41, 91.19, 0.1480),
    },
    "fashion-mnist": {
        "RHG": (81.91, 87.12, 0.4589),
        "TRHG": (81.85, 86.76, 0.2840),
        "CG": (83.15, 85.13, 0.2041),
        "Neumann": (81.37, 87.28, 0.1958),
        "BDA": (79.97, 88.24, 0.8571),
        "BVFIM": (84.31, 88.35, 0.1612),
    },
    "cifar10": {
        "RHG": (34.95, 68.27, 1.3374),
        "TRHG": (35.42, 68.06, 0.8409),
        "CG": (34.16, 69.10, 0.4796),
        "Neumann": (33.45, 68.87, 0.4694),
        "BDA": (36.41, 67.33, 1.4869),
        "BVFIM": (38.19, 69.55, 0.4092),
    },
}
"""Table 3: accuracy and F1 in per cent, and the seconds of an upper step (on an RTX 2060S)."""

FEW_SHOT = {
    ("omniglot", 5, 1): {"RHG": 98.60, "TRHG": 98.74, "BDA": 99.04, "BVFIM": 98.85},
    ("omniglot", 20, 1): {"RHG": 95.50, "TRHG": 95.82, "BDA": 96.50, "BVFIM": 95.55},
    ("miniimagenet", 5, 1): {"RHG": 48.89, "TRHG": 47.67, "BDA": 49.08, "BVFIM": 49.28},
}
"""The table of few-shot learning in the appendix, accuracy in per cent, by data set, ways and shots."""

PROTOTYPES = {("cifar-fs", 5, 1): 55.5, ("cifar-fs", 5, 5): 72.0}
"""Prototypical networks with the same four blocks, where the paper has no figure (Bertinetto et al., 2019, Table 1)."""

TOY_UPPER = {0.0: math.pi**2 / 8, 2.0: 3 * math.pi**2 / 16 - 9 * math.pi / 2 + 9}
"""F* of the toy as printed in Section 6.1, by a. The second, printed as "a = 3", is below zero, which F can't be."""

TOY = {
    "figure 1": "RHG and CG reach the optimum only from a nearby start; for BVFIM the start hardly matters, at the "
    "cost of a slower lower level (Section 6.1, Figure 1).",
    "figure 2": "RHG and CG reach the solution set of the lower level quickly, BVFIM does not; but BVFIM reaches "
    "the global solution y*, and the others do not (Figure 2).",
    "figure 3": "With zero regularisers the two levels are optimised separately; fixed ones do well at first, then "
    "stall short of the optimum in x; decreasing ones are best (Figure 3).",
    "figure 4": "A small L makes x converge sooner, a large L brings y closer; L = 1 is recommended (Figure 4).",
    "figure A1": "A well-chosen tau improves the convergence greatly (Appendix, Figure A1).",
}
"""What the paper says of its toy figures, in our words."""

ASSUMPTIONS = {
    "FHG": (True, True, False),
    "RHG": (True, True, False),
    "TRHG": (True, True, False),
    "BDA": (True, False, False),
    "CG": (True, True, True),
    "Neumann": (True, True, True),
    "BVFIM": (False, False, False),
}
"""Table 1: whether a method needs a convex lower level, a single lower solution, an invertible lower Hessian."""
