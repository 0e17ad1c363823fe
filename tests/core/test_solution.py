"""What every method says of its result: the gap of its lower level, F after a refit, and whether F uses the slack."""

from __future__ import annotations

import copy
import math
import re
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch

import bvfim
from bvfim import checkpoint, tree
from bvfim.app.problem_file import Stated
from bvfim.app.problem_file_report import results
from bvfim.callbacks import Checkpoint
from bvfim.core.saved import Lost, restored, spelled
from bvfim.status import Status

ZERO = torch.zeros(1, dtype=torch.float64)
PULLED = bvfim.Problem(lambda x, y: ((x - 2) ** 2 + (y - 2) ** 2).sum(), lambda x, y: ((y - x + 1) ** 2).sum())


@pytest.mark.parametrize(
    "method", [m for m in bvfim.methods.ALL if "optimistic" in m.followers], ids=lambda m: m.__name__
)
def test_every_method_prints_its_gap_and_its_refit(method):
    found = bvfim.solve(PULLED, ZERO, ZERO, method, steps=20)
    assert found.lower_gap >= 0
    assert found.upper_refit == pytest.approx(float(PULLED.upper(found.x, found.x - 1)), rel=1e-3)
    refit = f"({found.lower_gap:.2g} above a refit, where F = {found.upper_refit:.6g})"
    assert f"f = {found.lower:.6g} {refit}" in str(found)


def slack():
    """Three short lower steps from a y that F likes: f is far from its minimum, and F lower than it may be."""
    return bvfim.solve(PULLED, ZERO, ZERO + 2, bvfim.RHG(3, 1e-3, start="restart"), steps=30)


def test_a_result_that_uses_the_slack_of_the_lower_level_says_so():
    found = slack()
    assert found.uses_slack
    assert found.upper < found.upper_refit
    assert "F uses the slack of the lower level: F is" in str(found)
    solved = bvfim.solve(PULLED, ZERO, ZERO, bvfim.CG(100, 0.2), steps=20)
    assert not solved.uses_slack
    assert "slack" not in str(solved)


def test_the_table_of_compare_has_the_three():
    methods = {"short": bvfim.RHG(3, 1e-3, start="restart"), "long": bvfim.CG(100, 0.2)}
    table = bvfim.compare(PULLED, methods, ZERO, ZERO + 2, steps=30)
    assert table["uses_slack"].to_dict() == {"short": True, "long": False}
    assert table["upper_refit"]["short"] == pytest.approx(slack().upper_refit, rel=1e-6)
    assert table["lower_gap"]["short"] == pytest.approx(slack().lower_gap, rel=1e-6)


def test_the_table_of_compare_has_them_with_batches():
    noisy = bvfim.Problem(PULLED.upper, lambda x, y, e: ((y - x + e) ** 2).sum())
    table = bvfim.compare(noisy, [bvfim.StochasticBVFIM()], ZERO, ZERO, steps=600, batches=[0.9, 1.1])
    assert table[["lower_gap", "upper_refit"]].map(math.isfinite).all(axis=None)


def test_the_page_of_a_solve_has_the_three():
    stated = Stated(Path("a.py"), PULLED, ZERO, ZERO)
    found = slack()
    page = results(stated, found)
    rows = page.tables["solution"]["value"]
    assert rows["lower-level gap"] == f"{found.lower_gap:.3g}"
    assert rows["F after a refit"] == f"{found.upper_refit:.6g}"
    assert rows["F uses the slack of the lower level"] == "yes"
    assert page.summary["uses_slack"] is True


def test_a_run_that_was_not_refitted_says_so():
    found = bvfim.solve(PULLED, ZERO, ZERO, bvfim.RHG(), steps=2, refit=False)
    assert "(its gap not measured)" in str(found)
    page = results(Stated(Path("a.py"), PULLED, ZERO, ZERO), found)
    assert page.tables["solution"]["value"]["F after a refit"] == "not measured"
    assert found.status is Status.MAX_STEPS


# -- in a notebook --


