from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import bvfim
from bvfim.data.episodes import SHIFT, STRETCH, TURN, Episodes, Shape, moved_by
from bvfim.data.fewshot import ClassImages
from bvfim.status import DataError


def numbered(counts, side=2):
    """Images whose first two pixels tell their class and their number in it; the others are empty."""
    pixels = np.zeros((sum(counts), 1, side, side), np.uint8)
    pixels[:, 0, 0, 0] = np.repeat(np.arange(len(counts)), counts)
    pixels[:, 0, 0, 1] = np.concatenate([np.arange(count) for count in counts])
    return ClassImages(pixels, np.array(counts, np.int64), tuple(f"class {k}" for k in range(len(counts))))


def told(images):
    """The class and the number of each image of each task."""
    return (255 * images[:, :, 0, 0, :]).round().long()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    counts=st.lists(st.integers(4, 9), min_size=2, max_size=8),
    shots=st.integers(1, 2),
    queries=st.integers(1, 2),
    tasks=st.integers(1, 5),
    seed=st.integers(0, 2**40),
    data=st.data(),
)
def test_classes_and_images_of_a_task_are_all_different(counts, shots, queries, tasks, seed, data):
    ways = data.draw(st.integers(2, len(counts)))
    stream = Episodes(numbered(counts), Shape(ways, shots, queries, tasks), seed=seed)
    for _ in range(3):
        drawn = next(stream)
        support, query = told(drawn.support), told(drawn.query)
        assert support.shape == (tasks, ways * shots, 2)
        assert query.shape == (tasks, ways * queries, 2)
        for task in range(tasks):
            kinds = [int(k) for k in support[task, ::shots, 0]]
            assert len(set(kinds)) == ways
            for images, labels in ((support, drawn.support_labels), (query, drawn.query_labels)):
                assert [kinds[label] for label in labels] == images[task, :, 0].tolist()
            both = {tuple(pair) for pair in torch.cat([support[task], query[task]]).tolist()}
            assert len(both) == ways * (shots + queries)
            assert all(number < counts[kind] for kind, number in both)


def test_every_class_and_image_comes_up_equally_often():
    stream = Episodes(numbered([4, 8, 4]), Shape(2, 1, 1, 2000))
    drawn = told(next(stream).support).flatten(0, 1)
    share = torch.bincount(drawn[:, 0], minlength=3) / len(drawn)
    assert torch.allclose(share, torch.full((3,), 1 / 3), atol=0.03)
    own = drawn[drawn[:, 0] == 1][:, 1]
    assert torch.allclose(torch.bincount(own, minlength=8) / len(own), torch.full((8,), 1 / 8), atol=0.03)


def test_a_turned_class_is_another_class():
    images = numbered([3, 3, 3], side=4)
    images.pixels[:, 0, 0, 3] = 200  # a corner that tells the turn
    stream = Episodes(images, Shape(12, 1, 1, 50), symmetries=4, seed=3)
    drawn = next(stream)
    corners = torch.stack([drawn.support[:, :, 0, i, j] for i, j in ((0, 3), (0, 0), (3, 0), (3, 3))], -1)
    turns = corners.argmax(-1)  # 90 degrees at a time, against the clock
    for task in range(50):
        kinds = {
            (int(turn), int((255 * torch.rot90(image[0], -int(turn)))[0, 0].round()))
            for turn, image in zip(turns[task], drawn.support[task], strict=True)
        }
        assert len(kinds) == 12
        again = torch.rot90(drawn.query[task, 0, 0], -int(turns[task, 0]))
        assert again[0, 3] == 200 / 255, "the images of a class are turned alike"


def test_a_mirrored_class_is_another_class():
    pixels = np.arange(16, dtype=np.uint8).reshape(1, 1, 4, 4).repeat(2, 0)
    drawn = next(Episodes(ClassImages(pixels, np.array([2]), ("one",)), Shape(8, 1, 1, 1), symmetries=8))
    seen = {tuple((255 * image).round().int().flatten().tolist()) for image in drawn.support[0]}
    square = pixels[0, 0]
    expected = {tuple(np.rot90(own, k).ravel().tolist()) for own in (square, square[:, ::-1]) for k in range(4)}
    assert seen == expected
    assert torch.equal(drawn.support, drawn.query), "the images of a class are mirrored alike"


def test_a_number_of_symmetries_that_a_square_has_not_is_refused():
    with pytest.raises(DataError, match="symmetries must be one of"):
        Episodes(numbered([5, 5]), Shape(2, 1, 1, 1), symmetries=2)


