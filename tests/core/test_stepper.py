"""A solve, one step at a time: the same as solve, and as good to save."""

from __future__ import annotations

import copy

import pytest
import torch

import bvfim
from tests.problems import nested
from tests.test_battery import METHODS

D = torch.float64
STEPS = 50
ADAPTIVE = {"AdaptiveBVFIM": bvfim.AdaptiveBVFIM(), "AdaptiveBVFIM, three starts": bvfim.AdaptiveBVFIM(starts=3)}


def same(a, b):
    leaves = zip(bvfim.tree.leaves(a), bvfim.tree.leaves(b), strict=True)
    return all(torch.equal(s, t) for s, t in leaves)


def options(method):
    if isinstance(method, bvfim.methods.Method):
        return {}
    return {
        "optimizer": lambda p: torch.optim.Adam(p, 0.03),
        "scheduler": lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.97),
    }


@pytest.mark.parametrize("name", [*METHODS, *ADAPTIVE])
def test_fifty_steps_are_those_of_solve_bit_for_bit(name):
    problem, x, y = nested()
    method = {**METHODS, **ADAPTIVE}[name]
    solved = bvfim.solve(problem, x, y, method, steps=STEPS, **options(method))
    stepper = bvfim.Stepper(problem, x, y, method, **options(method))
    while stepper.k < STEPS and stepper.status is None:
        row = stepper.step()
    found = stepper.solution()
    for part in ("x", "y", "z"):
        assert same(getattr(found, part), getattr(solved, part))
    assert (found.upper, found.lower, found.steps) == (solved.upper, solved.lower, solved.steps)
    assert found.evaluations == solved.evaluations
    assert {**row, "seconds": 0} == {**solved.rows[-1], "seconds": 0}
    assert same(stepper.x, found.x)
    assert same(stepper.y, found.y)


@pytest.mark.parametrize("name", [*METHODS, *ADAPTIVE])
def test_it_resumes_bit_for_bit(name):
    problem, x, y = nested()
    method = {**METHODS, **ADAPTIVE}[name]
    whole = bvfim.Stepper(problem, x, y, method, **options(method))
    for _ in range(3):
        whole.step()
    saved = whole.state_dict()
    kept = copy.deepcopy(saved)
    for _ in range(4):
        whole.step()
    later = bvfim.Stepper(problem, x, y, method, **options(method))
    later.step()
    later.load_state_dict(saved)
    for _ in range(4):
        later.step()
    for a, b in ((whole.x, later.x), (whole.state, later.state)):
        assert same(a, b)
    assert [{**row, "seconds": 0} for row in whole.rows] == [{**row, "seconds": 0} for row in later.rows]
    assert whole.problem.evaluations == later.problem.evaluations
    assert repr(saved) == repr(kept), "what was saved does not move on with the run"


def test_a_state_can_be_written_and_read(tmp_path):
    problem, x, y = nested()
    stepper = bvfim.Stepper(problem, x, y, bvfim.RHG(3, 0.1))
    stepper.step()
    bvfim.checkpoint.write(tmp_path / "state", stepper.state_dict())
    other = bvfim.Stepper(problem, x, y, bvfim.RHG(3, 0.1))
    other.load_state_dict(bvfim.checkpoint.read(tmp_path / "state"))
    stepper.step()
    other.step()
    assert same(stepper.x, other.x)


NOISY = bvfim.Problem(lambda x, y, t: ((y - t) ** 2).sum(), lambda x, y, t: ((y - x - t) ** 2).sum())


def test_batches_come_from_outside():
    stream = [torch.tensor(float(i), dtype=D) for i in range(4)]
    start = torch.zeros(1, dtype=D)
    solved = bvfim.solve(NOISY, start, start, bvfim.RHG(3, 0.1), steps=4, batches=stream)
    stepper = bvfim.Stepper(NOISY, start, start, bvfim.RHG(3, 0.1))
    for batch in stream:
        stepper.step(batch)
    found = stepper.solution()
    assert same(found.x, solved.x)
    assert (found.upper, found.lower) == (solved.upper, solved.lower)


def test_a_problem_that_takes_data_is_checked_at_its_first_step():
    start = torch.zeros(1, dtype=D)
    stepper = bvfim.Stepper(NOISY, start, start, bvfim.RHG(3, 0.1))
    with pytest.raises(bvfim.ProblemError, match=r"upper takes \(x, y, data\), but there is no data"):
        stepper.step()
    bad = bvfim.Problem(lambda x, y, t: y - t, NOISY.lower)
    with pytest.raises(bvfim.ProblemError, match="upper must return a scalar"):
        bvfim.Stepper(bad, torch.zeros(2, dtype=D), torch.zeros(2, dtype=D), bvfim.RHG(3)).step(1.0)


def test_a_step_that_is_not_finite_is_not_taken():
    problem = bvfim.Problem(lambda x, y, t: (t * y**2).sum(), lambda x, y, t: ((y - x) ** 2).sum())
    start = torch.ones(1, dtype=D)
    stepper = bvfim.Stepper(problem, start, start, bvfim.RHG(3, 0.1))
    stepper.step(1.0)
    x, saved = stepper.x, stepper.state_dict()
    stepper.step(float("inf"))
    assert stepper.status is bvfim.Status.NON_FINITE
    assert stepper.x is x
    with pytest.raises(bvfim.MethodError, match="continue from an earlier state with load_state_dict"):
        stepper.step(1.0)
    stepper.load_state_dict(saved)
    stepper.step(1.0)
    assert stepper.status is None
    assert stepper.k == 2


