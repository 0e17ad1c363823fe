"""Imports run one way: from the products to the solver, and inside the solver from the loop to its parts."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import bvfim

ROOT = Path(bvfim.__file__).parent

SOLVER = [
    "version", "status", "core.extras", "core.arguments", "tree", "schedules", "sets",
    "core.evaluations", "core.backends", "core.draw", "distributed.mesh", "distributed.world", "core.of_rank",
    "core.noise", "core.envelopes", "core.constraints", "core.augmented", "core.evaluator", "core.problem",
    "core.check_constraints",
    "core.multipliers", "core.validate", "core.batches", "dynamics",
    "core.descent", "core.linear", "core.unroll", "core.implicit", "interior", "methods", "core.accelerate",
    "core.following", "core.one_scale", "core.curvature_step", "core.shared_adam", "core.range_test", "core.history",
    "core.single_loop",
    "distributed.twins", "distributed.module_loop", "core.mover", "checkpoint", "distributed.metadata",
    "distributed.files", "distributed.storage", "distributed.saving", "core.saved", "core.shown",
    "core.solution", "core.stepper", "core.run",
    "core.projected", "core.lower_minimum", "core.refit", "core.doubts", "callbacks", "core.solve",
    "core.batched", "core.refit_many",
    "core.solve_many",
    "core.hypergradient", "core.memory", "core.check", "core.compare", "core.compare_followers", "adviser",
    "testproblems", "core",
]  # fmt: skip
"""The solver, from the bottom up."""
PRODUCTS = ["reports", "labels", "", "data", "reproduce", "app", "__main__"]
"""What stands on it; "" is the package itself, with all public names."""
ORDER = SOLVER + PRODUCTS

FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix("__init__").rstrip("."): path
    for path in sorted(ROOT.rglob("*.py"))
}
"""Every module by its name inside of the package."""


def layer(module: str) -> int:
    """The place in the order: that of the module itself or of the nearest package around it."""
    while module not in ORDER:
        module = module.rpartition(".")[0]
    return ORDER.index(module)


def imported(path: Path):
    """The modules of the package that a file imports, wherever in it: what is imported late counts too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            first, _, inside = name.partition(".")
            if first == "bvfim":
                yield inside if inside in FILES else inside.rpartition(".")[0]


@pytest.mark.parametrize("module", FILES)
def test_imports_run_down(module):
    if module == "":
        return  # it names every public module, and loads none before it is asked for
    for other in imported(FILES[module]):
        assert layer(other) <= layer(module), f"{module} imports {other}"


def test_there_is_no_cycle():
    graph = {module: set(imported(path)) - {module} for module, path in FILES.items() if module}
    packages = {module for module, path in FILES.items() if path.name == "__init__.py"}
    for module, others in graph.items():  # a package that lists its modules is not what they stand on
        graph[module] = {other for other in others if not (other in packages and module.startswith(f"{other}."))}
    assert list(TopologicalSorter(graph).static_order())


def test_the_solver_stands_alone():
    for module, path in FILES.items():
        if layer(module) < len(SOLVER):
            assert all(layer(other) < len(SOLVER) for other in imported(path)), module


def test_no_method_imports_another():
    names = {path.stem for path in (ROOT / "methods").glob("*.py")} - {"__init__", "base", "explicit", "pessimistic"}
    assert len(names) == 17
    for name in names:
        assert not {f"methods.{other}" for other in names - {name}} & set(imported(FILES[f"methods.{name}"]))


def test_ten_files_at_most_lie_at_the_top():
    assert len(list(ROOT.glob("*.py"))) <= 10


def test_no_file_is_longer_than_350_lines():
    project = ROOT.parent
    files = [*ROOT.rglob("*.py"), *(project / "tests").rglob("*.py"), *(project / "benchmarks").rglob("*.py")]
    assert [(str(p), n) for p in files if (n := len(p.read_text().splitlines())) > 350] == []
