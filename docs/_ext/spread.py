"""Notebooks spread over the processes that read the pages: neighbours go to one process, and notebooks take seconds.

Two processes that begin with a notebook at the same time would both make the table that its results are kept in.
"""

from __future__ import annotations

from typing import Any

from jupyter_cache import get_cache
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment


def evenly(names: list[str]) -> dict[str, float]:
    """The place of each name, between 0 and 1, as far from one to the next."""
    return {name: (i + 0.5) / len(names) for i, name in enumerate(names)}


def spread(app: Sphinx, env: BuildEnvironment, names: list[str]) -> None:
    """Leave as many pages between any two notebooks that follow each other."""
    notebooks = [name for name in names if "{code-cell}" in env.doc2path(name).read_text()]
    places = evenly(notebooks) | evenly([name for name in names if name not in notebooks])
    names.sort(key=places.__getitem__)
    get_cache(env.mystnb_config.execution_cache_path).list_cache_records()  # which makes the table, once


def setup(app: Sphinx) -> dict[str, Any]:
    """Give Sphinx the order in which pages are read."""
    app.connect("env-before-read-docs", spread)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