def test_a_notebook_shows_what_print_says():
    found = slack()
    page = found._repr_html_()
    for said in (
        f"{found.upper:.6g}",
        f"{found.lower_gap:.3g}",
        "RHG: max_steps",
        found.status.advice,
        found.doubts[0],
    ):
        assert said.replace("'", "&#x27;").replace(">", "&gt;").replace("<", "&lt;") in page
    assert page.count("<tr>") == page.count("</tr>") > 4
    assert not re.search(r"<(?!/?(?:strong|table|tr|th|td|p)>)", page)


def test_float32_gets_a_hint_at_float64_where_the_barrier_decides():
    toy = bvfim.testproblems.sine(a=2).problem
    coarse, fine = (bvfim.solve(toy, ZERO.to(kind), ZERO.to(kind)) for kind in (torch.float32, torch.float64))
    assert "x and y are float32" in str(coarse)
    assert "float64 shows more" in coarse._repr_html_()
    assert "float" not in str(fine)
    cut = bvfim.solve(toy, ZERO.float(), ZERO.float(), steps=2)
    assert cut.status is Status.MAX_STEPS
    assert cut.advice.startswith(Status.MAX_STEPS.advice)
    assert "float64" in cut.advice


def test_the_advice_is_that_of_the_certificate_where_it_is_about_this_end():
    found = bvfim.solve(PULLED, ZERO, ZERO)
    assert found.status is Status.CONVERGED
    assert found.advice == found.certificate.advice
    assert bvfim.solve(PULLED, ZERO, ZERO, bvfim.RHG(), steps=1).advice == Status.MAX_STEPS.advice


@pytest.mark.parametrize(("method", "panels"), [(bvfim.RHG(), 3), (bvfim.AdaptiveBVFIM(), 3)])
def test_the_plot_shows_the_history(method, panels):
    from matplotlib import pyplot

    found = bvfim.solve(PULLED, ZERO, ZERO, method, steps=5)
    axes = found.plot()
    assert len(axes) == panels
    curves = {line.get_label(): line.get_ydata().tolist() for one in axes for line in one.lines}
    assert curves["f"] == found.history["lower"].tolist()
    assert curves["F"] == found.history["upper"].tolist()
    pyplot.close(axes[0].figure)


def test_the_plot_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"^Solution.plot needs matplotlib, .*: pip install 'bvfim\[app\]'$"):
        slack().plot()
    with pytest.raises(bvfim.ProblemError, match="took no step"):
        bvfim.solve(PULLED, ZERO, ZERO, bvfim.RHG(), steps=0).plot()


# -- saved, and read again --


def same(a, b):
    """Bit for bit, also where a number is none."""
    return torch.equal(a.view(torch.uint8), b.view(torch.uint8)) and a.dtype == b.dtype and a.shape == b.shape


def assert_same(found, again):
    for name in ("x", "y", "z", "multipliers"):
        one, other = getattr(found, name), getattr(again, name)
        assert tree.same_structure(one, other)
        assert all(map(same, tree.leaves(one), tree.leaves(other)))
    pd.testing.assert_frame_equal(again.history, found.history, check_exact=True)
    assert (again.status, again.method, again.steps) == (found.status, found.method, found.steps)
    assert repr(again) == repr(found)
    assert str(again) == str(found)
    assert repr(again.certificate) == repr(found.certificate)


@pytest.mark.parametrize(
    "method", [m for m in bvfim.methods.ALL if "optimistic" in m.followers], ids=lambda m: m.__name__
)
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_a_solution_comes_back_bit_for_bit(method, kind, tmp_path):
    start = {"a": [ZERO.to(kind), (ZERO.to(kind) + 1 / 3,)]}

    def both(x, y):
        return sum(((p - q + 1) ** 2).sum() for p, q in zip(tree.leaves(x), tree.leaves(y), strict=True))

    found = bvfim.solve(bvfim.Problem(both, lambda x, y: both(y, x)), start, start, method, steps=4)
    found.save(tmp_path / "deep" / "solution.safetensors")
    assert_same(found, bvfim.Solution.load(tmp_path / "deep" / "solution.safetensors"))


