"""Of files that state no problem, or a bad one, it is said what is wrong and where."""

from __future__ import annotations

import textwrap
from pathlib import Path

import numpy as np
import pytest

import bvfim
from bvfim.app import problem_file
from bvfim.status import BvfimError
from tests.app import problem_files
from tests.app.problem_files import GOOD, START, UPPER

state = problem_files.state


@pytest.fixture
def refused(state):
    """The message about a file that can't be loaded or run: one screen of eighty columns."""

    def message(text):
        with pytest.raises(BvfimError) as caught:
            problem_file.run(state(text))
        return fits(str(caught.value))

    return message


def fits(message):
    lines = message.splitlines()
    assert sum(1 + len(line) // 80 for line in lines) <= 23, message
    assert "Traceback" not in message
    return message


# -- files that can't be read or run --


def test_a_syntax_error_has_its_line_and_a_caret(refused):
    lines = refused(GOOD + "x_set = bvfim.Box(0, 1\ny_set = None\n").splitlines()
    assert lines[0] == "game.py:7: SyntaxError: '(' was never closed"
    assert lines[1].strip() == "x_set = bvfim.Box(0, 1"
    assert lines[1][lines[2].index("^")] == "("
    assert refused(GOOD + "if True:\nsteps = 3\n").startswith("game.py:8: IndentationError: expected an indented block")


def test_a_syntax_error_of_a_neighbour_is_where_it_is(refused, tmp_path):
    (tmp_path / "broken_neighbour.py").write_text("a = 1\nb = = 2\n")
    lines = refused("import broken_neighbour\n" + GOOD).splitlines()
    assert lines[0] == "broken_neighbour.py:2: SyntaxError: invalid syntax"
    assert lines[1].strip() == "b = = 2"


def test_an_exception_while_the_file_runs(refused, tmp_path):
    assert refused(GOOD + "steps = stpes\n") == (
        "game.py:7, in <module>: NameError: name 'stpes' is not defined\n    steps = stpes"
    )
    lines = refused(GOOD + "def helper(n):\n    return 1 / n\nsteps = helper(0)\n").splitlines()
    assert lines == ["game.py:8, in helper: ZeroDivisionError: division by zero", "    return 1 / n"]
    (tmp_path / "failing_neighbour.py").write_text("import torch\n\ntorch.zeros(2) + torch.zeros(3)\n")
    lines = refused("import failing_neighbour\n" + GOOD).splitlines()
    assert lines[0].startswith("failing_neighbour.py:3, in <module>: RuntimeError: The size of tensor a (2) must match")
    assert lines[1].strip() == "torch.zeros(2) + torch.zeros(3)"


def test_an_error_of_the_library_while_the_file_runs(refused):
    lines = refused(GOOD + "x_set = bvfim.Box(1, 0)\n").splitlines()
    assert lines[0].startswith("game.py:7, in <module>: Box: every lower bound must be at most its upper bound")
    assert lines[1] == "    x_set = bvfim.Box(1, 0)"
    assert refused(GOOD + "import sys\nsys.exit(3)\n").startswith("game.py:8, in <module>: the file called sys.exit(3)")


def test_missing_names_come_with_a_whole_file(refused):
    message = refused("import torch\nx = torch.zeros(2)\ndef uper(x, y):\n    return x.sum()\n")
    assert message.startswith("game.py does not define upper, lower and y. Is 'uper' on line 3 meant to be 'upper'?")
    assert textwrap.indent(problem_file.EXAMPLE, "    ") in message
    assert all(name in message for name in problem_file.OPTIONAL)
    assert refused("").startswith("game.py does not define upper, lower, x and y.\n")
    message = refused(GOOD.replace("def lower", "def Lower"))
    assert message.startswith("game.py does not define lower. Is 'Lower' on line 5 meant to be 'lower'?\n")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("xset = bvfim.Box(0, 1)", "game.py:7: 'xset' is ignored; did you mean 'x_set'?"),
        ("optimiser = None", "game.py:7: 'optimiser' is ignored; did you mean 'optimizer'?"),
        ("Steps = 3", "game.py:7: 'Steps' is ignored; did you mean 'steps'?"),
        ("lower_constraint = None", "game.py:7: 'lower_constraint' is ignored; did you mean 'lower_constraints'?"),
        ("batches = []", "game.py:7: 'batches' is ignored; to set batches, call bvfim.solve from Python"),
    ],
)
def test_a_misspelt_option_is_warned_of(state, line, message):
    with pytest.warns(bvfim.BvfimWarning) as caught:
        state(GOOD + line + "\n")
    assert [str(w.message) for w in caught] == [message]


