from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch.nn import functional

import bvfim
from bvfim import tree
from bvfim.data.episodes import Episodes, Shape
from bvfim.data.fewshot import ClassImages, FewShot
from bvfim.reproduce.experiments import fewshot, fewshot_model
from bvfim.reproduce.experiments.fewshot_settings import EXTRA, METHODS, Config, method
from bvfim.reproduce.experiments.resumable import How
from bvfim.status import DataError

pytestmark = pytest.mark.long

D = torch.float64


def classes(count, each=8, side=16, seed=0, channels=1):
    """Classes that differ by a pattern, in images with noise."""
    rng = np.random.default_rng(seed)
    patterns = rng.random((count, 1, channels, side, side)) < 0.5
    noise = rng.normal(0, 0.15, (count, each, channels, side, side))
    pixels = (255 * np.clip(0.2 + 0.6 * patterns + noise, 0, 1)).astype(np.uint8).reshape(-1, channels, side, side)
    return ClassImages(pixels, np.full(count, each), tuple(f"{seed}-{k}" for k in range(count)))


SMALL = FewShot("omniglot", classes(40), classes(6, seed=1), classes(6, seed=2), "made up")


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(fewshot, "_loaded", lambda name: SMALL)
    fewshot._both.cache_clear()


def double(x):
    return tree.map(lambda t: t.to(D), x)


def draw(tasks=3, ways=3, queries=2, seed=0):
    found = next(Episodes(SMALL.train, Shape(ways, 1, queries, tasks), seed=seed))
    return found._replace(support=found.support.to(D), query=found.query.to(D))


# -- the model --


def test_each_task_is_normalised_by_itself_as_batch_norm_does():
    x, images = double(fewshot_model.network(2, width=5)), torch.rand(3, 4, 2, 18, 18, dtype=D)
    x = [{**block, "scale": block["scale"] + 0.3, "shift": block["shift"] - 0.2} for block in x]
    found = fewshot_model.features(x, images)
    for task in range(3):
        own = images[task]
        for block in x:
            own = functional.conv2d(own, block["filters"], padding=1)
            own = functional.batch_norm(own, None, None, block["scale"], block["shift"], training=True)
            own = functional.max_pool2d(functional.relu(own), 2, ceil_mode=True)
        assert own.shape[2:] == (2, 2), "of 18, 9, 5 and 3 pixels, none is lost at the border"
        means = own.mean((2, 3))
        centred = means - means.mean(1, keepdim=True)
        torch.testing.assert_close(found[task], centred / (means.var(1, correction=0, keepdim=True) + 1e-5).sqrt())


def test_with_fixed_moments_an_image_is_told_by_itself():
    x = double(fewshot_model.network(1, width=5))
    images, others = torch.rand(2, 4, 1, 16, 16, dtype=D), torch.rand(1, 30, 1, 16, 16, dtype=D)
    moments = fewshot_model.fixed_moments(x, others)
    found = fewshot_model.features(x, images, moments)
    torch.testing.assert_close(found[1, 2], fewshot_model.features(x, images[1:, 2:3], moments)[0, 0])
    torch.testing.assert_close(fewshot_model.features(x, others, moments), fewshot_model.features(x, others))
    assert not torch.allclose(found, fewshot_model.features(x, images))


def test_losses_are_means_over_images_and_sums_over_tasks():
    tasks, y = draw(), torch.randn(3, 3, 7, dtype=D, generator=torch.Generator().manual_seed(0))
    inputs = torch.rand(3, 6, 6, dtype=D)
    expected = 0.0
    for i in range(3):
        scores = inputs[i] @ y[i, :, :-1].T + y[i, :, -1]
        expected += functional.cross_entropy(scores, tasks.query_labels).item()
    assert fewshot_model.loss(y, inputs, tasks.query_labels).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("label", [*METHODS, *EXTRA])
def test_features_that_are_computed_once_give_the_same_hypergradient(label, monkeypatch):
    tasks, x = draw(), double(fewshot_model.network(1, width=4))
    y, own = fewshot_model.heads(x, 3, 3), method(label, Shape(3, 1, 2, 3), Config())
    calls = []
    features = fewshot_model.features
    monkeypatch.setattr(fewshot_model, "features", lambda *given: calls.append(1) or features(*given))
    found = {}
    for shared in (True, False):
        calls.clear()
        problem = fewshot_model.problem(shared)
        gradient, state, _ = own.estimate(problem, x, own.init(problem, x, y), 0, tasks)
        found[shared] = tree.flatten(gradient), state.y, len(calls)
    torch.testing.assert_close(found[True][0], found[False][0], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found[True][1], found[False][1], rtol=1e-9, atol=1e-12)
    assert found[True][2] == 1
    assert found[False][2] >= 7


