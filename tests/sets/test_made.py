"""Sets from a projection alone agree with those whose tangent is written by hand, and products with trees of sets."""

from __future__ import annotations

import pytest
import torch

import bvfim
from bvfim import sets, tree
from bvfim.interior.space import Space
from bvfim.sets import Ball, Box, Product, Projected, Simplex
from bvfim.status import ProblemError
from tests.problems import quadratic

D = torch.float64
KNOWN = {
    "box": Box(-0.3, 0.4),
    "ball": Ball(0.7),
    "large ball": Ball(50.0),
    "off-centre": Ball(0.6, torch.linspace(-1, 1, 6, dtype=D)),
    "simplex": Simplex(),
    "wide simplex": Simplex(5.0),
}


def stationary(which, seed, size=6, dtype=D):
    """A point of the set, and a gradient for which it is stationary: a point outside is where both lead."""
    g = torch.Generator().manual_seed(seed)
    outside = 1.5 * torch.randn(size, generator=g, dtype=D).to(dtype)
    point = which.project(outside)
    return point, point - outside


def matrix(linear, like):
    return torch.stack([linear(e) for e in torch.eye(len(like), dtype=like.dtype)], 1)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", KNOWN)
def test_the_derived_tangent_is_the_one_by_hand(name, seed):
    which = KNOWN[name]
    point, gradient = stationary(which, seed)
    by_hand, derived = which.tangent(point, gradient), Projected(which.project).tangent(point, gradient)
    Pi = matrix(by_hand.project, point)
    torch.testing.assert_close(matrix(derived.project, point), Pi, rtol=0, atol=1e-9)
    expected = matrix(by_hand.bent, point) @ Pi
    torch.testing.assert_close(matrix(derived.bent, point) @ Pi, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_derived_tangent_does_not_depend_on_the_size_of_f(scale):
    point, gradient = stationary(KNOWN["ball"], 1)
    one, other = (Projected(KNOWN["ball"].project).tangent(point, s * gradient) for s in (1.0, scale))
    v = torch.linspace(-1, 2, 6, dtype=D)
    torch.testing.assert_close(other.project(v), one.project(v), rtol=0, atol=1e-9)
    v = one.project(v)
    torch.testing.assert_close(other.bent(v) / scale, one.bent(v), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", KNOWN)
def test_single_precision_is_enough(name):
    which = KNOWN[name]
    point, gradient = stationary(which, 2, dtype=torch.float32)
    by_hand, derived = which.tangent(point, gradient), Projected(which.project).tangent(point, gradient)
    Pi = matrix(by_hand.project, point)
    torch.testing.assert_close(matrix(derived.project, point), Pi, rtol=0, atol=1e-3)
    torch.testing.assert_close(matrix(derived.bent, point) @ Pi, matrix(by_hand.bent, point) @ Pi, rtol=1e-2, atol=1e-2)


def ordered(v):
    """The nearest vector whose entries do not fall: the mean of neighbours that are out of order, until none is."""
    blocks = []
    for entry in v.unbind():
        blocks.append(entry[None])
        while len(blocks) > 1 and blocks[-2].mean() >= blocks[-1].mean():
            last = blocks.pop()
            blocks[-1] = torch.cat([blocks[-1], last])
    return torch.cat([block.mean().expand(len(block)) for block in blocks])


def test_free_directions_of_ordered_entries_move_tied_ones_together():
    point, gradient = ordered(torch.tensor([1.0, 3.0, 2.0, 5.0], dtype=D)), torch.tensor([0.0, -0.5, 0.5, 0.0], dtype=D)
    expected = torch.block_diag(torch.eye(1), torch.full((2, 2), 0.5), torch.eye(1)).to(D)
    found = matrix(Projected(ordered).tangent(point, gradient).project, point)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


METHODS = {
    "CG": bvfim.CG(steps=200, lr=0.3, cg_steps=6),
    "Neumann": bvfim.Neumann(steps=200, lr=0.3, terms=200, eta=0.3),
    "RHG": bvfim.RHG(steps=200, lr=0.3),
    "TRHG": bvfim.TRHG(steps=200, lr=0.3, keep=150),
    "FHG": bvfim.FHG(steps=200, lr=0.3),
    "BDA": bvfim.BDA(steps=50, lr=0.3),
    "BVFIM": bvfim.BVFIM(z_steps=20, y_steps=20, mu2=bvfim.LowerValue(offset=5.0)),
}


def on(which, x_set=None):
    q = quadratic(4, 6)
    return bvfim.Problem(q.problem.upper, q.problem.lower, y_set=which, x_set=x_set)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["box", "ball", "simplex"])
def test_hypergradients_agree(name, method):
    x, y = torch.linspace(-1, 1, 4, dtype=D), torch.full((6,), 0.1, dtype=D)
    by_hand, derived = (
        bvfim.hypergradient(on(which), x, y, METHODS[method]) for which in (KNOWN[name], Projected(KNOWN[name].project))
    )
    torch.testing.assert_close(derived, by_hand, rtol=1e-6, atol=1e-7)


PAIR = (Ball(0.5), Box(-0.3, 0.4), None)
SIZES = (2, 3, 1)


def joined():
    """One y of six entries in a product, and the same problem with a tree of three leaves."""
    q = quadratic(4, 6)

    def apart(function):
        return lambda x, y: function(x, torch.cat(list(y)))

    problem = q.problem
    one = bvfim.Problem(problem.upper, problem.lower, y_set=Product(SIZES, PAIR))
    return one, bvfim.Problem(apart(problem.upper), apart(problem.lower), y_set=list(PAIR))


@pytest.mark.parametrize("method", METHODS)
def test_a_product_is_a_tree_of_sets_in_one_tensor(method):
    one, several = joined()
    x, y = torch.linspace(-1, 1, 4, dtype=D), torch.full((6,), 0.1, dtype=D)
    found = bvfim.hypergradient(one, x, y, METHODS[method])
    expected = bvfim.hypergradient(several, x, list(y.split(SIZES)), METHODS[method])
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)


