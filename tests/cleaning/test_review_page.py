"""The page for reviewing labels, driven in Chromium where there is one."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings

from bvfim.cleaning.review import read_decisions, write
from tests.browser import VIEWS, launched
from tests.reviews import HOSTILE, csv_text, decided, hostile, pets, records_of, review


@pytest.fixture(scope="module")
def chromium():
    with launched() as browser:
        yield browser


@pytest.fixture
def opened(chromium, tmp_path):
    """A function that opens a review; at the end nothing was logged, and nothing but the files was asked for."""
    contexts, logged, asked, pages = [], [], [], []

    def open_page(content, width=1400, scheme="light", context=None, before="", **options):
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


def relabel(tab, label):
    tab.keyboard.press("l")
    tab.keyboard.insert_text(label)
    tab.keyboard.press("Enter")


def test_decisions_are_made_undone_kept_and_exported(opened, tmp_path):
    tab = opened(pets())
    assert in_list(tab) == list(range(9, 0, -1))
    assert selected(tab) == 9
    press(tab, ["a", "r", "ArrowDown", "k", "j"])
    assert selected(tab) == 6
    relabel(tab, "cow")
    assert selected(tab) == 5, "the keys work again at once"
    press(tab, "a")
    assert "9 rows shown, 4 decided, 5 left; of the 4 worth a look, 1 left." in tab.inner_text("#counts")
    assert tab.get_attribute("#progress", "value") == "4"
    wanted = [(5, "accept", "cat", "dog"), (6, "relabel", "dog", "cow")]
    wanted += [(8, "reject", "dog", "dog"), (9, "accept", "cat", "dog")]
    assert exported(tab, tmp_path) == wanted
    tab.reload()
    assert exported(tab, tmp_path) == wanted, "a reload keeps them"
    press(tab, "u")
    assert selected(tab) == 5
    press(tab, "u")
    assert selected(tab) == 6
    assert exported(tab, tmp_path) == wanted[2:], "and what can be undone"
    tab.get_by_role("button", name="Undo").click()
    press(tab, "u")
    assert exported(tab, tmp_path) == []
    press(tab, "u")
    assert tab.inner_text("#status") == "There is nothing to undo."


def test_a_decision_that_replaces_another_is_undone_to_it(opened, tmp_path):
    tab = opened(pets())
    press(tab, "akru")
    assert exported(tab, tmp_path) == [(9, "accept", "cat", "dog")]
    assert selected(tab) == 9


def test_with_undecided_rows_only_the_next_one_takes_the_place_of_the_decided(opened):
    tab = opened(pets())
    tab.select_option("#state", "undecided")
    tab.locator("#list").focus()
    press(tab, "ja")
    assert selected(tab) == 7
    assert in_list(tab) == [9, 7, 6, 5, 4, 3, 2, 1]
    press(tab, "u")
    assert selected(tab) == 8
    press(tab, "j" * 20 + "r")
    assert selected(tab) == 2, "the last row's place is taken by the one before it"
    press(tab, "r" * 8)
    assert in_list(tab) == []
    assert "No row is left here" in tab.inner_text("#list")
    press(tab, "arljk")
    tab.select_option("#state", "decided")
    assert len(in_list(tab)) == 9
    press(tab, ["Escape"])
    press(tab, "uu")
    assert len(in_list(tab)) == 7


def test_filters_by_pair_state_and_text_go_together(opened):
    tab = opened(pets())
    plain = [re.sub("[\u2068\u2069]", "", text) for text in tab.locator("#pair option").all_inner_texts()]
    assert plain == ["all pairs", "cat → dog (5)", "dog → cow (4)"]
    tab.select_option("#pair", index=2)
    assert in_list(tab) == [8, 6, 4, 2]
    tab.locator("#list").focus()
    press(tab, "/")
    tab.keyboard.type("PET 4")
    assert in_list(tab) == [4], "letters that are typed in a field are no keys"
    tab.select_option("#state", "decided")
    assert in_list(tab) == []
    tab.select_option("#state", "all")
    tab.fill("#search", "cow")
    assert in_list(tab) == [8, 6, 4, 2]
    tab.select_option("#pair", index=0)
    tab.fill("#search", "")
    tab.select_option("#state", "flagged")
    assert in_list(tab) == [9, 8, 7, 6]


def test_the_mouse_does_what_the_keys_do(opened, tmp_path):
    tab = opened(pets())
    tab.click("#row-7")
    assert selected(tab) == 7
    assert tab.inner_text("#detail h2") == "Row 7"
    assert "wrong with probability 70.0 %" in tab.inner_text("#detail")
    tab.get_by_role("button", name="Reject").click()
    assert selected(tab) == 6
    tab.get_by_role("button", name="Accept").click()
    tab.fill("#chooser", "horse")
    tab.get_by_role("button", name="Relabel").click()
    assert tab.inner_text("#status") == "There is no such class: horse"
    tab.fill("#chooser", "cow")
    tab.get_by_role("button", name="Relabel").click()
    assert exported(tab, tmp_path) == [
        (5, "relabel", "cat", "cow"),
        (6, "accept", "dog", "cow"),
        (7, "reject", "cat", "cat"),
    ]
    tab.get_by_role("button", name="Keys").click()
    assert tab.locator("dialog").is_visible()
    press(tab, ["a", "Escape", "?"])
    assert tab.locator("dialog").is_visible()
    assert len(exported_state(tab)) == 3, "keys do nothing behind the help"


def exported_state(tab):
    return tab.evaluate("[...decisions]")


def test_a_key_that_is_held_down_decides_once(opened):
    tab = opened(pets())
    for _ in range(3):
        tab.keyboard.down("a")
    assert len(exported_state(tab)) == 1


def test_keys_with_a_modifier_are_left_to_the_browser(opened):
    tab = opened(pets())
    press(tab, ["Control+a", "Alt+a"])
    assert exported_state(tab) == []


def test_the_progress_of_another_data_set_is_not_mixed_in(opened):
    first = opened(pets("one"))
    press(first, "aa")
    other = opened(pets("two"), context=first.context)
    assert exported_state(other) == []
    again = opened(pets("one"), context=first.context)
    assert len(exported_state(again)) == 2


def test_two_tabs_do_not_undo_each_others_work(opened):
    first = opened(pets())
    second = opened(pets(), context=first.context)
    press(first, "a")
    second.wait_for_function("decisions.size === 1")
    press(second, "jr")
    first.wait_for_function("decisions.size === 2")


def test_what_was_accepted_stays_when_another_run_suggests_something_else(opened, tmp_path):
    first = opened(review([0.9], ["a"], ["b"], ["a", "b", "c"]))
    press(first, "a")
    again = opened(review([0.9], ["a"], ["c"], ["a", "b", "c"]), context=first.context)
    assert exported(again, tmp_path) == [(0, "relabel", "a", "b")]


@pytest.mark.parametrize("stored", ["{", "[]", '{"decisions": 3}', '{"decisions": [[9, {"decision": "x"}]]}'])
def test_a_damaged_store_is_an_empty_one(opened, stored):
    tab = opened(pets(), before=f"localStorage.setItem('bvfim-review:k', {json.dumps(stored)})")
    assert exported_state(tab) == []
    press(tab, "a")
    assert len(exported_state(tab)) == 1


def test_without_storage_it_works_and_says_so(opened, tmp_path):
    block = "Object.defineProperty(window, 'localStorage', { get() { throw new Error('no'); } })"
    tab = opened(pets(), before=block)
    assert "progress will not be kept" in tab.inner_text("#warning")
    press(tab, "ara")
    press(tab, "u")
    assert [record[:2] for record in exported(tab, tmp_path)] == [(8, "reject"), (9, "accept")]


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
    tab.reload()
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
    tab.wait_for_function("[...document.images].every(i => i.complete && i.naturalWidth > 0)")


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
