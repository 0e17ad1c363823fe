import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from bvfim import sets, tree
from bvfim.sets import Ball, Box, Simplex
from bvfim.status import ProblemError

quick = settings(max_examples=60, deadline=None, derandomize=True)
inf = math.inf


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


numbers = st.floats(-10, 10, allow_subnormal=False)
vectors = st.lists(numbers, min_size=1, max_size=6).map(lambda v: tensor(*v))


@st.composite
def cases(draw, kinds=("box", "ball", "simplex")):
    """A set, a point, and a sampler of members of the set that does not use its projection."""
    point = draw(vectors)
    n, kind = len(point), draw(st.sampled_from(kinds))
    if kind == "box":
        bounds = draw(st.lists(st.tuples(numbers, numbers), min_size=n, max_size=n))
        low, high = tensor(*map(min, bounds)), tensor(*map(max, bounds))
        shape = draw(st.sampled_from(["number", "tensor", "one-sided", "unbounded"]))
        if shape == "number":
            low, high = low[0].item(), max(low[0].item(), high[0].item())
        elif shape == "one-sided":
            high = inf
        elif shape == "unbounded":
            low, high = torch.where(low < 0, -inf, low), torch.where(high > 0, inf, high)
        space = [torch.as_tensor(b, dtype=torch.float64).clamp(-30, 30).expand(n) for b in (low, high)]
        return Box(low, high), point, lambda: space[0] + torch.rand(n, dtype=torch.float64) * (space[1] - space[0])
    if kind == "ball":
        radius = draw(st.floats(0.1, 10))
        centre = draw(st.one_of(numbers, st.lists(numbers, min_size=n, max_size=n).map(lambda v: tensor(*v))))

        def member():
            way = torch.randn(n, dtype=torch.float64)
            return centre + radius * torch.rand((), dtype=torch.float64) * way / way.norm()

        return Ball(radius, centre), point, member
    total = draw(st.floats(0.1, 10))

    def distribution():
        mass = torch.rand(n, dtype=torch.float64).log() * (torch.rand(n) < 0.7) - 1e-9
        return total * mass / mass.sum()

    return Simplex(total), point, distribution


def violation(which, v):
    if isinstance(which, Box):
        return max(0.0, (which.lower - v).max().item(), (v - which.upper).max().item())
    if isinstance(which, Ball):
        return max(0.0, ((v - which.centre).norm() - which.radius).item())
    return max((-v).max().item(), (v.sum(-1) - which.total).abs().max().item())


@quick
@given(cases())
def test_projection_lies_in_the_set_and_stays_there(case):
    which, point, _ = case
    found = which.project(point)
    assert found.shape == point.shape
    assert violation(which, found) <= 1e-13 * 30
    torch.testing.assert_close(which.project(found), found, rtol=0, atol=1e-13)


@quick
@given(cases(), st.integers(0, 2**32))
def test_projection_is_the_nearest_point(case, seed):
    # p is the nearest point of a convex set to v exactly if <v - p, c - p> <= 0 for all members c.
    which, point, member = case
    torch.manual_seed(seed)
    found = which.project(point)
    for _ in range(20):
        c = member()
        assert violation(which, c) <= 1e-12
        assert (point - found) @ (c - found) <= 1e-11


@quick
@given(cases(), st.integers(0, 2**32))
def test_projection_does_not_expand(case, seed):
    which, a, _ = case
    torch.manual_seed(seed)
    for size in (1e-3, 1.0, 10.0):
        b = a + size * torch.randn_like(a)
        assert (which.project(a) - which.project(b)).norm() <= (a - b).norm() + 1e-13


@quick
@given(cases(kinds=["box"]))
def test_box_clamps_entry_by_entry(case):
    box, point, _ = case
    low, high = (torch.as_tensor(b, dtype=torch.float64).expand_as(point).tolist() for b in (box.lower, box.upper))
    expected = [min(max(v, a), b) for v, a, b in zip(point.tolist(), low, high, strict=True)]
    assert box.project(point).tolist() == expected


@quick
@given(vectors, st.floats(0.1, 10))
def test_simplex_agrees_with_the_root_of_its_threshold(point, total):
    values = point.tolist()
    low, high = min(values) - total - 1, max(values)
    shift = brentq(lambda t: sum(max(v - t, 0) for v in values) - total, low, high, xtol=1e-14, rtol=1e-14)
    expected = tensor(*(max(v - shift, 0) for v in values))
    torch.testing.assert_close(Simplex(total).project(point), expected, rtol=0, atol=1e-12)


