import dataclasses

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, TensorDataset

import bvfim
from bvfim.checkpoint import random_state, restore_random_state
from bvfim.core.batches import Batches, Draws
from bvfim.core.draw import Draw, Several
from bvfim.status import ProblemError

data = TensorDataset(torch.arange(10))


def loader(seed=None, size=3):
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    return DataLoader(data, batch_size=size, shuffle=True, generator=generator)


def take(draws, count):
    def plain(drawn):
        if isinstance(drawn, Draw):
            return [plain(drawn.upper), plain(drawn.lower)]
        return torch.cat(drawn).tolist() if isinstance(drawn, list) else drawn

    return [plain(draws.draw()) for _ in range(count)]


def resumed(make, taken, following=9):
    """What follows after ``taken`` draws, and what follows after a resume in another process there.

    As in ``solve``, the resuming side has drawn a batch before it loads, and torch's own generator is
    restored last.
    """
    torch.manual_seed(1)
    draws = Draws(make(1))
    take(draws, taken)
    state, random = draws.state_dict(), random_state()
    expected = take(draws, following)
    torch.manual_seed(2)
    again = Draws(make(2))
    again.draw()
    again.load_state_dict(state)
    restore_random_state(random)
    return expected, take(again, following)


def test_no_batches_draw_nothing():
    draws = Draws(None)
    assert draws.draw() is None
    assert draws.state_dict() == []


@pytest.mark.parametrize("source", [[1, 2, 3], (1, 2, 3), range(1, 4), torch.tensor([1, 2, 3])])
def test_a_sequence_is_cycled(source):
    assert [int(b) for b in take(Draws(source), 7)] == [1, 2, 3, 1, 2, 3, 1]


def test_any_iterable_is_cycled():
    class Numbers(IterableDataset):
        def __iter__(self):
            return iter([1, 2, 3])

    assert take(Draws(Numbers()), 7) == [1, 2, 3, 1, 2, 3, 1]


def test_a_pair_gives_each_objective_its_own_draw():
    draws = Draws(Batches(upper=[1, 2], lower=["a", "b", "c"]))
    assert take(draws, 4) == [[1, "a"], [2, "b"], [1, "c"], [2, "a"]]


@pytest.mark.parametrize("seed", [None, 0], ids=["global", "own"])
def test_a_shuffled_loader_gives_every_sample_once_an_epoch_in_new_order(seed):
    torch.manual_seed(0)
    drawn = take(Draws(loader(seed)), 8)
    first, second = ([i for batch in epoch for i in batch] for epoch in (drawn[:4], drawn[4:]))
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second


@pytest.mark.parametrize("taken", range(10))
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda seed: [1, 2, 3, 4], id="sequence"),
        pytest.param(lambda seed: loader(), id="loader-global"),
        pytest.param(lambda seed: loader(seed), id="loader-own"),
        pytest.param(lambda seed: Batches(loader(seed), loader(seed + 10, size=4)), id="pair-own"),
        pytest.param(lambda seed: Batches(loader(), loader(size=4)), id="pair-global"),
        pytest.param(lambda seed: Batches([1, 2, 3], loader(seed)), id="pair-mixed"),
    ],
)
def test_a_resumed_stream_gives_the_same_remaining_batches(make, taken):
    expected, found = resumed(make, taken)
    assert found == expected


@pytest.mark.parametrize("taken", [1, 4, 5, 6])
def test_a_resumed_pair_that_shares_a_generator_gives_the_same_remaining_batches(taken):
    def make(seed):
        g = torch.Generator().manual_seed(seed)
        return Batches(*(DataLoader(data, batch_size=n, shuffle=True, generator=g) for n in (5, 2)))

    expected, found = resumed(make, taken)
    assert found == expected


def test_a_resumed_loader_whose_sampler_has_the_generator_gives_the_same_remaining_batches():
    def make(seed):
        g = torch.Generator().manual_seed(seed)
        return DataLoader(data, batch_size=3, sampler=RandomSampler(data, generator=g))

    expected, found = resumed(make, 2)
    assert found == expected


class Counter:
    """An endless iterator with a state."""

    def __init__(self):
        self.k = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.k += 1
        return self.k

    def state_dict(self):
        return {"k": self.k}

    def load_state_dict(self, state):
        self.k = state["k"]


class StatefulLoader:
    """As torchdata's StatefulDataLoader: iterated anew each epoch, and a loaded state holds for the next iterator."""

    def __init__(self):
        self.k = self.begin = 0

    def __iter__(self):
        begin, self.begin = self.begin, 0
        for k in range(begin, 5):
            self.k = k + 1
            yield k

    def state_dict(self):
        return {"k": self.k}

    def load_state_dict(self, state):
        self.begin = self.k = state["k"]


class StatefulSequence(Counter):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return 10 * i


@pytest.mark.parametrize("taken", [0, 1, 3, 6])
@pytest.mark.parametrize("kind", [Counter, StatefulLoader, StatefulSequence])
def test_an_object_with_a_state_of_its_own_is_resumed_through_it(kind, taken):
    expected, found = resumed(lambda seed: kind(), taken)
    assert found == expected