def test_what_is_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("models").mkdir()
    Path("models/game.py").write_text(GOOD)
    Path("models/bytes.py").write_bytes(b"x = 1\ny = 2\nz = '\xff\xfe'\n")
    Path("models/picture.py").write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00")
    Path("models/nulls.py").write_bytes(b"x = 1\n\x00\x00")

    def message(path):
        with pytest.raises(bvfim.ProblemError) as caught:
            problem_file.load(path)
        return fits(str(caught.value))

    assert message("models") == f"models is a folder: pass a file in it, such as {Path('models/bytes.py')}"
    assert message("models/gme.py") == f"{Path('models/gme.py')}: no such file; did you mean 'game.py'?"
    assert message("nothing.py") == "nothing.py: no such file"
    assert message("models/bytes.py").startswith(f"{Path('models/bytes.py')}:3: not a Python file: it can't be decoded")
    assert message("models/picture.py").startswith(f"{Path('models/picture.py')}:1: not a Python file")
    assert message("models/nulls.py").startswith(str(Path("models/nulls.py")))
    assert "null bytes" in message("models/nulls.py")


# -- names that hold the wrong thing --


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = [0.0, 1]", "x is a list of numbers, not a tensor: write torch.tensor([0.0, 1], dtype=torch.float64)"),
        ("x = 3.5", "x contains a float, not a tensor: write torch.tensor(3.5, dtype=torch.float64)"),
        ("y = {'a': 1}", "y contains a int, not a tensor at y/a: write torch.tensor(1, dtype=torch.float64)"),
        ("y = [0.0] * 999", "y is a list of numbers, not a tensor: write torch.tensor(..., dtype=torch.float64)"),
        ("import numpy; x = numpy.zeros(2)", "x contains a ndarray, not a tensor: write torch.from_numpy(...)"),
        ("y = torch.nn.Linear(2, 2)", "y contains a Linear, not a tensor: write bvfim.parameters(...)"),
        ("x = 'zero'", "x contains a str, not a tensor"),
        ("x = None", "x holds no tensor"),
        ("x = torch.tensor([1, 2])", "x must hold floating-point tensors, not torch.int64: convert it first"),
        ("x = torch.zeros(2)", "x and y must share one dtype, but hold torch.float32 and torch.float64"),
        ("upper = 3", "upper must be a function, not a int"),
        ("lower = lambda y: y.sum()", "lower must be a function of (x, y)"),
        ("upper = lambda x, y, data: y.sum()", "upper takes (x, y, data), but there is no data"),
        ("context = 3", "context must be a function, not a int"),
        ("method = 'rgh'", "method: no method is called 'rgh'; did you mean 'rhg'?"),
        ("method = 3", "method: a method must be a bvfim.Estimator, with init and estimate, not a int"),
        ("steps = -1", "steps must be a whole number of at least 0, not -1"),
        ("method, optimizer = 'rhg', 3", "optimizer must be a function from tensors to a torch optimiser, not a int"),
        ("x_set = 3", "x_set: the set must be None, one set for all leaves, or a tree with a set"),
        ("y_set = bvfim.Box(torch.zeros(3), 1)", "y_set: a Box does not fit a leaf of shape (2,)"),
        ("upper = lambda x, y: x + y", "upper must return a scalar, but its result has shape (2,): sum or average it"),
        ("lower = lambda x, y: 3.0", "lower must return a scalar tensor, not a float"),
        ("lower = lambda x, y: (x**2).sum()", "lower does not depend on y, so every y is a lower-level solution"),
        ("joint = lambda x, y: x.sum()", "joint must return the pair (F, f)"),
        ("lower_constraints = 3", "lower_constraints must be a function, not a int"),
        ("upper_equalities = lambda y: y", "upper_equalities must be a function of (x, y)"),
        ("lower_constraints = lambda x, y: None", "lower_constraints must return a tensor, not a NoneType"),
        ("lower_constraints = lambda x, y: y.log() + 1", "lower_constraints[0] is not a finite number at the initial"),
        ("lower_constraints = lambda x, y: x - 1", "lower_constraints does not depend on y, so no y can meet it"),
        ("lower_equalities = lambda x, y: y[[0, 0]]", "lower_equalities[1] states lower_equalities[0] again"),
        ("follower = 'friendly'", "follower must be one of optimistic, pessimistic, not 'friendly'"),
    ],
)
def test_a_wrong_value_is_refused_at_its_line(refused, text, message):
    found = refused(GOOD + text + "\n")
    assert found.startswith(f"game.py:7: {message}"), found
    assert found.splitlines()[-1] == f"    {text}"


def test_a_method_that_can_not_solve_it_names_those_that_can(refused):
    found = refused(GOOD + "method = 'rhg'\nlower_constraints = lambda x, y: y - 1\n")
    assert "RHG takes sets, but no lower_constraints: these do: " in found
    found = refused(GOOD + "method = 'rhg'\nfollower = 'pessimistic'\n")
    assert "RHG does not solve for a pessimistic follower: take " in found


