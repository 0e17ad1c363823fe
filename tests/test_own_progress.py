"""The progress that a run shows by itself."""

from __future__ import annotations

import torch

import bvfim

PROBLEM = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum() + (x**2).sum(), lambda x, y: ((y - x) ** 2).sum())
START = torch.zeros(2, dtype=torch.float64)


def test_a_run_shows_its_progress_by_itself_where_somebody_may_be_watching(monkeypatch, capsys):
    monkeypatch.delenv("BVFIM_PROGRESS", raising=False)
    monkeypatch.setattr(bvfim.callbacks, "DELAY", 0.0)
    monkeypatch.setattr(bvfim.callbacks, "error_stream", bvfim.callbacks.PlainStream)

    def shown(**options):
        bvfim.solve(PROBLEM, START, START, bvfim.RHG(steps=1), steps=2, **options)
        return capsys.readouterr().err

    assert shown() == "", "not into a file or a pipe"
    assert "2/2" in shown(progress=True)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert "2/2" in shown()
    assert shown(progress=False) == ""
    assert shown(callbacks=[bvfim.callbacks.ProgressBar(delay=60.0)]) == "", "one that is given takes its place"
    monkeypatch.setenv("BVFIM_PROGRESS", "0")
    assert shown() == ""


def test_progress_of_a_short_run_is_not_shown(capsys):
    bar = bvfim.callbacks.ProgressBar(delay=60.0, pause=0.0, console=bvfim.callbacks.PlainStream())
    bvfim.solve(PROBLEM, START, START, bvfim.RHG(steps=1), steps=3, callbacks=[bar])
    assert capsys.readouterr().err == ""


def test_the_progress_of_a_large_problem_says_what_would_be_faster(monkeypatch, capsys):
    monkeypatch.setattr(bvfim.callbacks, "DELAY", 0.0)
    monkeypatch.setattr(bvfim.callbacks, "error_stream", bvfim.callbacks.PlainStream)
    for n, said in ((2, False), (20_000, True)):
        problem = bvfim.Problem(lambda x, y: ((y - 1) ** 2).mean() + (x**2).sum(), lambda x, y: ((y - x) ** 2).mean())
        bvfim.solve(problem, torch.zeros(1), torch.zeros(n), steps=1, progress=True)
        assert ("StochasticBVFIM() would be faster" in capsys.readouterr().err) is said