def test_a_generator_is_refused_with_the_reason():
    for source in ((i for i in range(3)), iter([1, 2]), map(str, [1])):
        with pytest.raises(ProblemError, match=r"one-shot iterator or generator.* resume"):
            Draws(source)
    with pytest.raises(ProblemError, match="generator"):
        Draws(Batches([1], (i for i in range(3))))


@pytest.mark.parametrize("source", ["text", b"bytes", {"a": 1}, 3, 2.5, object()])
def test_what_is_not_a_collection_of_batches_is_refused(source):
    with pytest.raises(ProblemError, match=f"not a {type(source).__name__}"):
        Draws(source)


@pytest.mark.parametrize("source", [[], (), torch.zeros(0, 3), set(), DataLoader(TensorDataset(torch.zeros(0)))])
def test_nothing_to_draw_is_refused(source):
    with pytest.raises(ProblemError, match="batches is empty"):
        Draws(source).draw()


def test_a_state_beyond_the_end_of_a_shrunken_source_is_refused():
    draws = Draws(DataLoader(data, batch_size=1))
    take(draws, 8)
    shorter = Draws(DataLoader(data, batch_size=5))
    with pytest.raises(ProblemError, match="batches"):
        shorter.load_state_dict(draws.state_dict())


# -- a draw for each inner step --


def test_every_inner_step_has_a_draw_and_the_values_one_more():
    draws = Draws(Batches(upper=["a", "b"], lower=list(range(10)), every="inner"), turns=3)
    assert [draws.draw() for _ in range(3)] == [
        Draw("a", Several((0, 1, 2, 3))),
        Draw("b", Several((4, 5, 6, 7))),
        Draw("a", Several((8, 9, 0, 1))),
    ]


def test_every_is_upper_or_inner():
    with pytest.raises(ProblemError, match="every must be upper or inner, not 'step'"):
        Batches([1], [2], every="step")


def shifted(noise):
    """F = (y - 2)^2 / 2 + x^2 / 2 and f = (y - x - noise)^2 / 2 for the noise that was drawn."""
    return bvfim.Problem(
        lambda x, y, target: ((y - target) ** 2 + x**2).sum() / 2,
        lambda x, y, noise: ((y - x - noise) ** 2).sum() / 2,
    ), Draw(torch.tensor(2.0, dtype=torch.float64), Several(tuple(torch.tensor(noise, dtype=torch.float64))))


@pytest.mark.parametrize("kind", [bvfim.RHG, bvfim.FHG, bvfim.TRHG, bvfim.BDA])
def test_explicit_methods_differentiate_through_the_draw_of_each_step(kind):
    """y_{t+1} = y_t - s (y_t - x - noise_t), of BDA with alpha = 0; the derivative in x does not see the noise."""
    noise, s, T, x = [0.3, -0.7, 0.2, 100.0], 0.4, 3, torch.tensor([0.9], dtype=torch.float64)
    problem, data = shifted(noise)
    method = kind(
        steps=T, lr=s, **({"alpha": 0.0} if kind is bvfim.BDA else {}), **({"keep": T} if kind is bvfim.TRHG else {})
    )
    gradient, state, _ = method.estimate(problem, x, method.init(problem, x, 0 * x), 0, data)
    y = 0.0
    for t in range(T):
        y -= s * (y - 0.9 - noise[t])
    torch.testing.assert_close(state.y, torch.tensor([y], dtype=torch.float64))
    torch.testing.assert_close(gradient, x + (y - 2) * (1 - (1 - s) ** T))


def test_z_of_the_barrier_follows_the_draws_and_the_slack_is_measured_on_one():
    noise, s, x = [0.3, -0.7, 0.2], 0.4, torch.tensor([0.9], dtype=torch.float64)
    problem, data = shifted([*noise, 0.1])
    method = bvfim.BVFIM(z_steps=3, y_steps=2, z_lr=s, y_lr=1e-9, mu1=0.0, mu2=0.5, start="z")
    _, state, info = method.estimate(problem, x, method.init(problem, x, 0 * x), 0, data)
    z = 0.0
    for t in range(3):
        z -= s * (z - 0.9 - noise[t])
    torch.testing.assert_close(state.z, torch.tensor([z], dtype=torch.float64))
    torch.testing.assert_close(info["slack"], torch.tensor(0.5, dtype=torch.float64))  # y = z, so f(x, z) - f(x, y) = 0
    torch.testing.assert_close(info["lower"], torch.tensor((z - 0.9 - 0.1) ** 2 / 2, dtype=torch.float64))


@pytest.mark.parametrize("method", [bvfim.CG(steps=3, lr=0.5), bvfim.Neumann(steps=3, lr=0.5)])
def test_implicit_methods_descend_along_the_draws(method):
    problem, data = shifted([0.3, -0.7, 0.2, 100.0])
    x = torch.tensor([0.9], dtype=torch.float64)
    _, state, _ = method.estimate(problem, x, method.init(problem, x, 0 * x), 0, data)
    y = 0.0
    for noise in (0.3, -0.7, 0.2):
        y -= 0.5 * (y - 0.9 - noise)
    torch.testing.assert_close(state.y, torch.tensor([y], dtype=torch.float64))


