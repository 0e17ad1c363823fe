"""The built site (`make docs`) in Chromium: on a phone and a screen, by day and by night, all from one place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser import SCHEMES, WIDTHS, launched

BUILT = Path(__file__).parent.parent / "docs" / "_build"
SITE = BUILT / "html"
AXE = BUILT / "node_modules" / "axe-core" / "axe.min.js"
LISTED = ("genindex", "py-modindex", "search")
"""Pages that Sphinx makes by itself."""
RULES = ["color-contrast", "empty-heading", "heading-order", "page-has-heading-one", "image-alt", "link-name", "label"]
"""What axe looks for: https://dequeuniversity.com/rules/axe names them so."""

pytestmark = pytest.mark.long


def pages():
    """Every page of ours, or a skip where nothing is built."""
    if not (SITE / "index.html").exists():
        pytest.skip("the site is not built: make docs")
    return [path for path in sorted(SITE.rglob("*.html")) if path.stem not in LISTED and "_static" not in path.parts]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_page_fits_the_screen_shows_its_pictures_and_asks_no_other_host(scheme):
    seen = pages()
    with launched() as browser:
        tab = browser.new_page(color_scheme=scheme)
        logged, asked = [], []
        tab.on("console", lambda message: logged.append(message.text))
        tab.on("pageerror", lambda error: logged.append(str(error)))
        tab.on("request", lambda request: asked.append(request.url))
        for path in seen:
            tab.goto(path.as_uri())
            for width in WIDTHS:
                tab.set_viewport_size({"width": width, "height": 900})
                assert tab.evaluate("document.documentElement.scrollWidth") <= width, (path, width)
            assert tab.evaluate("[...document.images].every(i => i.loading == 'lazy' || i.naturalWidth > 0)"), path
            night = tab.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
            assert night == (scheme == "dark"), path
        assert logged == []
        assert {url for url in asked if not url.startswith(("file:", "data:"))} == set()


def test_nothing_in_the_pages_would_be_fetched_from_elsewhere():
    """Scripts, styles, fonts and pictures that only another view or a click would ask for."""
    fetching = ('src="http', 'src="//', "url(http", "url(//", '<link rel="stylesheet" type="text/css" href="http')
    for path in [*pages(), *SITE.rglob("*.css")]:
        text = path.read_text()
        assert not [mark for mark in fetching if mark in text], path


@pytest.mark.parametrize("scheme", SCHEMES)
def test_contrast_headings_and_alternative_texts(scheme):
    seen = pages()
    if not AXE.exists():
        pytest.skip("no axe-core: npm install --prefix docs/_build axe-core")
    found = {}
    with launched() as browser:
        tab = browser.new_page(viewport={"width": 1400, "height": 900}, color_scheme=scheme)
        for path in seen:
            tab.goto(path.as_uri())
            tab.add_script_tag(content=AXE.read_text())
            result = tab.evaluate("rules => axe.run({runOnly: rules, resultTypes: ['violations']})", RULES)
            for rule in result["violations"]:
                of_page = [f"{node['html'][:100]} {node['failureSummary'][-150:]}" for node in rule["nodes"][:2]]
                found.setdefault(rule["id"], {})[str(path.relative_to(SITE))] = of_page
    assert found == {}


def test_search_finds_a_function_and_a_word():
    with launched() as browser:
        pages()
        tab = browser.new_page()
        for word, wanted in (("check_hypergradient", "judging.html"), ("pessimist", "followers.html")):
            tab.goto(f"{(SITE / 'search.html').as_uri()}?q={word}")
            tab.wait_for_selector("ul.search li a")
            tab.wait_for_timeout(500)
            links = tab.eval_on_selector_all("ul.search li a", "found => found.map(a => a.href)")
            assert any(wanted in link for link in links), (word, links)