def test_constraints_and_a_pessimist_come_back_too(tmp_path):
    game = bvfim.Problem(
        lambda x, y: ((x - 1) ** 2 + (y - 2) ** 2).sum(), lambda x, y: -y.sum(), lower_constraints=lambda x, y: y - x
    )
    test = bvfim.testproblems.unattained()[0]
    for found in (bvfim.solve(game, ZERO, ZERO), bvfim.solve(test.problem, ZERO - 0.3, ZERO - 0.3)):
        found.save(tmp_path / "s")
        assert_same(found, bvfim.Solution.load(tmp_path / "s"))
    assert found.certificate.approach


def test_a_history_with_holes_comes_back(tmp_path):
    found = bvfim.solve(
        PULLED, ZERO, ZERO, bvfim.RHG(), steps=200, holdout=lambda x, y: float(x[0]), optimizer=torch.optim.Adam
    )
    assert found.history["holdout"].isna().any()
    found.save(tmp_path / "s")
    pd.testing.assert_frame_equal(bvfim.Solution.load(tmp_path / "s").history, found.history, check_exact=True)


def test_functions_are_named_and_not_saved(tmp_path):
    found = bvfim.solve(PULLED, ZERO, ZERO, bvfim.StochasticBVFIM(y_optimizer=torch.optim.SGD), steps=2)
    found.save(tmp_path / "s")
    again = bvfim.Solution.load(tmp_path / "s")
    assert again.method.y_optimizer == Lost("SGD")
    with pytest.raises(bvfim.MethodError, match="SGD was not saved: the file holds data, and no functions"):
        bvfim.solve(PULLED, ZERO, ZERO, again.method, steps=2)

    class Mine(bvfim.RHG):
        pass

    found = bvfim.solve(PULLED, ZERO, ZERO, Mine(), steps=2)
    found.save(tmp_path / "s")
    again = bvfim.Solution.load(tmp_path / "s")
    assert again.method == Lost("Mine")
    assert str(again) == str(found)


def test_schedules_and_dynamics_are_data():
    rates = bvfim.schedules.join((bvfim.schedules.constant(0.1), bvfim.schedules.geometric(0.1, 0.9)), (3,))
    own = bvfim.BVFIM(mu2=bvfim.LowerValue(offset=2.0), tau=rates, dynamics=bvfim.dynamics.Adaptive())
    for method in (own, bvfim.BVFIM.printed(), bvfim.RHG(dynamics=bvfim.dynamics.Adam(0.1))):
        assert restored(spelled(method)) == method


def test_a_damaged_file_is_one_sentence(tmp_path):
    path = tmp_path / "s.safetensors"
    slack().save(path)
    whole = path.read_bytes()
    for damage in (
        b"",
        b"text",
        whole[:-5],
        whole[:40],
        whole[:-1] + bytes([whole[-1] ^ 1]),
        whole.replace(b"RHG", b"RHX"),
    ):
        path.write_bytes(damage)
        with pytest.raises(bvfim.CheckpointError, match=re.escape(str(path))) as told:
            bvfim.Solution.load(path)
        assert "\n" not in str(told.value)
    with pytest.raises(bvfim.CheckpointError, match="there is no such"):
        bvfim.Solution.load(tmp_path / "none")


def test_a_file_of_something_else_is_one_sentence(tmp_path):
    path = tmp_path / "s.safetensors"
    bvfim.solve(PULLED, ZERO, ZERO, bvfim.RHG(), steps=2, callbacks=[Checkpoint(path)])
    with pytest.raises(bvfim.CheckpointError, match="this is the checkpoint of a run, not a solution"):
        bvfim.Solution.load(path)
    slack().save(path)
    with pytest.raises(bvfim.CheckpointError, match=r"the checkpoint|not a"):
        bvfim.solve(PULLED, ZERO, ZERO, bvfim.RHG(), steps=2, resume=path)
    content = checkpoint.read(path)["solution"]
    for name, value in (
        ("method", {"os.system": "ls"}),
        ("status", {"status": "merry"}),
        ("rows", 3),
        ("status", None),
    ):
        changed = copy.deepcopy(content) | {name: value}
        checkpoint.write(path, {"solution": changed})
        with pytest.raises(bvfim.CheckpointError, match="not a solution that this version can read"):
            bvfim.Solution.load(path)
    checkpoint.write(path, {"solution": content | {"more": 1}})
    with pytest.raises(bvfim.CheckpointError, match="not a solution that this version can read"):
        bvfim.Solution.load(path)
