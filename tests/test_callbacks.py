"""What is done after each step: saving, logging, showing."""

from __future__ import annotations

import errno
import io
import math
import re
import sys
import time
from pathlib import Path

import pytest
import torch
from rich.console import Console

import bvfim
from bvfim.callbacks import Checkpoint, Log, ProgressBar, TensorBoard

PROBLEM = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum() + (x**2).sum(), lambda x, y: ((y - x) ** 2).sum())
START = torch.zeros(2, dtype=torch.float64)


def solve(steps, *callbacks, **options):
    return bvfim.solve(PROBLEM, START, START, bvfim.RHG(2, lr=0.1), steps=steps, callbacks=callbacks, **options)


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is moved."""

    class Clock:
        now = 1000.0

        def at(self, *moments):
            """A callback after which it is the next of these seconds."""
            coming = iter(moments)

            def move(run):
                if run.k == run.k_before + 1:
                    run.started = self.now
                self.now = 1000.0 + next(coming)

            return move

    made = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: made.now)
    return made


# -- checkpoints --


@pytest.fixture
def saves(monkeypatch):
    """The steps at which something was saved."""
    found = []
    real = bvfim.Run.save
    monkeypatch.setattr(bvfim.Run, "save", lambda run, *given: [found.append(run.k), real(run, *given)][1])
    return found


def test_a_run_is_saved_every_so_many_steps_and_at_its_end(tmp_path, saves):
    path = tmp_path / "run"
    solve(10, Checkpoint(path, every=4))
    assert saves == [4, 8, 10]
    assert bvfim.checkpoint.read(path)["k"] == 10
    assert bvfim.checkpoint.read(f"{path}.old-1")["k"] == 8
    assert len(list(tmp_path.iterdir())) == 2
    saves.clear()
    solve(8, Checkpoint(tmp_path / "other", every=4))
    assert saves == [4, 8]  # the end is not saved twice


def test_minutes_alone_are_enough(tmp_path, saves, clock):
    moments = clock.at(10, 50, 70, 100, 125, 190, 200)
    solve(7, moments, Checkpoint(tmp_path / "run", every=None, minutes=1))
    assert saves == [3, 6, 7]


def test_steps_and_minutes_go_together(tmp_path, saves, clock):
    moments = clock.at(10, 20, 70, 80, 90, 100, 150, 160)
    solve(8, moments, Checkpoint(tmp_path / "run", every=5, minutes=1))
    assert saves == [3, 5, 7, 8]


def test_a_resumed_run_and_one_that_begins_late_count_the_minutes_anew(tmp_path, saves, clock):
    saver = Checkpoint(tmp_path / "run", every=None, minutes=1)
    clock.now += 1000
    moments = clock.at(1030, 1050, 2030, 2061, 2070)
    solve(2, moments, saver)
    assert saves == [2]
    clock.now += 950
    solve(5, moments, saver, resume=tmp_path / "run")
    assert saves == [2, 4, 5]


def test_one_object_saves_two_runs(tmp_path, saves):
    saver = Checkpoint(tmp_path / "run", every=100)
    solve(3, saver)
    solve(3, saver)
    assert saves == [3, 3]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"every": 0}, "Checkpoint: every must be a whole number of at least 1, not 0"),
        ({"every": 2.5}, "Checkpoint: every must be a whole number of at least 1, not 2.5"),
        ({"minutes": 0}, "Checkpoint: minutes must be a finite number above 0, not 0"),
        ({"minutes": math.nan}, "Checkpoint: minutes must be a finite number above 0, not nan"),
        ({"minutes": "5"}, "Checkpoint: minutes must be a finite number above 0, not '5'"),
        ({"every": None}, "Checkpoint: give every, minutes, or both"),
        ({"keep": 0}, "Checkpoint: keep must be a whole number of at least 1, not 0"),
    ],
)
def test_settings_out_of_range_are_refused(settings, said):
    with pytest.raises(bvfim.MethodError) as caught:
        Checkpoint("run", **settings)
    assert str(caught.value) == said


def test_a_save_that_fails_ends_the_run_once_and_leaves_the_checkpoint_before(tmp_path, saves, monkeypatch):
    path = tmp_path / "run"
    finished = []

    class Last:
        def __call__(self, run):
            if run.k == 5:
                monkeypatch.setattr("os.fsync", full)

        def finish(self, run):
            finished.append(run.k)

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(bvfim.CheckpointError) as caught:
        solve(20, Checkpoint(path, every=3), Last())
    assert str(caught.value) == f"{path}: the checkpoint could not be written (No space left on device)"
    assert isinstance(caught.value.__context__, OSError)  # and no second failure
    assert saves == [3, 6]
    assert finished == [6]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run"]
    monkeypatch.undo()
    assert bvfim.checkpoint.read(path)["k"] == 3
    assert torch.equal(solve(20, resume=path).x, solve(20).x)


def test_an_error_in_another_callback_is_the_one_that_is_told_and_the_step_is_saved(tmp_path):
    def broken(run):
        if run.k == 4:
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        solve(20, broken, Checkpoint(tmp_path / "run", every=3))
    assert bvfim.checkpoint.read(tmp_path / "run")["k"] == 4


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(tmp_path):
    path = tmp_path / "run"
    solve(10, Checkpoint(path, every=4))
    path.write_bytes(path.read_bytes()[:100])
    with pytest.warns(bvfim.BvfimWarning, match=re.escape(f"using {path}.old-1 instead")) as caught:
        resumed = solve(12, Checkpoint(path, every=4), resume=path)
    assert Path(caught.list[0].filename) == Path(__file__)
    assert torch.equal(resumed.x, solve(12).x)
    assert bvfim.checkpoint.read(path)["k"] == 12


def test_where_the_one_before_belongs_to_another_run_it_is_named(tmp_path):
    path = tmp_path / "run"
    solve(2, Checkpoint(path, every=1))
    path.unlink()
    other = torch.zeros(3, dtype=torch.float64)
    with (
        pytest.warns(bvfim.BvfimWarning, match="no such checkpoint"),
        pytest.raises(bvfim.CheckpointError, match=re.escape(f"{path}.old-1: the checkpoint belongs to another run")),
    ):
        bvfim.solve(PROBLEM, other, other, bvfim.RHG(2, lr=0.1), resume=path)


# -- TensorBoard --


def logged(folder):
    """Steps and values by tag, as TensorBoard shows them."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


