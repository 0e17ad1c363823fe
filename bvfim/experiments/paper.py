"""What the paper itself reports, for tables that set ours beside it (Liu et al., ICML 2021)."""

from __future__ import annotations

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
