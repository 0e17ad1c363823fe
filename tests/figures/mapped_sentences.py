"""The figures in sentences: a template, in which {} stands for a figure, and the numbers that belong there."""

from __future__ import annotations

from typing import Any

from tests.figures.mapped_rivals import sentences as rivals
from tests.figures.mapped_suites import suites
from tests.figures.reproduce_sentences import (
    Sentence,
    cleaning,
    few_shot_and_net,
    small_problems,
    steps_and_context,
)
from tests.figures.results import mean, one, result

MIB = 1024
ALONE_TUNED = {"mnist": "both", "fashion-mnist": "the budget", "cifar10": "both"}
"""What the setting of the plain network is the best for: the end of its budget, or that and the end of our run."""


def adaptive() -> list[Sentence]:
    """The battery, the probes and the network of MNIST."""
    hostile, earlier = result("hostile-cpu")["counts"], result("hostile-cpu")["before"]
    before_it, since = earlier["counts"], earlier["the same runs now"]
    keys = ("converged", "converged, and wrong", "global", "mean F gradients", "mean f gradients")
    before, now = (result(name)["runs"] for name in ("adaptive-cpu", "adaptive-new-parts-cpu"))
    mnist = one(result("networks-mnist-h200")["runs"], method="AdaptiveBVFIM")

    def probes(runs: list[dict[str, Any]], key: str) -> float:
        with_them, without = (one(runs, **{"": name})[key] for name in ("whole", "no probes"))
        return 100 * (with_them - without) / with_them

    shares = [probes(runs, f"median {kind}") for runs in (now, before) for kind in ("f grads", "values")]
    conditioning = result("conditioning-cpu")
    penalties = conditioning["penalties"]
    reference = result("per-feature-cpu")["summary"]["breast cancer"]["from -3: reference true F"]
    worst = max(run["error of x"] for run in conditioning["quadratics"])
    found = [hostile[key] for key in ("runs", "converged", "converged, and wrong", "global", "worse than the start")]
    return [
        (
            "Of the {} runs {} end as `converged`, {} of them wrongly, and {} at the global optimum; {} ends above",
            *found,
        ),
        (
            "The mean cost is {} gradients of F and {} of f",
            hostile["mean F gradients"],
            hostile["mean f gradients"],
        ),
        (
            "Of the {} runs from the first start, the version before units, grids and the path called {} `converged`, "
            "{} of them wrongly, and was at the global optimum in {}, for {} gradients of F and {} of f; now it is {}, "
            "{} and {}, for {} and {}",
            *(before_it["runs"], *(counts[key] for counts in (before_it, since) for key in keys)),
        ),
        ("solves {} small problems", hostile["problems"]),
        ("Probes take {} of a hundred f gradients and {} of a hundred values ({} and {} before", *shares),
        ("converges in {} gradients with them", mnist["gradients"]),
        ("x errs by at most {} in all of them", worst),
        ("converge to a true F of {} (SciPy's L-BFGS-B with exact gradients: {}", penalties[0]["true F"], reference),
        (
            "in {} s of one core, with all features multiplied by 1e5 in {} s, and with each multiplied by a number of "
            "its own between 1e-3 and 1e3 in {} s",
            *(run["seconds of CPU"] for run in penalties),
        ),
    ]


def choosing() -> list[Sentence]:
    """The time to a result."""
    file = result("time-to-result-h200")
    sets = file["config"]["data"]
    (ours, _, our_cifar), (alone, _, alone_cifar) = (
        [one(file["results"], data=name, method=method, **{"tuned for": tuned[name]}) for name in sets]
        for method, tuned in (("StochasticBVFIM", dict.fromkeys(sets, "defaults")), ("trusted rows alone", ALONE_TUNED))
    )
    end, F1 = "accuracy at our end", "F1 at our end"
    led_until = {
        bilevel: max(
            lead["to second"]
            for lead in file["leads"]
            if (lead["method"] != "trusted rows alone") is bilevel and (bilevel or lead["data"] == "mnist")
        )
        for bilevel in (True, False)
    }
    feature = result("per-feature-cpu")["summary"]["breast cancer"]
    medians = [
        feature[f"median: {who} {what}"] for what in ("true F", "seconds", "test") for who in ("ours", "reference")
    ]
    starts = len(result("per-feature-cpu")["runs"]) / 2
    return [
        ("breast cancer, medians of {} starts: F {} against {})", starts, *medians[:2]),
        ("it takes {} s where that takes {}", *medians[2:4]),
        ("their loss is {} against {}", *medians[4:]),
        (
            "the best of {} pairs of steps, chosen on held-out rows, and {} times our time",
            *(file["config"][key] for key in ("tries", "budget")),
        ),
        ("Our runs take {}, {} and {} s", *(file["summary"]["our seconds"][name] for name in sets)),
        ("from {} s on, no bilevel method is ahead", led_until[True]),
        ("ahead on MNIST until {} s", led_until[False]),
        (
            "the same accuracy ({}, with more time {}, against {}) and a lower F1 ({} against {})",
            *(alone[end], alone["accuracy at last"], ours[end], alone[F1], ours[F1]),
        ),
        (
            "it ends with {} and {} against {} and {}",
            *(alone_cifar[end], alone_cifar[F1], our_cifar[end], our_cifar[F1]),
        ),
    ]


