from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bvfim import tree

quick = settings(max_examples=60, deadline=None, derandomize=True)


class Pair(NamedTuple):
    left: object
    right: object


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


def filled(shape):
    return torch.randn(shape, dtype=torch.float64)


shapes = st.lists(st.integers(1, 3), max_size=3).map(tuple)
trees = st.recursive(
    shapes.map(filled),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3)
        | st.lists(inner, min_size=1, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, min_size=1, max_size=3)
        | st.builds(Pair, inner, inner)
    ),
    max_leaves=8,
)


@quick
@given(trees)
def test_unravel_undoes_flatten(a):
    vector = tree.flatten(a)
    again = tree.unravel(vector, a)
    assert vector.shape == (tree.size(a),)
    assert tree.same_structure(a, again)
    for s, t in zip(tree.leaves(a), tree.leaves(again), strict=True):
        assert s.shape == t.shape
        assert torch.equal(s, t)


@quick
@given(trees, st.floats(-3, 3), st.booleans())
def test_arithmetic_is_that_of_the_flat_vectors(a, c, as_tensor):
    b = tree.map(torch.randn_like, a)
    u, v = tree.flatten(a), tree.flatten(b)
    factor = torch.tensor(c, dtype=torch.float64) if as_tensor else c
    for found, expected in [
        (tree.add(a, b), u + v),
        (tree.sub(a, b), u - v),
        (tree.scale(factor, a), c * u),
        (tree.axpy(factor, a, b), c * u + v),
        (tree.zeros_like(a), 0 * u),
        (tree.where(torch.tensor(c > 0), a, b), u if c > 0 else v),
    ]:
        assert tree.same_structure(found, a)
        torch.testing.assert_close(tree.flatten(found), expected)
    torch.testing.assert_close(tree.dot(a, b), u @ v)
    torch.testing.assert_close(tree.norm(a), u.norm())


def test_axpy_with_a_tensor_carries_the_derivative_in_the_factor():
    c = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    a, b = {"p": tensor(1, 2), "q": tensor(3)}, {"p": tensor(0, 0), "q": tensor(1)}
    (slope,) = torch.autograd.grad(tree.flatten(tree.axpy(c, a, b)).sum(), c)
    assert slope == 6


def test_arithmetic_leaves_its_arguments_alone():
    a, b = [tensor(1, 2)], [tensor(3, 4)]
    tree.add(a, b), tree.axpy(2.0, a, b), tree.axpy(tensor(2.0), a, b), tree.scale(2.0, a)
    assert torch.equal(a[0], tensor(1, 2))
    assert torch.equal(b[0], tensor(3, 4))


@pytest.mark.parametrize("operation", [tree.add, tree.sub, tree.dot])
def test_trees_of_other_structure_are_refused(operation):
    with pytest.raises(ValueError):  # noqa: PT011 (whatever optree and zip say)
        operation([tensor(1), tensor(2)], [tensor(1)])


def test_clone_and_variable_do_not_touch_the_original():
    a = {"w": tensor(1, 2).requires_grad_()}
    copied, fresh = tree.clone(a), tree.variable(a)
    copied["w"][0] = 7
    assert a["w"][0] == 1
    assert not copied["w"].requires_grad
    assert fresh["w"].requires_grad
    assert fresh["w"] is not a["w"]
    assert not tree.detach(a)["w"].requires_grad


def test_grad_is_zero_for_an_input_that_is_not_used():
    inputs = tree.variable({"used": tensor(1, 2), "unused": tensor(3, 4)})
    found = tree.grad(inputs["used"].square().sum(), inputs)
    assert torch.equal(found["used"], tensor(2, 4))
    assert torch.equal(found["unused"], tensor(0, 0))


def test_grad_of_a_constant_is_zero():
    assert torch.equal(tree.grad(tensor(1).sum(), tree.variable(tensor(1, 2))), tensor(0, 0))


def test_grad_weighs_several_outputs_of_which_one_is_constant():
    y = tree.variable(tensor(1, 2))
    outputs = [y.square().sum(), tensor(5).sum(), y[0] * y[1]]
    found = tree.grad(outputs, y, [torch.tensor(w, dtype=torch.float64) for w in (3.0, 7.0, -1.0)])
    assert torch.equal(found, tensor(3 * 2 - 2, 3 * 4 - 1))


def test_grad_can_be_differentiated_again():
    y = tree.variable(tensor(1, 2))
    first = tree.grad(y.pow(3).sum(), y, create_graph=True)
    assert torch.equal(tree.grad(first.sum(), y), tensor(6, 12))


def test_parameters_are_copies_by_name():
    layer = torch.nn.Linear(2, 1)
    found = tree.parameters(layer)
    found["weight"].zero_()
    assert sorted(found) == ["bias", "weight"]
    assert layer.weight.abs().sum() > 0
