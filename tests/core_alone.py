"""Install the package without extras into an environment of its own, and use it there: ``make test-core``.

The packages come from the environment that runs this, linked into a new one: only those that the solver names, and what
these name in turn. So nothing is downloaded, and what is not named is not there.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import venv
from importlib.metadata import distribution
from pathlib import Path

ROOT = Path(__file__).parent.parent
ABSENT = ("scipy", "sklearn", "matplotlib", "rich", "typer", "PIL", "pooch")
USE = """
import dataclasses, torch, bvfim
from importlib.util import find_spec
assert not [name for name in {absent} if find_spec(name)], "more is installed than the solver names"
toy, start = bvfim.testproblems.sine(a=2), torch.zeros(1, dtype=torch.float64)
for method in bvfim.methods.ALL:
    own, bar = method(), bvfim.callbacks.ProgressBar(pause=0.0)
    problem = dataclasses.replace(toy.problem, follower=method.followers[0])
    solution = bvfim.solve(problem, start, start, own, steps=3, callbacks=[bar])
    assert solution.status.ok and len(solution.history) == solution.steps, (method, solution)
assert len(bvfim.solve_many(toy.problem, start[None], start[None], steps=2)) == 1
print(bvfim.compare(toy.problem, [bvfim.RHG(), bvfim.CG()], start, start, steps=2))
print(bvfim.check_hypergradient(toy.problem, start, start, bvfim.RHG(steps=5)))
try:
    bvfim.LabelCleaner
except ImportError as error:
    print(error)
else:
    raise AssertionError("LabelCleaner without scikit-learn")
"""


def needed(package: str, found: dict[str, Path]) -> None:
    """The files of a package and of what it needs, extras aside."""
    own = distribution(package)
    if own.metadata["Name"] in found:
        return
    found[own.metadata["Name"]] = Path(str(own.locate_file("")))
    for requirement in own.requires or ():
        if "extra ==" not in requirement and "platform_system" not in requirement and "sys_platform" not in requirement:
            needed(re.split(r"[ ;<>=!~\[(]", requirement, maxsplit=1)[0], found)


def link(package: str, site: Path) -> None:
    """Put links to a package's files into another environment."""
    own = distribution(package)
    for name in {path.parts[0] for path in own.files or () if path.parts[0] not in ("..", "__pycache__")}:
        target = site / name
        if not target.exists():
            target.symlink_to(str(own.locate_file(name)))


def main() -> None:
    """Make the environment and run what must work in it."""
    found: dict[str, Path] = {}
    needed("bvfim", found)
    del found["bvfim"]  # that of this checkout comes below
    with tempfile.TemporaryDirectory() as home:
        venv.create(home, with_pip=False)
        site = Path(home, "lib", f"python{sys.version_info[0]}.{sys.version_info[1]}", "site-packages")
        for package in found:
            link(package, site)
        (site / "bvfim").symlink_to(ROOT / "bvfim")
        python, quiet = Path(home, "bin", "python"), {"PYTHONDONTWRITEBYTECODE": "1", "PATH": os.environ["PATH"]}
        print(f"{len(found)} packages: {', '.join(sorted(found))}")
        subprocess.run([python, "-I", "-W", "ignore", "-c", USE.format(absent=ABSENT)], check=True, env=quiet)
        command = [python, "-I", "-c", "from bvfim.app.main import main; main()", "clean", "rows.csv"]
        refused = subprocess.run(command, capture_output=True, text=True, check=False, env=quiet)
        assert refused.returncode == 2, refused
        assert len(refused.stderr.splitlines()) == 1, refused.stderr
        assert "pip install 'bvfim[app,labels]'" in refused.stderr, refused.stderr
        print(refused.stderr, end="")
    print("1 passed, 0 failed")


if __name__ == "__main__":
    main()
