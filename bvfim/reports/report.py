"""Results on disk: tables, figures, and what produced them."""

from __future__ import annotations

import dataclasses
import io
import json
import platform
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib
import numpy
import pandas as pd
import torch
from matplotlib.figure import Figure

from bvfim.version import __version__


@dataclass(frozen=True)
class Section:
    """A section of a page: what was done and observed, next to what the paper reports.

    Attributes:
        title: the heading.
        text: the description; an empty line starts a new paragraph.
        paper: what the paper reports, if anything.
        ours: what was measured, in a sentence made from the numbers.
        figures, tables: names of figures and tables of the results, in the order of the page.

    Example:
        >>> from bvfim.reports.report import Section
        >>> Section("Figure 1", "Distance from the optimum.").tables
        ()
    """

    title: str
    text: str = ""
    paper: str = ""
    ours: str = ""
    figures: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()


@dataclass(frozen=True)
class Results:
    """The results of an experiment.

    Attributes:
        tables: data frames by name; each becomes a CSV file.
        figures: matplotlib figures by name; each becomes a PNG and an SVG file.
        summary: key numbers, written to ``summary.json``.
        sections: how the page shows them; by default all figures and tables in order.

    Example:
        >>> import pandas as pd
        >>> from bvfim.reports.report import Results
        >>> Results({"loss": pd.DataFrame({"step": [0]})}).summary
        {}
    """

    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    figures: dict[str, Figure] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    sections: tuple[Section, ...] = ()


def machine() -> dict[str, Any]:
    """Versions and hardware, without anything that identifies the owner.

    Example:
        >>> from bvfim.reports.report import machine
        >>> sorted(machine())
        ['bvfim', 'cuda', 'numpy', 'platform', 'processor', 'python', 'threads', 'torch']
    """
    return {
        "bvfim": __version__,
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "threads": torch.get_num_threads(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def save(results: Results, config: Any, out: Path) -> list[Path]:
    """Write tables, figures, the summary, and the resolved config with versions and machine, into a folder.

    Args:
        results: the results of the experiment.
        config: its config, a dataclass.
        out: the folder; created if missing.

    Returns:
        The files written.
    """
    out.mkdir(parents=True, exist_ok=True)
    _forget(out)
    written = []
    for name, table in results.tables.items():
        written.append(out / f"{name}.csv")
        table.to_csv(written[-1])
    for name, figure in results.figures.items():
        written += [out / f"{name}.png", out / f"{name}.svg"]
        figure.savefig(written[-2], dpi=150, bbox_inches="tight")
        written[-1].write_text(svg(figure), encoding="utf-8")
    names = sorted(path.name for path in written)
    about = {"config": dataclasses.asdict(config), "machine": machine(), "summary": results.summary, "files": names}
    written.append(out / "summary.json")
    written[-1].write_text(json.dumps(about, indent=2, default=str) + "\n")
    return written


def _forget(out: Path) -> None:
    """Remove the tables and figures of the run before, which its summary names."""
    try:
        names = json.loads((out / "summary.json").read_text())["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    for name in names:
        if Path(name).name == name and Path(name).suffix in (".csv", ".png", ".svg"):
            (out / name).unlink(missing_ok=True)


def svg(figure: Figure) -> str:
    """The figure as SVG text, the same each time it is drawn."""
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "bvfim"}):
        figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
    return buffer.getvalue()


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()
