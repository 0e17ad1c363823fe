"""Probes in many dimensions: hollows along the axes, and what is said of the search."""

from __future__ import annotations

from unittest.mock import patch

import pytest
import torch

import bvfim
from bvfim.interior import tolerances as tol
from bvfim.interior.batch import Batch
from bvfim.interior.lower import Interior
from bvfim.interior.probing import axes, moved_along_axes, probe, searched
from bvfim.interior.space import Space
from bvfim.interior.starts import Known

D = torch.float64


def tilts(n, seed=0):
    return 0.3 * torch.randn(n, generator=torch.Generator().manual_seed(seed), dtype=D)


def wells(tilt):
    """n double wells, each of them lower on the other side of its tilt."""
    return bvfim.Problem(
        lambda x, y: ((x - 1) ** 2).sum() + ((y - 1) ** 2).mean(),
        lambda x, y: ((y**2 - 1) ** 2 + (tilt + 0.02 * x) * y).sum(),
    )


def interior(problem, n, scouts=15):
    x, y = torch.zeros(1, dtype=D), torch.zeros(n, dtype=D)
    spaces = Space(x, [None]), Space(y, [None])
    batch = Batch(problem, *spaces, torch.zeros(1, 3, dtype=torch.long))
    return Interior(batch, Space([x, y], [None, None]), scouts, seed=0, stage=0)


def test_every_entry_in_the_wrong_well_is_moved_at_once_and_the_best_alone():
    tilt = tilts(50)
    own = interior(wells(tilt), 50)
    at = own.batch.at(torch.zeros(1, 1, dtype=D), torch.zeros(1, dtype=torch.long))
    z, f_z, _ = own.descend(at, torch.ones(1, 50, dtype=D), torch.tensor([1e-9], dtype=D))
    together, alone = moved_along_axes(own, at, Known(z, f_z, f_z, f_z))[0]
    clear = tilt.abs() > 0.05
    assert torch.equal(together.sign()[clear], -tilt.sign()[clear])
    assert (alone != z[0]).sum() == 1
    end, f, _ = own.descend(at, together[None], torch.tensor([1e-9], dtype=D))
    assert f < f_z
    assert torch.equal(end[0].sign()[clear], -tilt.sign()[clear])


def test_from_the_lowest_well_only_wells_that_are_nearly_as_low_are_tried():
    tilt = tilts(20)
    own = interior(wells(tilt), 20)
    at = own.batch.at(torch.zeros(1, 1, dtype=D), torch.zeros(1, dtype=torch.long))
    z, f_z, _ = own.descend(at, -tilt.sign()[None], torch.tensor([1e-12], dtype=D))
    together, _ = moved_along_axes(own, at, Known(z, f_z, f_z, f_z))[0]
    assert tilt[together.sign() != z[0].sign()].abs().max() < 0.05


@pytest.mark.parametrize(("n", "count"), [(3, 3), (200, 200), (5000, 62), (1_000_000, 1)])
def test_there_are_as_many_axes_as_there_is_room_for(n, count):
    found = axes(interior(wells(torch.zeros(1)), 3), torch.zeros(1, dtype=torch.long), n)
    assert found.shape == (1, count)
    assert count * n * tol.ALONG <= max(tol.ROOM, n * tol.ALONG)
    assert found.unique().numel() == count


def test_the_search_is_told():
    problem = wells(torch.zeros(1))
    assert searched(interior(problem, 1)) == "a grid of 1024 values and 8 descents"
    assert searched(interior(problem, 2)) == "a grid of 1024 values and 8 descents"
    assert searched(interior(problem, 3)) == "32 values along 3 of 3 axes and 7 descents"
    assert searched(interior(problem, 3, scouts=0)) == ""


def probed(problem, z, tolerance):
    own = interior(problem, z.shape[1])
    at = own.batch.at(torch.zeros(1, 1, dtype=D), torch.zeros(1, dtype=torch.long))
    f = at.lower(z)
    return probe(own, at, Known(z, f, f, f), torch.tensor([tolerance], dtype=D)), own.batch.counts[0, 1].item()


@pytest.mark.parametrize("span", [5, 6])
def test_descents_that_come_to_rest_in_a_flat_convex_valley_are_no_minima(span):
    curvatures = torch.logspace(0, -span, 10, dtype=D)
    problem = bvfim.Problem(lambda x, y: (y**2).sum(), lambda x, y: (curvatures * (y - x) ** 2).sum())
    z = torch.zeros(1, 10, dtype=D)
    found, _ = probed(problem, z, 1e-4)
    assert not found.modes
    with patch.object(tol, "DOWNHILL", float("inf")):  # some of them do rest above the tolerance
        assert probed(problem, z, 1e-4)[0].modes


@pytest.mark.parametrize("tolerance", [1e-1, 1e-3])
def test_wells_of_other_depths_are_minima_and_cost_no_more(tolerance):
    tilt = tilts(5)
    found, gradients = probed(wells(tilt), -tilt.sign()[None], tolerance)
    assert found.modes
    with patch.object(tol, "DOWNHILL", float("inf")):
        assert probed(wells(tilt), -tilt.sign()[None], tolerance)[1] == gradients


def test_a_minimum_at_the_edge_of_a_box_leads_nowhere():
    problem = bvfim.Problem(
        lambda x, y: (y**2).sum(), lambda x, y: (y - y**2).sum() - x.sum(), y_set=bvfim.Box(-1.0, 1.5)
    )
    found = bvfim.solve(problem, torch.zeros(1, dtype=D), torch.zeros(1, dtype=D), bvfim.AdaptiveBVFIM(), steps=60)
    assert found.certificate.multimodal


@pytest.mark.long
def test_a_convex_lower_level_with_an_equality_has_one_minimum_from_any_start():
    """Its penalty makes f badly conditioned."""
    free, jam = torch.tensor([4.0, 6.0, 8.0]), torch.tensor([0.5, 0.25, 0.1])
    problem = bvfim.Problem(
        lambda x, y: -(x * y[:2]).sum(), lambda x, y: ((free + jam * y) * y).sum() + (x * y[:2]).sum(),
        x_set=bvfim.Box(0.0, 6.0), y_set=bvfim.Box(0.0, 10.0), lower_equalities=lambda x, y: y.sum() - 10,
    )  # fmt: skip
    found = bvfim.solve(
        problem, torch.ones(2, dtype=D), torch.full((3,), 10 / 3, dtype=D), bvfim.AdaptiveBVFIM(starts=4), refit=False
    )
    assert not found.certificate.multimodal


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_twenty_wells_are_never_wrong_without_a_word(seed):
    tilt = tilts(20, seed)
    y = torch.randn(20, generator=torch.Generator().manual_seed(seed), dtype=D)
    found = bvfim.solve(wells(tilt), torch.zeros(1, dtype=D), y, bvfim.AdaptiveBVFIM(seed=seed), refit=False)
    grid = torch.linspace(-2, 2, 4001, dtype=D)
    lowest = ((grid**2 - 1) ** 2 + (tilt + 0.02 * found.x)[:, None] * grid).amin(1).sum()
    assert found.status in (bvfim.Status.CONVERGED, bvfim.Status.STUCK)
    assert found.lower - lowest <= found.certificate.gap_allowed
