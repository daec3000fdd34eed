"""The studies behind the figures (Section IV-B and beyond): each is one sweep, in three sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from d2djax.config import Config, PolicyName, complete
from d2djax.data import SOURCES, Dataset
from d2djax.regimes import REGIMES
from d2djax.running.sweeps import sweep
from d2djax.supply import load_dataset

if TYPE_CHECKING:
    import xarray

Size = Literal["toy", "small", "paper"]
# Number of runs of each point.
SEEDS: dict[Size, int] = {"toy": 2, "small": 8, "paper": 100}
COMPARED: tuple[PolicyName, ...] = ("none", "uniform", "rl")
# Listed explicitly, so that a new policy does not change the figures of the paper.
ALL: tuple[PolicyName, ...] = ("none", "uniform", "rl", "nearest", "best_response", "pooled")
# Toy settings take seconds instead of minutes or hours. Their results only show that everything works.
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
        settings: settings that differ from the defaults.
        axes: values of each axis.
        trains: whether the runs train; otherwise they stop after discovery, and no data are read.
        small: further settings for size small.
        toy_axes: values of each axis for size toy.
    """

    name: str
    settings: Mapping[str, Any]
    axes: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    trains: bool = True
    small: Mapping[str, Any] = field(default_factory=dict)
    toy_axes: Mapping[str, Sequence[Any]] = field(default_factory=dict)


# 6,000 images, 600 per class, suffice for 25 devices with 144 points each; the threshold is scaled with the points.
SMALL_CIFAR = {
    "policies": COMPARED,
    "points_per_device": 144,
    "threshold": 7.0,
    "num_steps": 150,
    "aggregation_interval": 15,
    "batch_size": 16,
}
# Studies that several figures share; a study of a single figure is defined with the figure.
RADIOML = Study("radioml", {"dataset": "radioml", "policies": ALL})
CIFAR10 = Study("cifar10", {"dataset": "cifar10", "policies": ALL}, small=SMALL_CIFAR)
FASHION_MNIST = Study("fashion_mnist", {"dataset": "fashion_mnist", "policies": ALL})
GRAPHS = Study("graphs", {"policies": ("uniform", "rl", "nearest", "best_response")}, trains=False)
# Ours: all policies that choose a graph of 25 devices, with 1,000 episodes of each channel state.
LEAGUE: tuple[PolicyName, ...] = (
    *("uniform", "nearest", "exponential", "offers"),
    *("rl", "epsilon_greedy", "ucb", "thompson", "gumbel", "exp3", "commit", "informed"),
    *("matching", "best_response"),
)
REGIME_STUDIES = tuple(
    Study(f"league_{name}", {"num_states": 4, "policies": LEAGUE} | settings, trains=False)
    for name, settings in REGIMES.items()
)


def settings_of(study: Study, size: Size) -> tuple[Config, dict[str, Sequence[Any]]]:
    """Returns the config of a study, and the values of each axis.

    Args:
        study: the study.
        size: toy, small or paper.
    """
    changes = dict(study.settings) | {"toy": TOY, "small": study.small, "paper": {}}[size]
    axes = dict(study.toy_axes or study.axes) if size == "toy" else dict(study.axes)
    return Config(**{key: value for key, value in changes.items() if key not in axes}), axes


def stand_in(config: Config, shape: tuple[int, ...] = (8, 8)) -> Dataset:
    """Generates synthetic images for figures of size toy: a pattern for each class, with noise.

    Args:
        config: names the data set whose number of classes and colour channels the images get.
        shape: height and width, pixels.

    Returns:
        A data set of uint8 images, [120 L, height, width, 1 or 3].
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
    """Reads the data set of a study, so that missing files are reported before hours of work on other studies.

    Args:
        study: the study.
        size: toy, small or paper.
        data_dir: folder of the data set; None: the standard folders.

    Raises:
        DataError: the data set cannot be found or read.
    """
    config, _ = settings_of(study, size)
    # A given folder replaces synthetic data of any size.
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
    """Computes a study, resumes it, or reads its finished results.

    Args:
        study: the study.
        size: toy, small or paper.
        out: folder; the results go to `<out>/<size>/<study.name>/results.zarr`.
        seeds: number of runs of each point; None: 2, 8 or 100 by size.
        data_dir: folder of the data set; None: the standard folders.
        progress: whether to show progress on standard error.

    Returns:
        The results, see `sweep`.

    Raises:
        ValueError: the folder holds other results.
        DataError: the data set cannot be found or read.
    """
    config, axes = settings_of(study, size)
    # Size toy needs no files.
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