def test_many_starts_at_once_derive_their_tangents_too():
    problem = on(Projected(Ball(0.7).project))
    xs, ys = torch.linspace(-1, 1, 12, dtype=D).view(3, 4), torch.zeros(3, 6, dtype=D)
    method = bvfim.CG(steps=50, lr=0.3)
    together = bvfim.solve_many(problem, xs, ys, method, steps=3)
    for x, y, found in zip(xs, ys, together, strict=True):
        torch.testing.assert_close(found.x, bvfim.solve(problem, x, y, method, steps=3).x, rtol=0, atol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize(
    ("which", "by_hand", "sizes"),
    [
        (Projected(Ball(0.7).project), [Ball(0.7)], [3]),
        (Product([2, 1], [Ball(0.5), Box(-0.3, 0.4)]), [Ball(0.5), Box(-0.3, 0.4)], [2, 1]),
    ],
)
def test_the_interior_point_takes_them(which, by_hand, sizes):
    q, method = quadratic(2, 3).problem, bvfim.AdaptiveBVFIM(seed=3)
    x, y = torch.zeros(2, dtype=D), torch.zeros(3, dtype=D)
    found = bvfim.solve(bvfim.Problem(q.upper, q.lower, x_set=Box(-2, 2), y_set=which), x, y, method)
    F, f = ((lambda x, y, g=g: g(x, torch.cat(list(y)))) for g in (q.upper, q.lower))
    known = bvfim.Problem(F, f, x_set=Box(-2, 2), y_set=by_hand)
    expected = bvfim.solve(known, x, list(y.split(sizes)), method)
    assert found.status is expected.status is bvfim.Status.CONVERGED
    assert found.upper == pytest.approx(expected.upper, rel=1e-5)


def test_rows_of_a_product_are_projected_and_freed_in_their_units():
    like = torch.zeros(6, dtype=D)
    product = Product(SIZES, PAIR)
    space = Space(like, [product], torch.full((2, 6), 2.0, dtype=D))
    rows = torch.linspace(-3, 3, 12, dtype=D).view(2, 6)
    moved = space.project(rows)
    torch.testing.assert_close(moved, torch.stack([product.project(2 * row) for row in rows]) / 2)
    gradient = torch.linspace(1, -1, 12, dtype=D).view(2, 6)
    freed = space.free(moved, gradient)(torch.ones_like(rows))
    for row, g, found in zip(moved, gradient, freed, strict=True):
        torch.testing.assert_close(found, product.tangent(2 * row, g / 2).project(torch.ones(6, dtype=D)))


def test_a_product_cuts_along_any_dimension():
    rows = Product([1, 2], [Simplex(), Box(0, 1)], dim=1).project(torch.tensor([[5.0, -1.0, 2.0], [0.0, 0.5, 3.0]]))
    assert rows.tolist() == [[1.0, 0.0, 1.0], [1.0, 0.5, 1.0]]
    nested = Product([1, 2], [None, Product([1, 1], [Box(0, 1), None])])
    assert nested.project(torch.full((3,), 9.0)).tolist() == [9.0, 1.0, 9.0]


def test_the_curvature_of_a_product_is_that_of_each_part():
    product = Product([2, 2], [Ball(1.0), Ball(2.0)])
    point, gradient = torch.tensor([1.0, 0.0, 0.0, 2.0], dtype=D), torch.tensor([-3.0, 0.0, 0.0, -5.0], dtype=D)
    free, curved = sets.tangent(product, point, gradient)
    ones = torch.ones(4, dtype=D)
    torch.testing.assert_close(free(ones), torch.tensor([0.0, 1.0, 1.0, 0.0], dtype=D))
    torch.testing.assert_close(curved(ones, 0 * ones), torch.tensor([3.0, 3.0, 2.5, 2.5], dtype=D))
    assert Product([2, 2], [Box(0, 1), None]).tangent(point, gradient).flat


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Projected(3.0), "takes the projection, a function, not a float"),
        (lambda: Product([1, 2], [Box(0, 1)]), "2 sizes need as many sets, not 1"),
        (lambda: Product([1.5], [Box(0, 1)]), "sizes must be whole numbers"),
        (lambda: Product([1, 2], [Box(0, 1), Box]), "every part needs a set or None"),
        (lambda: Product([1, 2], [Box(0, 1), 3.0]), "every part needs a set or None"),
    ],
)
def test_what_is_no_set_is_refused(make, message):
    with pytest.raises(ProblemError, match=message):
        make()


