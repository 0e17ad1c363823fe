"""The command in this process, which has the library loaded already: starting another takes seconds."""

from __future__ import annotations

import signal
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from types import SimpleNamespace

import pytest

from bvfim.app import cli


def command(*arguments, cwd=None):
    """What a shell would see of ``bvfim`` with these arguments: the exit code, the output and the errors."""
    before, code, out, err = signal.getsignal(signal.SIGTERM), 0, StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(out), redirect_stderr(err):
        if cwd is not None:
            patched.chdir(cwd)
        patched.setattr(sys, "argv", ["bvfim", *map(str, arguments)])
        patched.setattr(warnings, "showwarning", warnings.showwarning)
        try:
            cli.run()
        except SystemExit as end:
            code = end.code
        finally:
            signal.signal(signal.SIGTERM, before)
    return SimpleNamespace(returncode=code or 0, stdout=out.getvalue(), stderr=err.getvalue())
