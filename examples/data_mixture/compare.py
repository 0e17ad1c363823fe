"""The learned weights beside plain mixtures: every row is a network trained in full, on as many bytes as the others.

``python -m examples.data_mixture.compare --size 10M --seeds 3 --out out/mixtures.json``. The file is written after each
training, and a run that finds it goes on where it ended. Whatever is chosen is chosen on the validation part.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from examples.data_mixture.learn import learned
from examples.data_mixture.texts import Texts, obtained
from examples.data_mixture.train import USUAL, Settings, chosen, loss_on, trained_anew

RANDOM = 10
"""Random mixtures for each seed; a search has as many trials."""
QUICK_RANDOM = 2
"""In a quick run."""
MULTIPLIERS = (3.0, 10.0, 30.0)
"""What the weight of f beside F is chosen from."""
TRIAL = 1000
"""The seed of the runs that it is chosen by; those of the table are 0, 1, 2 and so on."""


class Mixture(NamedTuple):
    """A row of the table to be: its name, the texts to train on, their weights, and the seconds that these took."""

    name: str
    sources: Mapping[str, Tensor]
    weights: Tensor
    seconds: float = 0.0


def uniform(count: int) -> Tensor:
    """Equal weights."""
    return torch.full((count,), 1 / count)


def by_loss(texts: Texts, settings: Settings, seed: int) -> Tensor:
    """Weights in proportion to the losses of the sources, of a network trained on all of them alike."""
    model = trained_anew(texts.sources, uniform(len(texts.sources)), settings, seed)
    found = torch.tensor([loss_on(model, text, settings) for text in texts.sources.values()])
    return found / found.sum()


def chosen_multiplier(texts: Texts, settings: Settings) -> tuple[float, dict[str, Any]]:
    """The multiplier whose weights give the best network on the validation part, and what was seen with each."""
    seen = {}
    for multiplier in MULTIPLIERS:
        weights = learned(texts, settings, TRIAL, multiplier=multiplier).weights
        model = trained_anew(texts.sources, weights, settings, TRIAL)
        validation = loss_on(model, texts.validation, settings)
        seen[multiplier] = {
            "validation": validation,
            "weights": dict(zip(texts.sources, weights.tolist(), strict=True)),
        }
        print(f"multiplier {multiplier:g}: validation {validation:.4f}", flush=True)
    return min(seen, key=lambda multiplier: seen[multiplier]["validation"]), {f"{m:g}": row for m, row in seen.items()}


def mixtures(
    texts: Texts, settings: Settings, seed: int, random: int, done: set[str], multiplier: float
) -> Iterator[Mixture]:
    """The rows of a seed that are not done yet; the weights of each are found when it is its turn."""
    sources, count = texts.sources, len(texts.sources)
    unspoiled = {name: text for name, text in sources.items() if name != "spoiled"}
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.empty(random, count).exponential_(generator=generator)  # normalised, this is Dirichlet(1)
    plain = [
        Mixture("uniform", sources, uniform(count)),
        Mixture("uniform, unspoiled", unspoiled, uniform(len(unspoiled))),
        Mixture("trusted alone", {"trusted": texts.trusted}, uniform(1)),
        *(Mixture(f"random {i}", sources, weights / weights.sum()) for i, weights in enumerate(drawn)),
    ]
    yield from (mixture for mixture in plain if mixture.name not in done)
    if "by loss" not in done:
        began = time.monotonic()
        weights = by_loss(texts, settings, seed)
        yield Mixture("by loss", sources, weights, time.monotonic() - began)
    if "learned" not in done:
        result = learned(texts, settings, seed, multiplier=multiplier)
        yield Mixture("learned", sources, result.weights, result.seconds)


def judged(mixture: Mixture, texts: Texts, settings: Settings, seed: int) -> dict[str, Any]:
    """A row of the table: the losses of a network trained on a mixture."""
    began = time.monotonic()
    model = trained_anew(mixture.sources, mixture.weights, settings, seed)
    return {
        "mixture": mixture.name,
        "seed": seed,
        "validation": loss_on(model, texts.validation, settings),
        "test": loss_on(model, texts.test, settings),
        "seconds": time.monotonic() - began,
        "seconds before": mixture.seconds,
        "weights": dict(zip(mixture.sources, mixture.weights.tolist(), strict=True)),
    }


def started(path: Path | None, settings: Settings) -> dict[str, Any]:
    """The table of a file, if there is one, or an empty one; the settings must be the same."""
    fresh = {"settings": asdict(settings) | {"tokens": settings.tokens}, "rows": []}
    if path is None or not path.exists():
        return fresh
    table = json.loads(path.read_text())
    if table["settings"] != fresh["settings"]:
        sys.exit(f"{path} was written with other settings: give another --out")
    return table


def written(table: dict[str, Any], path: Path | None) -> None:
    """Keep what there is of the table."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(table, indent=1) + "\n")


def arguments(description: str | None) -> argparse.ArgumentParser:
    """What this command and the other one have in common."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, help="a packed file; the installed packages otherwise")
    parser.add_argument("--size", choices=USUAL, default="10M")
    parser.add_argument("--steps", type=int, help="of each training; by default what is usual for the size")
    parser.add_argument("--out", type=Path, help="a JSON file")
    parser.add_argument("--quick", action="store_true", help="a few steps of a tiny network")
    return parser


def main() -> None:
    """Train on every mixture, for every seed."""
    parser = arguments(__doc__)
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    given = parser.parse_args()
    texts, settings = obtained(given.texts), chosen(given.size, given.steps, given.quick)
    table = started(given.out, settings)
    if "multiplier" not in table:
        table["multiplier"], table["trials"] = chosen_multiplier(texts, settings)
        written(table, given.out)
    for seed in range(given.seeds):
        done = {row["mixture"] for row in table["rows"] if row["seed"] == seed}
        random = QUICK_RANDOM if given.quick else RANDOM
        for mixture in mixtures(texts, settings, seed, random, done, table["multiplier"]):
            row = judged(mixture, texts, settings, seed)
            print(
                f"{row['mixture']:20} seed {seed}  validation {row['validation']:.4f}  test {row['test']:.4f}",
                flush=True,
            )
            table["rows"].append(row)
            written(table, given.out)


if __name__ == "__main__":
    main()
