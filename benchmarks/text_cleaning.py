"""Wrong labels of sentences: the label cleaner beside cleanlab, on texts of Debian's packages.

Three sets: sentences by the source that they are from, sentences of manual pages by their section, and descriptions of
packages by theirs. A fifth of the labels is flipped, and 50 to 500 rows can be trusted. cleanlab gets the trusted rows
in its folds, and the terms that LabelCleaner sees, for scikit-learn's logistic regression, its own default, and for
naive Bayes. It needs a Debian machine with the packages that it names (``apt-get update`` fetches descriptions), and
cleanlab: ``pip install 'bvfim[peers]'``. Run it as ``python -m benchmarks.text_cleaning``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

import bvfim
from bvfim.data import symmetric
from bvfim.labels.sentences import Terms
from bvfim.reports.report import machine
from bvfim.reproduce.bench.labels import measures
from bvfim.reproduce.bench.rivals import FOLDS, Found
from examples.data_mixture import texts

NOISY, TRUSTED, RATE, SEEDS = 2000, (50, 200, 500), 0.2, 2
SHORTEST, LONGEST, WORDS = 40, 300, 6
"""Of a sentence, in characters, and the least number of words in it: headings and tables are none."""
SECTIONS = ("admin", "games", "graphics", "net", "science", "sound", "text", "web")
"""Of packages that people choose for what they do; the others name the language that a package is written in."""
DESCRIBED = 4
"""The least number of words of a description."""


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text."""
    for paragraph in text.split("\n\n"):
        for sentence in re.split(r"(?<=[.!?])\s+", " ".join(paragraph.split())):
            if SHORTEST <= len(sentence) <= LONGEST and len(re.findall(r"[a-z]{2,}", sentence)) >= WORDS:
                yield sentence


def by_source() -> dict[str, list[str]]:
    """Sentences by the source that they are from: a dictionary, a handbook, manual pages and so on."""
    sources = {**texts.SOURCES, "jargon": texts.TARGET}
    return {
        name: list(dict.fromkeys(s for _, page in texts.pages(source) for s in sentences(page)))
        for name, source in sources.items()
    }


def by_manual() -> dict[str, list[str]]:
    """Sentences of manual pages by their section: system calls, functions, devices, formats, overviews."""
    found: dict[str, dict[str, None]] = {}
    for path, page in texts.pages(texts.SOURCES["manual"]):
        found.setdefault(path.parent.name, {}).update(dict.fromkeys(sentences(page)))
    return {name: list(own) for name, own in found.items() if len(own) > NOISY // 2}


def by_section() -> dict[str, list[str]]:
    """Descriptions of packages, a line each, by their section."""
    known = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True).stdout
    found: dict[str, dict[str, None]] = {name: {} for name in SECTIONS}
    for record in known.split("\n\n"):
        own = dict(re.findall(r"^(Description|Section): (.*)$", record, re.MULTILINE))
        if own.get("Section") in found and len(own.get("Description", "").split()) >= DESCRIBED:
            found[own["Section"]][own["Description"]] = None
    return {name: list(own) for name, own in found.items()}


SETS: dict[str, Callable[[], dict[str, list[str]]]] = {
    "sources": cache(by_source),
    "manual": cache(by_manual),
    "sections": cache(by_section),
}


class Task(NamedTuple):
    """The rows, the trusted ones last; the labels that were given, the true ones, and the trusted ones."""

    rows: pd.DataFrame
    given: np.ndarray
    truth: np.ndarray
    trusted: np.ndarray


def drawn(name: str, trusted: int, seed: int, noisy: int = NOISY) -> Task:
    """A draw: as many rows of each class, a larger trusted set holding the smaller."""
    rng, classes = np.random.default_rng(seed), sorted(SETS[name]())
    rows: dict[str, list[tuple[str, int]]] = {"noisy": [], "trusted": []}
    for code, kind in enumerate(classes):
        own = SETS[name]()[kind]
        order = rng.permutation(len(own))
        count, sure = noisy // len(classes), trusted // len(classes) + (code < trusted % len(classes))
        last = len(own) - sure
        rows["noisy"] += [(own[i], code) for i in order[: min(count, last)]]
        rows["trusted"] += [(own[i], code) for i in order[::-1][:sure]]
    truth = np.array([code for _, code in rows["noisy"]])
    given, _ = symmetric(truth, RATE, len(classes), seed=seed)
    said = pd.DataFrame({"text": [text for kind in rows.values() for text, _ in kind]})
    return Task(said, given, truth, np.array([code for _, code in rows["trusted"]]))


