"""Pages in Chromium, where there is one."""

from __future__ import annotations

import re
import shutil
from contextlib import contextmanager

import pytest

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WIDTHS, SCHEMES = (400, 1400), ("light", "dark")
VIEWS = [(width, scheme) for width in WIDTHS for scheme in SCHEMES]
"""A phone and a screen, by day and by night."""


@contextmanager
def launched():
    """A running Chromium; without one, or without playwright, the test is skipped."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if BROWSER is None:
        pytest.skip("no Chromium on this machine")
    with sync_api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser
        browser.close()


def browsed(browser, path, width, scheme):
    """The page in Chromium: what it logged, what it asked for, and what it measures."""
    logged, asked = [], []
    tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    tab.on("console", lambda message: logged.append(message.text))
    tab.on("pageerror", lambda error: logged.append(str(error)))
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(path.as_uri())
    measured = tab.evaluate(
        """() => ({
            width: document.documentElement.scrollWidth,
            images: [...document.images].filter(i => i.offsetWidth > 0).map(
                i => [i.complete && i.naturalWidth > 0, i.currentSrc]),
            page: getComputedStyle(document.body).backgroundColor,
            small: [...document.querySelectorAll('p, td, th, a')].filter(
                e => parseFloat(getComputedStyle(e).fontSize) < 12).length,
        })"""
    )
    tab.close()
    return logged, asked, measured


def assert_shown(path):
    """In every view the page fits, shows its pictures in the right colours, logs nothing, and asks for nothing."""
    pictures = list(dict.fromkeys(re.findall(r"data:image/svg\+xml;base64,[^\"]*", path.read_text())))
    with launched() as browser:
        for width, scheme in VIEWS:
            logged, asked, measured = browsed(browser, path, width, scheme)
            assert logged == [], (width, scheme)
            assert [url for url in asked if not url.startswith(("data:", "file:"))] == []
            assert [url for url in asked if url.startswith("file:")] == [path.as_uri()]
            assert measured["width"] <= width, "nothing pushes the page wider than the screen"
            assert all(shown for shown, _ in measured["images"])
            assert measured["small"] == 0
            assert (measured["page"] == "rgb(255, 255, 255)") == (scheme == "light")
            own = pictures[0::2] if scheme == "light" else pictures[1::2]
            assert {source for _, source in measured["images"]} == set(own)
