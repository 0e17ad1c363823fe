"""What autodoc makes of docstrings: bars are norms, and a method does not repeat what its base class says."""

from __future__ import annotations

import inspect
import re
import sys
from typing import Any

from sphinx.application import Sphinx

from bvfim.methods import Estimator, Method
from bvfim.methods.base import Configured

LEFT_ALONE = re.compile(r"(``.*?``|:math:`.*?`|\.\. math::.*?(?:\n\s*\n|\Z)|>>>.*?(?:\n\s*\n|\Z))", re.DOTALL)
"""Code and formulas, whose bars stay."""


def keep_bars(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Write |x| as bars, where reStructuredText would look for a substitution."""
    parts = LEFT_ALONE.split("\n".join(lines))
    parts[::2] = [part.replace("|", r"\|") for part in parts[::2]]
    lines[:] = "".join(parts).split("\n")


def of_method(thing: object) -> bool:
    """Whether a member belongs to a method, and not to another class that has one of the same name."""
    function = getattr(thing, "fget", thing)
    home = getattr(function, "__qualname__", "").rpartition(".")[0]
    owner = getattr(sys.modules.get(getattr(function, "__module__", "")), home, None)
    return owner is None or issubclass(owner, Configured)


def said_elsewhere(app: Sphinx, what: str, name: str, thing: object, skip: bool, options: object) -> bool | None:
    """Leave out what every method has, which ``Estimator`` and ``Method`` describe, and what a named tuple has."""
    if (inspect.getdoc(thing) or "").startswith("Alias for field number"):
        return True
    bases = [base for base in (Estimator, Method) if hasattr(base, name)]
    own = [getattr(base, name) for base in bases]
    return True if what == "class" and bases and not any(thing is one for one in own) and of_method(thing) else None


def setup(app: Sphinx) -> dict[str, Any]:
    """Listen to autodoc, before its sections are read."""
    app.connect("autodoc-skip-member", said_elsewhere)
    app.connect("autodoc-process-docstring", keep_bars, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