def mostly_wrong() -> list[Sentence]:
    """Flips of more than half of every class."""
    few, more = (
        [
            one(result("mostly-wrong-cpu")["columns"], contestant=name, noise="pair flip", rate=0.6, trusted=size)
            for name in ("LabelCleaner", "cleanlab")
        ]
        for size in (50, 200)
    )
    said = "finds those that are flipped (F1 {}, AUROC {}; cleanlab with the same trusted rows in its folds: F1 {}, "
    return [
        (said + "AUROC {}", *(row[key] for row in few for key in ("F1", "AUROC"))),
        ("with 200 rows trusted, F1 {} against {}", *(row["F1"] for row in more)),
    ]


def labels() -> list[Sentence]:
    """What the label cleaner's parts add."""
    file = result("labels")
    whole, without = "LabelCleaner", "without the bilevel network"
    columns = sorted({(row["data"], row["noise"], row["trusted"]) for row in file["columns"]})
    people = [column for column in columns if column[0] == "cifar10n"]

    def group(name: str, key: str, rows: str = "groups", group: str = "human") -> float:
        return one(file[rows], group=group, contestant=name)[key]

    def both(key: str, **about: str) -> list[float]:
        return [group(name, key, **about) for name in (whole, without)]

    def higher(key: str) -> int:
        def at(column: tuple[Any, ...], name: str) -> float:
            where = dict(zip(("data", "noise", "trusted"), column, strict=True))
            return one(file["columns"], contestant=name, **where)[key]

        return sum(at(column, whole) > at(column, without) for column in people)

    def by_noise(noise: str) -> list[float]:
        return [mean(file["columns"], "F1", data="cifar10n", noise=noise, contestant=name) for name in (whole, without)]

    def seconds(group: str) -> list[float]:
        spent, left = both("seconds", group=group)
        return [spent - left, spent]

    nested, single = (
        {row["group"]: row for row in result("cleaner-network-cpu")["means"] if row["network"] == name}
        for name in ("nested", "single loop")
    )
    patches = "human, by patches"
    return [
        (
            "the network takes {} s in the place of {} on people's labels",
            *(way["human"]["seconds"] for way in (single, nested)),
        ),
        ("the cleaner is as good with it (F1 {} with either)", single["synthetic"]["F1"]),
        (
            "it is not: F1 {} against {}, average precision {} against {}",
            *(way["human"][key] for key in ("F1", "AP") for way in (single, nested)),
        ),
        ("three draws; {} columns of synthetic noise and {} of people's", len(columns) - len(people), len(people)),
        ("in each of the {} columns, and in none of them does cleaning cost", len(columns)),
        ("calibration costs average precision ({} against {})", group(whole, "AP"), group("without calibration", "AP")),
        (
            "the average precision is {} against {} without it, for {} of {} s",
            *(*both("AP", group="synthetic"), *seconds("synthetic")),
        ),
        (
            "On people's labels it is {} against {}, for {} of {} s, and F1 {} against {}",
            *(*both("AP"), *seconds("human"), *both("F1")),
        ),
        ("are higher in each of the {} columns, F1 in {}", higher("AP"), higher("F1")),
        ('("aggregate": F1 {} against {}; "worse": {} against {})', *by_noise("aggregate"), *by_noise("worse")),
        (
            "it costs F1 ({} against {}) and calibration ({} against {})",
            *(*both("F1", rows=patches), *both("calibration error", rows=patches)),
        ),
        (
            "the label cleaner had F1 {}, AUROC {} and a calibration error of {}, and cleanlab with the trusted "
            "rows {}, {} and {}",
            *(
                group(name, key, rows=patches)
                for name in (whole, "cleanlab, trusted rows too")
                for key in ("F1", "AUROC", "calibration error")
            ),
        ),
    ]