@pytest.fixture
def _tensorboard():
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")


@pytest.mark.usefixtures("_tensorboard")
def test_tensorboard_has_every_nth_row_with_all_its_numbers(tmp_path):
    solution = solve(10, TensorBoard(tmp_path / "log", every=3))
    found = logged(tmp_path / "log")
    assert set(found) == set(solution.history.columns) - {"step"}
    for tag, events in found.items():
        assert [step for step, _ in events] == [2, 5, 8]
        expected = torch.tensor([solution.history[tag][step] for step, _ in events], dtype=torch.float32)
        assert torch.equal(torch.tensor([value for _, value in events]), expected)


@pytest.mark.usefixtures("_tensorboard")
def test_tensorboard_goes_on_where_a_resumed_run_does(tmp_path):
    """The steps that the first part took after its checkpoint are logged once, as the second part found them."""
    board, path = TensorBoard(tmp_path / "log", every=1), tmp_path / "run"
    solve(6, Checkpoint(path))
    solve(9, board)
    rows = []
    solve(12, board, Log(rows.append), resume=path)
    assert [row["step"] for row in rows] == [6, 7, 8, 9, 10, 11]
    found = logged(tmp_path / "log")
    assert [step for step, _ in found["upper"]] == list(range(12))
    assert [value for _, value in found["seconds"]][6:] == pytest.approx([row["seconds"] for row in rows])
    assert len(list((tmp_path / "log").iterdir())) == 2


@pytest.mark.usefixtures("_tensorboard")
def test_tensorboard_has_the_rows_of_a_run_that_is_killed(tmp_path):
    class Killed(BaseException):
        pass

    def look(run):
        if run.k == 5:
            assert [step for step, _ in logged(tmp_path)["upper"]] == [1, 3]
            raise Killed

    with pytest.raises(Killed):
        solve(10, look, TensorBoard(tmp_path, every=2))


