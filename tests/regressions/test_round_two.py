"""Bugs of the second round. Each test failed before its fix."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch

import bvfim
from bvfim.schedules import FloatOrSchedule, geometric

D = torch.float64
PLAIN = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum())


def vector(*values):
    return torch.tensor(values, dtype=D)


# -- check_hypergradient --


@pytest.mark.long
@pytest.mark.parametrize("weight", [0.3, 10.0])
def test_a_fixed_weight_can_be_checked(weight):
    method = bvfim.BVFIM(mu2=bvfim.LowerValue(weight=weight), z_lr=0.05, y_lr=0.02)
    found = bvfim.check_hypergradient(PLAIN, vector(0.3), vector(0.0), method)
    assert found.verdict is bvfim.Verdict.BIASED
    long = bvfim.BVFIM(3000, 3000, 0.05, 0.02, mu2=bvfim.LowerValue(weight=weight))
    further = bvfim.check_hypergradient(PLAIN, vector(0.3), vector(0.0), long)
    assert further.relative_error <= 1e-4  # of its own value, of a penalty that leaves the lower level unsolved
    assert further.verdict is bvfim.Verdict.BIASED
    assert "the lower level is not solved" in further.bias


# -- batches and checkpoints --

NOISY = bvfim.Problem(lambda x, y, t: ((y - t) ** 2).sum(), lambda x, y, t: ((y - x - t) ** 2).sum())


@pytest.mark.parametrize("every", ["upper", "inner", None])
def test_a_finished_run_that_is_resumed_reports_its_last_batch(tmp_path, every):
    stream = [torch.tensor(float(i), dtype=D) for i in range(7)]
    batches = stream if every is None else bvfim.Batches(upper=stream, lower=stream[:5], every=every)
    path = tmp_path / "run.safetensors"
    options = {"steps": 4, "batches": batches}
    method, start = bvfim.RHG(3, 0.1), vector(0.5)
    saved = bvfim.solve(NOISY, start, start, method, callbacks=[bvfim.callbacks.Checkpoint(path)], **options)
    again = bvfim.solve(NOISY, start, start, method, resume=path, **options)
    assert (again.upper, again.lower) == (saved.upper, saved.lower)
    assert torch.equal(again.x, saved.x)


# -- solve_many --


def test_the_optimizer_factory_sees_tensors_like_x():
    shapes = []

    def groups(tensors):
        shapes.append([tuple(t.shape) for t in tensors])
        first, second = tensors
        return torch.optim.SGD([{"params": [first]}, {"params": [second], "lr": 0.2}], lr=0.1)

    problem = bvfim.Problem(
        lambda x, y: ((y - x["a"].sum() - x["b"]) ** 2).sum(), lambda x, y: ((y - x["a"][0] - 2 * x["b"]) ** 2).sum()
    )
    xs = {"a": torch.arange(6, dtype=D).reshape(3, 2), "b": vector(1.0, 2.0, 3.0)}
    ys = torch.zeros(3, 1, dtype=D)
    found = bvfim.solve_many(problem, xs, ys, bvfim.RHG(4, 0.1), steps=5, optimizer=groups)
    assert all([shape[0][-1:], shape[1][1:]] == [(2,), ()] for shape in shapes)
    for i, solution in enumerate(found):
        x = {name: t[i] for name, t in xs.items()}
        alone = bvfim.solve(problem, x, ys[i], bvfim.RHG(4, 0.1), steps=5, optimizer=groups)
        assert torch.allclose(solution.x["a"], alone.x["a"], rtol=0, atol=1e-12)
        assert torch.allclose(solution.x["b"], alone.x["b"], rtol=0, atol=1e-12)


def test_what_an_objective_raises_on_a_batch_is_told():
    def lower(x, y):
        if bool((y > 100).any()):  # a branch on a tensor, which vmap can't take
            return (y**2).sum()
        return ((y - x) ** 2).sum()

    problem = bvfim.Problem(PLAIN.upper, lower)
    with pytest.warns(bvfim.BvfimWarning, match="one after another"):
        found = bvfim.solve_many(problem, torch.zeros(2, 1, dtype=D), torch.zeros(2, 1, dtype=D), bvfim.RHG(2), 2)
    assert [s.steps for s in found] == [2, 2]


class Broken(bvfim.Estimator):
    """A method with a mistake in its own code."""

    def init(self, problem, x, y):
        return bvfim.methods.LowerState(y, y)

    def estimate(self, problem, x, state, k, data):
        return {}["no such key"], state, {}


def test_a_mistake_in_a_method_is_not_swallowed_by_solve_many():
    with pytest.warns(bvfim.BvfimWarning, match="no such key"), pytest.raises(KeyError, match="no such key"):
        bvfim.solve_many(PLAIN, torch.zeros(2, 1), torch.zeros(2, 1), Broken(), 2)


# -- methods and schedules --


@dataclass(frozen=True)
class Scored(bvfim.Estimator):
    """A method of a user's own, one of whose fields is a function."""

    score: Callable[[torch.Tensor], torch.Tensor] = torch.abs
    lr: FloatOrSchedule = 0.1

    def init(self, problem, x, y):
        return bvfim.methods.LowerState(y, y)

    def estimate(self, problem, x, state, k, data):
        return bvfim.RHG(3, 0.1).estimate(problem, x, state, k, data)


def test_a_callable_field_is_not_taken_for_a_schedule():
    assert Scored().numbers(3) == {}
    assert Scored(lr=geometric(1.0, 0.5)).numbers(3) == {"lr": 0.125}
    with pytest.raises(bvfim.MethodError, match="the schedule of lr"):
        Scored(lr=lambda k: -1.0).numbers(0)


