"""Does the exchange help when devices straggle? Accuracy against the number of them (Section IV-B, figure 2e).

    python experiments/stragglers.py --seeds 8

Stragglers are drawn once per run: the server never sees their models, nor the classes that only they hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tyro
import xarray
from rich.console import Console
from rich.table import Table

import d2djax
from d2djax import machine, results, statistics


@dataclass(frozen=True)
class Settings:
    """Accuracy against the number of stragglers.

    Attributes:
        seeds: Number of runs.
        first_seed: Seed of the first one.
        stragglers: Numbers of stragglers; losses are from the first to the last.
        out: Folder for stragglers.zarr.
    """

    seeds: int = 8
    first_seed: int = 0
    stragglers: tuple[int, ...] = (0, 5, 10, 15)
    out: Path = Path("results")


def with_interval(samples: Sequence[float]) -> str:
    mean, low, high = (float(value) for value in statistics.interval(np.asarray(samples)))
    return f"{mean:+.4f} ({low:+.4f} to {high:+.4f})"


def main(settings: Settings) -> None:
    machine.use_all_cores()
    machine.use_compilation_cache()
    base = d2djax.Config(dataset="fashion_mnist", methods=("none", "uniform", "rl"))
    seeds = range(settings.first_seed, settings.first_seed + settings.seeds)
    # The number of stragglers is a traced number: all of them share one compiled program.
    runs = [d2djax.run(replace(base, num_stragglers=number), seeds) for number in settings.stragglers]
    joined = xarray.concat(
        [run["accuracy"] for run in runs], dim=xarray.DataArray(list(settings.stragglers), dims="stragglers")
    )
    joined = joined.assign_coords(stragglers=list(settings.stragglers))
    results.save(joined.to_dataset(), settings.out / "stragglers.zarr")
    measures = {"final accuracy": joined.isel(round=-1), "mean over the rounds": joined.mean("round")}
    console = Console(width=110)
    for name, values in measures.items():
        table = Table(title=f"{name}, Fashion-MNIST, {settings.seeds} seeds")
        for heading in ("method", *(f"m = {number}" for number in settings.stragglers), "lost, with 95 % interval"):
            table.add_column(heading)
        lost = values.isel(stragglers=0) - values.isel(stragglers=-1)
        for method in base.methods:
            means = values.sel({"method": method}).mean("run").values
            table.add_row(method, *(f"{m:.4f}" for m in means), with_interval(lost.sel({"method": method})))
        console.print(table)
        for method in ("uniform", "rl"):
            saved = (lost.sel({"method": "none"}) - lost.sel({"method": method})).values
            seeds_above = f"{(saved > 0).sum()}/{len(saved)} seeds"
            console.print(f"none loses more than {method} by {with_interval(saved)}; in {seeds_above}")


if __name__ == "__main__":
    main(tyro.cli(Settings))
