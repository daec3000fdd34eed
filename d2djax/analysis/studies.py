"""Studies, which figures are drawn from (Section IV-B and beyond): each is one sweep, in three sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from d2djax.config import Config, PolicyName, complete
from d2djax.data import SOURCES, Dataset
from d2djax.running.sweeps import sweep
from d2djax.supply import load_dataset

if TYPE_CHECKING:
    import xarray

Size = Literal["toy", "small", "paper"]
# Runs of each point.
SEEDS: dict[Size, int] = {"toy": 2, "small": 8, "paper": 100}
COMPARED: tuple[PolicyName, ...] = ("none", "uniform", "rl")
# By hand, so that another policy does not change the figures of the paper.
ALL: tuple[PolicyName, ...] = ("none", "uniform", "rl", "nearest", "best_response", "pooled")
# Seconds where the other sizes take minutes and hours: what comes out shows that all works, and nothing else.
TOY: dict[str, Any] = {
    "num_devices": 8,
    "num_states": 3,
    "points_per_device": 80,
    "threshold": 4.0,
    "cluster_budget": 20.0,
    "num_episodes": 400,
    "num_steps": 20,
    "aggregation_interval": 5,
    "batch_size": 8,
}


@dataclass(frozen=True)
class Study:
    """One sweep.

    Attributes:
        name: folder of its results.
        settings: what differs from the defaults.
        axes: values of each axis.
        trains: false: the runs end with their graphs, and no data are read.
        small: further settings at size small.
        toy_axes: values of each axis at size toy.
    """

    name: str
    settings: Mapping[str, Any]
    axes: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    trains: bool = True
    small: Mapping[str, Any] = field(default_factory=dict)
    toy_axes: Mapping[str, Sequence[Any]] = field(default_factory=dict)


# 6,000 images, 600 a class, serve 25 devices with 144 points each; thresholds keep their share of a device's class.
SMALL_CIFAR = {
    "policies": COMPARED,
    "points_per_device": 144,
    "threshold": 7.0,
    "num_steps": 150,
    "aggregation_interval": 15,
    "batch_size": 16,
}
# Those that several figures share; a study of one figure stands with the figure.
RADIOML = Study("radioml", {"dataset": "radioml", "policies": ALL})
CIFAR10 = Study("cifar10", {"dataset": "cifar10", "policies": ALL}, small=SMALL_CIFAR)
FASHION_MNIST = Study("fashion_mnist", {"dataset": "fashion_mnist", "policies": ALL})
GRAPHS = Study("graphs", {"policies": ("uniform", "rl", "nearest", "best_response")}, trains=False)


def settings_of(study: Study, size: Size) -> tuple[Config, dict[str, Sequence[Any]]]:
    """The config and the axes of a study.

    Args:
        study: the study.
        size: toy, small or paper.
    """
    changes = dict(study.settings) | {"toy": TOY, "small": study.small, "paper": {}}[size]
    axes = dict(study.toy_axes or study.axes) if size == "toy" else dict(study.axes)
    return Config(**{key: value for key, value in changes.items() if key not in axes}), axes


def stand_in(config: Config, shape: tuple[int, ...] = (8, 8)) -> Dataset:
    """Images drawn in process, for figures of size toy: a pattern for each class, and noise.

    Args:
        config: names the data set whose classes and colours are imitated.
        shape: height and width.

    Returns:
        Uint8 images, [n, 8, 8, 1 or 3].
    """
    config = complete(config)
    rng = np.random.default_rng(0)
    y = np.arange(120 * config.num_classes, dtype=np.int32) % config.num_classes
    patterns = rng.normal(128, 30, (config.num_classes, *shape, SOURCES[config.dataset].shape[-1]))
    x = np.clip(patterns[y] + rng.normal(0, 45, (len(y), *patterns.shape[1:])), 0, 255).astype(np.uint8)
    names = tuple(f"class {number}" for number in range(config.num_classes))
    return Dataset(x, y, names, f"stand-in for {config.dataset}", "drawn in process")


def _reads_files(study: Study, config: Config) -> bool:
    return study.trains and SOURCES[config.dataset].maker is None


def check_data(study: Study, size: Size, data_dir: str | None = None) -> None:
    """Reads the data set of a study, so that one that is missing is known before hours of work on others.

    Raises:
        DataError: it cannot be found or read.
    """
    config, _ = settings_of(study, size)
    # What is made in process at any size is read instead where a folder is given.
    is_given = study.trains and not _reads_files(study, config) and data_dir is not None
    if is_given or (_reads_files(study, config) and size != "toy"):
        load_dataset(replace(complete(config), data_dir=data_dir))


def compute(
    study: Study,
    size: Size = "small",
    out: str | Path = "figures",
    *,
    seeds: int | None = None,
    data_dir: str | None = None,
    progress: bool = True,
) -> xarray.Dataset:
    """Computes a study, or goes on with it, or reads it where it is done.

    Args:
        study: the study.
        size: toy, small or paper.
        out: its results are kept in `<out>/<size>/<study.name>/results.zarr`.
        seeds: number of runs; none: 2, 8 or 100.
        data_dir: folder of the data set; none: the usual places.
        progress: shows progress on standard error.

    Returns:
        The results, as of `sweep`.

    Raises:
        ValueError: there are other results in the folder.
        DataError: the data set cannot be found or read.
    """
    config, axes = settings_of(study, size)
    # A toy shall not ask for files.
    data = stand_in(config) if _reads_files(study, config) and size == "toy" else None
    return sweep(
        replace(config, data_dir=data_dir) if data is None else complete(config),
        axes,
        seeds or SEEDS[size],
        Path(out) / size / study.name,
        data=data,
        training=study.trains,
        progress=progress,
    )
