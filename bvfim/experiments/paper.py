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

TOY_UPPER = {0.0: math.pi**2 / 8, 2.0: 3 * math.pi**2 / 16 - 9 * math.pi / 2 + 9}
"""F* of the toy as printed in Section 6.1, by a. The second, printed as "a = 3", is below zero, which F can't be."""

TOY = {
    "figure 1": "RHG and CG reach the optimum only from a start near it; the start hardly matters to BVFIM, which pays "
    "with a slower lower level (Section 6.1, Figure 1).",
    "figure 2": "RHG and CG come to the solution set of the lower level quickly, BVFIM does not; but BVFIM comes to "
    "the global solution y*, and the others do not (Figure 2).",
    "figure 3": "With regularisers of zero the two levels are optimised apart; fixed ones do well at first, then stop "
    "short in x; decreasing ones are best (Figure 3).",
    "figure 4": "A small L brings x sooner, a large L brings y closer; L = 1 is recommended (Figure 4).",
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