def test_a_geometric_schedule_is_its_formula():
    assert [geometric(-1.0, 0.5)(k) for k in range(3)] == [-1.0, -0.5, -0.25]
    assert [geometric(1.0, 0.0)(k) for k in range(3)] == [1.0, 0.0, 0.0]
    assert geometric(1.0, 1.1)(10_000) == math.inf
    assert geometric(-1.0, 1.1)(10_000) == -math.inf
    with pytest.raises(bvfim.MethodError, match="returned inf at step 10000"):
        bvfim.schedules.value(geometric(1.0, 1.1), 10_000, "tau")
    with pytest.raises(bvfim.MethodError, match="returned -1"):
        bvfim.solve(PLAIN, vector(0.0), vector(0.0), bvfim.BVFIM(tau=geometric(-1.0, 0.5)), steps=2)


def test_a_schedule_that_fails_is_told_before_the_run():
    table = [1.0, 0.5, 0.25]
    (caution,) = bvfim.BVFIM(mu2=lambda k: table[k]).cautions(50)
    assert "mu2" in caution
    assert "IndexError" in caution


@pytest.mark.parametrize(
    "options",
    [{"tol": 1e-3}, {"optimizer": torch.optim.Adam}, {"scheduler": lambda o: torch.optim.lr_scheduler.StepLR(o, 1)}],
    ids=lambda o: next(iter(o)),
)
def test_only_batches_choose_the_method(options):
    with pytest.raises(bvfim.MethodError, match=next(iter(options))):
        bvfim.solve(PLAIN, vector(0.0), vector(0.0), steps=2, **options)
    assert isinstance(bvfim.solve(PLAIN, vector(0.0), vector(0.0), steps=2).method, bvfim.AdaptiveBVFIM)


# -- the interior point --


def test_in_float32_the_certificate_names_the_tolerance_it_was_judged_by():
    toy = bvfim.testproblems.sine(a=2)
    found = bvfim.solve(toy.problem, torch.zeros(1), torch.zeros(1))
    rough = 20 * torch.finfo(torch.float32).eps ** 0.5
    scale = float(bvfim.AdaptiveBVFIM().init(toy.problem, torch.zeros(1), torch.zeros(1)).starts.scale)
    assert found.certificate.tol == pytest.approx(rough)
    assert "0.0069" in str(found.certificate)
    assert found.certificate.gap_allowed <= rough * scale
    fine = bvfim.solve(toy.problem, torch.zeros(1, dtype=D), torch.zeros(1, dtype=D)).certificate
    assert fine.tol == 1e-3
    assert found.certificate.gap_allowed == pytest.approx(fine.gap_allowed * rough / 1e-3, rel=0.2)


def test_the_nudge_and_the_probes_draw_different_numbers(monkeypatch):
    from bvfim.interior.lower import Interior

    drawn, uniform = {}, Interior.uniform

    def watched(self, members, draw, count, size):
        drawn.setdefault(count, set()).add(draw)
        return uniform(self, members, draw, count, size)

    monkeypatch.setattr(Interior, "uniform", watched)
    toy = bvfim.testproblems.sine(a=2)
    method = bvfim.AdaptiveBVFIM(scouts=5)
    bvfim.solve(toy.problem, torch.zeros(1, dtype=D), torch.zeros(1, dtype=D), method)
    assert drawn[1]
    assert drawn[20]
    assert not drawn[1] & drawn[20]


def test_a_solved_start_stays_solved_however_far_it_is():
    toy, method = bvfim.testproblems.sine(a=2), bvfim.AdaptiveBVFIM()
    x = y = torch.zeros(1, dtype=D)
    state = method.init(toy.problem, x, y)
    for k in range(100):
        before = x, state
        x, state, _ = method.step(toy.problem, x, state, k, None)
        if method.status(state) is not None:
            break
    assert method.status(state) is bvfim.Status.CONVERGED
    x, state = before
    near = state._replace(starts=state.starts._replace(reach=1e-9 * state.starts.reach))
    _, state, _ = method.step(toy.problem, x, near, k, None)
    assert method.status(state) is bvfim.Status.CONVERGED


def test_half_bounded_boxes_are_sampled_inside():
    seen = []

    def lower(x, y):
        seen.append(y.detach().min())
        return ((y - x) ** 2).sum() + torch.exp(-y).sum() * 0.1

    problem = bvfim.Problem(lambda x, y: (x**2).sum() + (y**2).sum(), lower, y_set=bvfim.Box(lower=1.0))
    from bvfim.interior.space import Space

    space = Space(vector(2.0), [bvfim.Box(lower=1.0)])
    low, high = space.region(vector(2.0)[None])
    assert (low.item(), high.item()) == (1.0, 11.0)
    space = Space(vector(2.0), [bvfim.Box(upper=3.0)])
    low, high = space.region(vector(2.0)[None])
    assert (low.item(), high.item()) == (-7.0, 3.0)
    assert bvfim.solve(problem, vector(0.0), vector(2.0)).status.ok


# -- the compiled step --


def test_every_compiled_solve_of_a_process_stays_compiled(recwarn):
    """The compiler's limit of graphs for one piece of code is met within a solve, not within a process."""
    x = y = torch.zeros(2, dtype=D)
    for repeat in range(10):
        problem = bvfim.Problem(lambda x, y, scale=1.0 + repeat: scale * ((y - 1) ** 2).sum(), PLAIN.lower)
        method = bvfim.BVFIM(2, 2, mu2=bvfim.LowerValue(offset=100.0))
        bvfim.solve(problem, x, y, method, steps=2, accelerate="compile")
    assert not [str(w.message) for w in recwarn if "could not be compiled" in str(w.message)]
