"""Reviewing labels on the page, driven in Chromium: decisions, filters, keys, and what is kept."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

from bvfim.app.clean.review import Near, Why, read_decisions
from tests.app.clean import review_tab
from tests.app.clean.review_tab import exported, exported_state, in_list, opened_again, press, relabel, selected
from tests.reviews import pets, records_of, review

chromium, opened = review_tab.chromium, review_tab.opened


def test_decisions_are_made_undone_kept_and_exported(opened, tmp_path):
    tab = opened(pets())
    assert in_list(tab) == list(range(9, 0, -1))
    assert selected(tab) == 9
    press(tab, ["a", "r", "ArrowDown", "k", "j"])
    assert selected(tab) == 6
    relabel(tab, "cow")
    assert selected(tab) == 5, "the keys work again at once"
    press(tab, "a")
    assert "9 rows shown, 4 decided, 5 left; of the 4 worth reviewing, 1 left." in tab.inner_text("#counts")
    assert tab.get_attribute("#progress", "value") == "4"
    wanted = [(5, "accept", "cat", "dog"), (6, "relabel", "dog", "cow")]
    wanted += [(8, "reject", "dog", "dog"), (9, "accept", "cat", "dog")]
    assert exported(tab, tmp_path) == wanted
    tab = opened_again(tab)
    assert exported(tab, tmp_path) == wanted, "coming back keeps them"
    press(tab, "u")
    assert selected(tab) == 5
    press(tab, "u")
    assert selected(tab) == 6
    assert exported(tab, tmp_path) == wanted[2:], "and what can be undone"
    tab.get_by_role("button", name="Undo").click()
    press(tab, "u")
    assert exported(tab, tmp_path) == []
    press(tab, "u")
    assert tab.inner_text("#status") == "Nothing to undo."


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
    assert "No rows match. Change the filters" in tab.inner_text("#list")
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


def test_it_opens_on_the_rows_that_are_worth_reviewing(opened):
    tab = opened(pets(), every=False)
    assert tab.input_value("#state") == "flagged"
    assert in_list(tab) == [9, 8, 7, 6]
    press(tab, "aaaa")
    assert in_list(tab) == []
    assert "of the 4 worth reviewing, 0 left" in tab.inner_text("#counts")
    press(tab, "f")
    assert in_list(tab) == list(range(9, 0, -1))
    press(tab, "f")
    assert tab.input_value("#state") == "flagged"
    nothing = review([0.1], ["a"], ["b"], ["a", "b"])
    nothing.issues["is_label_issue"] = False
    tab = opened(nothing, every=False)
    assert tab.input_value("#state") == "all"
    assert in_list(tab) == [0]


def test_thousands_of_rows_by_the_keyboard_alone(opened, tmp_path):
    count = 5000
    chances = [1 - k / (2 * count) for k in range(count)]
    tab = opened(review(chances, ["a"] * count, ["b"] * count, ["a", "b"]))
    for keys, expected in ((["PageDown", "PageDown", "j"], 21), (["PageUp"], 11), (["End"], 4999), (["Home"], 0)):
        press(tab, keys)
        assert selected(tab) == expected
    press(tab, ["PageUp", "a", "End", "r"])
    with tab.expect_download() as waiting:
        press(tab, "d")
    waiting.value.save_as(tmp_path / "d.csv")
    assert records_of(read_decisions(tmp_path / "d.csv")) == [(0, "accept", "a", "b"), (4999, "reject", "a", "a")]
    assert tab.locator("[role=option]").count() < 60, "only what is in view is in the document"


def test_it_shows_why(opened):
    whys = {9: Why([1, 0], ["weight: 4: usual for dog", "<b>text</b>: 'woof'"]), 8: Why([], [])}
    near = [Near("sure.csv, row 3", "dog", "<i>31</i> · woof", ""), Near("row 17", "dog", "30 · arf", "")]
    tab = opened(dataclasses.replace(pets(), why=whys, near=near))
    said = tab.inner_text("#detail .why")
    assert tab.locator("#detail .why li").all_inner_texts() == [
        "weight: 4: usual for dog", "<b>text</b>: 'woof'", "row 17: 30 · arf", "sure.csv, row 3: <i>31</i> · woof",
    ]  # fmt: skip
    assert "What speaks against the given label" in said
    assert "Nearest trusted rows of dog" in said
    press(tab, "j")
    assert tab.locator("#detail .why").count() == 0
    tab = opened(dataclasses.replace(pets(), why=whys, near=near, trusted=False))
    assert "Nearest rows that nothing speaks against, of dog" in tab.inner_text("#detail .why")


def test_the_mouse_does_what_the_keys_do(opened, tmp_path):
    tab = opened(pets())
    tab.click("#row-7")
    assert selected(tab) == 7
    assert tab.inner_text("#detail h2") == "Row 7"
    assert "probability of being wrong: 70.0 %" in tab.inner_text("#detail")
    tab.get_by_role("button", name="Reject").click()
    assert selected(tab) == 6
    tab.get_by_role("button", name="Accept").click()
    tab.fill("#chooser", "horse")
    tab.get_by_role("button", name="Relabel").click()
    assert tab.inner_text("#status") == "No such class: horse"
    tab.fill("#chooser", "cow")
    tab.get_by_role("button", name="Relabel").click()
    assert exported(tab, tmp_path) == [
        (5, "relabel", "cat", "cow"),
        (6, "accept", "dog", "cow"),
        (7, "reject", "cat", "cat"),
    ]
    tab.get_by_role("button", name="Shortcuts").click()
    assert tab.locator("dialog").is_visible()
    press(tab, ["a", "Escape", "?"])
    assert tab.locator("dialog").is_visible()
    assert len(exported_state(tab)) == 3, "keys do nothing behind the help"


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
    other = opened(pets("two"), opener=first)
    assert exported_state(other) == []
    again = opened(pets("one"), opener=first)
    assert len(exported_state(again)) == 2


def test_two_tabs_do_not_undo_each_others_work(opened):
    first = opened(pets())
    second = opened(pets(), opener=first)
    press(first, "a")
    second.wait_for_function("() => decisions.size === 1")
    press(second, "jr")
    first.wait_for_function("() => decisions.size === 2")


def test_what_was_accepted_stays_when_another_run_suggests_something_else(opened, tmp_path):
    first = opened(review([0.9], ["a"], ["b"], ["a", "b", "c"]))
    press(first, "a")
    again = opened(review([0.9], ["a"], ["c"], ["a", "b", "c"]), opener=first)
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
    assert "your progress will be lost" in tab.inner_text("#warning")
    press(tab, "ara")
    press(tab, "u")
    assert [record[:2] for record in exported(tab, tmp_path)] == [(8, "reject"), (9, "accept")]
