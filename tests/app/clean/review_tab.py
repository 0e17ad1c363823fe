"""The page for reviewing labels in a tab of Chromium: how tests open it, what they do there, and what they read."""

from __future__ import annotations

import pytest

from bvfim.app.clean.review import read_decisions, write
from tests.browser import launched
from tests.reviews import records_of


@pytest.fixture(scope="module")
def chromium():
    with launched() as browser:
        yield browser


@pytest.fixture
def opened(chromium, tmp_path):
    """A function that opens a review; at the end nothing was logged, and nothing but the files was asked for."""
    contexts, logged, asked, pages = [], [], [], []

    def new_context(width, scheme):
        context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        context.on("console", lambda message: logged.append(message.text))
        context.on("weberror", lambda error: logged.append(str(error.error)))
        context.on("request", lambda request: asked.append(request.url))
        contexts.append(context)
        return context

    def open_page(content, width=1400, scheme="light", opener=None, before="", every=True, **options):
        path = write(tmp_path / f"review-{len(pages)}.html", content, **options)
        pages.append(path.as_uri())
        if opener is None:
            tab = new_context(width, scheme).new_page()
            if before:
                tab.add_init_script(before)
            tab.goto(path.as_uri())
        else:
            tab = from_tab(opener, path.as_uri())
        return all_shown(tab) if every else tab

    yield open_page
    for context in contexts:
        assert not any(tab.evaluate("'hacked' in window") for tab in context.pages)
        context.close()
    assert logged == []
    assert {url for url in asked if not url.startswith(("data:", "blob:"))} <= set(pages)


def from_tab(tab, url):
    """A page in a tab that another one opens, so that both share a process, and with it the store as it is this moment.

    Between processes, and after a reload, Chromium hands writes on when it finds the time.
    """
    with tab.expect_popup() as waiting:
        tab.evaluate("url => { window.open(url); }", url)
    waiting.value.wait_for_load_state()
    return waiting.value


def opened_again(tab):
    """The same page once more, as when one comes back to it."""
    return all_shown(from_tab(tab, tab.url))


def all_shown(tab):
    """The page with all of its rows in the list; it opens on those that are worth reviewing."""
    tab.evaluate("byId('state').value = 'all', filterAnew()")
    return tab


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