@pytest.mark.parametrize(
    ("which", "message"),
    [
        (Projected(lambda v: 0.5 * v), "y_set: a Projected moves a point of its own set"),
        (
            Projected(lambda v: torch.ones(3) + v[:2]),
            r"y_set: a Projected does not fit a leaf of shape .* \(The size of tensor a",
        ),
        (Projected(lambda v: v[:2]), "y_set: a Projected does not fit a leaf of shape"),
        (Projected(lambda v: v.tolist()), "the projection must return a tensor, not a list"),
        (Projected(lambda v: v.detach().clamp(0, 1)), "carries no gradient"),
        (Product([2, 2], [Box(0, 1), None]), "y_set: a Product does not fit a leaf of shape"),
    ],
)
def test_what_does_not_fit_is_refused_before_the_work(which, message):
    x, y = torch.zeros(4, dtype=D), torch.zeros(6, dtype=D)
    with pytest.raises(ProblemError, match=message):
        bvfim.solve(on(which), x, y + 0.1, bvfim.RHG(steps=3, lr=0.1), steps=1)


def test_a_tree_may_hold_them():
    variable = {"a": torch.full((2,), 3.0), "b": torch.full((3,), -2.0)}
    found = sets.project({"a": Projected(lambda v: v.clamp(max=1)), "b": Product([1, 2], [None, Box(0, 1)])}, variable)
    assert tree.flatten(found).tolist() == [1, 1, -2, 0, 0]