@pytest.mark.parametrize(("which", "by"), [(2, SHIFT), (3, SHIFT)])
def test_an_image_is_moved_by_a_share_of_its_side(which, by):
    image, amounts = torch.zeros(1, 1, 100, 100), torch.full((4, 1), 0.5)
    image[..., 50, 50], amounts[which] = 1.0, 1.0
    place = moved_by(image, amounts)[0, 0].argmax().item()
    row, column = divmod(place, 100)
    assert (50 - column, 50 - row)[which - 2] == round(100 * by)
    assert (50 - column, 50 - row)[3 - which] == 0


def test_an_image_is_turned_and_stretched_about_its_centre():
    side = torch.linspace(-1, 1, 41)
    dot = torch.exp(-(((side[:, None] - 0.5) ** 2 + side**2) / 0.005))[None, None]  # below the centre

    def centre(amounts):
        found = moved_by(dot, torch.tensor(amounts)[:, None])[0, 0]
        return (found * side).sum() / found.sum(), (found * side[:, None]).sum() / found.sum()

    across, down = centre([1.0, 0.5, 0.5, 0.5])
    assert abs(across / down) == pytest.approx(np.tan(TURN), rel=0.05)
    assert centre([0.5, 1.0, 0.5, 0.5])[1] == pytest.approx(0.5 * np.exp(-STRETCH), rel=0.02)


def test_moved_images_are_all_different_and_of_the_same_draw():
    blob = np.zeros((20, 20), np.uint8)
    blob[6:14, 6:14] = 1
    pixels = (np.repeat([60, 120, 180, 240], 9)[:, None, None, None] * blob).astype(np.uint8)  # told by brightness
    images = ClassImages(pixels, np.full(4, 9), tuple("abcd"))
    plain, own = (next(Episodes(images, Shape(3, 1, 2, 2), moved=moving)) for moving in (False, True))
    torch.testing.assert_close(own.query.amax((2, 3, 4)), plain.query.amax((2, 3, 4)), rtol=0, atol=1e-3)
    flat = own.query.flatten(2)
    assert all(not torch.equal(task[2 * way], task[2 * way + 1]) for task in flat for way in range(3))


@pytest.mark.parametrize("moving", [False, True])
def test_a_stream_goes_on_where_it_stood(moving):
    def stream(seed):
        return Episodes(numbered([5] * 4), Shape(3, 1, 2, 4), moved=moving, seed=seed)

    first = stream(1)
    next(first)
    state = first.state_dict()
    expected = [next(first) for _ in range(3)]
    other = stream(2)
    other.load_state_dict(state)
    for want, found in zip(expected, (next(other) for _ in range(3)), strict=True):
        assert torch.equal(want.support, found.support)
        assert torch.equal(want.query, found.query)
    assert not torch.equal(next(stream(1)).support, next(stream(2)).support)


def test_a_run_draws_from_it_and_resumes(tmp_path):
    problem = bvfim.Problem(
        lambda x, y, tasks: ((y - tasks.query.mean()) ** 2).sum(), lambda x, y, tasks: ((y - x) ** 2).sum()
    )

    def run(steps, **options):
        stream, start = Episodes(numbered([9] * 5), Shape(2, 1, 1, 1)), torch.zeros(1)
        return bvfim.solve(problem, start, start, bvfim.RHG(steps=2), steps=steps, batches=stream, **options)

    path = tmp_path / "run.safetensors"
    run(5, callbacks=[bvfim.callbacks.Checkpoint(path)])
    assert torch.equal(run(12, resume=path).x, run(12).x)


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ({"ways": 4}, "4 ways need 4 classes, but there are only 3"),
        ({"ways": 2, "queries": 5}, "1 shots and 5 queries: class class 1 has only 3 images"),
    ],
)
def test_too_few_classes_or_images_are_refused(shape, said):
    with pytest.raises(DataError, match=said):
        Episodes(numbered([5, 3, 6]), Shape(**shape))


@pytest.mark.parametrize("shape", [{"ways": 1}, {"shots": 0}, {"queries": 0}, {"tasks": 0}, {"ways": 2.5}])
def test_sizes_are_whole_numbers_that_make_a_task(shape):
    (name, number), *_ = shape.items()
    with pytest.raises(DataError, match=f"{name} must be a whole number of at least .*, not {number}"):
        Shape(**shape)
