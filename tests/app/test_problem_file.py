"""Problems stated in files are loaded and solved."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from scipy.optimize import minimize_scalar

import bvfim
from bvfim.app import problem_file
from tests.app import problem_files
from tests.app.problem_files import GOOD

EXAMPLES = Path(__file__).parents[2] / "examples"
state = problem_files.state


def test_the_default_method_solves_the_example_of_the_message(state):
    stated = state(problem_file.EXAMPLE)
    assert len(problem_file.EXAMPLE.splitlines()) == 6
    assert stated.method is None
    assert stated.steps == 500
    solution = problem_file.run(stated)
    assert isinstance(solution.method, bvfim.AdaptiveBVFIM)
    assert solution.status is bvfim.Status.CONVERGED
    assert torch.allclose(solution.x, torch.full((2,), 0.5).double(), atol=2e-3)  # y = x, and (x - 1)^2 + x^2 is least


@pytest.mark.parametrize("given", ['"rhg"', "bvfim.RHG", "bvfim.RHG()"])
def test_a_method_by_name_class_or_instance(state, given):
    stated = state(GOOD + f"method = {given}\nsteps = 3\n")
    assert stated.method == bvfim.RHG()
    solution = problem_file.run(stated)
    assert solution.steps == 3
    assert torch.equal(solution.x, bvfim.solve(stated.problem, stated.x, stated.y, bvfim.RHG(), steps=3).x)


def test_every_optional_name_is_used(state):
    stated = state(
        """
        import torch, bvfim
        x, y = {"a": torch.zeros(2).double()}, [torch.zeros(()).double()]
        def context(x, batch):
            return 2 * x["a"]
        def upper(x, y, data):
            return ((y[0] - 1) ** 2) + 0 * data.sum()
        def lower(x, y, data):
            return ((y[0] - data) ** 2).sum()
        def joint(x, y, data):
            return upper(x, y, data), lower(x, y, data)
        x_set, y_set = {"a": bvfim.Box(0, 0.1)}, [bvfim.Box(-1, 1)]
        method, steps = bvfim.RHG(lr=0.1), 25
        def optimizer(tensors):
            return torch.optim.SGD(tensors, 0.5)
        """
    )
    solution = problem_file.run(stated)
    assert solution.steps == 25
    assert torch.allclose(
        solution.x["a"], torch.full((2,), 0.1).double()
    )  # y = 2 x would be 1, were it not for the box
    assert abs(float(solution.y[0]) - 0.2) < 1e-6


def test_trees_and_an_optimizer(state):
    stated = state(
        """
        import torch, bvfim
        layer = torch.nn.Linear(2, 1).double()
        x, y = torch.zeros(3).double(), bvfim.parameters(layer)
        data, labels = torch.ones(3, 2).double(), torch.ones(3, 1).double()
        def errors(y):
            return (torch.func.functional_call(layer, y, (data,)) - labels) ** 2
        def upper(x, y):
            return errors(y).mean()
        def lower(x, y):
            return (x.sigmoid()[:, None] * errors(y)).mean()
        method, optimizer, steps = bvfim.BVFIM(), lambda tensors: torch.optim.Adam(tensors, 0.1), 4
        """
    )
    solution = problem_file.run(stated)
    assert isinstance(solution.method, bvfim.BVFIM)
    assert set(solution.y) == {"weight", "bias"}


def test_what_the_command_line_asks_for_is_put_first(state):
    stated = state(GOOD + "method = bvfim.AdaptiveBVFIM(scouts=3, seed=5)\nsteps = 9\n")
    assert stated.changed() == stated
    assert stated.changed(tol=1e-2).method == bvfim.AdaptiveBVFIM(scouts=3, seed=5, tol=1e-2)
    assert stated.changed(tol=1e-2).tol is None
    assert stated.changed(seed=7).method.seed == 7
    other = stated.changed(method="cg", tol=1e-2, steps=4, seed=1)
    assert (other.method, other.tol, other.steps) == (bvfim.CG(), 1e-2, 4)
    assert state(GOOD).changed(tol=1e-2).method == bvfim.AdaptiveBVFIM(tol=1e-2)
    with pytest.raises(bvfim.MethodError, match="did you mean 'rhg'"):
        stated.changed(method="rgh")


def test_the_file_runs_as_a_module_with_its_folder_to_import_from(state, tmp_path):
    (tmp_path / "neighbour_of_game.py").write_text("def lower(x, y):\n    return ((y - x) ** 2).sum()\n")
    (tmp_path / "late_neighbour.py").write_text("TWO = 2.0\n")
    before = list(sys.path)
    stated = state(
        """
        from __future__ import annotations
        import dataclasses, torch
        from neighbour_of_game import lower
        assert __name__ != "__main__"
        assert __file__.endswith("game.py")
        @dataclasses.dataclass
        class Weights:
            size: int = 2
        x, y = torch.zeros(Weights().size), torch.zeros(2)
        def upper(x, y):
            from late_neighbour import TWO
            return ((y - TWO) ** 2).sum()
        method, steps = "rhg", 1
        """
    )
    assert problem_file.run(stated).steps == 1
    assert sys.path == before


def test_helpers_and_annotations_do_not_get_in_the_way(state):
    kept = state(GOOD + "from bvfim import methods\npoint = 3\nrate: float = 0.1\n")  # near 'method' and 'joint'
    assert kept.lines["rate"] == 9
    nested = "\ndef helper():\n    x = y = upper = 3\n    return x\n[x for x in range(3)]\n"
    assert {name: state(GOOD + nested).lines[name] for name in ("x", "y", "upper")} == {"x": 2, "y": 2, "upper": 3}


def test_the_stackelberg_game_ends_where_backward_induction_does():
    solution = problem_file.run(problem_file.load(EXAMPLES / "stackelberg.py"))
    assert solution.status is bvfim.Status.CONVERGED
    total = 0.0
    for market, demand in enumerate([10.0, 8.0, 12.0]):

        def answer(x, demand=demand):
            return minimize_scalar(lambda y: -y * (demand - x - y - 2), bounds=(0, 8), method="bounded").x

        def loss(x, demand=demand, answer=answer):
            return -x * (demand - x - answer(x) - 1)

        best = minimize_scalar(loss, bounds=(0, 5.5), method="bounded", options={"xatol": 1e-6})
        total += best.fun
        assert abs(float(solution.x[market]) - best.x) < 1e-2
        assert abs(float(solution.y[market]) - answer(best.x)) < 1e-2
    assert abs(solution.upper - total) < 1e-3 * abs(total)
    assert float(solution.x[2]) == 5.5  # the box holds there


def test_constraints_and_a_follower_are_read(state):
    stated = state(
        """
        import torch, bvfim
        x, y = torch.zeros(1).double(), torch.zeros(1).double()
        def upper(x, y):
            return ((x - 1) ** 2 + (y - 2) ** 2).sum()
        def lower(x, y):
            return ((y - 3 * x) ** 2).sum()
        lower_constraints = lambda x, y: y - x
        lower_equalities = lambda x, y: y - x**2
        upper_constraints = lambda x, y: -x
        upper_equalities = lambda x, y: (x + y).sum() - 2
        """
    )
    assert stated.problem.stated == ("lower_constraints", "lower_equalities", "upper_constraints", "upper_equalities")
    assert stated.problem.follower == "optimistic"
    cautious = state(GOOD + "follower = 'pessimistic'\n")
    assert cautious.problem.follower == "pessimistic"


def test_a_file_with_constraints_ends_where_they_hold(state):
    solution = problem_file.run(
        state(GOOD + "def lower_constraints(x, y):\n    return y - 0.2\nupper_constraints = lambda x, y: x - 0.1\n")
    )
    assert solution.status is bvfim.Status.CONVERGED
    # y follows x up to 0.2, x up to 0.1; without either, both end at 0.5
    assert torch.allclose(solution.x, torch.full((2,), 0.1).double(), atol=2e-3)
    assert torch.allclose(solution.y, torch.full((2,), 0.1).double(), atol=2e-3)
    assert solution.violation < 1e-4
