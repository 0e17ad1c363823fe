"""What the page on other people's suites says in words, from the results."""

from __future__ import annotations

from typing import Any

from tests.figures.results import result

Sentence = tuple[Any, ...]
"""A template, and its figures."""


def suites() -> list[Sentence]:
    """MLS-Bench's toy and hyper-cleaning."""
    file = result("mlsbench-cpu")
    told, right, _, tight, finds, ours, loose, first, fixed, _ = file["toy"]

    def gradients(run: dict[str, Any]) -> float:
        return run["F gradients"] + run["f gradients"]

    def worth(net: str) -> float:
        own = [run for run in file[net]["runs"] if run["method"] == "StochasticBVFIM, chosen"]
        return sum(run["by test accuracy"]["accuracy"] - run["last"]["accuracy"] for run in own) / len(own)

    return [
        ("The right one takes {} steps instead of {}", right["steps"], told["steps"]),
        (
            "from {} starts with a weight of 1000, for {} steps; AdaptiveBVFIM from {}",
            tight["at x*"],
            tight["steps"],
            ours["at x*"],
        ),
        ("and takes {} gradients; where it has to find it", gradients(told)),
        ("with a step of z for each of x, {}.", gradients(finds)),
        ("takes {} gradients (and {} values) and ends there from", gradients(fixed), fixed["values"]),
        ("gradients (and {} values) and ends there from {} starts", fixed["values"], fixed["at x*"]),
        ("F2SA of order 1 takes the same steps, {} gradients.", gradients(first)),
        ("and takes {} gradients (and {} values", gradients(ours), ours["values"]),
        (
            "A tolerance of 0.1 instead of 1e-3 saves {} of them, and leaves {} starts",
            gradients(ours) - gradients(loose),
            loose["at x*"],
        ),
        ("is at most 1e-5 at the end of {} starts", ours["gradient of its last barrier at most 1e-5"]),
        (
            "is worth little here: {} points of accuracy for the linear network and {} for",
            worth("linear"),
            worth("mlp"),
        ),
        *benchopt(),
    ]


def benchopt() -> list[Sentence]:
    """benchopt's suite: the settings that were compared, and when a curve is below another."""
    ends: dict[str, list[float]] = {"SOBA": [], "bvfim": []}
    for row in result("benchopt-grid-cpu")["data"]["simulated"]:
        ends[row["solver"].partition("[")[0]].append(row["last"][0])
    saba, _, soba, chosen, default = (row["curve"] for row in result("benchopt-cpu")["data"]["simulated"])
    below = [ours <= theirs for ours, theirs in zip(chosen["median"], soba["median"], strict=True)]
    assert below == sorted(below)
    assert default["median"][-1] > soba["median"][-1]
    for dataset, (theirs, *ours) in result("benchopt-cpu")["data"].items():
        if dataset != "simulated":
            pairs = (zip(own["curve"]["median"], theirs["curve"]["median"], strict=True) for own in ours)
            assert all(a < b for pair in pairs for a, b in pair), "lower at every second"
    assert {len(own) for own in ends.values()} == {9}
    return [
        ("and a ratio of 3, which ended at {}, and", min(ends["SOBA"])),
        ("and a step of x of 0.3, which ended at {}.", min(ends["bvfim"])),
        ("worst of its nine ended at {}, the worst of SOBA's at {}.", max(ends["bvfim"]), max(ends["SOBA"])),
        ("The suite's has come to {} after five seconds", saba["median"][saba["seconds"].index(5)]),
        ("SOBA is ahead until second {}:", soba["seconds"][below.index(True)]),
    ]
