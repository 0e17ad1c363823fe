"""What can be differentiated only once: every method that needs more says so in a sentence, and the others solve."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import bvfim

TWICE = (bvfim.RHG(2), bvfim.TRHG(2, 1), bvfim.BDA(2), bvfim.CG(2, cg_steps=2), bvfim.Neumann(2, terms=2))
ONCE = (bvfim.BVFIM(z_steps=2, y_steps=2), bvfim.StochasticBVFIM())
X = torch.randn(4, 3, 8, generator=torch.Generator().manual_seed(0))
ROWS = torch.ones(4)


def called(method):
    return type(method).__name__


class Attention(nn.Module):
    """Attention without the layer around it."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, rows):
        h = self.linear(rows)[:, None]
        return nn.functional.scaled_dot_product_attention(h, h, h)[:, 0]


def problem(module):
    """Weights x on the rows of a network, which is called as it is."""

    def losses(y):
        return torch.func.functional_call(module, y, (X,)).square().mean((1, 2))

    return bvfim.Problem(lambda x, y: losses(y).mean(), lambda x, y: (x * losses(y)).sum() + 0 * x.sum())


@pytest.fixture(params=[lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), Attention])
def network(request):
    torch.manual_seed(0)
    return request.param()


@pytest.mark.parametrize("method", TWICE, ids=called)
def test_attention_has_no_second_derivative(network, method):
    with pytest.raises(
        bvfim.ProblemError, match=r"only once \(derivative for .*which need no second derivatives"
    ) as told:
        bvfim.solve(problem(network), ROWS, bvfim.parameters(network), method, steps=2)
    assert "StochasticBVFIM(), bvfim.BVFIM() or bvfim.AdaptiveBVFIM()" in str(told.value)
    assert "\n" not in str(told.value)


def test_forward_mode_says_so_too(network):
    with pytest.raises(bvfim.ProblemError, match=r"StochasticBVFIM\(\) and bvfim.BVFIM\(\) need no second") as told:
        bvfim.solve(problem(network), ROWS, bvfim.parameters(network), bvfim.FHG(2), steps=2)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("method", ONCE, ids=called)
def test_the_methods_that_the_sentence_names_take_attention(network, method):
    found = bvfim.solve(problem(network), ROWS, bvfim.parameters(network), method, steps=2, refit=False)
    assert found.steps == 2


@pytest.mark.parametrize("method", TWICE, ids=called)
def test_attention_by_its_formula_can_be_differentiated_twice_as_the_sentence_says(network, method):
    with sdpa_kernel(SDPBackend.MATH):
        assert bvfim.solve(problem(network), ROWS, bvfim.parameters(network), method, steps=2, refit=False).steps == 2


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # of the compiler's own
def test_a_compiled_module_is_differentiated_once():
    torch._dynamo.reset()
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    plain, own = problem(module), problem(torch.compile(module))
    y = bvfim.parameters(module)
    prefixed = {f"_orig_mod.{name}": value for name, value in y.items()}
    for method in (bvfim.RHG(2), bvfim.CG(2, cg_steps=2), bvfim.AdaptiveBVFIM()):
        with pytest.raises(bvfim.ProblemError, match="call the module that is not compiled, or choose") as told:
            bvfim.solve(own, ROWS, prefixed, method, steps=2)
        assert "\n" not in str(told.value)
    for method in ONCE:
        assert bvfim.solve(own, ROWS, prefixed, method, steps=2, refit=False).steps == 2
    assert bvfim.solve(plain, ROWS, y, bvfim.RHG(2), steps=2, refit=False).steps == 2


def test_an_error_of_the_objective_itself_stays_what_it_is():
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y):
            return y.clone()

        @staticmethod
        def backward(ctx, g):
            raise RuntimeError("the battery is empty")

    own = bvfim.Problem(lambda x, y: (x * y).sum(), lambda x, y: Broken.apply(y - x).square().sum())
    with pytest.raises(RuntimeError, match="the battery is empty"):
        bvfim.hypergradient(own, torch.ones(2), torch.ones(2), bvfim.RHG(2))
