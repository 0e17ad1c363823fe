"""What a page says: its prose, its tables, and whether a printed figure is a number, rounded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs", "docs/evidence", "docs/explanation", "docs/how-to")
"""Tutorials are left out: a notebook's figures are those of its own run, which it checks."""
PAGES = ["README.md", "benchmarks/README.md"]
PAGES += sorted(f"{folder}/{path.name}" for folder in FOLDERS for path in (ROOT / folder).glob("*.md"))
LISTS = ("benchmarks/README.md",)
"""Pages whose table is prose."""

FIGURE = r"\d+(?:,\d{3})*(?:\.\d+)?(?:e-?\d+)?"
WORDS = ["none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
ANY = rf"((?<![\w.]){FIGURE}(?!\w)|\b(?i:{'|'.join(WORDS)})\b)"


class Table(NamedTuple):
    """A table by the heading above it; further ones under the same heading are counted."""

    name: str
    rows: dict[str, list[str]]


def agrees(figure: str, value: float) -> bool:
    """Whether the figure is the value, rounded to as many digits as it has.

    Values are rounded in their files, too, so a half may go either way.
    """
    if figure.lower() in WORDS:
        figure = str(WORDS.index(figure.lower()))
    figure = figure.replace(",", "")
    mantissa, _, exponent = figure.partition("e")
    unit = Decimal(10) ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    return abs(Decimal(figure) - Decimal(repr(float(value)))) <= unit / 2


def figures(cell: str) -> list[str]:
    """The figures of a cell, without code."""
    return re.findall(rf"(?<![\w.]){FIGURE}(?!\w)", re.sub(r"`[^`]*`", "", cell))


@cache
def source(page: str) -> str:
    """The page without blocks of code, with the words of its links alone."""
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(), flags=re.DOTALL)
    return re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)


@cache
def prose(page: str) -> str:
    """The page in one line, without headings, and without tables unless it is a list."""
    left_out = "#" if page in LISTS else "#|"
    return " ".join(" ".join(line for line in source(page).split("\n") if line[:1] not in tuple(left_out)).split())


def tables(page: str) -> Iterator[Table]:
    """The tables of a page: cells by the label that begins a row, emphasis left out."""
    heading, count, block = page, 0, []
    for line in [*source(page).split("\n"), ""]:
        if line.startswith("|"):
            block.append([cell.strip().replace("**", "") for cell in line.strip().strip("|").split("|")])
            continue
        if block:
            count += 1
            yield Table(heading if count == 1 else f"{heading} ({count})", _rows(block))
            block = []
        if line.startswith("#"):
            heading, count = line.lstrip("# "), 0


def _rows(block: list[list[str]]) -> dict[str, list[str]]:
    """The rows below the header, whose labels differ."""
    found = {label: cells for label, *cells in block[2:]}
    assert len(found) == len(block) - 2, block[0]
    return found


def said(page: str, template: str) -> list[re.Match[str]]:
    """Where a page says the template, in which {} stands for a figure."""
    return list(re.finditer(ANY.join(map(re.escape, template.split("{}"))), prose(page)))
