"""What the scripts of the figures share: options, the machine, results, the picture, the claims."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich import print

from d2djax.analysis import studies
from d2djax.analysis.figures import noted
from d2djax.running import machine


@dataclass(frozen=True)
class Options:
    """Compute and draw one figure.

    Attributes:
        size: toy, small (8 seeds) or paper (100 seeds).
        seeds: Number of runs; 0: as the size says.
        out: Folder of the results and the picture.
        cifar10: Folder of CIFAR-10; by default the usual places.
        fashion_mnist: Folder of Fashion-MNIST; by default the usual places.
    """

    size: studies.Size = "toy"
    seeds: int = 0
    out: Path = Path("figures")
    cifar10: str = ""
    fashion_mnist: str = ""


def show(name: str, points: tuple[str, ...], draw: Callable, claims: Callable) -> None:
    """Computes studies (`analysis/studies.py` has their points), draws them, prints claims and measures."""
    options = tyro.cli(Options)
    machine.use_all_cores()
    machine.use_compilation_cache()
    results = []
    for study in points:
        folder = getattr(options, str(studies.STUDIES[study].settings.get("dataset")), "") or None
        seeds = options.seeds or None
        results.append(studies.compute(study, options.size, options.out, seeds=seeds, data_dir=folder))
    picture = options.out / options.size / f"{name}.png"
    noted(draw(*results), options.size, results).savefig(picture)
    for claim in (claim for one in results for claim in claims(one)):
        print(f"{claim.text}: {claim.measured}: {claim.verdict}")
    print(picture)
