"""Bugs of runs: how they end, what callbacks may do, and how they are resumed. Each test failed before its fix."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import bvfim
from bvfim.callbacks import Checkpoint, EarlyStop
from tests.problems import nested, sine_1d
from tests.regressions.plain import PLAIN, D, vector


def test_tolerance_returns_the_point_that_was_tested():
    start = vector(1 + 1e-7)
    solution = bvfim.solve(PLAIN, start, start, bvfim.CG(200, 0.1), steps=10, tol=1e-6)
    assert solution.status is bvfim.Status.CONVERGED
    assert torch.equal(solution.x, start)


def test_compare_begins_each_method_anew():
    def sgd(p):
        return torch.optim.SGD(p, 0.5)

    methods = {"fast": bvfim.RHG(50, 0.4), "slow": bvfim.RHG(3, 0.05)}
    options = {"steps": 300, "optimizer": sgd}
    both = bvfim.compare(PLAIN, methods, vector(0.0), vector(0.0), callbacks=[EarlyStop(patience=20)], **options)
    alone = bvfim.solve(PLAIN, vector(0.0), vector(0.0), methods["slow"], callbacks=[EarlyStop(patience=20)], **options)
    assert both.loc["slow", "steps"] == alone.steps
    loader = torch.utils.data.DataLoader(
        torch.arange(12.0, dtype=D), 4, shuffle=True, generator=torch.Generator().manual_seed(3)
    )
    problem = bvfim.Problem(lambda x, y, b: (y - b).square().mean(), lambda x, y, b: (y - x).square().mean())
    table = bvfim.compare(problem, [bvfim.RHG(3), bvfim.RHG(3)], vector(1.0), vector(1.0), steps=4, batches=loader)
    assert table["upper"].iloc[0] == table["upper"].iloc[1]
    for bad in ([], bvfim.RHG()):
        with pytest.raises(bvfim.MethodError, match="compare needs"):
            bvfim.compare(PLAIN, bad, vector(0.0), vector(0.0))


@pytest.mark.parametrize("true", [np.True_, torch.tensor(True), True, 1])
def test_any_true_stops(true):
    assert bvfim.solve(PLAIN, vector(0.0), vector(0.0), bvfim.RHG(2), callbacks=[lambda run: true]).steps == 1


def test_callbacks_are_finished_when_a_step_fails():
    finished = []

    class Watch:
        def __call__(self, run):
            raise RuntimeError("in the callback")

        def finish(self, run):
            finished.append(run.k)

    with pytest.raises(RuntimeError, match="in the callback"):
        bvfim.solve(PLAIN, vector(0.0), vector(0.0), bvfim.RHG(1), callbacks=[Watch()])
    assert finished == [1]


def test_a_callback_may_move_x():
    def put_back(run):
        run.x = vector(0.5)

    def sgd(p):
        return torch.optim.SGD(p, 0.1)

    steps = bvfim.solve(PLAIN, vector(0.5), vector(0.5), bvfim.CG(200, 0.1), sgd, steps=3, callbacks=[put_back]).history
    assert steps["x_norm"].nunique() == 1


def test_a_generator_inside_a_batch_sampler_is_resumed(tmp_path):
    rows = torch.linspace(-1, 1, 12, dtype=D)

    def loader():
        sampler = torch.utils.data.RandomSampler(rows, generator=torch.Generator().manual_seed(2))
        return torch.utils.data.DataLoader(rows, batch_sampler=torch.utils.data.BatchSampler(sampler, 2, False))

    problem = bvfim.Problem(lambda x, y, b: (y - b).square().mean(), lambda x, y, b: (y - x * b.mean()).square().mean())
    path = tmp_path / "run.safetensors"
    whole = bvfim.solve(problem, vector(1.0), vector(1.0), bvfim.RHG(3), steps=11, batches=loader())
    bvfim.solve(
        problem, vector(1.0), vector(1.0), bvfim.RHG(3), steps=4, batches=loader(), callbacks=[Checkpoint(path)]
    )
    resumed = bvfim.solve(problem, vector(1.0), vector(1.0), bvfim.RHG(3), steps=11, batches=loader(), resume=path)
    assert torch.equal(whole.x, resumed.x)


def test_a_history_of_many_rows_fits_a_checkpoint(tmp_path):
    path = tmp_path / "run.safetensors"

    def stuff(run):
        run.rows[:-1] = [dict(run.row)] * 20_000

    bvfim.solve(sine_1d(), vector(1.0), vector(1.0), bvfim.RHG(1), steps=1, callbacks=[stuff, Checkpoint(path)])
    assert path.stat().st_size < 20_000 * 8 * 20
    resumed = bvfim.solve(sine_1d(), vector(1.0), vector(1.0), bvfim.RHG(1), steps=2, resume=path)
    assert len(resumed.history) == 20_002


def test_a_resumed_run_has_its_time_limit_anew(tmp_path, clock):
    path = tmp_path / "run.safetensors"
    limits = {"time_limit": 3.0, "steps": 100}
    first = bvfim.solve(sine_1d(), vector(1.0), vector(1.0), callbacks=[clock.tick, Checkpoint(path)], **limits)
    second = bvfim.solve(sine_1d(), vector(1.0), vector(1.0), callbacks=[clock.tick], resume=path, **limits)
    assert second.status is first.status is bvfim.Status.TIME_LIMIT
    assert (first.steps, second.steps) == (3, 6)


def test_resuming_with_other_parts_is_refused_in_one_sentence(tmp_path):
    path = tmp_path / "run.safetensors"
    bvfim.solve(PLAIN, vector(0.0), vector(0.0), bvfim.RHG(1), steps=1, callbacks=[Checkpoint(path)])
    with_data = bvfim.Problem(lambda x, y, b: PLAIN.upper(x, y) * b, PLAIN.lower)
    with pytest.raises(bvfim.CheckpointError, match="belongs to another run"):
        bvfim.solve(with_data, vector(0.0), vector(0.0), bvfim.RHG(1), batches=[vector(1.0)[0]], resume=path)
    bvfim.checkpoint.write(path, {"k": 3})
    with pytest.raises(bvfim.CheckpointError, match="belongs to another run"):
        bvfim.solve(PLAIN, vector(0.0), vector(0.0), bvfim.RHG(1), resume=path)


def test_resuming_nested_runs_still_works(tmp_path):
    problem, x, y = nested()
    path = tmp_path / "run.safetensors"
    bvfim.solve(problem, x, y, bvfim.BVFIM(2, 2), steps=2, callbacks=[Checkpoint(path)])
    assert bvfim.solve(problem, x, y, bvfim.BVFIM(2, 2), steps=3, resume=path).steps == 3


def test_foreign_files_are_named_foreign_and_other_settings_are_said(tmp_path):
    from safetensors.torch import save_file

    path = tmp_path / "weights.safetensors"
    save_file({"w": torch.ones(2)}, path)
    with pytest.raises(bvfim.CheckpointError) as error:
        bvfim.checkpoint.read(path)
    assert str(error.value).endswith("this is not a bvfim checkpoint")
    bvfim.solve(PLAIN, vector(0.0), vector(0.0), bvfim.RHG(2), steps=1, callbacks=[Checkpoint(path)])
    with pytest.warns(bvfim.BvfimWarning, match=r"was made by RHG\(steps=2.*continues with RHG\(steps=3"):
        bvfim.solve(PLAIN, vector(0.0), vector(0.0), bvfim.RHG(3), steps=2, resume=path)
