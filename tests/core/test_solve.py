"""The loop: how it moves, stops, saves and resumes."""

from __future__ import annotations

import os
import signal
import threading

import pandas as pd
import pytest
import torch

import bvfim
from bvfim import tree
from bvfim.callbacks import Checkpoint, EarlyStop, Log
from tests.problems import nested, quadratic, sine_1d
from tests.test_battery import METHODS

ONE = torch.ones(1, dtype=torch.float64)


def test_the_quadratic_optimum_is_found_by_each_method():
    q = quadratic(3, 4, seed=5)
    x = torch.zeros(3, dtype=torch.float64)
    # grad(x) = D x + B' H^-1 (H^-1 (B x + c) - t) = 0 is linear in x.
    inverse = torch.linalg.inv(q.H)
    matrix = torch.diag(q.D) + q.B.T @ inverse @ inverse @ q.B
    optimum = torch.linalg.solve(matrix, q.B.T @ inverse @ (q.t - inverse @ q.c))
    for method in (bvfim.CG(10, 0.4, cg_steps=4), bvfim.RHG(10, 0.4), bvfim.TRHG(10, keep=9, lr=0.4)):
        found = bvfim.solve(
            q.problem, x, torch.zeros(4).double(), method, lambda p: torch.optim.Adam(p, 0.1), steps=200
        )
        assert (found.x - optimum).abs().max() < 5e-3, method


def test_the_default_moves_x_itself_unless_there_are_batches():
    assert isinstance(bvfim.solve(sine_1d(), ONE, ONE, steps=1).method, bvfim.AdaptiveBVFIM)
    assert isinstance(bvfim.solve(sine_1d(), ONE, ONE, steps=1, batches=[None]).method, bvfim.StochasticBVFIM)


def test_the_default_optimizer_is_adam():
    first = bvfim.hypergradient(sine_1d(), ONE, ONE)
    expected = ONE.clone().requires_grad_()
    optimizer = torch.optim.Adam([expected], lr=0.01)
    expected.grad = first
    optimizer.step()
    assert torch.equal(bvfim.solve(sine_1d(), ONE, ONE, bvfim.BVFIM(), steps=1).x, expected.detach())


def test_a_class_will_do_for_an_optimizer_with_its_default_step():
    start, problem = ONE, sine_1d()
    for kind, step in ((torch.optim.Adam, 1e-3), (torch.optim.SGD, 1e-3), (torch.optim.Adagrad, 1e-2)):
        found, same = (
            bvfim.solve(problem, start, start, bvfim.CG, optimizer=own, steps=3)
            for own in (kind, lambda p, kind=kind, step=step: kind(p, lr=step))
        )
        assert torch.equal(found.x, same.x)
        assert not torch.equal(found.x, start)


def test_a_class_will_do_for_the_optimizer_of_y():
    problem = sine_1d()
    made = [torch.optim.SGD, lambda p: torch.optim.SGD(p, 1e-3)]
    found = [bvfim.solve(problem, ONE, ONE, bvfim.StochasticBVFIM(y_optimizer=own), steps=5) for own in made]
    assert torch.equal(found[0].y, found[1].y)
    assert not torch.equal(found[0].y, ONE)


def test_a_class_without_a_default_step_is_refused_in_a_sentence():
    class Steep(torch.optim.SGD):
        def __init__(self, params, lr):
            super().__init__(params, lr)

    problem = sine_1d()
    message = r"optimizer=Steep: the class has no default step; pass lambda p: Steep\(p, lr=0.01\)"
    for method, options in ((bvfim.CG(), {"optimizer": Steep}), (bvfim.StochasticBVFIM(y_optimizer=Steep), {})):
        with pytest.raises(bvfim.MethodError, match=message):
            bvfim.solve(problem, ONE, ONE, method, steps=2, **options)


def test_a_class_or_its_name_will_do_for_a_method():
    assert isinstance(bvfim.solve(sine_1d(), ONE, ONE, bvfim.methods.by_name("rhg"), steps=1).method, bvfim.RHG)


