"""Networks that are called as modules: equal to trees of parameters, alone and sharded, on one rank and on several."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch import nn

import bvfim
from bvfim.distributed.module_loop import split
from bvfim.status import MethodError, ProblemError
from tests.distributed.jobs import D
from tests.distributed.networks import digits, network, trained
from tests.distributed.ranks import run_ranks

ADAMW = bvfim.StochasticBVFIM(y_optimizer=lambda p: torch.optim.AdamW(p, 1e-2), clip=0.5)
OTHERS = (bvfim.RHG(), bvfim.TRHG(), bvfim.FHG(), bvfim.BDA(), bvfim.CG(), bvfim.Neumann(), bvfim.BVFIM())


def least_squares(**options):
    """F = |Wv - 1|^2 and f = |Wv - x|^2 for a linear map W: at the solution x = 1."""
    torch.manual_seed(0)
    rows = torch.randn(16, 2, dtype=D)
    problem = bvfim.Problem(
        lambda x, net, batch: (net(batch) - 1).square().mean(),
        lambda x, net, batch: (net(batch) - x).square().mean(),
        **options,
    )
    return problem, torch.zeros(1, dtype=D), rows


def linear():
    return nn.Linear(2, 1, dtype=D)


def distance(a, b):
    return max(float((torch.tensor(a[k], dtype=D) - torch.tensor(b[k], dtype=D)).abs().max()) for k in a)


def test_the_optimum_is_found():
    problem, x, rows = least_squares()
    found = bvfim.solve(problem, x, bvfim.Twins(linear(), linear()), batches=[rows], steps=600)
    assert abs(found.x.item() - 1) < 1e-3
    assert found.upper < 1e-6
    assert found.status is bvfim.Status.MAX_STEPS
    assert found.evaluations["upper"] * 2 == found.evaluations["lower"]


def test_z_starts_where_y_does_and_both_are_trained_in_place():
    problem, x, rows = least_squares()
    y, z = linear(), linear()
    before = y.weight.clone()
    found = bvfim.solve(problem, x, bvfim.Twins(y, z), batches=[rows], steps=1)
    assert found.y["weight"].data_ptr() == y.weight.data_ptr()
    assert not torch.equal(y.weight, before)
    seen = []
    bvfim.solve(problem, x, bvfim.Twins(y, z), batches=[rows], steps=1, callbacks=[lambda run: seen.append(run.row)])
    assert seen[0]["gap"] == 0  # f at y and at z, before either moves


def test_micro_batches_and_activation_checkpoints_change_nothing():
    whole = trained(1, method=ADAMW)
    method = bvfim.StochasticBVFIM(y_optimizer=ADAMW.y_optimizer, clip=0.5, micro_batches=3)
    assert distance(whole, trained(1, method=method)) < 1e-12
    assert distance(whole, trained(1, method=ADAMW, networks={"checkpoints": True})) == 0


def test_dropout_is_the_same_at_y_and_at_z():
    problem, x, batches = digits(1)
    twins = bvfim.Twins(network(0, dropout=0.5), network(1, dropout=0.5))
    stepper = bvfim.Stepper(problem, x, twins, bvfim.StochasticBVFIM(), batch=bvfim.Draw(next(batches.upper), None))
    row = stepper.step(bvfim.Draw(next(batches.upper), next(batches.lower)))
    assert row["gap"] == 0


def test_clip_bounds_the_gradients():
    lengths = []

    class Seen(torch.optim.SGD):
        def step(self, closure=None):
            square = sum(float(p.grad.square().sum()) for group in self.param_groups for p in group["params"])
            lengths.append(math.sqrt(square))
            return super().step(closure)

    trained(1, method=bvfim.StochasticBVFIM(y_optimizer=lambda p: Seen(p, 1e-2), clip=1e-3), steps=3)
    assert len(lengths) == 6
    assert max(lengths) <= 1e-3 * (1 + 1e-6)


def test_a_value_that_is_not_a_number_moves_nothing():
    problem, x, rows = least_squares()
    broken = bvfim.Problem(
        problem.upper, lambda x, net, batch: problem.lower(x, net, batch) * batch.new_tensor(math.nan)
    )
    y = linear()
    before = y.weight.clone()
    found = bvfim.solve(broken, x, bvfim.Twins(y, linear()), ADAMW, batches=[rows], steps=5)
    assert found.status is bvfim.Status.NON_FINITE
    assert torch.equal(y.weight, before)
    assert torch.equal(found.x, x)


def test_attention_under_autocast_trains_without_a_word():
    torch.manual_seed(0)
    make = lambda: nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True), nn.Linear(8, 1))  # noqa: E731
    rows = torch.randn(6, 5, 8)

    def loss(net, batch, target):
        with torch.autocast("cpu", torch.bfloat16):
            return (net(batch).float().mean((1, 2)) - target).square().mean()

    problem = bvfim.Problem(lambda x, net, b: loss(net, b, 1.0), lambda x, net, b: loss(net, b, x[0]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = bvfim.solve(problem, torch.zeros(1), bvfim.Twins(make(), make()), ADAMW, batches=[rows], steps=5)
    assert found.status is bvfim.Status.MAX_STEPS


@pytest.mark.parametrize("method", OTHERS, ids=lambda m: type(m).__name__)
def test_other_methods_say_what_to_use(method):
    problem, x, rows = least_squares()
    with pytest.raises(MethodError, match=r"trained by bvfim.StochasticBVFIM\(\), which needs first derivatives only"):
        bvfim.solve(problem, x, bvfim.Twins(linear(), linear()), method, batches=[rows], steps=2)


def test_what_modules_can_not_do_is_said():
    problem, x, rows = least_squares()
    twins = bvfim.Twins(linear(), linear())
    with pytest.raises(MethodError, match="first derivatives only"):
        bvfim.solve(problem, x, twins)
    with pytest.raises(MethodError, match="pass batches="):
        bvfim.solve(problem, x, twins, bvfim.StochasticBVFIM(inner_steps=2), batches=[rows])
    with pytest.raises(MethodError, match="holdout"):
        bvfim.solve(problem, x, twins, batches=[rows], holdout=lambda x, y: 0.0)
    with pytest.raises(ProblemError, match="no context and no y_set"):
        bvfim.solve(least_squares(y_set=bvfim.Box(-1, 1))[0], x, twins, batches=[rows])
    with pytest.raises(ProblemError, match="upper must return a scalar"):
        bvfim.solve(bvfim.Problem(lambda x, net, b: net(b), problem.lower), x, twins, batches=[rows])
    with pytest.raises(MethodError, match="for networks that are given as"):
        bvfim.solve(bvfim.Problem(lambda x, y: (y**2).sum(), lambda x, y: ((y - x) ** 2).sum()), x, x, ADAMW)
    with pytest.raises(ProblemError, match="two instances"):
        bvfim.Twins(linear(), nn.Linear(3, 1))
    with pytest.raises(ProblemError, match="share parameters"):
        bvfim.Twins(one := linear(), one)
    with pytest.raises(ProblemError, match="must be a torch module"):
        bvfim.Twins(linear(), 3)


def test_without_fsdp2_one_sentence_says_so(monkeypatch):
    monkeypatch.delattr("torch.distributed.fsdp.fully_shard")
    with pytest.raises(ProblemError, match="networks are sharded by FSDP2, which torch"):
        bvfim.Twins(linear(), linear()).shard(None)


def test_a_batch_is_split_by_its_rows():
    pieces = list(split({"a": torch.arange(5), "b": torch.arange(10).reshape(5, 2), "c": 3}, 2))
    assert [piece["a"].tolist() for piece in pieces] == [[0, 1, 2], [3, 4]]
    assert [piece["b"].shape[0] for piece in pieces] == [3, 2]
    assert [piece["c"] for piece in pieces] == [3, 3]
    assert len(list(split(torch.arange(2), 7))) == 2


def on_ranks(rank, count):
    """Replicated and sharded networks, plain and with all that training uses; and what other methods say of them."""
    from bvfim.distributed.twins import own

    parts = bvfim.StochasticBVFIM(y_optimizer=ADAMW.y_optimizer, clip=0.5, micro_batches=2)
    found = [
        trained(count),
        trained(count, shard=True),
        trained(count, shard=True, method=parts, networks={"checkpoints": True}),
    ]
    problem, x, batches = digits(count)
    from tests.distributed.jobs import mesh_of

    twins = bvfim.Twins(network(0), network(1)).shard(mesh_of(count))
    said = []
    for method in OTHERS:
        for y in (twins, own(twins.y)):
            try:
                bvfim.solve(problem, x, y, method, batches=batches, steps=1, mesh=mesh_of(count))
            except bvfim.BvfimError as error:
                said.append(str(error))
    return found, said


def test_a_solution_says_that_networks_are_not_trained_again():
    problem, x, rows = least_squares()
    found = bvfim.solve(problem, x, bvfim.Twins(linear(), linear()), ADAMW, batches=[rows], steps=2)
    assert "Twins are not trained again" in found.doubts[0]
    assert math.isnan(found.lower_gap)
    plain = bvfim.solve(problem, x, bvfim.Twins(linear(), linear()), ADAMW, batches=[rows], steps=2, refit=False)
    assert plain.doubts == ()


def refused_at_the_start(rank, count):
    """Sharded networks without their mesh, and networks that begin apart."""
    from tests.distributed.jobs import mesh_of

    problem, x, batches = digits(count)
    said = []
    for twins, mesh in (
        (bvfim.Twins(network(0), network(1)).shard(mesh_of(count)), None),
        (bvfim.Twins(network(rank), network(2)), mesh_of(count)),
    ):
        with pytest.raises(ProblemError) as caught:
            bvfim.solve(problem, x, twins, batches=batches, steps=1, mesh=mesh)
        said.append(str(caught.value))
    bvfim.solve(problem, x, bvfim.Twins(network(0), network(rank)), batches=batches, steps=1, mesh=mesh_of(count))
    return said


def test_ranks_that_can_not_begin_together_say_so(monkeypatch):
    monkeypatch.setattr("tests.distributed.ranks.LIMIT", 120.0)  # without the check, ranks wait for one another
    for sharded, apart in run_ranks(2, refused_at_the_start):
        assert sharded == "these networks are sharded: pass mesh=, the mesh that they are sharded over"
        assert apart == "x and y must be the same on every rank at the start: draw them with the same seed"


@pytest.mark.long
@pytest.mark.parametrize("count", [2, 4])
def test_ranks_train_what_one_process_does(count):
    alone = [trained(1), trained(1), trained(1, method=ADAMW)]
    for found, said in run_ranks(count, on_ranks):
        for a, b in zip(found, alone, strict=True):
            assert distance(a, b) < 1e-10
        assert len(said) == 2 * len(OTHERS)
        assert all("first derivatives only" in sentence and "\n" not in sentence for sentence in said)
