"""What holds for every public name: documentation, examples, types."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType

import pytest

import bvfim
import bvfim.data

ROOT = Path(bvfim.__file__).parent


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


def test_types_are_shipped():
    assert (ROOT / "py.typed").exists()


def test_the_names_for_type_checkers_are_the_names_that_are_loaded():
    block = (ROOT / "__init__.py").read_text().partition("if TYPE_CHECKING:")[2].partition("\n\n")[0]
    stated = [line.split() for line in block.strip().splitlines()]
    assert all(words[3] == words[5] for words in stated)
    found = {(words[1], words[3]) for words in stated}
    own = {("bvfim", name) for name in bvfim.MODULES}
    assert found == own | {(home, name) for home, names in bvfim.NAMES.items() for name in names}


def test_all_names_can_be_had_and_no_others():
    assert dir(bvfim) == bvfim.__all__
    assert all(getattr(bvfim, name) is not None for name in bvfim.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'solv'"):
        bvfim.solv  # noqa: B018 (asked for, not used)
