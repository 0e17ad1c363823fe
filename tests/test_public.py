"""What holds for the package as a whole: documentation, imports, types."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import bvfim
import bvfim.data

ROOT = Path(bvfim.__file__).parent

ORDER = [
    "version", "status", "tree", "schedules", "sets", "problem", "validate", "batches", "dynamics", "descent", "linear",
    "unroll", "implicit", "flat", "rows", "lbfgs", "interior", "certificate", "stage", "methods", "mapped",
    "accelerate", "checkpoint", "run", "solve", "solve_mapped", "many", "hypergradient",
    "callbacks", "live", "memory", "refit",
    "check", "compare", "testproblems", "plots", "report", "page", "words", "source", "script", "script_report", "data",
    "cleaning",
    "bvfim", "experiments", "terminal", "bench", "cli_bench", "cli_clean", "cli",
]  # fmt: skip
"""Imports run down this list and never up; "bvfim" is the package itself."""


def public_names():
    for name in bvfim.__all__:
        item = getattr(bvfim, name)
        if isinstance(item, ModuleType):
            members = [(key, value) for key, value in vars(item).items() if not key.startswith("_")]
            for key, value in members:
                if getattr(value, "__module__", "") == item.__name__ and (inspect.isclass(value) or callable(value)):
                    yield f"{name}.{key}", value
        elif name != "__version__":
            yield name, item
    for name in bvfim.methods.__all__:
        if name not in ("ALL", "Info"):
            yield f"methods.{name}", getattr(bvfim.methods, name)
    for name in bvfim.data.__all__:
        yield f"data.{name}", getattr(bvfim.data, name)


INTERNAL = {"schedules.value", "schedules.require", "schedules.require_count", "sets.per_leaf", "sets.tangent"}
INTERNAL |= {"sets.check_fit", "checkpoint.check_like", "checkpoint.random_state", "checkpoint.restore_random_state"}


@pytest.mark.parametrize(("name", "item"), [pytest.param(*pair, id=pair[0]) for pair in public_names()])
def test_every_public_name_has_a_docstring_with_an_example(name, item):
    assert inspect.getdoc(item), f"{name} has no docstring"
    if name not in INTERNAL:
        assert ">>>" in inspect.getdoc(item), f"{name} has no example"


def imported(path: Path):
    """The bvfim modules that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "bvfim":
            parts = node.module.split(".")
            yield from (
                [parts[1]]
                if len(parts) > 1
                else [
                    alias.name if (ROOT / alias.name).exists() or (ROOT / f"{alias.name}.py").exists() else "bvfim"
                    for alias in node.names
                ]
            )
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "bvfim":
                    yield [*alias.name.split("."), "bvfim"][1]


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_run_down(path):
    own = path.relative_to(ROOT).parts[0].removesuffix(".py")
    if own == "__init__":
        own = "bvfim"
    for module in imported(path):
        assert ORDER.index(module) < ORDER.index(own) or module == own, f"{own} imports {module}"


def test_no_method_imports_another():
    names = {path.stem for path in (ROOT / "methods").glob("*.py")} - {"__init__", "base", "explicit"}
    assert len(names) == 8
    for name in names:
        text = (ROOT / "methods" / f"{name}.py").read_text()
        assert not any(f"methods.{other} import" in text for other in names - {name})


def test_types_are_shipped():
    assert (ROOT / "py.typed").exists()


def test_what_needs_scikit_learn_is_imported_where_it_is_asked_for():
    asked = "import sys, bvfim; print('sklearn' in sys.modules); bvfim.LabelCleaner; print('sklearn' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "True"]
