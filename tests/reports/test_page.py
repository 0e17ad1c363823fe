"""The page: what it shows, and that it needs nothing but itself. Chromium opens it where there is one."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass

import pandas as pd
import pytest

from bvfim.reports import page
from bvfim.reports.plots import legend, panels
from bvfim.reports.report import Results, Section, save, svg
from tests.browser import assert_shown, launched


@dataclass(frozen=True)
class Config:
    steps: int = 500
    rates: tuple[float, ...] = (0.01, 0.1)


def figure():
    drawn, axes = panels(2, 3)
    for one in axes.flat:
        one.semilogy([1, 2, 3], [1e-3, 1e-2, 1e-4], label="a curve")
        one.set(title="title", xlabel="x")
    legend(drawn)
    return drawn


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    table = pd.DataFrame({"method": ["<b>RHG</b>"], "loss": [0.123456], "ok": [True], "none": [float("nan")]})
    wide = pd.DataFrame([range(40)], columns=[f"column {i}" for i in range(40)])
    table.attrs["title"] = "losses & more"
    sections = (
        Section("Figure 1: <curves>", "First.\n\nSecond.", "It says so.", "Seen.", ("curves",), ("losses", "wide")),
        Section("Nothing but words", "A" * 300),
    )
    results = Results({"losses": table.set_index("method"), "wide": wide}, {"curves": figure()}, {}, sections)
    path = tmp_path_factory.mktemp("page") / "deep" / "index.html"
    return page.write(path, "A <title>", "A lead.", [page.Chapter("toy", Config(), results)])


def test_the_page_says_what_it_was_given_and_escapes_it(written):
    text = written.read_text()
    for expected in ("A &lt;title&gt;", "&lt;b&gt;RHG&lt;/b&gt;", "0.1235", "losses &amp; more", "<p>Second.</p>"):
        assert expected in text
    assert "It says so." in text
    assert "<b>RHG" not in text
    assert "500" in text
    assert "0.01, 0.1" in text
    assert "nan" not in re.sub(r"data:[^\"]*", "", text).lower()


def test_the_page_asks_for_nothing(written):
    text = re.sub(r"data:image/svg\+xml;base64,[^\"]*", "", written.read_text())
    assert not re.search(r"https?:|//|<script|@import|url\(", text)


def test_a_picture_has_a_dark_twin_of_the_same_size(written):
    light, dark = (
        base64.b64decode(found).decode()
        for found in dict.fromkeys(re.findall(r"data:image/svg\+xml;base64,([^\"]*)", written.read_text()))
    )
    assert "#000000" in light or "stroke: #000000" in light
    assert "#000000" not in dark
    assert re.search(r'viewBox="([^"]*)"', light)[1] == re.search(r'viewBox="([^"]*)"', dark)[1]


def test_a_figure_is_drawn_the_same_each_time():
    assert svg(figure()) == svg(figure())


def test_results_without_sections_are_shown_in_a_row(tmp_path):
    results = Results({"t": pd.DataFrame({"a": [1]})}, {"f": figure()})
    text = page.write(tmp_path / "p.html", "t", "l", [page.Chapter("bench", None, results)]).read_text()
    assert text.count("<figure") == text.count("<table") == 1


def test_a_browser_shows_it_without_error_or_request(written):
    assert_shown(written)


@pytest.mark.parametrize("width", [400, 1400])
def test_a_picture_alone_is_shown_in_its_own_size(width, tmp_path):
    drawn = panels(1, 1)[0]
    path = page.write(tmp_path / "p.html", "t", "l", [page.Chapter("one", None, Results({}, {"alone": drawn}))])
    natural = int(re.search(r'<img class="light".*?width="(\d+)"', path.read_text())[1])
    with launched() as browser:
        tab = browser.new_page(viewport={"width": width, "height": 900})
        tab.goto(path.as_uri())
        shown, high, ratio = tab.evaluate(
            "() => { const i = document.querySelector('img.light');"
            " return [i.offsetWidth, i.offsetHeight, i.getAttribute('height') / i.getAttribute('width')]; }"
        )
    assert shown <= natural
    assert shown >= min(natural, 0.85 * width)
    assert high == pytest.approx(shown * ratio, abs=1)


def test_a_second_run_leaves_nothing_of_the_first_behind(tmp_path):
    (tmp_path / "mine.csv").write_text("kept")
    first = Results({"old": pd.DataFrame({"a": [1]})}, {"drawn": figure()})
    save(first, Config(), tmp_path)
    save(Results({"new": pd.DataFrame({"a": [1]})}), Config(), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"mine.csv", "new.csv", "summary.json"}