def test_fits_that_go_on_are_those_from_the_start():
    x = fewshot_model.network(1, width=4)

    def found(fits):
        return fewshot_model.accuracies(x, Episodes(SMALL.test, Shape(3, 1, 2, 4)), 7, fits)

    both, apart = found({0.1: (2, 5)}), found({0.1: (5,)})
    assert len(both[0.1, 5]) == 8, "whole draws"
    assert torch.equal(both[0.1, 5], apart[0.1, 5])


# -- the experiment --

TINY = Config(ways=(3,), methods=("BVFIM",), steps=3, queries=2, tasks=2, width=4, episodes=20)


def test_it_learns_and_tells_how_well(small, tmp_path):
    config = Config(ways=(3,), methods=("RHG", "BVFIM"), steps=160, queries=3, tasks=4, width=8, episodes=40)
    found = fewshot.run(config, How(tmp_path / "parts"))
    table = found.tables["few-shot"]
    assert list(table.index) == [("omniglot", 3, 1, "RHG"), ("omniglot", 3, 1, "BVFIM")]
    assert (table["accuracy"] > 50).all(), "chance is 33.3"
    assert (table["each alone"] > 45).all()
    assert (table["episodes"] >= 40).all()
    assert (table["steps"] == 160).all()
    course = found.tables["course"]
    assert set(course["note"]) == {"made up"}
    own = course[course["method"] == "BVFIM"]["upper"]
    assert own.iloc[-10:].mean() < 0.85 * own.iloc[:10].mean()
    assert "BVFIM" in found.sections[0].ours
    assert "made up" in found.sections[0].text


def test_the_interval_is_that_of_the_mean(small):
    x = fewshot_model.network(1, width=4)
    found = fewshot.judged("omniglot", 3, 1, x, TINY)
    drawn = fewshot.stream("omniglot", "test", Shape(3, 1, 7, fewshot.JUDGED), TINY)
    shares = fewshot_model.accuracies(x, drawn, 20, {found["fit lr"]: (found["fit steps"],)})
    (own,) = shares.values()
    assert found["accuracy"] == pytest.approx(100 * own.mean().item())
    assert found["interval"] == pytest.approx(196 * own.std().item() / len(own) ** 0.5)


def test_lower_steps_grow_with_the_number_of_classes_that_f_is_a_mean_over():
    for label, names in (("RHG", ("lr",)), ("BDA", ("lr",)), ("BVFIM", ("z_lr", "y_lr"))):
        for ways, lr in ((5, 0.1), (20, 0.4)):
            own = method(label, Shape(ways, 1, 15, 4), Config())
            assert [getattr(own, name) for name in names] == pytest.approx([lr] * len(names))


def test_only_what_is_learned_from_is_mirrored_and_moved(small):
    given = replace(TINY, moved=True)
    assert [fewshot.symmetries("omniglot", part) for part in ("train", "validation", "test")] == [8, 4, 4]
    assert fewshot.symmetries("cifar-fs", "train") == 1
    plain, own = (fewshot.stream("omniglot", "test", Shape(3, 1, 2, 2), config) for config in (TINY, given))
    assert torch.equal(next(plain).query, next(own).query)
    plain, own = (fewshot.stream("omniglot", "train", Shape(3, 1, 2, 2), config) for config in (TINY, given))
    assert not torch.equal(next(plain).query, next(own).query)
    assert "Each training image is slightly shifted, rotated and scaled" in fewshot.run(given).sections[0].text


def test_with_a_fit_that_is_given_validation_classes_are_learned_from(small):
    given = replace(TINY, fit=(0.3, 4))
    assert fewshot.classes("omniglot", "train", given).names == SMALL.train.names + SMALL.validation.names
    assert fewshot.classes("omniglot", "train", TINY) is SMALL.train
    assert fewshot.classes("omniglot", "test", given) is SMALL.test
    found = fewshot.run(given)
    assert found.tables["few-shot"]["validation"].isna().all(), "nothing was chosen by it"
    assert found.tables["few-shot"][["fit lr", "fit steps"]].to_numpy().tolist() == [[0.3, 4]]
    assert "the validation classes are used for training, too" in found.sections[0].text
    assert "do best on validation classes" in fewshot.run(TINY).sections[0].text


