"""What a solved file leaves behind."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

import bvfim
from bvfim.app import problem_file
from bvfim.app.problem_file import Stated
from bvfim.app.problem_file_report import ended, results, save_solution, settings
from bvfim.reports import page, report
from bvfim.reports.describe import short

LINES = {"upper": 3, "lower": 5}


def upper(x, y):
    return ((y["w"] - 1) ** 2).sum() + (x**2).sum() + sum((v**2).sum() for v in y["more"])


def lower(x, y):
    return ((y["w"] - x) ** 2).sum() + sum(((v - 1) ** 2).sum() for v in y["more"])


def solved(method, steps=500, **kinds):
    y = {"w": torch.zeros(2).double(), "more": [torch.zeros(3, 4).double(), torch.zeros(()).double()]}
    problem = bvfim.Problem(kinds.pop("upper", upper), lower)
    stated = Stated(
        Path("game.py"), problem, kinds.pop("x", torch.zeros(2).double()), y, method, steps=steps, lines=LINES
    )
    stated = Stated(**{**vars(stated), **kinds})
    return stated, problem_file.run(stated)


@pytest.fixture(scope="module")
def adaptive():
    return solved(bvfim.AdaptiveBVFIM())


@pytest.fixture(scope="module")
def rhg():
    return solved(bvfim.RHG(steps=20, lr=0.1), steps=40)


def test_the_table_of_the_solution_says_what_was_found(adaptive):
    _, solution = adaptive
    values = results(*adaptive).tables["solution"]["value"].to_dict()
    assert list(values)[:4] == ["method", "status", "F", "f"]
    assert values["method"] == "AdaptiveBVFIM"
    assert values["status"] == "converged"
    assert float(values["F"]) == pytest.approx(solution.upper, rel=1e-5)
    for i in range(2):
        assert float(values[f"x[{i}]"]) == pytest.approx(float(solution.x[i]), rel=1e-5)
        assert float(values[f"y/w[{i}]"]) == pytest.approx(float(solution.y["w"][i]), rel=1e-5)
    matrix = solution.y["more"][0]
    assert values["y/more/0"] == short(matrix)
    assert values["y/more/0"].startswith(f"shape (3, 4), norm {float(matrix.norm()):.6g}, from ")
    assert float(values["y/more/1"]) == pytest.approx(1, abs=1e-2)
    assert values["gradients of f"] == str(solution.evaluations["lower"])
    assert values["steps"] == str(solution.steps)
    assert not any("Hessian" in name for name in values)
    assert "products with the lower Hessian" in results(*solved(bvfim.RHG(steps=2), steps=1)).tables["solution"].index


def test_small_matrices_have_two_indices():
    _, solution = found = solved(bvfim.RHG(steps=2), x=torch.zeros(1, 2).double(), steps=1)
    values = results(*found).tables["solution"]["value"]
    assert values["x[0, 1]"] == f"{float(solution.x[0, 1]):.6g}"


def test_the_certificate_is_shown_where_there_is_one(adaptive, rhg):
    shown = results(*adaptive).tables["certificate"]["value"]
    assert shown["polished"] == adaptive[1].certificate.polished
    assert shown["agreeing"] == 1
    assert shown["status"] == "converged"
    assert "certificate" not in results(*rhg).tables
    stopped = solved(bvfim.AdaptiveBVFIM(), steps=2)
    assert results(*stopped).tables["certificate"]["value"]["status"] == "under way"
    assert ended(*stopped) == bvfim.Status.MAX_STEPS.advice


def test_the_history_is_saved_whole_and_shown_thinned(rhg, tmp_path):
    stated, solution = rhg
    found = results(stated, solution)
    written = report.save(found, settings(stated, solution), tmp_path)
    assert {path.name for path in written} >= {"history.csv", "steps.csv", "solution.csv", "summary.json"}
    read = pd.read_csv(tmp_path / "history.csv")
    pd.testing.assert_frame_equal(read, solution.history, check_dtype=False)
    thin = found.tables["steps"]
    assert len(thin) == 15
    assert list(thin.index[[0, -1]]) == [0, 39]
    assert set(np.diff(thin.index)) <= {2, 3}
    assert thin.loc[39, "upper"] == solution.history["upper"].iloc[-1]
    about = json.loads((tmp_path / "summary.json").read_text())
    assert about["summary"]["F"] == solution.upper
    assert about["config"] == {
        "file": "game.py",
        "method": "RHG(steps=20, lr=0.1, dynamics=None, start='warm', segment=1)",
        "steps": 40,
        "tol": None,
        "seed": None,
    }


def lines_of(figure):
    """What each panel draws: its label, and its values."""
    return [{line.get_label(): np.asarray(line.get_ydata()) for line in axes.lines} for axes in figure.axes]


def test_the_figures_draw_the_history(adaptive, rhg):
    history, figures = adaptive[1].history, results(*adaptive).figures
    assert list(figures) == ["objectives", "barrier"]
    of_F, of_f = lines_of(figures["objectives"])
    np.testing.assert_array_equal(of_F["F"], history["upper"])
    np.testing.assert_array_equal(of_F["F, y polished"], history["polished"])
    np.testing.assert_array_equal(of_f["f"], history["lower"])
    (barrier,) = lines_of(figures["barrier"])
    np.testing.assert_array_equal(barrier["mu2"], history["mu2"])
    np.testing.assert_array_equal(barrier["gap"], history["gap"].where(history["gap"] > 0))
    assert figures["barrier"].axes[0].get_yscale() == "log"

    history, figures = rhg[1].history, results(*rhg).figures
    assert list(figures) == ["objectives", "gradient"]
    assert [list(panel) for panel in lines_of(figures["objectives"])] == [["F"], ["f"]]
    (gradient,) = lines_of(figures["gradient"])
    np.testing.assert_array_equal(gradient["grad_norm"], history["grad_norm"])
    barrier = results(*solved(bvfim.BVFIM(z_steps=2, y_steps=2), steps=3)).figures["gradient"]
    assert [list(panel) for panel in lines_of(barrier)] == [["grad_norm"], ["slack"]]


def test_the_page_has_every_section_and_no_long_table(adaptive, rhg, tmp_path):
    for stated, solution in (adaptive, rhg):
        chapter = page.Chapter("game", settings(stated, solution), results(stated, solution))
        text = page.write(tmp_path / "index.html", "game.py, solved", str(solution), [chapter]).read_text()
        assert (">Certificate</h2>" in text) == (solution.certificate is not None)
        assert ">Course</h2>" in text
        assert "y/more/0" in text
        assert ended(stated, solution) in text
        assert text.count("<tr") < 60
        assert text.count('<img class="light"') == 2


def test_no_step_at_all_is_a_report_too(tmp_path):
    found = solved(bvfim.RHG(), steps=0)
    made = results(*found)
    assert list(made.tables) == ["solution"]
    assert not made.figures
    page.write(tmp_path / "index.html", "game", "", [page.Chapter("game", settings(*found), made)])
    assert "All steps were taken" in (tmp_path / "index.html").read_text()


def test_a_value_that_is_lost_on_the_way_is_named_with_its_step(tmp_path):
    def leaves_its_domain(x, y):
        return upper(x, y) + torch.log(0.05 - x).sum()

    found = stated, solution = solved(
        bvfim.RHG(steps=2), upper=leaves_its_domain, optimizer=lambda p: torch.optim.SGD(p, 0.001)
    )
    assert solution.status is bvfim.Status.NON_FINITE
    assert solution.steps == 2  # 0.02, then past 0.05
    text = ended(stated, solution)
    assert text.startswith("Step 2 ended with upper = nan. ")
    assert f"The best point before it was x = {short(solution.x)}, y/" in text
    assert text.endswith(bvfim.Status.NON_FINITE.advice)
    made = results(*found)
    assert made.summary["status"] == "non_finite"
    assert made.summary["advice"] == text
    assert made.sections[0].ours == text
    report.save(made, settings(*found), tmp_path)  # NaN in figures and tables is no obstacle
    assert pd.read_csv(tmp_path / "history.csv")["upper"].isna().iloc[-1]
    assert json.loads((tmp_path / "summary.json").read_text(), parse_constant=pytest.fail)["summary"]["F"] != "nan"


def test_a_step_that_overflows_keeps_the_point_before_it():
    stated, solution = solved(bvfim.RHG(steps=2), optimizer=lambda p: torch.optim.SGD(p, 1e308 * 1e4))
    assert solution.status is bvfim.Status.NON_FINITE
    text = ended(stated, solution)
    assert text.startswith("Step 0 ended with x_norm = ")
    assert "The best point before it was x = [0, 0], y/more/0 = shape (3, 4), norm " in text


def test_a_gradient_that_is_not_finite_is_blamed_on_its_objective():
    stated, solution = solved(bvfim.RHG(steps=2), upper=lambda x, y: upper(x, y) + (x**2).sum().sqrt())
    text = ended(stated, solution)
    assert text.startswith("Step 0 ended with grad_norm = nan")
    assert "The gradient of upper (game.py:3) is not finite at x = [0, 0], y/more/0 = shape (3, 4)" in text


def test_the_solution_is_read_back_as_it_was(adaptive, tmp_path):
    _, solution = adaptive
    path = save_solution(solution, tmp_path / "new" / "solution.safetensors")
    read = load_file(path)
    assert set(read) == {"x", "y/w", "y/more/0", "y/more/1"}
    assert torch.equal(read["x"], solution.x)
    assert torch.equal(read["y/w"], solution.y["w"])
    assert torch.equal(read["y/more/0"], solution.y["more"][0])
    assert torch.equal(read["y/more/1"], solution.y["more"][1])
    assert read["x"].dtype is torch.float64


def test_no_leaf_takes_the_place_of_another(tmp_path):
    x = {"a/b": torch.tensor([1.0]), "a": {"b": torch.tensor([2.0])}}
    problem = bvfim.Problem(lambda x, y: (y + x["a/b"] * x["a"]["b"]).sum(), lambda x, y: ((y - x["a/b"]) ** 2).sum())
    solution = bvfim.solve(problem, x, torch.zeros(2, 2).t(), bvfim.RHG(steps=1), steps=0)
    read = load_file(save_solution(solution, tmp_path / "s.safetensors"))
    assert sorted(float(read[name]) for name in ("x/a/b", "x/a/b'")) == [1.0, 2.0]
    assert torch.equal(read["y"], torch.zeros(2, 2))


def against(x, y):
    """x >= 2 in both entries, at most 1 in the second."""
    return torch.cat([2 - x, x[1:] - 1])


def test_constraints_are_reported():
    stated, solution = solved(bvfim.AdaptiveBVFIM())
    problem = bvfim.Problem(upper, lower, lower_constraints=lambda x, y: y["w"] - 0.2, upper_constraints=lambda x, y: x)
    stated = Stated(Path("game.py"), problem, stated.x, stated.y, bvfim.AdaptiveBVFIM(), lines=LINES)
    solution = problem_file.run(stated)
    values = results(stated, solution).tables["solution"]["value"]
    assert float(values["largest violation"]) <= 1e-4
    for kind in ("lower_constraints", "upper_constraints"):
        for i in range(2):
            shown = float(values[f"multiplier of {kind}[{i}]"])
            assert shown == pytest.approx(float(solution.multipliers[kind][i]), rel=1e-5)
    # At x = 0 and y = x, F = (y - 1)^2 + x^2 would fall by 2 for each unit of x.
    assert float(values["multiplier of upper_constraints[0]"]) == pytest.approx(2, abs=0.05)
    assert "violation" in results(stated, solution).tables["certificate"].index
    assert not any("multiplier" in name for name in results(*solved(bvfim.RHG(), steps=1)).tables["solution"].index)


def test_a_conflict_is_reported(tmp_path):
    stated, _ = solved(bvfim.RHG(), steps=1)
    problem = bvfim.Problem(upper, lower, upper_constraints=against)
    stated = Stated(Path("game.py"), problem, stated.x, stated.y, bvfim.AdaptiveBVFIM(), lines=LINES)
    solution = problem_file.run(stated)
    assert solution.status is bvfim.Status.INFEASIBLE
    text = ended(stated, solution)
    assert "upper_constraints[1], upper_constraints[2]" in text
    made = results(stated, solution)
    assert made.summary["advice"] == text
    report.save(made, settings(stated, solution), tmp_path)
    assert "upper_constraints[2]" in (tmp_path / "certificate.csv").read_text()


def test_a_pessimistic_follower_is_reported(tmp_path):
    road = bvfim.Problem(
        lambda x, y: -(x * y).sum(), lambda x, y: ((x - 4) * y).sum(), bvfim.Box(0, 8), bvfim.Box(0, 1),
        follower="pessimistic",
    )  # fmt: skip
    start = torch.ones(1, dtype=torch.float64)
    stated = Stated(Path("road.py"), road, start, 0.5 * start, bvfim.AdaptiveBVFIM())
    solution = problem_file.run(stated)
    assert ended(stated, solution) == bvfim.Status.NOT_ATTAINED.advice
    report.save(results(stated, solution), settings(stated, solution), tmp_path)
    assert "edge" in pd.read_csv(tmp_path / "certificate.csv")["what was shown"].to_list()
