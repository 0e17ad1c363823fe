"""The job of ``bvfim clean``: what it finds, what it writes, and what decisions change."""

from __future__ import annotations

import csv
import json

import numpy as np
import pandas as pd
import pytest
from PIL import Image, ImageDraw

import bvfim
from bvfim.app.clean import job as clean_job
from bvfim.app.clean import output
from bvfim.app.clean.job import Job, find

pytestmark = pytest.mark.filterwarnings("ignore::bvfim.BvfimWarning")


def quiet(what, share):
    assert 0 <= share <= 1


def pets(count, seed):
    """Cats are light and dogs heavy; colours say nothing."""
    rng = np.random.default_rng(seed)
    dog = rng.random(count) < 0.5
    weight = np.where(dog, 20, 4) + rng.normal(size=count)
    frame = {"weight": [f"{w:.3f}" for w in weight], "colour": rng.choice(["red", "blue"], count)}
    return pd.DataFrame({**frame, "kind": np.where(dog, "dog", "cat")})


@pytest.fixture
def files(tmp_path):
    data = pets(150, 0)
    data.loc[:9, "kind"] = data.loc[:9, "kind"].map({"cat": "dog", "dog": "cat"})
    data.to_csv(tmp_path / "pets.csv", index=False)
    pets(20, 1).to_csv(tmp_path / "sure.csv", index=False)
    return tmp_path


def job(files, **changed):
    asked = {"data": files / "pets.csv", "label": "kind", "trusted": str(files / "sure.csv"), "bilevel": False}
    return Job(**(asked | changed))


def written(files, asked, name="out"):
    found = find(asked, quiet)
    output.write(asked, found, files / name, quiet)
    return found, files / name


