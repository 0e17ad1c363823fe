"""No page names a folder of the machine that built it, as warnings in notebooks do: it would break a strict build."""

from __future__ import annotations

import html
import sysconfig
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)

FOLDERS = (Path(__file__).parents[2], Path.home(), sysconfig.get_path("purelib"))
"""The checkout, the home of who builds it, and the packages beside the interpreter."""


def named(body: str) -> list[str]:
    """The lines of a page that have one of these folders in them."""
    return [line for line in html.unescape(body).splitlines() if any(f"{folder}/" in line for folder in FOLDERS)]


def check(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: nodes.document | None) -> None:
    """Warn of each such line; what notebooks printed is kept in the cache beside the site, which then has to go."""
    for line in named(context.get("body", "")):
        logger.warning("%s names a folder of this machine: %s", page, line[:200])


def setup(app: Sphinx) -> dict[str, Any]:
    """Look at each page that is written."""
    app.connect("html-page-context", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
