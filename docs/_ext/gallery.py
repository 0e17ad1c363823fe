"""The gallery: a card for each notebook, with the first picture that it draws.

```{gallery}
one-notebook
another
```
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

logger = logging.getLogger(__name__)


class Cards(nodes.General, nodes.Element):
    """The place of the cards, until every notebook has run."""


class Gallery(SphinxDirective):
    """The notebooks, one a line, as paths from the page."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Leave a place, and remember which pages it depends on."""
        names = [self.env.relfn2path(f"{line.strip()}.md")[0].removesuffix(".md") for line in self.content]
        return [Cards("", names=names)]


def card(app: Sphinx, page: str, name: str) -> nodes.Element:
    """Title, picture and the first paragraph of a notebook."""
    tree = app.env.get_doctree(name)
    image = next((found for found in tree.findall(nodes.image) if found.get("alt")), None)
    said = next((found for found in tree.findall(nodes.paragraph)), None)
    if image is None or said is None:
        logger.warning("the notebook %s has no picture with an alternative text, or no text", name)
        return nodes.container()
    link = nodes.reference("", "", refuri=app.builder.get_relative_uri(page, name), internal=True, classes=["card"])
    picture = image.deepcopy()
    picture["classes"] = [*image.get("classes", []), "card-picture"]
    picture["alt"] = ""  # the title beside it says where the link leads
    for key in ("width", "height", "scale", "align"):
        picture.attributes.pop(key, None)
    title = nodes.inline("", app.env.titles[name].astext(), classes=["card-title"])
    link += [picture, title, nodes.inline("", said.astext(), classes=["card-text"])]
    return link


def fill(app: Sphinx, tree: nodes.document, page: str) -> None:
    """Put the cards in their places."""
    for place in list(tree.findall(Cards)):
        grid = nodes.container(classes=["gallery"])
        for name in place["names"]:
            paragraph = nodes.paragraph(classes=["gallery-card"])
            paragraph += card(app, page, name)
            grid += paragraph
        place.replace_self(grid)


def always(app: Sphinx, env: BuildEnvironment, added: set[str], changed: set[str], removed: set[str]) -> list[str]:
    """Pages with a gallery are written anew when a notebook has changed."""
    return [page for page in env.found_docs if page.endswith("index") and added | changed]


def setup(app: Sphinx) -> dict[str, Any]:
    """Make the directive known to Sphinx."""
    app.add_node(Cards)
    app.add_directive("gallery", Gallery)
    app.connect("doctree-resolved", fill)
    app.connect("env-get-outdated", always)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
