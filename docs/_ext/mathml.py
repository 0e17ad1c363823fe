"""Formulas as MathML, which browsers show by themselves: no script, no fonts, nothing to fetch."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

logger = logging.getLogger(__name__)

REPLACED = {r"\arg\min": r"\operatorname{argmin}", r"\big\{": r"\{", r"\big\}": r"\}", r"\bigl": "", r"\bigr": ""}
"""What latex2mathml does not know, in what it knows."""
BESIDE = re.compile(
    r"<msub>(<mo>(?:arg)?(?:min|max|inf|sup)</mo>(?:<mrow>(?:(?!</?mrow>).)*</mrow>|<mi>\w</mi>))</msub>"
)
"""In a formula of its own, what is minimised over stands below."""


def mathml(node: nodes.math | nodes.math_block, display: str) -> str:
    """The formula; a command that is left over breaks a strict build."""
    latex = node.astext()
    for unknown, known in REPLACED.items():
        latex = latex.replace(unknown, known)
    found = convert(latex, display=display)
    if display == "block":
        found = BESIDE.sub(r"<munder>\1</munder>", found)
    if "\\" in found:
        logger.warning("a command of this formula is not known: %s", node.astext(), location=node)
    return found


def inline(writer: HTML5Translator, node: nodes.math) -> None:
    """A formula in a line."""
    writer.body.append(mathml(node, "inline"))
    raise nodes.SkipNode


def block(writer: HTML5Translator, node: nodes.math_block) -> None:
    """A formula of its own; a wide one scrolls, from the keyboard too."""
    formula = mathml(node, "block")
    writer.body.append(f'<div class="math-block" tabindex="0" role="region" aria-label="formula">{formula}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Make the renderer known to Sphinx."""
    app.add_html_math_renderer("mathml", inline_renderers=(inline, None), block_renderers=(block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