@pytest.mark.usefixtures("_tensorboard")
def test_a_log_that_cannot_be_written_says_so(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(bvfim.BvfimError, match=re.escape(f"{tmp_path}/file: the log could not be written (")):
        solve(3, TensorBoard(tmp_path / "file", every=1))
    board = TensorBoard(tmp_path / "log", every=1)

    def full():
        raise OSError(errno.ENOSPC, "No space left on device")

    def fill(run):
        if run.k == 2:
            board._writer.flush = board._writer.close = full

    reason = re.escape(f"{tmp_path}/log: the log could not be written (No space left on device)")
    with pytest.raises(bvfim.BvfimError, match=reason) as caught:
        solve(9, fill, board, Checkpoint(tmp_path / "run"))
    assert caught.value.__cause__ is caught.value.__context__
    assert bvfim.checkpoint.read(tmp_path / "run")["k"] == 2


def test_without_tensorboard_the_command_that_installs_it_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(bvfim.BvfimError, match=re.escape("pip install 'bvfim[tensorboard]'")):
        TensorBoard("log")


def test_logs_of_no_steps_are_refused():
    for made in (lambda: TensorBoard("log", every=0), lambda: Log(print, every=0)):
        with pytest.raises(bvfim.MethodError, match="every must be a whole number of at least 1, not 0"):
            made()


# -- the bar --


def shown(terminal, steps, *callbacks, resume=None, **settings):
    """What is on the stream after a run."""
    stream = io.StringIO()
    bar = ProgressBar(console=Console(file=stream, force_terminal=terminal, width=80), **settings)
    solution = solve(steps, *callbacks, bar, resume=resume)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue()), solution


def test_without_a_terminal_there_is_a_line_each_half_minute_and_one_at_the_end(clock):
    text, solution = shown(False, 8, clock.at(10, 20, 31, 45, 60, 62, 70, 80))
    upper, lower = solution.history["upper"], solution.history["lower"]
    assert text.splitlines() == [
        f"solve  {k}/8  {rate} steps/s  0:00:{left} left  F {upper[k - 1]:.4g}  f {lower[k - 1]:.4g}"
        for k, rate, left in ((3, "0.097", 52), (6, "0.097", 21), (8, "0.1", "00"))
    ]


def test_a_line_that_is_said_is_not_said_again_at_the_end(clock):
    text, _ = shown(False, 2, clock.at(20, 40), title="mine")
    assert [line[:9] for line in text.splitlines()] == ["mine  2/2"]


@pytest.mark.parametrize("terminal", [False, True])
def test_steps_before_a_resume_do_not_count_into_the_rate(tmp_path, clock, terminal):
    """A thousand steps a second before, and one in ten seconds now."""
    path = tmp_path / "run"
    solve(80, clock.at(*(k / 1000 for k in range(80))), Checkpoint(path))
    clock.now = 1000.0
    end = (lambda run: run.k == 83) if terminal else (lambda run: False)
    text, _ = shown(terminal, 100, clock.at(*range(10, 210, 10)), end, resume=path)
    lines = text.replace("\r", "\n").splitlines()
    if terminal:
        assert "83/100 0.1 steps/s  0:02:50 left" in lines[-1]
    else:
        assert lines[0].startswith("solve  83/100  0.1 steps/s  0:02:50 left  F ")
        assert lines[-1].startswith("solve  100/100  0.1 steps/s  0:00:00 left  F ")


def test_a_bar_begins_at_the_step_that_was_resumed(tmp_path):
    path = tmp_path / "run"
    solve(50, Checkpoint(path))
    text, solution = shown(True, 100, resume=path)
    assert re.search(r"solve\s+\S+\s+51/100", text.split("\r")[0])
    last = text.splitlines()[-1]
    assert re.search(r"100/100 \d+ steps/s  0:00:00 left", last)
    assert f"F {solution.history['upper'].iloc[-1]:.4g}  f " in last
    assert len(last) <= 80


def test_a_run_without_a_step_shows_nothing():
    assert shown(False, 0)[0] == shown(True, 0)[0] == ""
