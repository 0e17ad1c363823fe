"""One self-contained HTML page of results: no script, no request, light and dark, for screens, phones and paper."""

from __future__ import annotations

import base64
import dataclasses
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from bvfim.reports.report import Results, Section, machine, svg

WIDE = 640
"""Pixels beyond which a picture is not shrunk to a phone's width, but scrolled: 40rem in the template."""


@dataclass(frozen=True)
class Chapter:
    """One experiment on a page.

    Attributes:
        name: what it is called.
        config: its settings, a dataclass or None.
        results: its results.
        folder: where :func:`bvfim.reports.report.save` has saved its figures, if it has.

    Example:
        >>> from bvfim.reports.page import Chapter
        >>> from bvfim.reports.report import Results
        >>> Chapter("toy", None, Results()).name
        'toy'
    """

    name: str
    config: Any
    results: Results
    folder: Path | None = None


def write(path: Path, title: str, lead: str, chapters: Sequence[Chapter]) -> Path:
    """Write one page for one or more experiments.

    Args:
        path: the file.
        title: the heading.
        lead: a sentence below the heading.
        chapters: the experiments, each with its config and results.

    Returns:
        The file.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import pandas as pd
        >>> from bvfim.reports.page import Chapter, write
        >>> from bvfim.reports.report import Results
        >>> results = Results({"losses": pd.DataFrame({"loss": [0.5]})})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     page = write(Path(folder, "index.html"), "A run", "One loss.", [Chapter("run", None, results)])
        ...     text = page.read_text()
        >>> "0.5" in text and "http" not in text
        True
    """
    loader = PackageLoader("bvfim.reports", "templates")
    template = Environment(loader=loader, autoescape=True, undefined=StrictUndefined).get_template("page.html")
    text = template.render(title=title, lead=lead, chapters=[_chapter(c) for c in chapters], machine=machine())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def _chapter(chapter: Chapter) -> dict[str, Any]:
    results = chapter.results
    whole = Section(chapter.name, figures=tuple(results.figures), tables=tuple(results.tables))
    config = {} if chapter.config is None else dataclasses.asdict(chapter.config)
    return {
        "name": chapter.name,
        "config": {name: _words(value) for name, value in config.items()},
        "sections": [_section(section, chapter) for section in results.sections or [whole]],
    }


def _section(section: Section, chapter: Chapter) -> dict[str, Any]:
    tables = chapter.results.tables
    return {
        "title": section.title,
        "anchor": re.sub(r"\W+", "-", section.title.lower()).strip("-"),
        "text": [paragraph for paragraph in section.text.split("\n\n") if paragraph],
        "paper": section.paper,
        "ours": section.ours,
        "figures": [_picture(name, chapter) for name in section.figures],
        "tables": [_table(tables[name]) for name in section.tables],
    }


def _picture(name: str, chapter: Chapter) -> dict[str, Any]:
    """The figure twice: as it is, and with black and white exchanged for a dark page."""
    drawn = None if chapter.folder is None else (chapter.folder / f"{name}.svg").read_text(encoding="utf-8")
    light = (drawn or svg(chapter.results.figures[name])).replace("fill: #ffffff", "fill: none")
    dark = re.sub(r"#(000000|262626|333333|b0b0b0|cccccc)", lambda m: _DARK[m[1]], light)
    # Glyphs without a colour of their own are black.
    dark = dark.replace("<svg ", '<svg fill="#e6e9ec" ', 1)
    size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', light)
    width, height = (round(float(v) * 4 / 3) for v in size.groups()) if size else (800, 600)
    return {
        "name": name,
        "light": _uri(light),
        "dark": _uri(dark),
        "width": width,
        "height": height,
        "wide": width > WIDE,
    }


_DARK = {"000000": "#e6e9ec", "262626": "#e6e9ec", "333333": "#e6e9ec", "b0b0b0": "#5a6570", "cccccc": "#5a6570"}


def _uri(text: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(text.encode()).decode()


def _table(frame: pd.DataFrame) -> Markup:
    flat = frame.reset_index() if any(frame.index.names) else frame
    cells = flat.map(_words)
    html = cells.to_html(index=False, border=0, escape=True, justify="unset")
    caption = frame.attrs.get("title")
    caption = Markup("<caption>{}</caption>").format(caption) if caption else ""
    return Markup(html.replace('class="dataframe">', f">{caption}", 1))


def _words(value: Any) -> str:
    """A value as a reader wants it: four digits of a float, lists without brackets."""
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.4g}"
    if isinstance(value, tuple | list):
        return ", ".join(_words(v) for v in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