def records(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def test_wrong_labels_are_found_and_every_row_is_kept(files):
    found, out = written(files, job(files))
    assert found.issues.index[found.issues["is_label_issue"]].tolist() == list(range(10))
    given, issues = records(files / "pets.csv"), records(out / "issues.csv")
    assert [record[:3] for record in issues] == given, "the columns as they were, in their order"
    assert issues[0][3:6] == ["is_label_issue", "drop", "label_quality"]
    cleaned = records(out / "cleaned.csv")
    assert cleaned == [given[0], *(r for k, r in enumerate(given[1:]) if not found.dropped[k])]
    assert len(cleaned) == len(given) - 10
    config = json.loads((out / "config.json").read_text())
    assert config["classes"] == ["cat", "dog"]
    assert config["dropped"] == 10
    assert sorted(path.name for path in out.iterdir()) == sorted(output.FILES), "nothing else is left"


def test_a_column_can_say_which_rows_are_trusted(files):
    frame = pd.concat(
        [pd.read_csv(files / "pets.csv").assign(ok="no"), pd.read_csv(files / "sure.csv").assign(ok="Yes")]
    )
    frame.to_csv(files / "both.csv", index=False)
    found = find(job(files, data=files / "both.csv", trusted="ok"), quiet)
    assert found.issues.index[found.issues["is_label_issue"]].tolist() == list(range(10))
    assert "ok" not in found.columns.used


def test_decisions_are_applied_and_trusted(files):
    given = records(files / "pets.csv")[1:]
    lines = [
        "row,decision,given_label,label",
        f"0,accept,{given[0][2]},{given[10][2]}",
        f"1,reject,{given[1][2]},{given[1][2]}",
    ]
    lines.append(f"2,relabel,{given[2][2]},'=hamster")
    (files / "decisions.csv").write_text("\n".join(lines))
    found, out = written(files, job(files, apply=files / "decisions.csv"))
    cleaned = records(out / "cleaned.csv")[1:]
    assert [r[2] for r in cleaned[:3]] == [given[10][2], given[1][2], "=hamster"]
    assert [r[:2] for r in cleaned[:3]] == [r[:2] for r in given[:3]]
    assert found.issues["p_wrong"].tolist()[:3] == [float(given[0][2] != given[10][2]), 0.0, 1.0]
    assert (found.issues["sample_weight"] == 1.0 - found.issues["p_wrong"]).all()
    assert records(out / "issues.csv")[1][2] == given[0][2], "the original column is untouched"


def test_a_typing_error_can_be_corrected_out_of_the_classes(files):
    text = (files / "pets.csv").read_text().splitlines()
    text[20] = ",".join([*text[20].split(",")[:2], "dgo"])
    (files / "pets.csv").write_text("\n".join(text))
    (files / "decisions.csv").write_text("row,decision,given_label,label\n19,relabel,dgo,dog\n")
    found, out = written(files, job(files, apply=files / "decisions.csv"))
    assert found.cleaner.classes_.tolist() == ["cat", "dog"]
    assert records(out / "cleaned.csv")[20 - int(found.dropped[:19].sum())][2] == "dog"


def test_a_rare_label_is_learned_from_wherever_it_is(files):
    frame = pd.read_csv(files / "pets.csv")
    frame.loc[149, "kind"] = "hamster"
    frame.to_csv(files / "pets.csv", index=False)
    found = find(job(files, most=60), quiet)
    assert found.issues.loc[149, "given_label"] == "hamster"


def test_decisions_for_other_data_are_refused(files):
    (files / "decisions.csv").write_text("row,decision,given_label,label\n0,relabel,horse,cat\n")
    message = "the decision for row 0 was made for the label 'horse', but the table has"
    with pytest.raises(bvfim.DataError, match=message):
        find(job(files, apply=files / "decisions.csv"), quiet)
    (files / "decisions.csv").write_text("row,decision,given_label,label\n150,relabel,cat,dog\n")
    with pytest.raises(bvfim.DataError, match="the table ends at row 149"):
        find(job(files, apply=files / "decisions.csv"), quiet)


def test_a_table_with_too_many_rows_is_judged_in_pieces(files, monkeypatch):
    monkeypatch.setattr("bvfim.app.clean.table.PIECE", 40)
    found, out = written(files, job(files, most=100))
    assert found.issues.index.tolist() == list(range(150))
    assert found.issues.index[found.issues["is_label_issue"]].tolist() == list(range(10))
    assert [record[:3] for record in records(out / "issues.csv")] == records(files / "pets.csv")


def test_the_same_seed_gives_the_same_files(files):
    first, second = (written(files, job(files), name)[1] for name in ("one", "two"))
    for name in ("issues.csv", "cleaned.csv", "report.html"):
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_columns_that_are_called_as_ours_are_kept(files):
    frame = pd.read_csv(files / "pets.csv").assign(p_wrong="mine", found_p_wrong="too")
    frame.to_csv(files / "pets.csv", index=False)
    _, out = written(files, job(files, trusted=None, ignore=("p_wrong", "found_p_wrong")))
    header, first = records(out / "issues.csv")[:2]
    assert first[header.index("p_wrong")] == "mine"
    assert "found_found_p_wrong" in header
    assert len(set(header)) == len(header)


def test_without_trusted_rows_no_row_is_left_out(files):
    found, out = written(files, job(files, trusted=None))
    assert found.issues["is_label_issue"].sum() == 10
    assert not found.issues["drop"].any()
    assert "because there are no trusted rows" in output.sentences(found)[1]
    assert records(out / "cleaned.csv") == records(files / "pets.csv")


def test_rows_that_tell_nothing_are_said_to(files):
    frame = pd.DataFrame(
        {"weight": np.random.default_rng(0).normal(size=200), "kind": ["cat", "dog", "dog", "cat"] * 50}
    )
    frame.to_csv(files / "pets.csv", index=False)
    for most in (1000, 150):
        found = find(job(files, trusted=None, most=most), quiet)
        assert not found.issues[["is_label_issue", "drop"]].any(axis=None)
    assert output.sentences(found) == [
        "200 rows. They say too little about the labels to call any label wrong; provide trusted rows."
    ]


def test_trusted_rows_of_another_kind_are_refused(files):
    for name in ("cat", "dog"):
        (files / "sure" / name).mkdir(parents=True)
        for k in range(2):
            Image.new("RGB", (8, 8)).save(files / "sure" / name / f"{k}.png")
    with pytest.raises(bvfim.DataError, match="this is a folder of images, but the data is a table: both must be"):
        find(job(files, trusted=str(files / "sure")), quiet)
    with pytest.raises(bvfim.DataError, match="this is a table, but the data is a folder of images: both must be"):
        find(job(files, data=files / "sure", label="label"), quiet)


def test_trusted_labels_that_are_written_otherwise_are_refused(files):
    pets(20, 1).replace({"cat": "Cat", "dog": "Dog"}).to_csv(files / "sure.csv", index=False)
    with pytest.raises(bvfim.DataError, match=r"sure\.csv: the labels of the trusted rows have nothing in common"):
        find(job(files), quiet)


def test_a_shuffled_table_from_pandas(files):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    frame = pd.read_csv(files / "pets.csv").sample(frac=1, random_state=0)
    frame.to_parquet(files / "pets.parquet")
    found, out = written(files, job(files, data=files / "pets.parquet"))
    assert found.issues["is_label_issue"].tolist() == (frame.index < 10).tolist()
    assert found.columns.used == ("weight", "colour")
    assert [record[3] for record in records(out / "issues.csv")] == ["__index_level_0__", *map(str, frame.index)]


def test_nothing_is_written_over(files):
    (files / "out").mkdir()
    (files / "out" / "cleaned.csv").write_text("precious")
    with pytest.raises(bvfim.DataError, match=r"cleaned\.csv already exists; use --force"):
        output.require_new(files / "out", force=False)
    output.require_new(files / "out", force=True)


def test_what_is_read_is_not_written_over(files):
    (files / "issues.csv").write_text("precious")
    with pytest.raises(bvfim.DataError, match=r"issues\.csv is an input and would be overwritten"):
        output.require_new(files, force=True, inputs=[files / "pets.csv", files / "issues.csv"])
    output.require_new(files, force=True, inputs=[files / "pets.csv"])


def test_a_folder_that_cannot_be_written_is_told_at_once(files, monkeypatch):
    with pytest.raises(bvfim.DataError, match=r"pets\.csv is not a folder"):
        output.require_new(files / "pets.csv" / "out", force=False)
    before = sorted(files.iterdir())
    output.require_new(files / "deep" / "out", force=False)
    assert sorted(files.iterdir()) == before
    monkeypatch.setattr(output.tempfile, "mkdtemp", refused)
    with pytest.raises(bvfim.DataError, match="can't write there: Read-only"):
        output.require_new(files / "out", force=False)


def refused(**where):
    raise OSError(30, "Read-only file system")


def shape(path, round_, colour, rng):
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.new("RGB", (40, 40), "white")
    left, top = (int(v) for v in rng.integers(2, 14, 2))
    draw = ImageDraw.Draw(image)
    (draw.ellipse if round_ else draw.rectangle)((left, top, left + 20, top + 20), outline=colour, width=3)
    image.save(path)


@pytest.fixture
def pictures(tmp_path):
    rng = np.random.default_rng(0)
    for folder, count, wrong in (("data", 40, 4), ("sure", 8, 0)):
        for k in range(count):
            for kind in ("round", "square"):
                label = kind if k >= wrong else {"round": "square", "square": "round"}[kind]
                shape(tmp_path / folder / label / f"{kind}{k:02}.png", kind == "round", "black", rng)
    return tmp_path


def test_a_folder_of_pictures(pictures):
    asked = Job(pictures / "data", trusted=str(pictures / "sure"), bilevel=False)
    found, out = written(pictures, asked)
    names = [record[0] for record in records(out / "issues.csv")[1:]]
    wrong = [name.split("/")[0] not in name.split("/")[1] for name in names]
    assert (found.issues["is_label_issue"] == wrong).mean() > 0.9
    assert "data:image/jpeg" in (out / "report.html").read_text()


@pytest.mark.parametrize(("compared", "shares"), [(96, []), (50, [0, 30 / 96, 60 / 96, 90 / 96])])
def test_pictures_are_looked_at_once_more_only_where_not_all_were_compared(pictures, monkeypatch, compared, shares):
    monkeypatch.setattr("bvfim.labels.embedding.COMPARED", compared)
    monkeypatch.setattr("bvfim.app.clean.job.PIECE", 30)
    told = []
    asked = Job(pictures / "data", trusted=str(pictures / "sure"), bilevel=False)
    found = find(asked, lambda what, share: told.append((what, share)))
    assert [share for what, share in told if what == "computing image features"] == shares
    assert len(found.issues) == 80


def test_a_picture_that_cannot_be_read_is_named(pictures):
    (pictures / "data" / "round" / "broken.png").write_bytes(b"not a picture")
    with pytest.raises(bvfim.DataError, match=r"row 0: image round/broken.png: it can't be read"):
        find(Job(pictures / "data", trusted=str(pictures / "sure")), quiet)


def test_a_table_of_pictures(pictures):
    rows = [(f"{p.parent.name}/{p.name}", p.parent.name) for p in sorted((pictures / "data").rglob("*.png"))]
    pd.DataFrame(rows, columns=["path", "kind"]).to_csv(pictures / "data" / "table.csv", index=False)
    found = find(Job(pictures / "data" / "table.csv", "kind", picture="path", bilevel=False), quiet)
    assert len(found.issues) == len(rows)
    frame = pd.read_csv(pictures / "data" / "table.csv")
    frame.loc[3, "path"] = "nowhere.png"
    frame.to_csv(pictures / "data" / "table.csv", index=False)
    with pytest.raises(bvfim.DataError, match=r"row 3: image nowhere\.png: no such file"):
        find(Job(pictures / "data" / "table.csv", "kind", picture="path"), quiet)


def test_a_table_of_cleanlabs_findings_is_taken_as_it_is(files):
    data = pd.read_csv(files / "pets.csv").rename(columns={"kind": "given_label"})
    theirs = {"is_label_issue": False, "label_quality": 0.5, "predicted_label": "cat"}
    data.assign(**theirs).to_csv(files / "theirs.csv", index=False)
    pets(20, 1).rename(columns={"kind": "given_label"}).to_csv(files / "sure.csv", index=False)
    found, out = written(files, job(files, data=files / "theirs.csv", label="label"))
    assert found.columns.used == ("weight", "colour")
    assert found.issues.index[found.issues["is_label_issue"]].tolist() == list(range(10))
    ours = pd.read_csv(out / "issues.csv")
    assert set(theirs) | {f"found_{name}" for name in (*theirs, "given_label")} <= set(ours.columns)


def test_holes_dates_and_a_model_of_sentences_come_in_by_the_job(files, monkeypatch):
    data = pd.read_csv(files / "pets.csv", dtype=str)
    order = np.random.default_rng(5).permutation(150)  # else the first days would explain the wrong labels
    data["when"] = pd.date_range("2026-01-01", periods=150).strftime("%d.%m.%Y")[order]
    data.loc[[3, 40], "weight"] = ["", "n/a"]
    data["note"] = [f"it was seen {k} times" for k in order]
    data.to_csv(files / "pets.csv", index=False)
    sure = pets(20, 1).assign(when="13.02.2026", note="it was seen now")
    sure.to_csv(files / "sure.csv", index=False)
    asked = []
    monkeypatch.setattr(
        clean_job, "model_of", lambda name: lambda texts: asked.append(name) or np.ones((len(texts), 2))
    )
    found, out = written(files, job(files, sentence_model="small"))
    assert set(asked) == {"small"}
    assert found.columns.forms == {"weight": "number", "when": "%d.%m.%Y"}
    assert found.issues["is_label_issue"][:10].sum() >= 9
    config = json.loads((out / "config.json").read_text())["columns"]
    assert config["filled"]["weight"][0] == 2
    assert config["sentences"] == ["note"]
    assert len(records(out / "issues.csv")) == 151