def test_simplex_projects_every_row_of_a_batch_by_itself():
    rows = torch.randn(2, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = Simplex(2.0).project(rows)
    for i in range(2):
        for j in range(3):
            torch.testing.assert_close(found[i, j], Simplex(2.0).project(rows[i, j]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1e6, 1e12, 1e18])
def test_simplex_projects_points_far_away(size, dtype):
    point = torch.tensor([size, -size, size / 2], dtype=dtype)
    assert torch.equal(Simplex().project(point), torch.tensor([1, 0, 0], dtype=dtype))


@pytest.mark.parametrize("which", [Box(0, 1), Ball(1.0), Simplex()])
def test_a_point_that_is_not_a_number_stays_one(which):
    # The outer loop must see the NaN and say so; a set must not hide it or fail on it.
    assert which.project(tensor(math.nan, 0.5, 2.0)).isnan().any()


def test_ball_projects_points_far_away():
    torch.testing.assert_close(Ball(5.0).project(tensor(3e200, 4e200)), tensor(3, 4))


@pytest.mark.parametrize(
    "which",
    [Box(torch.zeros(2, dtype=torch.float64), 1), Ball(1.0, torch.zeros(2, dtype=torch.float64)), Simplex()],
)
def test_projection_keeps_the_dtype_of_the_point(which):
    point = torch.tensor([3.0, 4.0], dtype=torch.float32)
    assert which.project(point).dtype == torch.float32
    assert which.tangent(which.project(point), -point).project(point).dtype == torch.float32


def distance_to_kink(which, point):
    if isinstance(which, Box):
        return torch.stack([(point - which.lower).abs(), (point - which.upper).abs()]).min()
    if isinstance(which, Ball):
        return ((point - which.centre).norm() - which.radius).abs()
    found = which.project(point)
    return (point - (point - found)[found > 0].mean()).abs().min()


@quick
@given(cases())
def test_derivative_of_the_projection_is_the_finite_difference_away_from_kinks(case):
    which, point, _ = case
    assume(distance_to_kink(which, point) > 1e-4)
    h, basis = 1e-6, torch.eye(len(point), dtype=torch.float64)
    expected = torch.stack([(which.project(point + h * e) - which.project(point - h * e)) / (2 * h) for e in basis], 1)
    found = torch.autograd.functional.jacobian(which.project, point)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (tensor(0.0), tensor(1.0))], ids=["numbers", "tensors"])
@pytest.mark.parametrize("entry", [0.0, 1.0])
def test_box_passes_the_whole_derivative_on_at_a_bound(entry, bounds):
    point = tensor(entry).requires_grad_()
    assert torch.autograd.grad(Box(*bounds).project(point).sum(), point)[0] == 1


# -- tangents --

N, M = 5, 3
solved_sets = {
    "box-number": (Box(-0.8, 0.8), "active"),
    "box-tensor": (Box(tensor(-1, -0.2, 0, -2, 0.1), tensor(1, 0.3, 0.4, -0.5, inf)), "active"),
    "box-unbounded": (Box(), "inactive"),
    "ball-active": (Ball(0.7), "active"),
    "ball-active-off-centre": (Ball(0.3, tensor(1, 0, 0.5, 0, -1)), "active"),
    "ball-inactive": (Ball(50.0), "inactive"),
    "simplex": (Simplex(4.0), "active"),
    "simplex-inner": (Simplex(60.0), "inactive"),
}


def solve(which, H, b):
    lr, y = 1 / torch.linalg.matrix_norm(H, 2).item(), which.project(torch.zeros(N, dtype=torch.float64))
    for _ in range(400):
        y = which.project(y - lr * (H @ y - b))
    return y


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", solved_sets)
def test_tangent_gives_the_response_of_the_constrained_minimiser(name, seed):
    which, state = solved_sets[name]
    g = torch.Generator().manual_seed(seed)
    Q = torch.linalg.qr(torch.randn(N, N, dtype=torch.float64, generator=g)).Q
    H = Q @ torch.diag(torch.linspace(1, 3, N, dtype=torch.float64)) @ Q.T
    B = torch.randn(N, M, dtype=torch.float64, generator=g)
    c = 1.5 * torch.randn(N, dtype=torch.float64, generator=g)
    x = torch.randn(M, dtype=torch.float64, generator=g)
    y = solve(which, H, B @ x + c)
    tangent = which.tangent(y, H @ y - (B @ x + c))
    eye = torch.eye(N, dtype=torch.float64)
    Pi = torch.stack([tangent.project(e) for e in eye], 1)
    most = N - isinstance(which, Simplex)
    rank = torch.linalg.matrix_rank(Pi).item()
    assert (0 < rank < most) if state == "active" else (rank == most)
    found = torch.linalg.pinv(Pi @ (H + tangent.curvature * eye) @ Pi, rtol=1e-10) @ Pi @ B
    h = 1e-5
    directions = torch.eye(M, dtype=torch.float64)
    ends = [(solve(which, H, B @ (x + h * e) + c), solve(which, H, B @ (x - h * e) + c)) for e in directions]
    expected = torch.stack([(a - b) / (2 * h) for a, b in ends], 1)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)


@quick
@given(cases(), st.integers(0, 2**32))
def test_tangent_is_an_orthogonal_projection(case, seed):
    which, point, _ = case
    torch.manual_seed(seed)
    y = which.project(point)
    tangent = which.tangent(y, torch.randn_like(y))
    Pi = torch.stack([tangent.project(e) for e in torch.eye(len(y), dtype=torch.float64)], 1)
    torch.testing.assert_close(Pi, Pi.T, rtol=0, atol=1e-12)
    torch.testing.assert_close(Pi @ Pi, Pi, rtol=0, atol=1e-12)
    assert tangent.curvature >= 0


