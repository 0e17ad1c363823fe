"""Bugs that were there once. Each test failed before its fix."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import bvfim
from bvfim import tree
from bvfim.callbacks import Checkpoint, EarlyStop
from bvfim.linear import cg
from tests.problems import nested, quadratic, sine_1d

D = torch.float64


def vector(*values):
    return torch.tensor(values, dtype=D)


PLAIN = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum())


@pytest.mark.parametrize("seed", range(20))
def test_cg_flags_a_singular_matrix_instead_of_dividing_by_noise(seed):
    g = torch.Generator().manual_seed(seed)
    A = torch.randn(6, 3, generator=g, dtype=D)
    A, b = A @ A.T, torch.randn(6, generator=g, dtype=D)
    found = cg(lambda v: A @ v, b, steps=6)
    assert found.breakdown == 1
    true = (b - A @ found.solution).norm() / b.norm()
    assert found.residual == pytest.approx(float(true), rel=1e-6)
    inside = cg(lambda v: A @ v, A @ b, steps=6)  # a consistent system is solved before the null space is met
    assert (A @ inside.solution - A @ b).norm() < 1e-8 * (A @ b).norm()


def test_a_default_third_argument_keeps_its_default():
    def lower(x, y, strong=True):
        return ((y - x) ** 2).sum() + (5 * (y**2).sum() if strong else 0)

    problem = bvfim.Problem(PLAIN.upper, lower)
    found = bvfim.hypergradient(problem, vector(2.0), vector(2.0), bvfim.CG(200, 0.05))
    assert found.item() == pytest.approx(-2 / 9, abs=1e-6)


def test_modules_and_builtins_are_objectives():
    problem = bvfim.Problem(torch.nn.MSELoss(), torch.nn.MSELoss())
    assert bvfim.solve(problem, vector(1.0, 2.0), vector(0.0, 0.0), bvfim.RHG(2), steps=1).status.ok
    problem = bvfim.Problem(torch.nn.MSELoss(), lambda x, y: torch.dot(y, y) + torch.dot(x, y))
    assert bvfim.solve(problem, vector(1.0, 2.0), vector(0.0, 0.0), bvfim.RHG(2), steps=1).status.ok


def test_tolerance_returns_the_point_that_was_tested():
    start = vector(1 + 1e-7)
    solution = bvfim.solve(PLAIN, start, start, bvfim.CG(200, 0.1), steps=10, tol=1e-6)
    assert solution.status is bvfim.Status.CONVERGED
    assert torch.equal(solution.x, start)


class UnsolvedCG(bvfim.Estimator):
    """Claims to be exact, by having no reference, and is not."""

    inner = bvfim.CG(3, 0.05)

    def init(self, *args):
        return self.inner.init(*args)

    def estimate(self, *args):
        return self.inner.estimate(*args)


def test_a_method_that_claims_exactness_is_held_to_its_value():
    problem = bvfim.Problem(lambda x, y: (y**2).sum(), lambda x, y: ((y - x**3) ** 2).sum())
    assert bvfim.check_hypergradient(problem, vector(2.0), vector(0.0), UnsolvedCG()).verdict is bvfim.Verdict.WRONG


@pytest.mark.parametrize("n", [3, 300])
def test_the_noise_of_differences_at_an_optimum_is_no_error(n):
    problem = bvfim.Problem(lambda x, y: ((y - 1) ** 2).mean() + 3.3 + (y - 1).pow(3).mean(), PLAIN.lower)
    found = bvfim.check_hypergradient(problem, vector(1.0), torch.ones(n, dtype=D), bvfim.RHG(100, 0.1))
    assert found.verdict is bvfim.Verdict.EXACT


def test_differences_that_leave_the_domain_say_so():
    problem = bvfim.Problem(lambda x, y: x.log().sum() + y.sum(), PLAIN.lower)
    with pytest.raises(bvfim.ProblemError, match="not finite within"):
        bvfim.check_hypergradient(problem, vector(1e-6), vector(0.0), bvfim.RHG(3))


@pytest.mark.parametrize("x", [0.0, 0.1])
def test_an_entry_pinned_by_its_box_has_no_derivative(x):
    problem = bvfim.Problem(PLAIN.upper, PLAIN.lower, y_set=bvfim.Box(vector(0.0, -9.0), vector(0.0, 9.0)))
    for method in (bvfim.CG(200, 0.1), bvfim.RHG(200, 0.1), bvfim.FHG(200, 0.1), bvfim.Neumann(200, 0.1, 200)):
        found = bvfim.hypergradient(problem, vector(x), vector(0.0, 0.0), method)
        assert found.item() == pytest.approx(2 * (x - 1), abs=1e-6)
    pinned = bvfim.Problem(PLAIN.upper, PLAIN.lower, y_set=bvfim.Box(0.5, 0.5))
    assert bvfim.hypergradient(pinned, vector(0.5), vector(0.5), bvfim.RHG(5)).item() == 0


def test_the_inside_of_a_ball_is_inside_in_float32():
    problem = bvfim.Problem(lambda x, y: ((y - 3) ** 2).sum(), PLAIN.lower, y_set=bvfim.Ball(1.0))
    x = torch.tensor([0.999, 0.0])
    found = bvfim.hypergradient(problem, x, 0 * x, bvfim.CG(60, 0.1))
    assert torch.allclose(found, 2 * (x - 3), atol=1e-3)


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


def test_joint_must_carry_gradients():
    bad = {
        "detached": lambda x, y: (PLAIN.upper(x, y).detach(), PLAIN.lower(x, y).detach()),
        "single": lambda x, y: PLAIN.upper(x, y),
        "shaped": lambda x, y: (PLAIN.upper(x, y)[None], PLAIN.lower(x, y)[None]),
    }
    for joint in bad.values():
        with pytest.raises(bvfim.ProblemError, match="joint must return the pair"):
            bvfim.solve(bvfim.Problem(PLAIN.upper, PLAIN.lower, joint=joint), vector(0.0), vector(0.0), steps=1)
    for name in ("joint", "context"):
        with pytest.raises(bvfim.ProblemError, match=f"{name} must be a function, not a int"):
            bvfim.Problem(PLAIN.upper, PLAIN.lower, **{name: 3})


@pytest.mark.parametrize(
    "bad", [bvfim.Box(torch.zeros(3), torch.ones(3)), bvfim.Ball(1.0, torch.zeros(3)), bvfim.Box(torch.zeros(2, 2))]
)
def test_a_set_of_another_shape_is_refused(bad):
    with pytest.raises(bvfim.ProblemError, match=r"x_set: a \w+ does not fit a leaf of shape \(1,\)"):
        bvfim.solve(bvfim.Problem(PLAIN.upper, PLAIN.lower, x_set=bad), vector(0.5), vector(0.5), steps=1)


def test_a_simplex_needs_a_dimension_and_none_leaves_are_passed_over():
    with pytest.raises(bvfim.ProblemError, match=r"y_set: a Simplex does not fit a leaf of shape \(\)"):
        bvfim.solve(
            bvfim.Problem(PLAIN.upper, PLAIN.lower, y_set=bvfim.Simplex()), vector(0.5), vector(0.5)[0], steps=1
        )
    problem = bvfim.Problem(
        lambda x, y: PLAIN.upper(x["a"], y),
        lambda x, y: PLAIN.lower(x["a"], y),
        x_set={"a": bvfim.Box(0, 1), "b": None},
    )
    solution = bvfim.solve(problem, {"a": vector(0.5), "b": None}, vector(0.5), bvfim.RHG(2), steps=1)
    assert solution.x["b"] is None


def test_norms_in_half_precision_do_not_overflow():
    assert tree.norm(torch.full((1000,), 10.0, dtype=torch.float16)) == pytest.approx(1e5**0.5, rel=1e-3)


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


@pytest.mark.parametrize("method", [bvfim.CG(2), bvfim.BVFIM(2, 2), bvfim.RHG(2)])
def test_states_never_drag_a_graph_along(method):
    y = vector(1.0).requires_grad_()
    state = method.init(PLAIN, vector(0.0), y)
    for _ in range(2):
        _, state = bvfim.hypergradient(PLAIN, vector(0.0), y, method, state=state)
    assert not any(t.requires_grad for t in tree.leaves(state))


def test_a_history_of_many_rows_fits_a_checkpoint(tmp_path):
    path = tmp_path / "run.safetensors"

    def stuff(run):
        run.rows[:-1] = [dict(run.row)] * 20_000

    bvfim.solve(sine_1d(), vector(1.0), vector(1.0), bvfim.RHG(1), steps=1, callbacks=[stuff, Checkpoint(path)])
    assert path.stat().st_size < 20_000 * 8 * 20
    resumed = bvfim.solve(sine_1d(), vector(1.0), vector(1.0), bvfim.RHG(1), steps=2, resume=path)
    assert len(resumed.history) == 20_002


def test_a_fixed_weight_needs_no_slack_and_bad_lower_values_are_refused():
    problem = bvfim.Problem(PLAIN.upper, lambda x, y: PLAIN.lower(x, y) - 5)
    method = bvfim.BVFIM(2, 2, mu2=bvfim.LowerValue(weight=1.0))
    assert bvfim.solve(problem, vector(0.0), vector(0.0), method, steps=3).status is bvfim.Status.MAX_STEPS
    for bad in ({"offset": float("nan")}, {"weight": -1.0}):
        with pytest.raises(bvfim.MethodError):
            bvfim.LowerValue(**bad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shift", [0.0, 1.0, 1000.0])
def test_the_slack_outlives_a_mu2_below_rounding(dtype, shift):
    problem = bvfim.Problem(PLAIN.upper, lambda x, y: PLAIN.lower(x, y) + shift)
    x = torch.zeros(2, dtype=dtype)
    solution = bvfim.solve(problem, x, x, bvfim.BVFIM(5, 5, mu2=1e-30, tau=1e-20), steps=20)
    assert solution.status is bvfim.Status.MAX_STEPS
    assert (solution.history["slack"] > 0).all()


def test_a_resumed_run_has_its_time_limit_anew(tmp_path):
    path = tmp_path / "run.safetensors"
    first = bvfim.solve(sine_1d(), vector(1.0), vector(1.0), time_limit=0.2, callbacks=[Checkpoint(path)])
    second = bvfim.solve(sine_1d(), vector(1.0), vector(1.0), time_limit=0.2, resume=path)
    assert second.status is first.status is bvfim.Status.TIME_LIMIT
    assert second.steps > first.steps + 1


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


def test_an_objective_that_writes_into_y_does_not_reach_the_caller():
    def lower(x, y):
        with torch.no_grad():
            y.clamp_(0)
        return ((y - x) ** 2).sum()

    y = vector(-1.0)
    bvfim.solve(bvfim.Problem(PLAIN.upper, lower), vector(1.0), y, bvfim.RHG(1), steps=1)
    assert y.item() == -1.0


def test_a_callback_may_move_x():
    def put_back(run):
        run.x = vector(0.5)

    def sgd(p):
        return torch.optim.SGD(p, 0.1)

    steps = bvfim.solve(PLAIN, vector(0.5), vector(0.5), bvfim.CG(200, 0.1), sgd, steps=3, callbacks=[put_back]).history
    assert steps["x_norm"].nunique() == 1


def test_schedules_where_they_are_meant():
    alpha = bvfim.schedules.join([bvfim.schedules.constant(0.5), lambda k: 0.0], [1])
    assert bvfim.solve(PLAIN, vector(0.0), vector(0.0), bvfim.BDA(2, alpha=alpha), steps=3).status.ok
    for bad in (lambda: bvfim.CG(damping=lambda k: 1.0), lambda: bvfim.dynamics.GradientDescent(lambda k: 0.1)):
        with pytest.raises(bvfim.MethodError, match="must be a finite number"):
            bad()


def test_resuming_with_other_parts_is_refused_in_one_sentence(tmp_path):
    path = tmp_path / "run.safetensors"
    bvfim.solve(PLAIN, vector(0.0), vector(0.0), bvfim.RHG(1), steps=1, callbacks=[Checkpoint(path)])
    with_data = bvfim.Problem(lambda x, y, b: PLAIN.upper(x, y) * b, PLAIN.lower)
    with pytest.raises(bvfim.CheckpointError, match="belongs to another run"):
        bvfim.solve(with_data, vector(0.0), vector(0.0), bvfim.RHG(1), batches=[vector(1.0)[0]], resume=path)
    bvfim.checkpoint.write(path, {"k": 3})
    with pytest.raises(bvfim.CheckpointError, match="belongs to another run"):
        bvfim.solve(PLAIN, vector(0.0), vector(0.0), bvfim.RHG(1), resume=path)


def test_classes_are_methods_everywhere_and_strings_nowhere():
    x = vector(0.0)
    assert bvfim.hypergradient(PLAIN, x, x, bvfim.RHG).shape == (1,)
    assert bvfim.check_hypergradient(PLAIN, x, x, bvfim.RHG).verdict is bvfim.Verdict.EXACT
    for ask in (bvfim.hypergradient, bvfim.check_hypergradient):
        with pytest.raises(bvfim.MethodError, match="a method needs init and estimate"):
            ask(PLAIN, x, x, "rhg")
    with pytest.raises(bvfim.MethodError, match="not a SGD"):
        bvfim.solve(PLAIN, x, x, optimizer=torch.optim.SGD([x.clone()], 0.1))


def test_a_complex_objective_is_refused():
    with pytest.raises(bvfim.ProblemError, match="must return a real number"):
        bvfim.solve(bvfim.Problem(lambda x, y: (x + 1j * y).sum(), PLAIN.lower), vector(0.0), vector(0.0))


def test_fhg_with_a_context_without_floats():
    problem = bvfim.Problem(
        lambda x, y, c: ((y - 1) ** 2).sum(),
        lambda x, y, c: ((y - x)[c] ** 2).sum(),
        context=lambda x, b: torch.arange(1),
    )
    one, other = (bvfim.hypergradient(problem, vector(0.0), vector(0.5), m(3)) for m in (bvfim.FHG, bvfim.RHG))
    assert torch.allclose(one, other)


def test_a_scalar_y_keeps_its_dtype():
    data = torch.ones((), dtype=D)
    problem = bvfim.Problem(lambda x, y: (y - data) ** 2, lambda x, y: (y - x * data) ** 2)
    y = torch.tensor(0.3)
    assert bvfim.solve(problem, torch.tensor(0.1), y, bvfim.BVFIM(3, 3), steps=2).y.dtype == torch.float32


def test_cg_on_fewer_rows_than_parameters_says_that_it_broke_down():
    q = quadratic(3, 4)
    A = torch.randn(5, 10, dtype=D)
    problem = bvfim.Problem(lambda x, y: (y**2).sum(), lambda x, y: (x.sigmoid() * (A @ y - 1) ** 2).mean())
    solution = bvfim.solve(problem, torch.zeros(5, dtype=D), torch.ones(10, dtype=D), bvfim.CG(200, 0.05), steps=2)
    assert (solution.history["breakdown"] == 1).all()
    good = bvfim.solve(q.problem, torch.zeros(3, dtype=D), torch.zeros(4, dtype=D), bvfim.CG(20, 0.1), steps=2)
    assert (good.history["breakdown"] == 0).all()


def test_resuming_nested_runs_still_works(tmp_path):
    problem, x, y = nested()
    path = tmp_path / "run.safetensors"
    bvfim.solve(problem, x, y, bvfim.BVFIM(2, 2), steps=2, callbacks=[Checkpoint(path)])
    assert bvfim.solve(problem, x, y, bvfim.BVFIM(2, 2), steps=3, resume=path).steps == 3


def test_in_float32_a_large_constant_in_f_leaves_the_slack_positive():
    problem = bvfim.Problem(PLAIN.upper, lambda x, y: PLAIN.lower(x, y) + 1e5)
    x = torch.zeros(2)
    solution = bvfim.solve(problem, x, x, bvfim.BVFIM(5, 5, mu2=1e-3), steps=20)
    assert solution.status is bvfim.Status.MAX_STEPS
    assert (solution.history["slack"] > 0).all()


def test_a_method_that_reports_its_breakdown_is_not_called_wrong():
    q = quadratic(4, 6, seed=4)
    method = bvfim.Neumann(200, 0.2, terms=200, eta=2.0)
    found = bvfim.check_hypergradient(q.problem, torch.ones(4, dtype=D), torch.zeros(6, dtype=D), method)
    assert found.verdict is bvfim.Verdict.BIASED
    assert "broke down" in str(found)


def test_a_singular_lower_level_has_no_implicit_gradient_to_compare_with():
    problem = bvfim.Problem(lambda x, y: (y**2).sum(), lambda x, y: (y[0] + y[1] - x.sum()) ** 2)
    found = bvfim.check_hypergradient(problem, vector(1.0), vector(0.0, 0.0), bvfim.RHG(5))
    assert found.implicit_error is None


def test_checking_and_comparing_leave_the_users_counters_alone():
    problem = bvfim.Problem(PLAIN.upper, PLAIN.lower)
    bvfim.check_hypergradient(problem, vector(0.0), vector(0.0), bvfim.RHG(2))
    bvfim.compare(problem, [bvfim.RHG(2)], vector(0.0), vector(0.0), steps=2)
    assert sum(problem.evaluations.as_dict().values()) == 0


def test_foreign_files_are_named_foreign_and_other_settings_are_said(tmp_path):
    from safetensors.torch import save_file

    path = tmp_path / "weights.safetensors"
    save_file({"w": torch.ones(2)}, path)
    with pytest.raises(bvfim.CheckpointError) as error:
        bvfim.checkpoint.read(path)
    assert str(error.value).endswith("this is not a checkpoint of bvfim")
    bvfim.solve(PLAIN, vector(0.0), vector(0.0), bvfim.RHG(2), steps=1, callbacks=[Checkpoint(path)])
    with pytest.warns(bvfim.BvfimWarning, match=r"was made by RHG\(steps=2.*goes on with RHG\(steps=3"):
        bvfim.solve(PLAIN, vector(0.0), vector(0.0), bvfim.RHG(3), steps=2, resume=path)


def test_numpy_numbers_are_numbers_and_other_things_are_not():
    assert bvfim.RHG(steps=np.int64(3), lr=np.float32(0.1)).steps == 3
    for bad in (lambda: bvfim.RHG(dynamics=0.1), lambda: bvfim.RHG(steps=True)):
        with pytest.raises(bvfim.MethodError):
            bad()
    with pytest.raises(bvfim.MethodError, match="tol must be"):
        bvfim.solve(PLAIN, vector(0.0), vector(0.0), tol=float("nan"))


def test_hypergradient_with_a_state_evaluates_nothing_besides():
    calls = []

    def upper(x, y):
        calls.append(1)
        return ((y - 1) ** 2).sum()

    problem, method = bvfim.Problem(upper, PLAIN.lower), bvfim.RHG(1)
    state = method.init(problem, vector(0.0), vector(0.0))
    bvfim.hypergradient(problem, vector(0.0), vector(0.0), method, state=state)
    assert len(calls) == 1


def test_exact_cg_stays_affordable():
    H = torch.diag(torch.linspace(1, 2, 500, dtype=D))
    found = cg(lambda v: H @ v, torch.ones(500, dtype=D), steps=10**4)
    assert found.steps <= 500
    assert found.residual < 1e-12
