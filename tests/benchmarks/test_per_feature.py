import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

SCRIPTS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(params=["breast cancer", "diabetes"])
def task(request, monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    yield import_module("per_feature").load(request.param)
    sys.modules.pop("per_feature")


def uniform(task, seed):
    generator = torch.Generator().manual_seed(seed)
    return -8 + 10 * torch.rand(task.features, generator=generator, dtype=torch.float64)


def test_newton_finds_the_minimiser_with_the_right_hessian(task):
    from per_feature import minimiser

    x = uniform(task, 0)
    y, hessian = minimiser(task, x, x.new_zeros(task.features + 1))
    gradient = torch.func.grad(lambda y: task.lower(x, y))(y)
    assert gradient.abs().max() <= 1e-11
    torch.testing.assert_close(hessian, torch.func.hessian(lambda y: task.lower(x, y))(y))


def test_the_references_gradient_agrees_with_finite_differences(task):
    from per_feature import value

    x, h = uniform(task, 1), 1e-4
    _, gradient, y = value(task, x, x.new_zeros(task.features + 1))
    ends = [[value(task, x + s * h * e, y)[0] for s in (1, -1)] for e in torch.eye(task.features, dtype=x.dtype)]
    differences = torch.tensor([(up - down) / (2 * h) for up, down in ends], dtype=x.dtype)
    torch.testing.assert_close(gradient, differences, rtol=1e-5, atol=1e-8)


def test_the_parts_are_a_half_and_two_quarters_and_standardised(task):
    sizes = [len(part.targets) for part in (task.train, task.validation, task.test)]
    assert sizes[0] == pytest.approx(sum(sizes) / 2, abs=1)
    assert sizes[1] == pytest.approx(sizes[2], abs=1)
    torch.testing.assert_close(task.train.inputs[:, :-1].std(0, correction=0), torch.ones(task.features).double())


def test_the_reference_ends_lower_than_it_starts(task):
    from per_feature import reference, value

    x, y = torch.full((task.features,), -3.0, dtype=torch.float64), torch.zeros(task.features + 1, dtype=torch.float64)
    found = reference(task, x)
    assert value(task, found, y)[0] < value(task, x, y)[0]
    assert found.min() >= -10
    assert found.max() <= 5
