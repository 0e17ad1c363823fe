"""Where the command ``bvfim`` begins: answers that need nothing loaded, and the extras that the others need."""

from __future__ import annotations

import os
import sys

from bvfim.core.extras import MissingExtraError, require_extras
from bvfim.version import __version__

NEEDED = {
    "demo": ("app", "labels", "reproduce"),
    "clean": ("app", "labels"),
    "reproduce": ("app", "labels", "reproduce"),
    "bench": ("app", "labels", "reproduce"),
}
"""The extras of each command; ``app`` for the others."""


def main() -> None:
    """Run the command; a missing extra is reported in one sentence, with exit code 2."""
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["-V"]):
        print(f"bvfim {__version__}")
        return
    command = next((word for word in arguments if not word.startswith("-")), "")
    try:
        require_extras(f"bvfim {command}".strip(), *NEEDED.get(command, ("app",)))
    except MissingExtraError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    os.environ.setdefault("BVFIM_PROGRESS", "0")  # the commands show their own, from several processes
    from bvfim.app.cli import run

    run()
