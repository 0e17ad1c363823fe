"""Which rows to look at: the best set by brute force."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bvfim.labels.decisions import drop, review


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=30))
def test_the_most_probable_rows_are_flagged_and_no_other_number_of_them_is_better(values):
    p = np.array(values)
    flagged = review(p)
    if flagged.any() and not flagged.all():
        assert p[flagged].min() >= p[~flagged].max()
    expected = [2 * np.sort(p)[::-1][:k].sum() / (k + p.sum()) for k in range(1, len(p) + 1)]
    found = 2 * p[flagged].sum() / max(flagged.sum() + p.sum(), 1e-300)
    assert found >= max(expected) - 1e-9
    assert drop(p).sum() == (p >= 0.9).sum()


def test_nothing_is_flagged_where_nothing_can_be_wrong():
    assert not review(np.zeros(5)).any()
    assert review(np.array([])).tolist() == []
