"""Why rows are on the page: the trusted rows that are named, and what the columns say."""

from __future__ import annotations

import numpy as np
import pytest

from bvfim.app.clean.job import Job, find
from bvfim.app.clean.why import explained
from tests.app.clean import test_job
from tests.app.clean.test_job import job, pets, quiet, written
from tests.labels.test_sentences import SUBJECTS, said

files = test_job.files
pytestmark = pytest.mark.filterwarnings("ignore::bvfim.BvfimWarning")


def test_the_reasons_name_trusted_rows_nearby_and_the_column_that_tells(files):
    found = find(job(files), quiet)
    whys, near = explained(found)
    assert set(whys) == set(range(10))
    truth = pets(20, 1)
    weights = truth["weight"].astype(float)
    for row, why in whys.items():
        better = found.issues["suggested_label"][row]
        assert [near[k].label for k in why.near] == [better] * 3
        assert why.against[0].startswith(f"weight: {float(pets(150, 0)['weight'][row]):.4g}: usual for {better} (")
        named = [int(near[k].name.removeprefix("sure.csv, row ")) for k in why.near]
        own = truth.index[truth["kind"] == better]
        far = (weights[own] - float(pets(150, 0)["weight"][row])).abs()
        assert far[named[0]] <= far.median(), "the nearest by weight, the colour aside"


def test_the_reasons_name_words_of_sentences(tmp_path):
    table, labels, truth, wrong = said()
    table.assign(label=labels).to_csv(tmp_path / "said.csv", index=False)
    sure = said(40, 1)
    sure[0].assign(label=sure[2]).to_csv(tmp_path / "sure.csv", index=False)
    asked = Job(tmp_path / "said.csv", trusted=str(tmp_path / "sure.csv"), bilevel=False)
    found, out = written(tmp_path, asked)
    assert found.columns.sentences == ("text",)
    assert (found.issues["is_label_issue"].to_numpy() == wrong).mean() > 0.98
    whys, near = explained(found)
    for row in np.flatnonzero(wrong & found.issues["is_label_issue"].to_numpy()):
        words = [reason.split("'")[1] for reason in whys[row].against]
        assert set(words[:2]) <= set(SUBJECTS[truth[row]].split())
        assert all(near[k].label == truth[row] for k in whys[row].near)
    assert "times as frequent" in (out / "report.html").read_text()


def test_without_trusted_rows_those_stand_in_that_nothing_speaks_against(files):
    found = find(job(files, trusted=None), quiet)
    whys, near = explained(found)
    assert whys
    for row, why in whys.items():
        assert all(near[k].label == found.issues["suggested_label"][row] for k in why.near)
        assert all(int(near[k].name.removeprefix("row ")) >= 10 for k in why.near)
