"""What the page for reviewing labels shows in Chromium: any string, many rows, on every screen."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings

from bvfim.app.clean.review import read_decisions
from tests.app.clean import review_tab
from tests.app.clean.review_tab import exported, exported_state, in_list, opened_again, press, relabel, selected
from tests.browser import VIEWS
from tests.reviews import HOSTILE, csv_text, decided, hostile, pets, records_of, review

chromium, opened = review_tab.chromium, review_tab.opened


def test_hostile_strings_are_text_and_are_exported_as_they_are(opened, tmp_path):
    tab = opened(hostile())
    wanted = []
    for row, label in enumerate(HOSTILE):
        assert selected(tab) == row
        if row % 3 == 2:
            wanted.append((row, "relabel", label, HOSTILE[row - 2]))
            relabel(tab, tab.evaluate("text => visible(text)", HOSTILE[row - 2]))
        else:
            accepted = row % 3 == 0
            press(tab, "a" if accepted else "r")
            chosen = HOSTILE[(row + 1) % len(HOSTILE)] if accepted else label
            wanted.append((row, "accept" if accepted else "reject", label, chosen))
    assert exported(tab, tmp_path) == wanted
    tab = opened_again(tab)
    assert exported(tab, tmp_path) == wanted
    assert tab.locator("script").count() == 2
    assert tab.locator("#list img, #detail img").count() == 0
    assert tab.evaluate("document.documentElement.scrollWidth") <= 1400


def test_characters_that_hide_or_reorder_are_made_visible(opened):
    tab = opened(hostile())
    shown = tab.eval_on_selector_all("#detail .values bdi", "a => a.map(e => [e.dir, e.textContent])")
    assert {direction for direction, _ in shown} == {"auto"}
    texts = [text for _, text in shown]
    for text in (
        "evil⟨U+202E⟩txt.exe⟨U+2066⟩",
        "nul␀␛[31m",
        "u⟨U+2028⟩v⟨U+2029⟩w",
        "␍\nlines\n",
        "long " * 2000,
        HOSTILE[1],
    ):
        assert text in texts
    assert "🙂👩‍👩‍👧" in texts
    listed = tab.inner_text("#list")
    assert not re.search("[\x00-\x09\x0b-\x1f\u202a-\u202e]", listed)
    assert len(listed) < 20_000, "long cells are cut in the list"
    box = tab.locator("#detail .values dd").filter(has_text="long long").first.bounding_box()
    assert box["height"] < 300, "and scroll in the detail"


@given(records=decided)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
def test_the_script_writes_what_python_reads(script, tmp_path, records):
    text = script.evaluate("records => csvText(records)", [list(record) for record in records])
    assert text == csv_text(records)
    path = tmp_path / "decisions.csv"
    path.write_bytes(text.encode())
    assert records_of(read_decisions(path)) == records


@pytest.fixture
def script(opened):
    return opened(pets())


def test_ten_thousand_rows_stay_smooth(opened):
    count = 10_500
    rng = np.random.default_rng(0)
    given = rng.choice(["cat", "dog", "cow"], count)
    values = pd.DataFrame({"text": [f"text {i} " * 20 for i in range(count)], "other": range(count)})
    tab = opened(review(rng.uniform(0.01, 1, count), given, np.roll(given, 1), values=values))
    assert "10,000 rows shown" in tab.inner_text("#counts")
    assert "500 more rows with lower probabilities are not shown." in tab.inner_text("#counts")
    most = tab.evaluate(
        """async () => {
            let most = 0;
            for (let i = 0; i <= 20; i++) {
                list.scrollTop = rows.offsetHeight * i / 20;
                await new Promise(requestAnimationFrame);
                most = Math.max(most, document.querySelectorAll("[role=option]").length);
            }
            return most;
        }"""
    )
    assert 10 < most < 60
    times = tab.evaluate(
        """() => "aj".repeat(25).split("").map((key) => {
            const start = performance.now();
            document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
            return performance.now() - start;
        })"""
    )
    assert np.median(times) < 100
    assert len(exported_state(tab)) == 25
    tab.fill("#search", "text 77 text")
    assert in_list(tab) == [77]
    assert tab.evaluate("document.querySelectorAll('*').length") < 1000


@pytest.mark.parametrize(("width", "scheme"), VIEWS)
@pytest.mark.parametrize("make", [pets, hostile])
def test_it_fits_every_screen(opened, make, width, scheme):
    tab = opened(make(), width, scheme)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert (tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)") == (
        scheme == "light"
    )
    small = "[...document.querySelectorAll('body *')].filter(e => parseFloat(getComputedStyle(e).fontSize) < 12).length"
    assert tab.evaluate(small) == 0
    tab.wait_for_function("() => [...document.images].every(i => i.complete && i.naturalWidth > 0)")


def test_a_screen_reader_is_told_what_things_are(opened):
    tab = opened(pets())
    for box in ("#pair", "#state", "#search", "#chooser"):
        assert tab.evaluate("s => { const e = document.querySelector(s); return !!(e.labels[0] || e.ariaLabel); }", box)
    assert tab.get_attribute("#list", "role") == "listbox"
    assert tab.get_attribute("#list", "aria-activedescendant") == "row-9"
    assert tab.get_attribute("#row-8", "aria-posinset") == "2"
    assert tab.get_attribute("#status", "aria-live") == "polite"
    tab.keyboard.press("Tab")
    assert tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    press(tab, ["l", "a"])
    assert exported_state(tab) == []
