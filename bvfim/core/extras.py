"""Optional dependencies (extras), and the error message for a missing one."""

from __future__ import annotations

from importlib.util import find_spec

from bvfim.status import BvfimError

EXTRAS = {
    "labels": {"sklearn": "scikit-learn", "scipy": "scipy", "PIL": "pillow"},
    "app": {"typer": "typer", "rich": "rich", "jinja2": "jinja2", "matplotlib": "matplotlib"},
    "reproduce": {"pooch": "pooch"},
}
"""The modules that each extra provides, and the packages they come from."""


class MissingExtraError(BvfimError, ImportError):
    """A feature needs packages that are not installed.

    Example:
        >>> from bvfim.core.extras import MissingExtraError
        >>> issubclass(MissingExtraError, ImportError)
        True
    """


def require_extras(what: str, *extras: str) -> None:
    """Raise an error that names the extra if its packages are not installed.

    Example:
        >>> from bvfim.core.extras import require_extras
        >>> require_extras("bvfim.LabelCleaner", "labels")
    """
    missing = {
        extra: [package for module, package in EXTRAS[extra].items() if find_spec(module) is None] for extra in extras
    }
    absent = [package for packages in missing.values() for package in packages]
    if absent:
        names = ",".join(extra for extra, packages in missing.items() if packages)
        raise MissingExtraError(
            f"{what} needs packages that are not installed ({', '.join(absent)}): pip install 'bvfim[{names}]'"
        )