def test_tolerance_stops_at_a_stationary_point_of_the_set():
    problem = bvfim.Problem(
        lambda x, y: (y - 3).square().sum(), lambda x, y: (y - x).square().sum(), x_set=bvfim.Box(-1, 1)
    )
    solution = bvfim.solve(problem, 0 * ONE, 0 * ONE, bvfim.CG(lr=0.5), lambda p: torch.optim.SGD(p, 0.1), tol=1e-8)
    assert solution.status is bvfim.Status.CONVERGED
    assert solution.x.item() == 1.0  # the gradient there is -4, and the box holds x


def test_time_limit_and_callbacks_stop(clock):
    limited = bvfim.solve(sine_1d(), ONE, ONE, time_limit=2.0, callbacks=[clock.tick])
    assert (limited.status, limited.steps) == (bvfim.Status.TIME_LIMIT, 2)
    solution = bvfim.solve(sine_1d(), ONE, ONE, callbacks=[lambda run: run.k == 3])
    assert (solution.status, solution.steps) == (bvfim.Status.STOPPED, 3)
    rows = []
    solution = bvfim.solve(sine_1d(), ONE, ONE, steps=6, callbacks=[Log(rows.append, every=2)])
    assert [row["step"] for row in rows] == [1, 3, 5]
    stop = EarlyStop(score=lambda run: float(run.k != 4), patience=3)
    assert bvfim.solve(sine_1d(), ONE, ONE, callbacks=[stop]).steps == 7
    assert stop.best_step == 4


def test_schedulers_move_the_upper_learning_rate():
    seen = []

    def sgd(p):
        return torch.optim.SGD(p, lr=1.0)

    def halving(optimizer):
        return torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)

    def record(run):
        seen.append(run.optimizer.param_groups[0]["lr"])

    linear = bvfim.Problem(lambda x, y: x.sum(), lambda x, y: (y**2).sum())
    solution = bvfim.solve(linear, ONE, ONE, bvfim.RHG(steps=1), sgd, steps=3, scheduler=halving, callbacks=[record])
    assert seen == [0.5, 0.25, 0.125]
    assert solution.x.item() == 1 - 1 - 0.5 - 0.25

    def plateau(optimizer):
        return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.1)

    flat = bvfim.Problem(lambda x, y: (0 * x).sum(), lambda x, y: (y**2).sum())
    seen.clear()
    bvfim.solve(flat, ONE, ONE, bvfim.RHG(steps=1), sgd, steps=2, scheduler=plateau, callbacks=[record])
    assert seen == [1.0, 0.1]


@pytest.mark.parametrize("method", METHODS)
def test_resuming_is_bit_for_bit(method, tmp_path):
    stated, x, y = nested()

    def sgd(p):
        return torch.optim.SGD(p, lr=0.05, momentum=0.9)

    def cosine(optimizer):
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)

    options = {"scheduler": cosine, "optimizer": sgd}
    whole = bvfim.solve(stated, x, y, METHODS[method], steps=9, **options)
    path = tmp_path / "run.safetensors"
    bvfim.solve(stated, x, y, METHODS[method], steps=4, callbacks=[Checkpoint(path)], **options)
    torch.manual_seed(99)
    resumed = bvfim.solve(stated, x, y, METHODS[method], steps=9, resume=path, **options)
    for a, b in ((whole.x, resumed.x), (whole.y, resumed.y), (whole.z, resumed.z)):
        assert torch.equal(tree.flatten(a), tree.flatten(b))
    assert whole.evaluations == resumed.evaluations
    pd.testing.assert_frame_equal(whole.history.drop(columns="seconds"), resumed.history.drop(columns="seconds"))
    assert resumed.history["seconds"].is_monotonic_increasing


@pytest.mark.parametrize("own_generator", [False, True])
def test_resuming_with_a_shuffling_loader_and_adam_is_bit_for_bit(own_generator, tmp_path):
    rows = torch.linspace(-1, 1, 20, dtype=torch.float64)

    def loader():
        generator = torch.Generator().manual_seed(1) if own_generator else None
        return torch.utils.data.DataLoader(rows, batch_size=3, shuffle=True, generator=generator)

    problem = bvfim.Problem(
        upper=lambda x, y, b: (y - b).square().mean(), lower=lambda x, y, b: (y - x * b.mean()).square().mean()
    )
    torch.manual_seed(5)
    whole = bvfim.solve(problem, ONE, ONE, bvfim.RHG(3), steps=17, batches=loader())
    torch.manual_seed(5)
    path = tmp_path / "run.safetensors"
    bvfim.solve(problem, ONE, ONE, bvfim.RHG(3), steps=10, batches=loader(), callbacks=[Checkpoint(path, every=4)])
    torch.manual_seed(77)
    resumed = bvfim.solve(problem, ONE, ONE, bvfim.RHG(3), steps=17, batches=loader(), resume=path)
    assert torch.equal(whole.x, resumed.x)
    assert list(whole.history["upper"]) == list(resumed.history["upper"])


