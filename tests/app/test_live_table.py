"""The table that moves, and the lines that stand in for it."""

from __future__ import annotations

import io
import re
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console

import bvfim
from bvfim.app.live_table import LiveTable

PROBLEM = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum() + (x**2).sum(), lambda x, y: ((y - x) ** 2).sum())
LEAVES_ITS_DOMAIN = bvfim.Problem(lambda x, y: (y + torch.log(x)).sum(), lambda x, y: ((y - x) ** 2).sum())


def watched(terminal, method, steps, problem=PROBLEM, start=0.0, optimizer=None, **settings):
    """What is on the stream after a run."""
    stream = io.StringIO()
    table = LiveTable(console=Console(file=stream, force_terminal=terminal, width=80), **settings)
    x, y = torch.full((2,), start).double(), torch.zeros(2).double()
    solution = bvfim.solve(problem, x, y, method, optimizer, steps, callbacks=[table])
    return stream.getvalue(), solution


def pictures(text):
    """The tables that were drawn one over the other, without control codes."""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    return [[line.split() for line in part.splitlines() if line.split()] for part in re.split(r"(?=\s+\w+: )", plain)]


def test_without_a_terminal_there_is_a_line_for_each_tenth_of_the_steps():
    text, solution = watched(False, bvfim.RHG(steps=2), 40)
    lines = text.splitlines()
    assert "\x1b" not in text
    steps = [int(re.match(r"step (\d+): ", line)[1]) for line in lines]
    assert steps == [0, 3, 7, 11, 15, 19, 23, 27, 31, 35, 39]  # the first, and each fourth
    row = solution.history.iloc[-1]
    said = f"F {row['upper']:.5g}, f {row['lower']:.5g}, grad_norm {row['grad_norm']:.3g}"
    gradients = int(row["upper_evaluations"] + row["lower_evaluations"])
    assert lines[-1].startswith(f"step 39: {said}, {gradients} gradients, ")


def test_slow_steps_are_said_by_time_and_the_last_one_always():
    text, _ = watched(False, bvfim.RHG(steps=2), 5, pause=0.0)
    assert [line.split(":")[0] for line in text.splitlines()] == [f"step {k}" for k in range(5)]
    text, solution = watched(False, bvfim.AdaptiveBVFIM(), 500)
    assert [line.split(":")[0] for line in text.splitlines()] == ["step 0", f"step {solution.steps - 1}"]
    assert all(word in text for word in ("grad_norm ", "gap ", "mu2 "))
    assert "slack " in watched(False, bvfim.BVFIM(z_steps=2, y_steps=2), 1)[0]


def test_the_table_has_the_last_steps_and_fits_eighty_columns():
    text, solution = watched(True, bvfim.AdaptiveBVFIM(), 500, refresh=0.0)
    last = pictures(text)[-1]
    assert " ".join(last[0]) == f"AdaptiveBVFIM: {solution.steps} of at most 500 steps"
    assert last[1] == ["step", "F", "f", "grad_norm", "gap", "mu2", "gradients", "s"]
    rows = last[3:]
    assert [int(row[0]) for row in rows] == list(range(solution.steps - 10, solution.steps))
    shown = solution.history.iloc[-10:]
    assert [row[1] for row in rows] == [f"{v:.5g}" for v in shown["upper"]]
    assert [row[5] for row in rows] == [f"{v:.3g}" for v in shown["mu2"]]
    assert "…" not in text


def test_no_number_is_too_wide():
    columns = ("upper", "lower", "grad_norm", "gap", "mu2", "slack", "seconds")
    row = dict.fromkeys(columns, -1.23456789e-100) | {"step": 9999, "upper_evaluations": 10**8, "lower_evaluations": 1}
    stream = io.StringIO()
    run = SimpleNamespace(rows=[row], row=row, method=bvfim.AdaptiveBVFIM(), k=1, steps=1)
    LiveTable(console=Console(file=stream, force_terminal=True, width=80))(run)
    assert "…" not in stream.getvalue()
    assert "100000001" in stream.getvalue()


def test_the_table_is_drawn_no_more_often_than_asked():
    text, solution = watched(True, bvfim.RHG(steps=2), 300, refresh=0.1, rows=3)
    drawn = text.count("of at most")
    assert 2 <= drawn <= 3 + solution.seconds / 0.1  # the first, the last, and the one that stays
    assert [row[0] for row in pictures(text)[-1][3:]] == ["297", "298", "299"]
    assert text.endswith("\x1b[?25h")  # the cursor is back


@pytest.mark.parametrize("terminal", [True, False])
def test_a_step_that_broke_off_is_shown(terminal):
    sgd = lambda xs: torch.optim.SGD(xs, 0.2)  # noqa: E731
    text, solution = watched(terminal, bvfim.RHG(steps=2), 50, LEAVES_ITS_DOMAIN, 0.3, sgd)
    assert solution.status is bvfim.Status.NON_FINITE
    last = pictures(text)[-1][-1] if terminal else text.splitlines()[-1].replace(":", "").split()
    assert str(solution.steps) in last[:2]
    assert any(word.startswith("nan") for word in last)


def test_a_run_of_no_steps_shows_nothing_and_an_error_puts_the_cursor_back():
    assert watched(True, bvfim.RHG(), 0)[0] == watched(False, bvfim.RHG(), 0)[0] == ""
    stream, calls = io.StringIO(), []

    def upper(x, y):
        calls.append(1)
        if len(calls) > 20:
            raise RuntimeError("late")
        return ((y - 1) ** 2).sum()

    table = LiveTable(console=Console(file=stream, force_terminal=True, width=80), refresh=0.0)
    problem = bvfim.Problem(upper, lambda x, y: ((y - x) ** 2).sum())
    with pytest.raises(RuntimeError, match="late"):
        bvfim.solve(problem, torch.zeros(1), torch.zeros(1), bvfim.RHG(steps=2), callbacks=[table])
    assert stream.getvalue().endswith("\x1b[?25h")


def test_the_rows_must_be_a_number_of_rows():
    with pytest.raises(bvfim.MethodError, match="rows"):
        LiveTable(rows=-1)