def speed() -> list[Sentence]:
    """Ratios, a second of training, growth, and the single loop."""
    ratios = result("speed-cpu-paired")["ratios"]
    tf32 = result("speed-h200")["runs"]["tf32"]["table"]
    growth = result("growth-h200")["slopes"]
    loops = result("single-loop-h200")["runs"]

    def range_of(key: str, ours: str = "") -> list[float]:
        found = [row[key] for row in ratios if row["ours"].endswith(ours)]
        return [min(found), max(found)]

    def trained(name: str) -> list[float]:
        return [tf32[f"bvfim BVFIM, printed, {name}"][key] for key in ("accuracy", "steps in 1 s")]

    def large(name: str) -> list[float]:
        return [growth[name]["its ms"] / 1000, growth[name]["its MiB"] / MIB]

    others = [row["accuracy"] or 0 for name, row in tf32.items() if not name.startswith("bvfim")]
    recorded, compiled = (
        [run for run in loops if run["way"] == way and run["tf32"] and run["split"] == 0 and "ms" in run]
        for way in ("auto", "compile")
    )
    ours = [run for run in loops if run["way"] == "auto" and run["tf32"] and "ms" in run]
    on_cpu = result("single-loop-nested-cpu")["runs"]
    again = [next(run for run in ours if run["split"] == split) for split in (1, 2)]
    nested = [run for run in loops if run["method"] == "BVFIM nested" and run["tf32"]]
    return [
        (
            "ours take {} to {} (CG) and {} to {} (Neumann)",
            *range_of("mean ratio", "CG"),
            *range_of("mean ratio", "Neumann"),
        ),
        ("standard errors of {} to {}", *range_of("standard error")),
        (
            "Neumann and CG are the most accurate ({} and {}; the best of another library: {})",
            *(tf32["bvfim Neumann"]["accuracy"], tf32["bvfim CG"]["accuracy"], max(others)),
        ),
        ("{} after {} plain steps", *trained("plain")),
        ("chance after {} recorded ones, {} after {} compiled ones", trained("recorded")[1], *trained("compiled")),
        ("a step of BVFIM takes {} s and {} GiB", *large("BVFIM")),
        ("CG and Neumann take {} s and {} and {} GiB", *large("CG"), large("Neumann")[1]),
        ("RHG {} s and {} GiB", *large("RHG")),
        ("out of memory (139 GiB) at {}", growth["RHG, one graph"]["out of memory at n"]),
        ("a step takes {} ms recorded and {} ms compiled", recorded[0]["ms"], compiled[0]["ms"]),
        ("the recording take {} and {} s", recorded[0]["recorded"], compiled[0]["recorded"]),
        (
            "the range test and the recording take {} s, compiling {} s; the first run of a process takes {} and {} s",
            *(runs[i]["range_test_and_recording"] for i in (1, 0) for runs in (recorded, compiled)),
        ),
        ("a run takes {} s, and a nested one {} s", *(run["seconds"] for run in on_cpu)),
        ("takes {} s once recorded, {} s in all", nested[0]["recorded"], nested[0]["seconds"]),
        (
            "({}, {} and {} % on three splits, against {}, {} and {})",
            *(100 * run["accuracy"] for run in [*nested, recorded[0], *again]),
        ),
    ]


def several_gpus() -> list[Sentence]:
    """The data mixture: the spoiled source, what learning costs, how much was read."""
    found = result("data-mixture-h200")
    learned = [row for row in found["rows"] if row["mixture"] == "learned"]
    plain = [row["seconds"] for row in found["rows"] if "random" in row["mixture"]]
    cost = [(row["seconds"] + row["seconds before"]) / (sum(plain) / len(plain)) for row in learned]
    spoiled = [100 * row["weights"]["spoiled"] for row in learned]
    return [
        ("on {} million bytes", found["settings"]["tokens"] / 1e6),
        ("The spoiled source ends at {}, {} and {} %", *spoiled),
        ("learning takes with retraining {} to {} trainings", min(cost), max(cost)),
    ]


def benchmarks() -> list[Sentence]:
    """Sizes in the list of benchmarks."""
    labels, large = result("labels"), result("large-cpu")["settings"]
    settings = result("single-loop-settings-cpu")["runs"]
    single = result("single-loop-cpu")["runs"]
    return [
        ("over the 21 test problems, {} methods from the same starts", len(result("problems-cpu")["summary"])),
        ("at its defaults, {} epochs, {} splits", round(single[0]["epochs"]), len({run["split"] for run in single})),
        ("the same with {} settings off the defaults", len([run for run in settings if run["data"] == "mnist"])),
        ("AdaptiveBVFIM on {} problems", result("hostile-cpu")["counts"]["problems"]),
        ("and simpler ways, {} columns, {} draws", len(labels["columns"]) / 11, labels["config"]["seeds"]),
        ("on {} rows of {} columns, {} trusted", *(large[key] for key in ("rows", "columns", "trusted"))),
    ]


SENTENCES: dict[str, list[Sentence]] = {
    "benchmarks/README.md": benchmarks(),
    "docs/adaptive.md": adaptive(),
    "docs/choosing-a-method.md": choosing(),
    "docs/cleaning-labels.md": [*labels(), *mostly_wrong()],
    "docs/evidence/which-method.md": rivals(),
    "docs/reproduce.md": [*steps_and_context(), *cleaning(), *small_problems(), *few_shot_and_net()],
    "docs/several-gpus.md": several_gpus(),
    "docs/speed.md": speed(),
    "docs/suites.md": suites(),
}
