"""Many seeds of one setting: from a config to labelled results."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from rich.console import Console

from d2djax import machine, results
from d2djax.batch import as_numbers, map_runs
from d2djax.config import Config
from d2djax.data import Dataset, load
from d2djax.federated import Recipe, train
from d2djax.models import check_model, make_model
from d2djax.points import Points, arrange, windows_per_key
from d2djax.progress import stage
from d2djax.rng import run_key
from d2djax.simulation import Sizes, prepare, sizes_of
from d2djax.validation import validate

if TYPE_CHECKING:
    import xarray


MOST_RUNS = 2**24


def load_dataset(config: Config) -> Dataset:
    """Loads the data set that a validated config names; radio windows are made in the number that is needed.

    Raises:
        DataError: the data set cannot be found or read.
    """
    options: dict[str, Any] = {}
    if config.dataset == "radioml":
        options["min_snr"] = config.min_snr
        if config.data_dir is None:
            options["windows_per_key"] = windows_per_key(config)
    return load(config.dataset, config.data_dir, **options)


def _prepare_run(shared: Config, item: dict[str, Any], sizes: Sizes) -> Any:
    return prepare(run_key(item["seed"]), shared, sizes)


def _train_run(shared: tuple[Config, Points], item: dict[str, Any], recipe: Recipe) -> Any:
    config, points = shared
    return train(run_key(item["seed"]), recipe, points, item["test"], item["holding"], config)


def check_seeds(seeds: int | Sequence[int]) -> np.ndarray:
    """The numbers of the runs: 0, 1, ... of a count, or the given ones.

    Raises:
        ValueError: none is left, one repeats, or one does not fit in 31 bits.
    """
    if isinstance(seeds, bool):
        raise ValueError(f"seeds must be a count or whole numbers; got {seeds!r}")
    count = int(seeds) if isinstance(seeds, (int, np.integer)) else len(seeds)
    if not 1 <= count <= MOST_RUNS:
        raise ValueError(f"seeds must be {'at least 1' if count < 1 else f'at most {MOST_RUNS}'}; got {seeds!r}")
    numbers = np.asarray(seeds) if np.ndim(seeds) or isinstance(seeds, range) else np.arange(count)
    is_whole = numbers.ndim == 1 and np.issubdtype(numbers.dtype, np.integer)
    if not is_whole or len(np.unique(numbers)) < numbers.size or numbers.min() < 0 or numbers.max() >= 2**31:
        raise ValueError(f"seeds must be different whole numbers in [0, 2**31); got {seeds!r}")
    return numbers.astype(np.int32)


def run(
    config: Config | None = None,
    seeds: int | Sequence[int] = 4,
    *,
    data: Dataset | None = None,
    recipe: Recipe | None = None,
    progress: bool = True,
    width: int | None = None,
) -> xarray.Dataset:
    """Simulates a setting for several seeds: networks, graphs, exchange, federated training of each method.

    A run depends on the config and its seed alone, not on the other seeds, the chunks or the devices.

    Args:
        config: the setting; none: the defaults (RadioML made in process).
        seeds: number of runs (seeds 0, 1, ...) or the seeds themselves.
        data: a data set of your own; none: the one that the config names.
        recipe: `Recipe(model, client, server)`, network and optimisers of your own; none: the network that the
            config names and SGD.
        progress: shows progress on standard error.
        width: runs at the same time on each device; none: chosen to fit.

    Returns:
        A labelled dataset with dimensions run, method, round, episode, state, device, class; see
        `d2djax.results.label`. `attrs["manifest"]` is JSON: config, versions, devices, wall time.

    Raises:
        ValueError: a setting is out of its range, or a class has too few points; one line says which.
        DataError: the data set cannot be read.
    """
    started = time.perf_counter()
    console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True) if progress else None
    config = config or Config()
    if data is not None and config.num_classes == 0:
        config = replace(config, num_classes=data.num_classes)
    config, run_seeds = validate(config), check_seeds(seeds)
    recipe = Recipe(make_model(config)) if recipe is None else recipe
    dataset = load_dataset(config) if data is None else data
    points = arrange(dataset, config)
    check_model(recipe.model, points)
    if console:
        console.print(f"data: {dataset.name}, {len(dataset.y):,} points, {dataset.source}")
    traced, sizes = as_numbers(config), sizes_of(points, recipe)
    with stage(console, "discovery", len(run_seeds)) as advance:
        graphs, holding, test = map_runs(
            _prepare_run, traced, {"seed": run_seeds}, sizes, width=width, advance=advance
        )
    # One unit of training is one method of one run: all methods of all runs share one program.
    num_methods = len(config.methods)
    unit = {
        "seed": np.repeat(run_seeds, num_methods),
        "test": np.repeat(test, num_methods, axis=0),
        "holding": jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), holding),
    }
    with stage(console, "training", len(unit["seed"])) as advance:
        learning = map_runs(_train_run, (traced, points), unit, recipe, width=width, advance=advance)
    learning = jax.tree.map(lambda leaf: leaf.reshape(len(run_seeds), num_methods, *leaf.shape[1:]), learning)
    manifest = results.manifest(config, run_seeds, dataset, machine.describe(), time.perf_counter() - started)
    return results.label(config, run_seeds, dataset, graphs, learning, sizes.num_parameters, manifest)
