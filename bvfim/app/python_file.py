"""A user's Python file: read, run, and where in it an error comes from."""

from __future__ import annotations

import ast
import importlib.util
import linecache
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from bvfim.status import BvfimError, ProblemError

MODULE = "bvfim_file"
"""What the file's ``__name__`` is: not ``__main__``, so that a loop of its own does not start."""
LARGEST = 16 << 20
"""The size of a file in bytes beyond which it is not read."""
LINES, WIDTH = 6, 160
"""How much of a long message is shown."""


def read(file: Path) -> str:
    """The text of a Python file, or a sentence about why there is none.

    Example:
        >>> from pathlib import Path
        >>> from bvfim.app.python_file import read
        >>> read(Path("no-such-file.py"))
        Traceback (most recent call last):
        bvfim.status.ProblemError: no-such-file.py: no such file
    """
    if file.is_dir():
        inside = sorted(file.glob("*.py"))
        raise ProblemError(f"{file} is a folder: pass a file in it" + (f", such as {inside[0]}" if inside else ""))
    if not file.exists():
        near = get_close_matches(file.name, [p.name for p in file.parent.glob("*.py")], n=1)
        raise ProblemError(f"{file}: no such file" + (f"; did you mean {near[0]!r}?" if near else ""))
    if not file.is_file():
        raise ProblemError(f"{file}: not a regular file")
    if file.stat().st_size > LARGEST:
        raise ProblemError(f"{file}: larger than {LARGEST >> 20} MiB, which no problem file is")
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ProblemError(f"{file}: can't read the file ({error.strerror or error})") from error
    try:
        return importlib.util.decode_source(content)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ProblemError(f"{file}:{line}: not a Python file: it can't be decoded as text ({error})") from error
    except SyntaxError as error:  # of the encoding, which the first two lines may name
        raise ProblemError(f"{file}:1: not a Python file: it can't be decoded as text ({error.msg})") from error


def execute(source: str, file: Path) -> dict[str, Any]:
    """Run the text of a file, and give back its names.

    Example:
        >>> from pathlib import Path
        >>> from bvfim.app.python_file import execute
        >>> execute("two = 1 + 1", Path("a.py"))["two"]
        2
        >>> execute("one = 1" + chr(10) + "two = one +", Path("a.py"))
        Traceback (most recent call last):
        bvfim.status.ProblemError: a.py:2: SyntaxError: invalid syntax
            two = one +
                       ^
    """
    module = ModuleType(MODULE)
    module.__file__ = str(file.resolve())
    sys.modules[MODULE] = module  # where dataclasses and pickle look for the classes of the file
    linecache.checkcache(module.__file__)
    try:
        code = compile(source, module.__file__, "exec", dont_inherit=True)
        with importable(file):
            exec(code, module.__dict__)
    except (Exception, SystemExit) as error:
        raise ProblemError(described(error, file)) from error
    return module.__dict__


@contextmanager
def importable(file: Path) -> Iterator[None]:
    """The file's folder is where imports look first, as when Python runs the file.

    Example:
        >>> import sys
        >>> from pathlib import Path
        >>> from bvfim.app.python_file import importable
        >>> with importable(Path("/folder/a.py")):
        ...     sys.path[0]
        '/folder'
    """
    folder = str(file.resolve().parent)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def bindings(source: str) -> dict[str, int]:
    """The line that binds each name: outside of functions where there is one, and the last of those.

    Example:
        >>> from bvfim.app.python_file import bindings
        >>> lines = ["x = 1", "x = 2", "def f():", "    x = y = 3", "x.real"]
        >>> bindings(chr(10).join(lines))
        {'f': 3, 'x': 2, 'y': 4}
    """
    found: dict[str, int] = {}
    # walk() goes outside in; the reversed body puts the last binding first.
    for node in ast.walk(ast.Module(ast.parse(source).body[::-1], [])):
        for name in _bound(node):
            found.setdefault(name, node.lineno)  # type: ignore[attr-defined]  # nodes that bind have one
    return found


def _bound(node: ast.AST) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name for alias in node.names]
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
    return []


def frames(error: BaseException, file: Path) -> list[traceback.FrameSummary]:
    """The frames of an error that are in the file or in another one beside it, the innermost last.

    Example:
        >>> from pathlib import Path
        >>> from bvfim.app.python_file import frames
        >>> frames(ValueError("raised nowhere"), Path("a.py"))
        []
    """
    folder = file.resolve().parent
    whole = traceback.extract_tb(error.__traceback__)
    return [f for f in whole if not f.filename.startswith("<") and Path(f.filename).resolve().parent == folder]


def described(error: BaseException, file: Path) -> str:
    """What went wrong and on which line of the file, with that line.

    Example:
        >>> from pathlib import Path
        >>> from bvfim.app.python_file import described
        >>> described(ValueError("raised nowhere"), Path("a.py"))
        'a.py: ValueError: raised nowhere'
    """
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        _, *picture, message = "".join(traceback.format_exception_only(error)).splitlines()
        shown = "".join(f"\n{line[:WIDTH]}" for line in picture)
        return f"{_shown(error.filename, file)}:{error.lineno}: {_cut(message)}{shown}"
    inside = frames(error, file)
    if isinstance(error, BvfimError):
        text = str(error)
    elif isinstance(error, SystemExit):
        text = f"the file called sys.exit({error.code!r})"
    else:
        text = "".join(traceback.format_exception_only(error)).strip()
    if not inside:
        return f"{file}: {_cut(text)}"
    last = inside[-1]
    where = f"{_shown(last.filename, file)}:{last.lineno}, in {last.name}"
    return f"{where}: {_cut(text)}\n    {(last.line or '')[:WIDTH]}"


def place(file: Path, line: int | None) -> tuple[str, str]:
    """``file:line``, and the text of that line on a line of its own; the file alone where there is no line.

    Example:
        >>> from pathlib import Path
        >>> from bvfim.app.python_file import place
        >>> place(Path("a.py"), None)
        ('a.py', '')
    """
    if line is None:
        return str(file), ""
    text = linecache.getline(str(file.resolve()), line).strip()
    return f"{file}:{line}", f"\n    {text[:WIDTH]}" if text else ""


def _shown(filename: str, file: Path) -> Path | str:
    """The file as the user named it, or its neighbour."""
    if filename.startswith("<"):
        return filename
    path = Path(filename).resolve()
    return file if path == file.resolve() else file.with_name(path.name)


def _cut(text: str) -> str:
    lines = text.splitlines()
    kept = [line if len(line) <= WIDTH else f"{line[:WIDTH]} ..." for line in lines[:LINES]]
    return "\n".join([*kept, "..."] if len(lines) > LINES else kept)