def test_one_network_that_learned_from_harder_tasks_serves_all_ways(small, tmp_path, monkeypatch):
    runs, train = [], fewshot.train
    monkeypatch.setattr(fewshot, "train", lambda *given: runs.append(train(*given)) or runs[-1])
    found = fewshot.run(replace(TINY, ways=(2, 3), train_ways=5), How(tmp_path / "parts"))
    (solution,) = runs
    assert solution.y.shape == (2, 5, 5)
    table = found.tables["few-shot"]
    assert list(table.index) == [("omniglot", 2, 1, "BVFIM"), ("omniglot", 3, 1, "BVFIM")]
    assert table["accuracy"].nunique() == 2
    assert (tmp_path / "runs" / "omniglot-2-3-way-1-shot-bvfim.safetensors").exists()
    assert "Every network was trained on 5-way tasks" in found.sections[0].text
    (panel,) = found.figures["course"].axes
    assert panel.get_xlabel() == "upper step, omniglot 5-way 1-shot"
    assert len(panel.lines) == 1
    fewshot.run(replace(TINY, ways=(2, 3)))
    assert [own.y.shape[1] for own in runs[1:]] == [2, 3]


@pytest.mark.parametrize("fit", [(0.0, 4), (float("nan"), 4), (1e39, 4), (0.1, 0), (0.1, 2.5)])
def test_a_fit_that_fits_nothing_is_refused(fit):
    with pytest.raises(DataError, match="fit must be a step size between 0 and 1000 and at least 1 step"):
        Config(fit=fit)


def test_a_run_that_was_stopped_goes_on_to_the_same_end(small, tmp_path, monkeypatch):
    config = Config(ways=(3,), methods=("BVFIM",), steps=20, queries=2, tasks=2, width=4, episodes=20, every=4)
    whole = fewshot.run(config, How(tmp_path / "whole" / "parts")).tables["few-shot"]

    class Stop(fewshot.ProgressBar):
        def __call__(self, run):
            if run.k == 11:
                raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(fewshot, "ProgressBar", Stop)
        with pytest.raises(KeyboardInterrupt):
            fewshot.run(config, How(tmp_path / "two" / "parts"))
    assert (tmp_path / "two" / "runs" / "omniglot-3-way-1-shot-bvfim.safetensors").exists()
    resumed = fewshot.run(config, How(tmp_path / "two" / "parts", resume=True)).tables["few-shot"]
    same = ["accuracy", "interval", "validation", "steps", "fit lr", "fit steps"]
    pd.testing.assert_frame_equal(resumed[same], whole[same], check_exact=True)
    ends = [
        bvfim.checkpoint.read(tmp_path / f / "runs" / "omniglot-3-way-1-shot-bvfim.safetensors")
        for f in ("whole", "two")
    ]
    assert all(torch.equal(a, b) for a, b in zip(ends[0]["x"], ends[1]["x"], strict=True))


def test_runs_can_be_logged(small, tmp_path):
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    fewshot.run(Config(**{**vars(TINY), "log": True, "steps": 10}), How(tmp_path / "parts"))
    assert list((tmp_path / "runs" / "omniglot-3-way-1-shot-bvfim").glob("events.*"))


def test_mini_imagenet_in_its_folder_is_run(tmp_path, monkeypatch):
    monkeypatch.setenv("BVFIM_DATA", str(tmp_path))
    fewshot._loaded.cache_clear()
    home, rng = tmp_path / "miniimagenet", np.random.default_rng(0)
    (home / "images").mkdir(parents=True)
    for k, part in enumerate(("train", "val", "test")):
        rows = ["filename,label"]
        for label in (f"n{k}{i}" for i in range(3)):
            for j in range(3):
                rows.append(f"{label}-{j}.png,{label}")
                Image.fromarray(rng.integers(0, 255, (84, 84, 3), np.uint8)).save(home / "images" / f"{label}-{j}.png")
        (home / f"{part}.csv").write_text("\n".join(rows))
    config = Config(data=("miniimagenet",), ways=(3,), methods=("BVFIM",), steps=1, queries=1, width=2, episodes=2)
    table = fewshot.run(config).tables["few-shot"]
    fewshot._loaded.cache_clear()
    assert table["steps"].tolist() == [1]
    assert table["paper"].isna().all(), "the paper has 5 ways"


