"""Several ranks take the steps that one process takes: every method, with x everywhere and by rows."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch.distributed.tensor import DTensor

import bvfim
from tests.distributed.jobs import JOBS, METHODS, mesh_of, quadratic, sharded, shares, taken
from tests.distributed.ranks import run_ranks
from tests.torchrun import torchrun

D = torch.float64
STEPS = {"StochasticBVFIM": 25, "inner steps": 15}
FEW = 5
"""Steps of the other methods."""
JUDGED = [("quadratic", "RHG", 40), ("digits", "RHG", 30), ("sharded", "RHG", 40)]
"""Runs that are long enough for a refit, with a held-out score."""
FIRST = 8
"""Steps of AdaptiveBVFIM before rounding is amplified."""


def lowered(x, y):
    """A held-out score; its sum over the ranks would be something else than its mean."""
    return bvfim.tree.dot(y, y) - 3 * bvfim.tree.flatten(y)[0]


def adaptive(rank, count, steps):
    problem, x, y, _ = quadratic(rank, count)
    return bvfim.solve(problem, x, y, bvfim.AdaptiveBVFIM(), steps=steps, mesh=mesh_of(count))


def few_rows(rank, count):
    """Batches of three rows, of which four ranks have none on the last one."""
    rows = shares(torch.linspace(0.5, 1.5, 3, dtype=D), rank, count)
    problem = bvfim.Problem(
        lambda x, y, w: (w * (y[:, None] - 1).square()).mean(), lambda x, y, w: (w * (y - x)[:, None].square()).mean()
    )
    options = {"batches": [rows], "steps": FEW, "mesh": mesh_of(count), "refit": False}
    start = torch.zeros(2, dtype=D)
    found = {}
    for name in sorted(METHODS.keys() - {"printed"}):  # in the same order on every rank
        found[name] = bvfim.solve(problem, start, start, METHODS[name], **options).x.tolist()
    return found


def everything(rank, count, brief):
    """What there is to compare; in brief without what takes four ranks on two cores long."""
    runs, judged = {}, {}
    for job, name in itertools.product(JOBS, METHODS):
        if not (brief and name == "printed" and job != "digits"):
            runs[job, name] = taken(job, METHODS[name], rank, count, STEPS.get(name, FEW), refit=False)
    for job, name, steps in JUDGED[2:] if brief else JUDGED:
        judged[job, name] = taken(job, METHODS[name], rank, count, steps, holdout=lowered)
    first = adaptive(rank, count, FIRST)
    alike = {"x": first.x.tolist(), "y": first.y.tolist(), "upper": [row["upper"] for row in first.rows]}
    return runs, judged, alike, few_rows(rank, count)


def in_the_end(rank, count):
    """What is long enough to move x far."""
    end = adaptive(rank, count, 500)
    return end.status, end.upper, end.x.tolist(), taken("digits", METHODS["StochasticBVFIM"], rank, count, 250)


def on_ranks(rank, count):
    problem, x, y, batches = sharded(rank, count)
    options = {"batches": batches, "mesh": mesh_of(count), "steps": 2}
    found = bvfim.solve(problem, x, y, METHODS["StochasticBVFIM"], **options)
    assert isinstance(found.x, DTensor)
    assert (found.x.shape, found.x.placements, found.x.device_mesh) == (x.shape, x.placements, x.device_mesh)
    assert not isinstance(found.y, DTensor)
    with pytest.raises(bvfim.MethodError) as fhg:
        bvfim.solve(problem, x, y, bvfim.FHG(), **options)
    whole = bvfim.Problem(lambda x, y: (x.sum() * y).sum(), lambda x, y: (x.sum() - y).square().sum())
    with pytest.raises(bvfim.MethodError) as adaptive_:
        bvfim.solve(whole, x, y, bvfim.AdaptiveBVFIM(), mesh=mesh_of(count))
    with pytest.raises(bvfim.ProblemError) as nowhere:
        bvfim.solve(problem, x, y, batches=batches)
    end = in_the_end(rank, count) if count == 2 else None
    return everything(rank, count, brief=count > 2), end, [str(caught.value) for caught in (fhg, adaptive_, nowhere)]


def assert_close(found, expected, within, what):
    for name in expected:
        if name == "status":
            assert found[name] == expected[name], what
        else:
            a, b = (torch.tensor(one[name], dtype=D) for one in (found, expected))
            assert torch.allclose(a, b, rtol=0, atol=within, equal_nan=True), (what, name, (a - b).abs().max())


@pytest.mark.long
@pytest.mark.parametrize("count", [2, 4])
def test_several_ranks_take_the_steps_of_one(count):
    runs, judged, first, few = everything(0, 1, brief=count > 2)
    assert all(math.isfinite(number) for one in judged.values() for number in one["upper"])
    for rank, (found, end, refused) in enumerate(run_ranks(count, on_ranks)):
        for case, expected in runs.items():
            assert_close(found[0][case], expected, 1e-10, (rank, case))
        for case, expected in judged.items():
            assert_close(found[1][case], expected, 1e-8, (rank, case))
        assert_close(found[2], first, 1e-10, (rank, "adaptive"))
        assert_close(found[3], few, 1e-10, (rank, "few rows"))
        if end is not None:
            assert_ends(end)
        assert "FHG carries derivatives forward" in refused[0]
        assert "AdaptiveBVFIM needs all of x on every rank" in refused[1]
        assert "pass their mesh to solve" in refused[2]


def assert_ends(found):
    status, upper, x, digits = in_the_end(0, 1)
    assert found[0] is status
    assert abs(found[1] - upper) < 1e-3
    assert (torch.tensor(found[2]) - torch.tensor(x)).abs().max() < 1e-3
    assert max(map(abs, digits["x"])) > 0.1
    assert_close(found[3], digits, 1e-8, "digits")


SCRIPT = """
import torch, torch.distributed as dist
from tests.distributed.jobs import METHODS, taken

torch.set_num_threads(1)
dist.init_process_group("gloo")
found = taken("digits", METHODS["RHG"], dist.get_rank(), dist.get_world_size(), 20, refit=False)
print("x =", found["x"]) if dist.get_rank() == 0 else None
dist.destroy_process_group()
"""


@pytest.mark.long
def test_torchrun_finds_what_one_process_finds(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    found = torchrun(script)
    assert found.returncode == 0, found.stderr
    (line,) = [line for line in found.stdout.splitlines() if line.startswith("x = ")]
    x = torch.tensor([float(number) for number in line.removeprefix("x = ").strip("[]").split(",")], dtype=D)
    expected = torch.tensor(taken("digits", METHODS["RHG"], 0, 1, 20, refit=False)["x"], dtype=D)
    assert (x - expected).abs().max() < 1e-10
    assert x.abs().max() > 0.01