def test_what_a_method_cannot_take_is_refused():
    problem, x, y = nested()
    with pytest.raises(bvfim.MethodError, match="optimizer: AdaptiveBVFIM moves x itself"):
        bvfim.Stepper(problem, x, y, optimizer=torch.optim.Adam)
    with pytest.raises(bvfim.CheckpointError, match="its method is RHG, not CG"):
        bvfim.Stepper(problem, x, y, bvfim.CG()).load_state_dict(bvfim.Stepper(problem, x, y, bvfim.RHG()).state_dict())


@pytest.mark.parametrize("call", [bvfim.solve, bvfim.Stepper], ids=["solve", "Stepper"])
def test_warnings_point_to_the_line_that_called(call):
    problem = bvfim.Problem(lambda x, y: (y**2).sum(), lambda x, y: ((y - x) ** 2).sum(), x_set=bvfim.Box(0, 1))
    outside = 5 * torch.ones(1, dtype=D)
    with pytest.warns(bvfim.BvfimWarning, match="x was outside x_set") as seen:
        call(problem, outside, outside, bvfim.RHG(2), steps=1)
    assert seen[0].filename == __file__


def test_a_solution_is_not_changed_by_later_steps_and_costs_the_run_nothing():
    problem, x, y = nested()
    stepper = bvfim.Stepper(problem, x, y, bvfim.RHG(3, 0.1))
    stepper.step()
    found, again = stepper.solution(), stepper.solution()
    assert found.evaluations == again.evaluations
    stepper.step()
    assert (len(found.rows), len(found.history), found.steps) == (1, 1, 1)
    assert stepper.row["forward_evaluations"] == 2 * found.rows[0]["forward_evaluations"]
    assert stepper.solution(bvfim.Status.TIME_LIMIT).status is bvfim.Status.TIME_LIMIT


def test_a_method_that_moves_x_itself_takes_no_batch():
    start = torch.zeros(1, dtype=D)
    problem = bvfim.Problem(lambda x, y, d=0.0: ((y - d) ** 2).sum(), lambda x, y, d=0.0: ((y - x) ** 2).sum())
    with pytest.raises(bvfim.MethodError, match="takes no batches"):
        bvfim.Stepper(problem, start, start).step(5.0)


def test_a_rewound_run_is_as_it_was():
    problem = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum())
    start = torch.zeros(1, dtype=D)
    stepper = bvfim.Stepper(problem, start, start, bvfim.RHG(20, 0.4), lambda p: torch.optim.SGD(p, 0.3), tol=1e-6)
    saved = stepper.state_dict()
    while stepper.status is None:
        stepper.step()
    stepper.load_state_dict(saved)
    assert (stepper.k, stepper.status, stepper.complete) == (0, None, True)
    assert stepper.seconds < 60
    with pytest.raises(bvfim.CheckpointError, match="belongs to another run"):
        stepper.load_state_dict({})


def test_a_way_to_accelerate_that_is_none_is_refused_whatever_the_method():
    problem, x, y = nested()
    with pytest.raises(bvfim.MethodError, match="accelerate must be one of"):
        bvfim.solve(problem, x, y, accelerate="bogus")
    with pytest.warns(bvfim.BvfimWarning, match="no step to record or compile"):
        bvfim.solve(problem, x, y, steps=1, accelerate="compile")


def test_all_steps_are_not_an_early_stop():
    problem, x, y = nested()
    stepper = bvfim.Stepper(problem, x, y, bvfim.RHG(2, 0.1), steps=2)
    stepper.step()
    assert stepper.solution().status is bvfim.Status.STOPPED
    stepper.step()
    assert stepper.solution().status is bvfim.Status.MAX_STEPS


ROWS = torch.ones(6, 2, dtype=D)
ON_ROWS = bvfim.Problem(
    lambda x, y, i: ((ROWS[i] @ y - 1) ** 2).mean(), lambda x, y, i: ((ROWS[i] @ y - x.sum()) ** 2).mean()
)


def test_a_pair_that_fails_hints_at_a_draw_for_each_level():
    start, rows = torch.zeros(2, dtype=D), torch.arange(3)
    stepper = bvfim.Stepper(ON_ROWS, start, start, bvfim.StochasticBVFIM())
    with pytest.raises(bvfim.ProblemError, match=r"out of bounds.*step\(bvfim.Draw\(upper=, lower=\)\)"):
        stepper.step((rows, rows))
    with pytest.raises(IndexError):
        stepper.step(rows + 6)
    stepper.step(bvfim.Draw(rows, rows))
    assert stepper.k == 1


def test_a_stepper_without_a_method_names_one_that_takes_batches():
    start = torch.zeros(2, dtype=D)
    with pytest.raises(bvfim.ProblemError, match=r"Stepper\(..., bvfim.StochasticBVFIM\(\)\)"):
        bvfim.Stepper(ON_ROWS, start, start)
    with pytest.raises(bvfim.ProblemError, match="pass a batch to step"):
        bvfim.Stepper(ON_ROWS, start, start, bvfim.StochasticBVFIM()).step()


def test_values_of_the_last_batch_are_named_so():
    start = torch.zeros(2, dtype=D)
    stepper = bvfim.Stepper(ON_ROWS, start, start, bvfim.StochasticBVFIM())
    stepper.step(torch.arange(3))
    assert "on the last batch (" in str(stepper.solution())
    assert "F on the last batch" in stepper.solution()._repr_html_()
    again = bvfim.Stepper(ON_ROWS, start, start, bvfim.StochasticBVFIM())
    again.load_state_dict(stepper.state_dict())
    assert again.solution().on_batch
    whole = bvfim.Stepper(*nested(), bvfim.RHG(2, 0.1))
    whole.step()
    assert "last batch" not in str(whole.solution())