BARRIER = bvfim.BVFIM(z_steps=10, y_steps=20, z_lr=0.3, y_lr=0.1, mu1=0.0, theta=0.0, mu2=0.01, tau=0.01, start="z")


def sampled(method, every, spread):
    """Noise of mean zero: y*(x) = x, so that the optimum of (y - 2)^2 + x^2 is x = 1."""
    noise = torch.randn(500, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    lower = spread * (noise - noise.mean())
    batches = Batches(upper=[torch.tensor(2.0, dtype=torch.float64)], lower=lower, every=every)
    start = torch.zeros(1, dtype=torch.float64)
    found = bvfim.solve(shifted([0.0])[0], start, start, method, steps=600, batches=batches)
    assert found.status is bvfim.Status.MAX_STEPS
    return found.x.item()


@pytest.mark.long
@pytest.mark.parametrize(("every", "spread"), [("upper", 0.3), ("inner", 0.03)])
@pytest.mark.parametrize("method", [bvfim.RHG(steps=10, lr=0.3, start="restart"), BARRIER], ids=["RHG", "BVFIM"])
def test_a_noisy_problem_with_a_known_answer(method, every, spread):
    assert abs(sampled(method, every, spread) - 1.0) < 0.1


def test_noise_of_z_beyond_mu2_loosens_the_barrier():
    """As the page on batches says: z of many draws is no minimum of the one that the slack is measured on."""
    assert sampled(BARRIER, "inner", 0.3) < 0.85


def test_a_slack_between_two_draws_would_be_lost_and_on_one_is_not():
    """With draws far apart the barrier still holds: z and y are compared on the same draw."""
    lower = [torch.tensor(v, dtype=torch.float64) for v in (-50.0, 50.0, 7.0)]
    batches = Batches(upper=[torch.tensor(2.0, dtype=torch.float64)], lower=lower, every="inner")
    start = torch.zeros(1, dtype=torch.float64)
    found = bvfim.solve(shifted([0.0])[0], start, start, bvfim.BVFIM(z_steps=5, y_steps=5), steps=60, batches=batches)
    assert found.status is bvfim.Status.MAX_STEPS
    assert (found.history["slack"] > 0).all()


def test_draws_of_the_inner_steps_are_resumed(tmp_path):
    def run(steps, **options):
        lower = torch.randn(13, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        batches = Batches(upper=[torch.tensor(2.0, dtype=torch.float64)], lower=lower, every="inner")
        start = torch.zeros(1, dtype=torch.float64)
        return bvfim.solve(shifted([0.0])[0], start, start, bvfim.RHG(steps=4), steps=steps, batches=batches, **options)

    path = tmp_path / "run.safetensors"
    run(7, callbacks=[bvfim.callbacks.Checkpoint(path)])
    assert torch.equal(run(20, resume=path).x, run(20).x)


def test_a_context_is_drawn_for_once_for_each_upper_step():
    problem = dataclasses.replace(shifted([0.0])[0], context=lambda x, draw: draw)
    start = torch.zeros(1, dtype=torch.float64)
    with pytest.raises(ProblemError, match="a context is computed once for each upper step"):
        bvfim.solve(problem, start, start, bvfim.RHG(), batches=Batches([start[0]], [start], every="inner"))


def test_shuffled_rows_come_once_an_epoch_in_a_new_order_and_go_on_where_they_were():
    stream = bvfim.Shuffled(10, 3, seed=5)
    epochs = [torch.cat([next(stream) for _ in range(3)]) for _ in range(4)]
    assert all(len(set(epoch.tolist())) == 9 for epoch in epochs)
    assert len({tuple(epoch.tolist()) for epoch in epochs}) == 4
    saved = stream.state_dict()
    following = [next(stream).tolist() for _ in range(5)]
    other = bvfim.Shuffled(10, 3, seed=5)
    other.load_state_dict(saved)
    assert [next(other).tolist() for _ in range(5)] == following
    assert sorted(next(bvfim.Shuffled(2, 100)).tolist()) == [0, 1]


@pytest.mark.parametrize("given", [{"rows": 0, "size": 1}, {"rows": 3, "size": 0}, {"rows": 3.0, "size": 1}])
def test_shuffled_needs_rows(given):
    with pytest.raises(bvfim.ProblemError, match="whole number"):
        bvfim.Shuffled(**given)


def test_blocks_are_the_same_every_epoch_in_another_order():
    stream = bvfim.Shuffled(rows=10, size=4, seed=2, blocks=True)
    epochs = [[next(stream).tolist() for _ in range(3)] for _ in range(6)]
    for epoch in epochs:
        assert sorted(epoch) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert len({str(epoch) for epoch in epochs}) > 1
    later = bvfim.Shuffled(rows=10, size=4, seed=2, blocks=True)
    later.load_state_dict({"drawn": 13})
    assert [next(later).tolist() for _ in range(2)] == epochs[4][1:]