def test_foreign_checkpoints_are_refused(tmp_path):
    path = tmp_path / "run.safetensors"
    bvfim.solve(sine_1d(), ONE, ONE, bvfim.RHG(3), steps=2, callbacks=[Checkpoint(path)])
    stated, x, y = nested()
    with pytest.raises(bvfim.CheckpointError, match="another run: its x has different shapes"):
        bvfim.solve(stated, x, y, bvfim.RHG(3), resume=path)
    with pytest.raises(bvfim.CheckpointError, match="another run: its method is RHG, not CG"):
        bvfim.solve(sine_1d(), ONE, ONE, bvfim.CG(3), resume=path)
    with pytest.raises(bvfim.CheckpointError, match="has different shapes or dtypes"):
        bvfim.solve(sine_1d(), ONE.float(), ONE.float(), bvfim.RHG(3), resume=path)
    with pytest.raises(bvfim.CheckpointError, match="another run: its optimizer is Adam, not SGD"):
        bvfim.solve(sine_1d(), ONE, ONE, bvfim.RHG(3), lambda p: torch.optim.SGD(p, 0.1, momentum=0.5), resume=path)
    with pytest.raises(bvfim.CheckpointError, match="there is no such checkpoint"):
        bvfim.solve(sine_1d(), ONE, ONE, bvfim.RHG(3), resume=tmp_path / "none")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(bvfim.CheckpointError, match="damaged or truncated"):
        bvfim.solve(sine_1d(), ONE, ONE, bvfim.RHG(3), resume=path)


def test_ctrl_c_ends_with_the_step_and_the_checkpoint_resumes(tmp_path):
    path = tmp_path / "run.safetensors"

    def interrupting(at):
        def callback(run):
            if run.k == at:
                os.kill(os.getpid(), signal.SIGINT)

        return callback

    before = signal.getsignal(signal.SIGINT)
    callbacks = [interrupting(5), Checkpoint(path, every=1000)]
    solution = bvfim.solve(sine_1d(), ONE, ONE, steps=20, callbacks=callbacks)
    assert (solution.status, solution.steps) == (bvfim.Status.INTERRUPTED, 5)
    assert signal.getsignal(signal.SIGINT) is before
    resumed = bvfim.solve(sine_1d(), ONE, ONE, steps=20, resume=path)
    assert torch.equal(resumed.x, bvfim.solve(sine_1d(), ONE, ONE, steps=20).x)


def test_an_interrupt_inside_a_step_returns_the_last_complete_one(tmp_path):
    calls = []
    path = tmp_path / "run.safetensors"

    def upper(x, y):
        calls.append(1)
        if len(calls) == 40:
            raise KeyboardInterrupt
        return (x - y).square().sum()

    problem = bvfim.Problem(upper, lambda x, y: (y - 2 * x).square().sum())
    callbacks = [Checkpoint(path, every=3)]
    solution = bvfim.solve(problem, ONE, ONE, bvfim.BVFIM(z_steps=2, y_steps=2), steps=50, callbacks=callbacks)
    assert solution.status is bvfim.Status.INTERRUPTED
    assert 0 < solution.steps < 50
    again = bvfim.solve(problem, ONE, ONE, bvfim.BVFIM(z_steps=2, y_steps=2), steps=solution.steps)
    assert torch.equal(solution.x, again.x)
    assert bvfim.checkpoint.read(path)["k"] == 3 * (solution.steps // 3)


def test_solve_works_outside_the_main_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(bvfim.solve(sine_1d(), ONE, ONE, steps=2).status))
    thread.start()
    thread.join()
    assert found == [bvfim.Status.MAX_STEPS]


