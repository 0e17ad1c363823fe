"""What a checkpoint holds comes back as it was."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bvfim import checkpoint
from tests.checkpoint.saved import same

dtypes = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]


def round_trip(content, folder):
    path = Path(folder) / "run.safetensors"
    checkpoint.write(path, content)
    return checkpoint.read(path)


plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
keys = st.integers() | st.text(max_size=5) | st.tuples(st.integers(), st.text(max_size=2))
tensors = st.builds(
    lambda shape, dtype: (10 * torch.randn(shape)).to(getattr(torch, dtype)),
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
    st.sampled_from(dtypes),
)
nested = st.recursive(
    plain | tensors,
    lambda inner: (
        st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple) | st.dictionaries(keys, inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.dictionaries(keys, nested, max_size=4))
def test_any_nesting_comes_back_as_it_was(content):
    with tempfile.TemporaryDirectory() as folder:
        assert same(content, round_trip(content, folder))


def test_named_cases_come_back_as_they_were(tmp_path):
    base = torch.arange(12, dtype=torch.float64).reshape(3, 4)
    content = {
        0: "int key",
        "0": "string key",
        (1, "a"): "tuple key",
        "numbers": [1, -(2**70), 1.5, math.nan, math.inf, -math.inf, -0.0, 5e-324, True, False, None],
        "text": ["", 'quotes " and \\', "\N{GREEK SMALL LETTER MU}\n\0", "tensor"],
        "like the format": {"tensor": "0", "dict": [], "list": [{"tuple": ()}]},
        "empty": [{}, [], (), torch.zeros(0, 2)],
        "0-dim": torch.tensor(2.5, dtype=torch.float64),
        "not contiguous": base.T,
        "strided": base[:, ::2],
        "expanded": torch.ones(1, 3).expand(4, 3),
        "shared": (base, base, base[1]),
        "variable": torch.ones(2, requires_grad=True).detach(),
        "not a number": torch.tensor([math.nan, math.inf, -0.0]),
        "dtypes": [torch.ones(3).to(getattr(torch, d)) for d in dtypes],
    }
    assert same(content, round_trip(content, tmp_path))


def test_a_tensor_that_needs_a_gradient_comes_back_without(tmp_path):
    found = round_trip({"x": torch.ones(2, requires_grad=True), "p": torch.nn.Parameter(torch.ones(2))}, tmp_path)
    assert not found["x"].requires_grad
    assert type(found["p"]) is torch.Tensor


def test_tensors_that_shared_memory_come_back_apart(tmp_path):
    base = torch.zeros(3)
    found = round_trip({"a": base, "b": base}, tmp_path)
    found["a"][0] = 1
    assert found["b"][0] == 0


def test_the_states_of_optimisers_and_schedulers_come_back(tmp_path):
    p = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))
    optimizer = torch.optim.Adam([p], 0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    for _ in range(3):
        optimizer.zero_grad()
        p.square().sum().backward()
        optimizer.step()
        scheduler.step()
    content = {"optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
    assert same(content, round_trip(content, tmp_path))


def test_the_random_state_comes_back(tmp_path):
    torch.manual_seed(3)
    state = round_trip({"random": checkpoint.random_state()}, tmp_path)
    expected = torch.rand(4)
    torch.manual_seed(4)
    checkpoint.restore_random_state(state["random"])
    assert torch.equal(torch.rand(4), expected)
