"""The figures in the sentences of the page on the paper's experiments."""

from __future__ import annotations

from typing import Any

from tests.figures.mapped_tables import CLEANED
from tests.figures.results import one, result

Sentence = tuple[Any, ...]

METHODS = ("RHG", "TRHG", "CG", "Neumann", "BDA", "BVFIM")


def steps_and_context() -> list[Sentence]:
    """Lower steps that adapt, features once a step."""
    runs = result("steps-h200")["rows"]
    steps = [one(runs, rows="raw", method="BVFIM-adaptive", **{"lower step": lr}) for lr in (0.1, 0.3)]
    cpu, gpu = result("context-cpu"), result("context-h200")
    return [
        ("end at {} and {} % accuracy", *(100 * row["accuracy"] for row in steps)),
        ("cores a step is {} times faster", cpu["ratio"]),
        ("with 16 on an H200 {} times", gpu["ratio"]),
        ("in double precision to {} over four", cpu["relative difference of F, 4 steps in double precision"]),
        ("in single precision rounding grows, to {} after four steps", gpu["relative difference of F, step 4"]),
    ]


def at(problem: str, activation: str, method: str, key: str) -> float:
    """An entry of Table 3."""
    return one(result("cleaning-h200")["rows"], problem=problem, activation=activation, method=method)[key]


def below(activation: str, *problems: str) -> list[str]:
    """The methods that are less accurate than no cleaning on all of the problems."""
    return [
        method
        for method in METHODS
        if all(at(p, activation, method, "accuracy") < at(p, activation, "no cleaning", "accuracy") for p in problems)
    ]


def cleaning() -> list[Sentence]:
    """Table 3."""
    file = result("cleaning-h200")

    def ours(key: str) -> list[float]:
        return [at(problem, "relu", "BVFIM", key) for problem in CLEANED]

    held_back = [y - z for y, z in zip(ours("accuracy"), ours("accuracy of z"), strict=True)]
    no_cleaning = [at(problem, "relu", "no cleaning", "accuracy") for problem in CLEANED]
    paper = at("fashion-mnist", "identity", "BVFIM", "paper's accuracy")
    alone = "trusted rows alone"
    (as_printed,) = result("cleaning-trials-h200")["on one core of a CPU"]["runs"]
    printed = result("speed-h200")["runs"]["tf32"]["table"]["bvfim BVFIM, printed, compiled"]
    return [
        ("baselines took {} minutes", file["seconds"] / 60),
        (
            "deviations over the splits are {} to {} points of accuracy and {} to {} of F1",
            *(least(ours(key)) for key in ("± accuracy", "± F1") for least in (min, max)),
        ),
        (
            "accuracy on Fashion-MNIST is {} points below the paper's",
            paper - at("fashion-mnist", "identity", "BVFIM", "accuracy"),
        ),
        ("it is {} to {} points less accurate than y with ReLU", min(held_back), max(held_back)),
        (
            "and below no cleaning in all {}.",
            sum(z < plain for z, plain in zip(ours("accuracy of z"), no_cleaning, strict=True)),
        ),
        (
            "RHG, TRHG, CG and Neumann, {} of the {} methods, end below no cleaning",
            len(below("relu", *CLEANED)),
            len(METHODS),
        ),
        (
            "({} against {} for BVFIM on Fashion-MNIST with ReLU)",
            *(at("fashion-mnist", "relu", method, "AUROC") for method in (alone, "BVFIM")),
        ),
        (
            "CIFAR-10's F1 is below that baseline's ({} against {})",
            *(at("cifar10", "identity", method, "F1") for method in ("BVFIM", alone)),
        ),
        (
            "BVFIM as printed ends at {} % accuracy, z at {} %, and an F1 of {}",
            *(as_printed[key] for key in ("accuracy", "accuracy of z", "F1")),
        ),
        (
            "no cleaning and the trusted rows alone ({} and {} in Table 3)",
            *(at("mnist", "relu", name, "accuracy") for name in ("no cleaning", alone)),
        ),
        (
            "than with the {} of Table 3 ({} and {})",
            0.03,
            *(at("mnist", "relu", "BVFIM", key) for key in ("accuracy", "F1")),
        ),
        ("counts as wrong (F1 {}, AUROC {})", *(at("cifar10", "relu", "CG", key) for key in ("F1", "AUROC"))),
        (
            "{} % accuracy and an F1 of {} after {} upper steps, its regularisers still at {}",
            *(100 * printed["accuracy"], 100 * printed["F1"], printed["steps in 1 s"]),
            1.01 ** -printed["steps in 1 s"],
        ),
    ]


def small_problems() -> list[Sentence]:
    """The trials on digits, and the test problems."""
    file = result("cleaning-trials-cpu")
    (alone,) = [row["accuracy"] for row in file["baselines"] if row["method"] == "trusted rows alone"]
    problems = result("problems-cpu")
    return [
        (
            "is ahead of the trusted rows alone by more than {} points",
            max(row["accuracy"] for row in file["runs"]) - alone,
        ),
        ("after {} upper steps, when its regularisers are at {}", 300, 1.01**-300),
        ("Shares of {} starts", result("toy-starts-cpu")["starts"]),
        ("{} problems with known optima, {} starts each", len(problems["problems"]) / 5, problems["config"]["starts"]),
    ]


def few_shot_and_net() -> list[Sentence]:
    """What is said below the few-shot table, and the growth with the network."""
    file = result("few-shot-h200")
    rows = [row for key in ("BVFIM at length", "four methods at equal steps") for row in file[key]["rows"]]
    cost = [row["accuracy"] - row["each alone"] for row in rows if row["method"] == "BVFIM"]
    (cifar,) = file["CIFAR-FS"]["rows"]

    def largest(method: str, key: str = "its ms") -> list[float]:
        slopes = result("net-h200")["slopes"]
        return [one(slopes, shape=shape, method=method)[key] for shape in ("Fashion-MNIST", "CIFAR-10")]

    def seconds(method: str) -> list[float]:
        return [ms / 1000 for ms in largest(method)]

    memory = [a / b for a, b in zip(largest("RHG", "its MiB"), largest("BVFIM", "its MiB"), strict=True)]
    return [
        ("costs BVFIM {} to {} points", min(cost), max(cost)),
        (
            "BVFIM, {} steps of {} ms: {} ± {} with the images of a task normalised together, {} with each alone",
            *(cifar[key] for key in ("steps", "ms", "accuracy", "interval", "each alone")),
        ),
        ("prototypical networks with the same blocks have {}", cifar["paper"]),
        ("takes {} s on rows of Fashion-MNIST's shape and {} s on CIFAR-10's", *seconds("BVFIM")),
        ("CG {} and {} s, Neumann {} and {} s", *seconds("CG"), *seconds("Neumann")),
        ("RHG {} and {} s, with {} to {} times the memory", *seconds("RHG"), *memory),
    ]