def test_a_checkpoint_that_cannot_be_written_says_so(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(bvfim.CheckpointError, match="could not be written"):
        bvfim.solve(sine_1d(), ONE, ONE, steps=1, callbacks=[Checkpoint(tmp_path / "file" / "run")])


def test_errors_in_an_objective_reach_the_user():
    def upper(x, y):
        raise ZeroDivisionError("my own bug")

    with pytest.raises(ZeroDivisionError, match="my own bug"):
        bvfim.solve(bvfim.Problem(upper, upper), ONE, ONE)


@pytest.mark.parametrize("kind", [bvfim.CG(steps=1, cg_steps=5), bvfim.Neumann(steps=1, terms=5, eta=1.0)])
def test_breakdowns_stand_in_the_history(kind):
    saddle = bvfim.Problem(lambda x, y: y.square().sum() + x.sum(), lambda x, y: -y.square().sum() + (x * y).sum())
    solution = bvfim.solve(saddle, ONE, ONE, kind, steps=2)
    assert (solution.history["breakdown"] == 1).all()
    assert (solution.history["residual"] > 0).all()
    bad = solution.history["curvature"]
    assert (bad < 0).all() if isinstance(kind, bvfim.CG) else (bad > 1).all()
    good = bvfim.solve(quadratic(2, 2).problem, torch.ones(2).double(), torch.ones(2).double(), kind, steps=1)
    assert (good.history["breakdown"] == 0).all() or isinstance(kind, bvfim.Neumann)
    if isinstance(kind, bvfim.CG):
        with pytest.raises(bvfim.BreakdownError, match="curvature -2"):
            bvfim.solve(saddle, ONE, ONE, bvfim.CG(steps=1, strict=True), steps=1)


def test_running_statistics_of_a_module_are_left_to_the_module():
    """BatchNorm with buffers in training mode: the gradient is right, and y holds parameters only."""
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1)).double()
    inputs = torch.randn(7, 2, dtype=torch.float64)

    def lower(x, y):
        return (torch.func.functional_call(module, y, (inputs,)) - x).square().mean()

    problem = bvfim.Problem(lambda x, y: lower(x + 1, y), lower)
    y = bvfim.parameters(module)
    assert bvfim.check_hypergradient(problem, ONE, y, bvfim.RHG(3)).relative_error < 1e-6
    with pytest.raises(bvfim.ProblemError, match="RHG gives the same gradient"):
        bvfim.hypergradient(problem, ONE, y, bvfim.FHG(3))


def test_a_held_out_score_chooses_what_is_returned():
    """x passes 1 on its way to 2: a score that is lowest there brings it back."""
    problem = bvfim.Problem(lambda x, y: ((y - 2) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum())
    options = {"optimizer": lambda p: torch.optim.SGD(p, 0.05), "steps": 100}
    seen = []

    def score(x, y):
        seen.append(x.item())
        return (x - 1).abs().sum()

    plain = bvfim.solve(problem, 0 * ONE, 0 * ONE, bvfim.CG(lr=0.4), **options)
    held = bvfim.solve(problem, 0 * ONE, 0 * ONE, bvfim.CG(lr=0.4), holdout=score, **options)
    assert plain.x.item() > 1.9
    assert held.x.item() == min(seen, key=lambda x: abs(x - 1))
    assert held.steps == 100
    assert len(seen) == 50
    assert held.upper == pytest.approx((held.y.item() - 2) ** 2)
    assert held.history["holdout"].notna().sum() == 50


def test_of_held_out_scores_that_hardly_differ_the_first_is_kept():
    falling = iter([5.0, 1.0, 0.97, 0.5, 0.499, 0.47, 0.6])
    xs = []

    def score(x, y):
        xs.append(x.clone())
        return next(falling)

    held = bvfim.solve(sine_1d(), ONE, ONE, bvfim.RHG(5), steps=7, holdout=score)
    assert torch.equal(held.x, xs[3])  # 0.47 is not lower by a hundredth of what 0.5 has fallen by


def test_a_held_out_score_that_is_not_a_number_chooses_nothing():
    plain = bvfim.solve(sine_1d(), ONE, ONE, bvfim.RHG(5), steps=5)
    with pytest.warns(bvfim.BvfimWarning, match="holdout was not a number"):
        held = bvfim.solve(sine_1d(), ONE, ONE, bvfim.RHG(5), steps=5, holdout=lambda x, y: float("nan"))
    assert torch.equal(held.x, plain.x)
