"""The README's ten lines with the wheel, where nothing but the solver's packages is installed.

``python tests/wheel_alone.py dist/*.whl`` makes such an environment, with packages linked from this one, and puts the
wheel there. Without an argument, it runs the lines in the environment that it is started in: that of the wheel.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def ten_lines() -> None:
    """Run the first block of the README with the package that is installed, and see that it finds the optimum."""
    import bvfim

    home = Path(bvfim.__file__).resolve().parent
    assert home != ROOT / "bvfim", "this is the checkout, not the wheel"
    assert (home / "py.typed").exists()
    assert (home / "labels" / "encoder.safetensors").exists()
    found: dict[str, object] = {}
    exec(re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0], found)
    x = float(found["solution"].x)  # type: ignore[attr-defined]
    assert abs(x - 2.356194) < 1e-3, x  # 3 pi / 4
    print(f"Python {sys.version.split()[0]}, bvfim {bvfim.__version__} from {home.parent.name}: 1 passed, 0 failed")


def alone(wheel: str) -> None:
    """Run them where there is only the wheel and what the solver names."""
    from core_alone import link, needed

    found: dict[str, Path] = {}
    needed("bvfim", found)
    del found["bvfim"]
    with tempfile.TemporaryDirectory() as home:
        venv.create(home, with_pip=False)
        site = Path(home, "lib", f"python{sys.version_info[0]}.{sys.version_info[1]}", "site-packages")
        for package in found:
            link(package, site)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
        subprocess.run([Path(home, "bin", "python"), "-I", __file__], check=True)


if __name__ == "__main__":
    alone(sys.argv[1]) if sys.argv[1:] else ten_lines()
