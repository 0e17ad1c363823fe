"""The page for reviewing labels in a tab of Chromium: how tests open it, what they do there, and what they read."""

from __future__ import annotations

import pytest

from bvfim.app.clean.review import read_decisions, write
from tests.browser import launched
from tests.reviews import records_of

# A tab's writes reach the tabs of other processes a little later: a review opened at once may miss the last of them.
STORED = "({...localStorage})"
ARRIVED = "kept => Object.entries(kept).every(([key, value]) => localStorage.getItem(key) === value)"


@pytest.fixture(scope="module")
def chromium():
    with launched() as browser:
        yield browser


@pytest.fixture
def opened(chromium, tmp_path):
    """A function that opens a review; at the end nothing was logged, and nothing but the files was asked for."""
    blank = tmp_path / "blank.html"
    blank.touch()
    contexts, logged, asked, pages = [], [], [], [blank.as_uri()]

    def open_page(content, width=1400, scheme="light", context=None, before="", **options):
        kept = context.pages[-1].evaluate(STORED) if context else {}
        if context is None:
            context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
            contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda message: logged.append(message.text))
        tab.on("pageerror", lambda error: logged.append(str(error)))
        tab.on("request", lambda request: asked.append(request.url))
        if before:
            tab.add_init_script(before)
        path = write(tmp_path / f"review-{len(pages)}.html", content, **options)
        pages.append(path.as_uri())
        if kept:
            tab.goto(blank.as_uri())
            tab.wait_for_function(ARRIVED, arg=kept)
        tab.goto(path.as_uri())
        return tab

    yield open_page
    for context in contexts:
        assert not any(tab.evaluate("'hacked' in window") for tab in context.pages)
        context.close()
    assert logged == []
    assert {url for url in asked if not url.startswith(("data:", "blob:"))} <= set(pages)


def selected(tab):
    found = tab.locator("[role=option][aria-selected=true]")
    return int(found.get_attribute("id").removeprefix("row-")) if found.count() else None


def in_list(tab):
    return [
        int(found.removeprefix("row-")) for found in tab.eval_on_selector_all("[role=option]", "a => a.map(o => o.id)")
    ]


def press(tab, keys):
    for key in keys:
        tab.keyboard.press(key)


def exported(tab, tmp_path):
    with tab.expect_download() as waiting:
        tab.get_by_role("button", name="Download decisions").click()
    assert waiting.value.suggested_filename == "decisions.csv"
    path = tmp_path / "downloaded.csv"
    waiting.value.save_as(path)
    return records_of(read_decisions(path))


def exported_state(tab):
    return tab.evaluate("[...decisions]")


def relabel(tab, label):
    tab.keyboard.press("l")
    tab.keyboard.insert_text(label)
    tab.keyboard.press("Enter")
