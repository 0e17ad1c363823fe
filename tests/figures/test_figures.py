"""The figures of the pages are those of benchmarks/results: every table, and every sentence with a decimal in it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.figures import excused
from tests.figures.mapped_sentences import SENTENCES
from tests.figures.mapped_tables import MAPPED
from tests.figures.pages import PAGES, agrees, figures, prose, said, tables
from tests.figures.results import FOLDER, commands, result

TABLES = {(page, table.name): table for page in PAGES for table in tables(page)}
ALL = [(page, template, values) for page, own in SENTENCES.items() for template, *values in own]


def numbers(cell: Any) -> list[float]:
    """The numbers that a cell should show."""
    if isinstance(cell, tuple):
        return [number for part in cell for number in numbers(part)]
    if isinstance(cell, str):
        return [float(figure) for figure in figures(cell)]
    return [] if cell is None else [float(cell)]


@pytest.mark.parametrize("place", MAPPED, ids=": ".join)
def test_a_table_shows_what_was_measured(place):
    shown, measured = TABLES[place].rows, MAPPED[place]()
    assert set(shown) == set(measured)
    for label, cells in shown.items():
        assert len(cells) == len(measured[label]), label
        for cell, wanted in zip(cells, measured[label], strict=True):
            found = figures(cell)
            assert len(found) == len(numbers(wanted)), (label, cell, wanted)
            assert all(map(agrees, found, numbers(wanted))), (label, cell, wanted)


def test_every_table_with_figures_is_mapped_or_excused():
    with_figures = {
        place
        for place, table in TABLES.items()
        if place[0] != "benchmarks/README.md" and any(figures(cell) for cells in table.rows.values() for cell in cells)
    }
    assert with_figures == {*MAPPED, *excused.TABLES}


@pytest.mark.parametrize(("page", "template", "values"), ALL, ids=[f"{page}: {text[:40]}" for page, text, _ in ALL])
def test_a_sentence_says_what_was_measured(page, template, values):
    (found,) = said(page, template)
    assert len(found.groups()) == len(values) > 0, "a figure without a value, or the other way round"
    for figure, value in zip(found.groups(), values, strict=True):
        assert agrees(figure, value), f"{figure} in the text, {value} in the results"


@pytest.mark.parametrize("page", PAGES)
def test_every_decimal_in_the_prose_is_checked_or_excused(page):
    phrases = [template for template, *_ in SENTENCES.get(page, [])] + list(excused.PHRASES.get(page, {}))
    covered = [found.span() for phrase in phrases for found in said(page, phrase)]
    plain = re.sub(r"`[^`]*`", lambda code: " " * len(code[0]), prose(page))
    for decimal in re.finditer(r"(?<![\w.])\d+(?:\.\d+(?:e-?\d+)?|e-?\d+)(?![\w.]*\w)", plain):
        around = plain[max(0, decimal.start() - 40) : decimal.end() + 40]
        assert any(start <= decimal.start() < end for start, end in covered), around


@pytest.mark.parametrize("page", excused.PHRASES)
def test_an_excuse_is_for_something_that_is_said(page):
    for phrase in excused.PHRASES[page]:
        assert said(page, phrase), phrase


def test_the_list_of_benchmarks_has_every_file_with_its_command():
    text = (FOLDER.parent / "README.md").read_text()
    listed = re.findall(r"^\|[^|]*\|([^|]*)\|(.*)\|$", text, re.MULTILINE)
    files = {name: command for command, links in listed for name in re.findall(r"\(results/([\w-]+)\.json\)", links)}
    assert set(files) == {path.stem for path in FOLDER.glob("*.json")}
    for name, command in files.items():
        for quoted in re.findall(r"`([^`]*)`", command):
            assert set(quoted.split()) <= set(commands(result(name))), name


@pytest.mark.parametrize(
    ("figure", "value", "same"),
    [
        ("0.5", 0.45, True),
        ("0.4", 0.45, True),
        ("1.06", 1.066, False),
        ("6e-12", 5.85e-12, True),
        ("6e-12", 5.4e-12, False),
        ("30,000", 30_000, True),
        ("30,000", 30_001, False),
        ("seven", 6.8, True),
        ("Seven", 7.6, False),
        ("none", 1, False),
    ],
)
def test_a_figure_is_a_number_rounded(figure, value, same):
    assert agrees(figure, value) is same


def test_no_check_is_empty():
    """Other results would not pass: every sentence refuses them, and every table has figures."""
    for page, template, values in ALL:
        (found,) = said(page, template)
        assert not any(agrees(figure, 1.5 * value + 2) for figure, value in zip(found.groups(), values, strict=True))
    for place, rows in MAPPED.items():
        assert sum(len(numbers(cell)) for cells in rows().values() for cell in cells) > 5, place
