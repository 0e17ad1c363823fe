import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, TensorDataset

from bvfim.batches import Batches, Draws
from bvfim.checkpoint import random_state, restore_random_state
from bvfim.problem import Draw
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
