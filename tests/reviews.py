"""Reviews of labels for tests, strings that hurt, and decisions as the page writes them."""

from __future__ import annotations

import csv
import io
import json
import re

import numpy as np
import pandas as pd
from hypothesis import strategies as st

from bvfim.app.clean.review import DECISIONS, Review

PIXEL = "data:image/gif;base64,R0lGODlhAQABAIAAAP///wAAACH5BAEAAAAALAAAAAABAAEAAAICRAEAOw=="

HOSTILE = [
    "</script><script>window.hacked=1</script>",
    "<img src=x onerror=window.hacked=1>",
    '=HYPERLINK("x")',
    "'=1+1",
    "''",
    "-1",
    "@SUM(A1)",
    "\ttab",
    "\r\nlines\n",
    'a "quote", a comma; and\nlines\r\n',
    "שלום עולם",
    "evil\u202etxt.exe\u2066",
    "nul\x00\x1b[31m",
    "u\u2028v\u2029w",
    "{{ 7 * 7 }} ${7*7} &amp; \\u003c",
    "__proto__",
    " spaces ",
    "long " * 2000,
    "🙂👩‍👩‍👧",
]


def review(p_wrong, given, suggested, classes=None, values=None, pictures=None, key="k", **other):
    p_wrong = np.asarray(p_wrong, dtype=float)
    classes = sorted({*given, *suggested}) if classes is None else classes
    issues = pd.DataFrame(
        {
            "is_label_issue": p_wrong > 0.5,
            "p_wrong": p_wrong,
            "given_label": given,
            "suggested_label": suggested,
            "suggested_probability": np.maximum(p_wrong, 1 - p_wrong),
        }
    )
    values = pd.DataFrame(index=range(len(issues))) if values is None else values
    transition = other.get("transition", np.full((len(classes),) * 2, 1 / len(classes)))
    return Review("pets <b>.csv", "A & B.", issues, classes, transition, values, pictures or {}, key)


def pets(key="k"):
    """Ten rows, the later the more probably wrong; the odd ones are cats that should be dogs."""
    given = ["dog", "cat"] * 5
    suggested = ["cow", "dog"] * 5
    values = pd.DataFrame({"name": [f"pet {i}" for i in range(10)], "weight": np.arange(10) / 4})
    return review(np.arange(10) / 10, given, suggested, ["cat", "cow", "dog"], values, {9: PIXEL}, key)


def hostile():
    """Every hostile string as a given label, as a suggested one, as a value, and as the name of a column."""
    count = len(HOSTILE)
    suggested = HOSTILE[1:] + HOSTILE[:1]
    values = pd.DataFrame({HOSTILE[i]: HOSTILE[i:] + HOSTILE[:i] for i in range(count)})
    return review(1 - np.arange(count) / 100, HOSTILE, suggested, HOSTILE, values, key=HOSTILE[0])


def embedded(path):
    return json.loads(re.search(r'<script id="data"[^>]*>(.*?)</script>', path.read_text(), re.S)[1])


def csv_text(records):
    """What the page's script writes, in Python."""
    out = io.StringIO(newline="")
    out.write("row,decision,given_label,label\r\n")
    for row, *texts in records:
        guarded = ["'" + text if re.match(r"[=+\-@\t\r']", text) else text for text in texts]
        csv.writer(out, quoting=csv.QUOTE_NONNUMERIC).writerow([row, *guarded])
    return out.getvalue()


def records_of(frame):
    return list(frame.itertuples(index=False, name=None))


labels = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(alphabet=st.sampled_from("='+-@\t\r\n\",;a \u2028\ufeff"), min_size=1, max_size=6),
    st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1),
)


def consistent(record):
    row, decision, was, label = record
    return row, decision, was, was if decision == "reject" else label


decided = st.lists(
    st.tuples(st.integers(0, 10**9), st.sampled_from(DECISIONS), labels, labels).map(consistent),
    unique_by=lambda record: record[0],
    max_size=8,
)