def test_a_method_that_takes_no_optimizer(refused):
    message = refused(GOOD + "method = 'adaptivebvfim'\noptimizer = lambda p: torch.optim.SGD(p, 0.1)\n")
    assert message.startswith("game.py:8: optimizer: AdaptiveBVFIM moves x itself and takes no optimizer; leave it out")


# -- objectives that fail --


def test_a_wrong_shape_inside_an_objective(refused):
    text = GOOD.replace("y = torch.zeros(2).double(), torch.zeros(2)", "y = torch.zeros(3).double(), torch.zeros(2)")
    assert refused(text).splitlines() == [
        "game.py:6, in lower: RuntimeError: The size of tensor a (2) must match the size of tensor b (3) at "
        "non-singleton dimension 0",
        "    return ((y - x) ** 2).sum()",
        "x has shape (3,)",
        "y has shape (2,)",
    ]


def test_an_error_late_in_the_run_and_in_a_helper(refused):
    message = refused(
        GOOD
        + textwrap.dedent(
            """\
            calls, method = [], bvfim.RHG(steps=3)
            def check(y):
                calls.append(1)
                if len(calls) > 50:
                    raise ValueError("a long story\\n" * 100)
                return y
            def upper(x, y):
                return check(y["w"]).sum()
            def lower(x, y):
                return ((y["w"] - x) ** 2).sum()
            y = {"w": y, **{f"k{i}": torch.zeros(i + 1).double() for i in range(30)}}
            """
        )
    )
    lines = message.splitlines()
    assert lines[0] == "game.py:11, in check: ValueError: a long story"
    assert lines[1:7] == ["a long story"] * 5 + ["..."]
    assert lines[7].strip().startswith("raise ValueError(")
    assert lines[8] == "x has shape (2,)"
    assert lines[9].startswith("y/k0 has shape (1,), y/k1 has shape (2,)")
    assert lines[9].endswith("and 23 more")


def test_an_error_that_no_line_of_the_file_raises(refused):
    message = refused(
        GOOD + "optimizer = lambda tensors: torch.optim.SGD(tensors, lr=0.1, momentum=0.9)\nmethod = Bad()\n"
    )
    assert message.startswith("game.py:8, in <module>: NameError: name 'Bad' is not defined")
    message = refused(
        START
        + UPPER
        + "def lower(x, y):\n    z = torch.exp(y)\n    f = ((z - x) ** 2).sum()\n    z += 1\n    return f\n"
    )
    lines = message.splitlines()
    assert lines[0].startswith("game.py: RuntimeError: one of the variables needed for gradient computation has been")
    assert lines[1] == "The error was raised outside the file: --debug shows where."
    assert lines[2:] == ["x has shape (2,)", "y has shape (2,)"]


def test_the_cause_is_kept_for_debugging(state):
    with pytest.raises(bvfim.ProblemError) as caught:
        problem_file.run(state(GOOD.replace("(y - x)", "(y - x[:, None] @ x[:, None])")))
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert caught.value.__cause__.__traceback__ is not None


# -- values that are not finite --


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "upper = lambda x, y: torch.log(x - 1).sum() + y.sum()",
            "upper is nan at the starting point x = [0, 0], y = [0, 0]",
        ),
        ("lower = lambda x, y: (y**2).sum() / x.sum()", "lower is nan at the starting point x = [0, 0], y = [0, 0]"),
        ("lower = lambda x, y: ((y + 1) ** 2).sum() / x[0]", "lower is inf at the starting point x = "),
        ("x = torch.tensor([float('nan'), 1.0]).double()", "x is not finite at the starting point x = [nan, 1]"),
    ],
)
def test_a_start_that_is_not_finite(refused, text, message):
    found = refused(GOOD + text + "\n")
    assert found.startswith(f"game.py:7: {message}"), found
    assert found.splitlines()[-1] == f"    {text}"


def test_a_start_of_many_entries_is_said_shortly(refused):
    found = refused(
        GOOD + "x = torch.linspace(-1, 1, 1000).double()\ny = x\nupper = lambda x, y: (y + x.log()).sum()\n"
    )
    assert "x = shape (1000,), norm " in found
    assert "from -1 to 1, y = shape" in found


def test_the_start_is_judged_inside_its_set(state):
    stated = state(
        GOOD + "upper = lambda x, y: (y - torch.log(x)).sum()\nx_set = bvfim.Box(0.1, 1)\nmethod = 'rhg'\nsteps = 2\n"
    )
    with pytest.warns(bvfim.BvfimWarning, match="x was outside x_set at the start"):
        solution = problem_file.run(stated)
    assert solution.steps == 2
    assert np.isfinite(solution.upper)
