"""The published files, where the environment has them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from bvfim.data import files, load

pytestmark = pytest.mark.long

TRAIN_COUNTS = {"mnist": [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949], "fashion-mnist": [6000] * 10}
MOMENTS = {"mnist": (0.1307, 0.3081), "fashion-mnist": (0.2860, 0.3530)}


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_the_published_files(name: str, real: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    real(name)
    monkeypatch.setattr(files, "_download", lambda url: pytest.fail(f"a test must not download {url}"))
    data = load(name)
    assert (len(data.train), len(data.test)) == (60_000, 10_000)
    assert data.train.inputs.shape == (60_000, 784)
    assert data.train.shape == data.test.shape == (28, 28)
    assert (data.train.inputs.min(), data.train.inputs.max()) == (0, 1)
    np.testing.assert_array_equal(np.bincount(data.train.labels), TRAIN_COUNTS[name])
    moments = data.train.inputs.mean(dtype=np.float64), data.train.inputs.std(dtype=np.float64)
    np.testing.assert_allclose(moments, MOMENTS[name], atol=5e-5)
