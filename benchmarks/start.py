"""How long the library takes to start, beside torch: import, version and help. Exit code 1 where a limit is passed.

python benchmarks/start.py
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from bvfim.reports.report import machine

RATIO, MODULES, SECONDS = 1.15, 300, 1.0
"""What is allowed: seconds against ``import torch``, modules beyond torch's, seconds of --version and --help."""
TOUCHED = "import bvfim; bvfim.solve; bvfim.methods.ALL; bvfim.Problem"
COUNT = f"import sys, torch; n = len(sys.modules); {TOUCHED}; print(len(sys.modules) - n, *sys.modules)"
LARGE = ("scipy", "sklearn", "matplotlib", "rich", "typer")


def seconds(*command: str) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, *command], check=True, capture_output=True)
    return time.perf_counter() - begin


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=7, help="interleaved; the medians count")
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    command = "import sys; sys.argv = ['bvfim', '{}']; from bvfim.app.main import main; main()"
    ways = {
        "import torch": "import torch",
        "bvfim.solve and every method": TOUCHED,
        "bvfim --version": command.format("--version"),
        "bvfim --help": command.format("--help"),
    }
    rounds = [{name: seconds("-c", code) for name, code in ways.items()} for _ in range(chosen.rounds + 1)][1:]
    found = {name: round(statistics.median(r[name] for r in rounds), 3) for name in ways}
    ratio = statistics.median(r["bvfim.solve and every method"] / r["import torch"] for r in rounds)
    count, *modules = subprocess.run(
        [sys.executable, "-c", COUNT], check=True, capture_output=True, text=True
    ).stdout.split()
    loaded = [name for name in LARGE if name in modules]
    results = {"seconds": found, "ratio": round(ratio, 3), "modules beyond torch's": int(count), "loaded": loaded}
    print(json.dumps(results, indent=2))
    if chosen.out:
        about = {"command": "python benchmarks/start.py", "machine": machine(), **results}
        chosen.out.write_text(json.dumps(about, indent=2) + "\n")
    quick = all(found[name] <= SECONDS for name in ("bvfim --version", "bvfim --help"))
    sys.exit(0 if ratio <= RATIO and int(count) <= MODULES and not loaded and quick else 1)


if __name__ == "__main__":
    main()