@pytest.mark.parametrize(
    ("which", "point", "gradient", "free"),
    [
        (Box(0, 1), tensor(0, 0, 1, 1, 0.5), tensor(1, -1, -1, 1, 1), tensor(0, 1, 0, 1, 1)),
        (Ball(1.0), tensor(1, 0), tensor(-1, 0), tensor(0, 1)),
        (Ball(1.0), tensor(1, 0), tensor(1, 0), tensor(1, 1)),
        (Ball(1.0), tensor(0, 0), tensor(1, 0), tensor(1, 1)),
    ],
)
def test_only_entries_that_are_held_are_taken_out(which, point, gradient, free):
    assert torch.equal(which.tangent(point, gradient).project(torch.ones_like(point)), free)


def test_simplex_rows_have_tangents_of_their_own():
    point, gradient = (
        torch.stack([tensor(0.5, 0.5, 0), tensor(0, 0, 1)]),
        torch.stack([tensor(1, 1, 5), tensor(3, 3, 1)]),
    )
    found = Simplex().tangent(point, gradient).project(torch.stack([tensor(1, 0, 7), tensor(1, 2, 3)]))
    torch.testing.assert_close(found, torch.stack([tensor(0.5, -0.5, 0), tensor(0, 0, 0)]))


# -- trees of sets --

variable = {"a": tensor(2, -2), "b": [tensor(3, 4), tensor(0.5, 9)]}


def test_one_set_holds_for_every_leaf():
    found = sets.project(Box(-1, 1), variable)
    assert tree.same_structure(found, variable)
    assert tree.flatten(found).tolist() == [1, -1, 1, 1, 0.5, 1]


def test_a_tree_of_sets_holds_leaf_by_leaf_and_none_is_free():
    constraint = {"b": [Ball(5.0), None], "a": Simplex()}
    found = sets.project(constraint, variable)
    assert tree.flatten(found).tolist() == [1, 0, 3, 4, 0.5, 9]
    free, curved = sets.tangent(constraint, found, {"a": tensor(0, 1), "b": [tensor(-3, -4), tensor(1, 1)]})
    ones = tree.map(torch.ones_like, variable)
    torch.testing.assert_close(tree.flatten(free(ones)), tensor(0, 0, 0.16, -0.12, 1, 1), rtol=0, atol=1e-12)
    torch.testing.assert_close(tree.flatten(curved(ones, ones)), tensor(1, 1, 2, 2, 1, 1))


def test_no_set_changes_nothing():
    assert sets.project(None, variable) is variable
    free, curved = sets.tangent(None, variable, variable)
    assert torch.equal(tree.flatten(free(variable)), tree.flatten(variable))
    assert torch.equal(tree.flatten(curved(variable, variable)), tree.flatten(variable))


def test_any_object_with_the_two_methods_is_a_set():
    class Whole:
        def project(self, point):
            return point + 1

        def tangent(self, point, gradient):
            return sets.Tangent(lambda v: v, 0.0)

    assert torch.equal(sets.project(Whole(), tensor(1)), tensor(2))


@pytest.mark.parametrize(
    "wrong",
    [
        {"a": Box(0, 1)},
        {"a": Box(0, 1), "b": Box(0, 1)},
        {"a": Box(0, 1), "b": [None, 3.0]},
        [Box(0, 1)] * 4,
        "box",
        1.0,
        pytest.param({"a": None, "c": [None, Box(0, 1)]}, id="other-names"),
        pytest.param([None, None, Box(0, 1)], id="other-nesting"),
        pytest.param(Box, id="a-class-for-an-instance"),
    ],
)
def test_a_tree_of_sets_unlike_the_variable_is_refused(wrong):
    with pytest.raises(ProblemError, match="set"):
        sets.per_leaf(wrong, variable)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Box(1, 0),
        lambda: Box(tensor(0, 2), tensor(1, 1)),
        lambda: Box(math.nan, 1),
        lambda: Box(0, tensor(1, math.nan)),
        pytest.param(lambda: Box(inf, inf), id="box-of-nothing-finite"),
        pytest.param(lambda: Box(-inf, -inf), id="box-of-nothing-finite-below"),
        pytest.param(lambda: Box(torch.zeros(3), torch.ones(2)), id="box-of-two-shapes"),
        lambda: Ball(0.0),
        lambda: Ball(-1.0),
        lambda: Ball(math.nan),
        pytest.param(lambda: Ball(inf), id="infinite-ball"),
        lambda: Simplex(0.0),
        lambda: Simplex(-1.0),
        lambda: Simplex(math.nan),
        pytest.param(lambda: Simplex(inf), id="infinite-simplex"),
    ],
)
def test_a_set_that_is_empty_or_not_defined_is_refused(make):
    with pytest.raises(ProblemError, match="must be"):
        make()