def ours(task: Task, seed: int) -> Found:
    """LabelCleaner on the column of sentences, as ``bvfim clean`` has it."""
    n = len(task.given)
    issues = bvfim.LabelCleaner(random_state=seed).find_label_issues(
        task.rows[:n], task.given, X_trusted=task.rows[n:], y_trusted=task.trusted
    )
    p_wrong, flags = issues["p_wrong"].to_numpy(), issues["is_label_issue"].to_numpy()
    return Found(p_wrong, flags, task.given, np.ones(n))


def cleanlab(task: Task, seed: int, model: Any) -> Found:
    """cleanlab's default workflow on the same terms, the trusted rows in its folds."""
    learning: Any = import_module("cleanlab.classification").CleanLearning
    said = task.rows["text"].tolist()
    own = learning(model, seed=seed, cv_n_folds=FOLDS, find_label_issues_kwargs={"n_jobs": 1})
    labels = np.concatenate([task.given, task.trusted])
    issues = own.find_label_issues(Terms(said)(said), labels)[: len(task.given)]
    flags = issues["is_label_issue"].to_numpy()
    return Found(1.0 - issues["label_quality"].to_numpy(), flags, task.given, np.where(flags, 0.0, 1.0))


def contestants() -> dict[str, Callable[[Task, int], Found]]:
    """All of them by name."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import MultinomialNB

    return {
        "LabelCleaner": ours,
        "cleanlab": lambda task, seed: cleanlab(task, seed, LogisticRegression(max_iter=1000)),
        "cleanlab, naive Bayes": lambda task, seed: cleanlab(task, seed, MultinomialNB(alpha=0.1)),
    }


def measured(name: str, trusted: int, seed: int, noisy: int) -> list[dict[str, Any]]:
    """A row for each contestant on one draw."""
    task, rows = drawn(name, trusted, seed, noisy), []
    for contestant, find in contestants().items():
        began = time.perf_counter()
        found = find(task, seed)
        seconds = time.perf_counter() - began
        figures = measures(task.given != task.truth, found)
        about = {"set": name, "trusted": trusted, "seed": seed, "rows": len(task.given)}
        rows.append({**about, "contestant": contestant, **figures, "seconds": seconds})
        print(f"{name} {trusted} {seed} {contestant}: F1 {figures['F1']:.3f}, AUROC {figures['AUROC']:.4f}", flush=True)
    return rows


def saved(rows: list[dict[str, Any]], out: Path | None, noisy: int) -> pd.DataFrame:
    """The means over draws; written to a file, if there is one."""
    columns = pd.DataFrame(rows).groupby(["set", "trusted", "contestant"], sort=False)
    means = columns[["F1", "AUROC", "AP", "calibration error"]].mean().round(5).assign(draws=columns.size())
    if out:
        settings = {"noisy": noisy, "wrong": RATE}
        about = {"command": "python -m benchmarks.text_cleaning", "settings": settings, "machine": machine()}
        found = {**about, "columns": means.reset_index().to_dict("records"), "runs": rows}
        out.write_text(json.dumps(found, indent=1) + "\n")
    return means


def main() -> None:
    """Measure, and write a file as it goes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--trusted", nargs="+", type=int, default=list(TRUSTED))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--noisy", type=int, default=NOISY)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    try:
        texts.require_installed()
    except FileNotFoundError as error:
        sys.exit(str(error))
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for seed, name, size in itertools.product(range(chosen.seeds), chosen.sets, chosen.trusted):
        rows += measured(name, size, seed, chosen.noisy)
        means = saved(rows, chosen.out, chosen.noisy)
    print(means.to_string())


if __name__ == "__main__":
    main()