@pytest.mark.filterwarnings("ignore:.*parts of an earlier run")
def test_an_earlier_run_with_other_settings_is_not_mixed_in(small, tmp_path, monkeypatch):
    how, longer = How(tmp_path / "parts"), Config(**{**vars(TINY), "steps": 9})
    fewshot.run(longer, how)

    def stop(*given):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(fewshot, "train", stop)
        with pytest.raises(KeyboardInterrupt):
            fewshot.run(TINY, how)
    found = fewshot.run(TINY, How(tmp_path / "parts", resume=True))
    assert found.tables["few-shot"]["steps"].tolist() == [3]


def test_what_cannot_be_drawn_is_said_before_the_work(small, monkeypatch):
    monkeypatch.setattr(fewshot, "train", lambda *given: pytest.fail("it was trained"))
    with pytest.raises(DataError, match="25 ways need 25 classes, but there are only 24"):
        fewshot.run(Config(ways=(3, 25), queries=2))
    with pytest.raises(DataError, match="8 shots and 1 queries: class 0-0 has only 8 images"):
        fewshot.run(Config(ways=(3,), shots=(8,), queries=1))


def test_a_run_that_broke_off_says_so(small):
    found = fewshot.run(Config(**{**vars(TINY), "methods": ("RHG",), "lr": 1e38}))
    assert "the run failed: non_finite" in found.sections[0].ours


def test_a_command_that_is_refused_leaves_what_was_saved(small, tmp_path):
    how = How(tmp_path / "parts")
    fewshot.run(TINY, how)
    with pytest.raises(
        DataError, match="the train classes of omniglot: 400 ways need 400 classes, but there are only 320"
    ):
        fewshot.run(replace(TINY, train_ways=400), how)
    assert (tmp_path / "runs" / "omniglot-3-way-1-shot-bvfim.safetensors").exists()


def test_validation_classes_that_choose_nothing_need_not_be_enough(small, monkeypatch):
    few = FewShot("omniglot", SMALL.train, classes(1, seed=1), SMALL.test)
    monkeypatch.setattr(fewshot, "_loaded", lambda name: few)
    with pytest.raises(
        DataError, match="the validation classes of omniglot: 5 ways need 5 classes, but there are only 4"
    ):
        fewshot.shapes("omniglot", 5, 1, TINY)
    assert set(fewshot.shapes("omniglot", 5, 1, replace(TINY, fit=(0.1, 2)))) == {"train", "test"}


def test_the_parts_have_draws_of_their_own_for_any_seed(small):
    for seed in (0, 2**63 - 1):
        drawn = [
            next(fewshot.stream("omniglot", part, Shape(3, 1, 2, 2), Config(seed=seed)))
            for part in ("train", "validation", "test")
        ]
        assert len({float(tasks.support.sum()) for tasks in drawn}) == 3


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"data": ("omniglott",)}, "did you mean 'omniglot'"),
        ({"methods": ("CG",)}, "no method is called 'CG'"),
        ({"ways": (1,)}, "ways must be a whole number of at least 2"),
        ({"shots": (0,)}, "shots must be a whole number of at least 1"),
        ({"ways": ()}, "ways is empty"),
        ({"train_ways": 1}, "ways must be a whole number of at least 2"),
        ({"train_ways": 0}, "ways must be a whole number of at least 2"),
        ({"tasks": 0}, "tasks must be a whole number of at least 1"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"episodes": 0}, "episodes must be at least 1"),
        ({"width": 0}, "width must be at least 1"),
        ({"T": 0}, "T must be at least 1"),
    ],
)
def test_what_is_not_known_is_refused(given, said):
    with pytest.raises(DataError, match=said):
        Config(**given)


def test_the_page_says_whose_figures_stand_beside_ours(small):
    texts = [fewshot.run(replace(TINY, data=(name,))).sections[0].text for name in ("omniglot", "cifar-fs")]
    assert ["prototypical networks" in text for text in texts] == [False, True]
