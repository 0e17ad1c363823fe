"""Every public name is on a page of the reference, and wherever it is named, it is a link."""

from __future__ import annotations

from importlib import import_module
from operator import attrgetter
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import NoUri
from sphinx.util import logging
from sphinx.util.nodes import make_refnode

from tests.test_public import INTERNAL, public_names

logger = logging.getLogger(__name__)


def found(name: str) -> Any:
    """What a dotted name stands for, None if nothing."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            module = import_module(".".join(parts[:cut]))
            return attrgetter(".".join(parts[cut:]))(module) if parts[cut:] else module
        except (ImportError, AttributeError):
            continue
    return None


def documented(env: BuildEnvironment) -> dict[int, str]:
    """The names on the pages, by the identity of what they stand for: a name may be had from several places."""
    names = env.domains.python_domain.objects
    return {id(thing): name for name in names if (thing := found(name)) is not None}


def check(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of each public name that no page of the reference has."""
    there = documented(env)
    for name, thing in public_names():
        if name not in INTERNAL and id(thing) not in there:
            logger.warning("bvfim.%s is on no page of docs/reference", name)


def resolve(app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.Element) -> nodes.Element | None:
    """A link for a name that is documented under another one, such as bvfim.solve for bvfim.core.solve.solve."""
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"]
    name = documented(env).get(id(found(target if target.startswith("bvfim.") else f"bvfim.{target}")))
    if name is None:
        return None
    page = env.domains.python_domain.objects[name]
    if app.builder is None:
        raise NoUri
    return make_refnode(app.builder, node["refdoc"], page.docname, page.node_id, content, name)


def setup(app: Sphinx) -> dict[str, Any]:
    """Check when all pages are read."""
    app.connect("env-check-consistency", check)
    app.connect("missing-reference", resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
