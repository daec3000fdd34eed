"""Matches configs and data sets: classes, owners, and points for training and testing."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np

from d2djax.checks import shown
from d2djax.config import Config
from d2djax.data import SOURCES, Dataset, Description, describe, load
from d2djax.data.source import Source
from d2djax.partition import check_dealt, most_points_asked

# --- sizes of a data set ---


def class_sizes(dataset: Dataset) -> np.ndarray:
    """[L] int, points of each class."""
    return np.bincount(dataset.y, minlength=dataset.num_classes)


def cells_of(dataset: Dataset) -> np.ndarray:
    """[n] int64, the cell `owner * L + class` of each point; the points must have owners."""
    return np.asarray(dataset.owner, np.int64) * dataset.num_classes + dataset.y


def cell_sizes(dataset: Dataset) -> np.ndarray:
    """[N, L] int, points of each class of each owner, held-out ones included; the points must have owners."""
    owners = int(np.max(np.asarray(dataset.owner))) + 1
    return np.bincount(cells_of(dataset), minlength=owners * dataset.num_classes).reshape(owners, -1)


def owners_counts(dataset: Dataset, config: Config) -> np.ndarray:
    """Training points of each class of each owner, the same in all runs.

    Args:
        dataset: points with owners.
        config: `test_fraction`.

    Returns:
        `D`, [N, L] int32.
    """
    sizes = cell_sizes(dataset)
    return (sizes - held_out_of_owners(sizes, config)).astype(np.int32)


def held_out_sizes(sizes: np.ndarray, config: Config) -> np.ndarray:
    """Held-out points of each class: `test_fraction` of the class, rounded.

    Args:
        sizes: [L] int, points of each class.
        config: `test_fraction`.

    Returns:
        [L] int.
    """
    return np.rint(np.asarray(sizes) * config.test_fraction).astype(int)


def held_out_of_owners(sizes: np.ndarray, config: Config) -> np.ndarray:
    """Held-out points of each class of each owner: in total `test_fraction` of the owner's points, rounded.

    The share of each class is rounded up or down by systematic sampling: evenly spaced points of the owner's list,
    sorted by class, with a start that differs between owners. Owners with few points per class thus together hold
    out about the same share of each class, and the counts of a device do not depend on the seed.

    Args:
        sizes: [N, L] int, points of each class of each owner.
        config: `test_fraction`.

    Returns:
        [N, L] int64.
    """
    # Ours: natural partitions are usually split at random within each owner, which makes the counts random.
    sizes = np.asarray(sizes, np.int64)
    size = sizes.sum(axis=1, keepdims=True)
    held_out = np.rint(size * config.test_fraction).astype(np.int64)
    # Multiples of the golden ratio modulo 1, which are evenly spread for any number of owners.
    first = np.floor((np.arange(len(sizes)) * ((np.sqrt(5) - 1) / 2) % 1.0)[:, None] * size).astype(np.int64)
    return np.diff((np.cumsum(sizes, axis=1) * held_out + first) // size, axis=1, prepend=0)


# --- settings that follow from the data ---


def with_data(
    config: Config, data: Dataset | None, asked: np.ndarray | None = None, axes: Collection[str] = ()
) -> Config:
    """Sets the settings of a config that follow from custom data: classes and owners.

    Args:
        config: not validated.
        data: custom data; None: the data set that the config names.
        asked: see `check_fits`.
        axes: names of the settings that are axes.

    Returns:
        The config, with `dataset="own"` for custom data.

    Raises:
        ValueError: the config contradicts the data, or needs custom data or counts that are not given.
    """
    if data is not None:
        if config.data_dir is not None:
            raise ValueError(f"data and data_dir={shown(config.data_dir)} name two data sets; give one of them")
        config = replace(config, dataset="own", num_classes=config.num_classes or data.num_classes)
    elif config.dataset == "own":
        raise ValueError(
            "dataset='own' stands for points of your own: --data mine.npz, or in Python run(config, "
            "data=Dataset(...))"
        )
    if data is not None and data.owner is not None:
        return _of_owners(config, data, axes)
    if asked is None:
        if data is not None and config.partition == "own":
            raise ValueError(f"partition='own' stands for points that have owners; {data.name} has none")
        check_dealt(config)
    return config


# The settings that owners of points determine: the devices and their points.
OF_OWNERS = ("num_devices", "partition", "classes_per_device", "concentration", "shards_per_device")
OF_OWNERS += ("points_per_device",)


def _of_owners(config: Config, dataset: Dataset, axes: Collection[str]) -> Config:
    """A config whose devices are the owners of the points of a data set; idempotent.

    The partition is "own", which ignores the settings of other partitions. `points_per_device`, then used only in
    bounds, is the mean number of points of an owner, rounded up.
    """
    sizes = cell_sizes(dataset)
    wrong = [name for name in OF_OWNERS if name in axes]
    if wrong:
        raise ValueError(f"{wrong[0]} cannot be an axis if points have owners, as in {dataset.name}")
    if len(sizes) < 2:
        raise ValueError(f"the points of {dataset.name} must have at least 2 owners; got {len(sizes)}")
    # A setting at its default counts as not set.
    if config.num_devices not in (len(sizes), Config.num_devices):
        raise ValueError(
            f"num_devices must be {len(sizes)}, the owners of {dataset.name}; got {config.num_devices}"
        )
    if config.partition not in ("own", Config.partition):
        raise ValueError(
            f"partition must be 'own', as the points of {dataset.name} have owners; got {shown(config.partition)}"
        )
    # Ours: no paper has devices that own their points.
    average = -(-sizes.sum() // len(sizes))
    return replace(config, num_devices=len(sizes), partition="own", points_per_device=int(average))


# --- points that a config needs ---


def check_fits(
    dataset: Dataset | Description, config: Config, asked: np.ndarray | None = None, *, trains: bool = True
) -> None:
    """Checks that a data set has the classes, owners and points that a config needs.

    Args:
        dataset: any labelled data set.
        config: a validated config.
        asked: [L] int, most points of each class that all devices need, if counts are given; None: the need of the
            partition.
        trains: whether the points are used; discovery needs only their numbers.

    Raises:
        ValueError: the config has another number of classes or owners than the data set, or a class has too few
            points for training or none for testing; one line names the fault.
    """
    if dataset.num_classes != config.num_classes:
        raise ValueError(
            f"num_classes must be {dataset.num_classes}, the classes of {dataset.name}; got {config.num_classes}"
        )
    if isinstance(dataset, Dataset) and dataset.owner is not None:
        _check_owners(dataset, config)
    elif isinstance(dataset, Dataset) and trains:
        check_supply(class_sizes(dataset), dataset.class_names, config, asked)


def _check_owners(dataset: Dataset, config: Config) -> None:
    """Checks that the owners are the devices, and that there are points for training and testing.

    A single owner may have no training points; it then has weight 0 in all averages.
    """
    sizes, counts = cell_sizes(dataset), owners_counts(dataset, config)
    if (config.num_devices, config.partition) != (len(sizes), "own"):
        raise ValueError(
            f"num_devices must be {len(sizes)}, the owners of {dataset.name}, and partition 'own'; "
            f"got {config.num_devices} and {config.partition!r}"
        )
    for name, held_out in zip(dataset.class_names, (sizes - counts).sum(axis=0), strict=True):
        if held_out < 1:
            raise ValueError(f"test_fraction={config.test_fraction} leaves class {name!r} without a held-out point")
    if counts.sum() < 1:
        raise ValueError(f"test_fraction={config.test_fraction} leaves no owner a point for training")


def check_supply(
    sizes: np.ndarray, class_names: tuple[str, ...], config: Config, asked: np.ndarray | None = None
) -> None:
    """Checks that each class has enough points; `sizes` [L] int, `asked` as in `check_fits`.

    Raises:
        ValueError: a class has too few points for training, or none for testing.
    """
    who = "counts of the network need"
    if asked is None:
        asked = np.full(len(sizes), most_points_asked(config))
        who = f"points_per_device={config.points_per_device} for num_devices={config.num_devices} needs"
    available = sizes - held_out_sizes(sizes, config)
    for name, most, there in zip(class_names, asked.tolist(), available.tolist(), strict=True):
        if most > there:
            raise ValueError(f"{who} up to {most} training points of class {name!r}; {there} are available")
    if held_out_sizes(sizes, config).min() < 1:
        raise ValueError(f"test_fraction={config.test_fraction} leaves a class without a held-out point")


def options_of(config: Config, asked: np.ndarray | None = None) -> dict[str, Any]:
    """Options of `data.load` for the data set that a config names.

    Args:
        config: a validated config.
        asked: see `check_fits`.

    Returns:
        Options by name; without those of synthesis if a folder is given.
    """
    source = SOURCES[config.dataset]
    found = all_options(source, config, asked)
    return found if config.data_dir is None else {name: found[name] for name in source.settings}


def all_options(source: Source, config: Config, asked: np.ndarray | None = None) -> dict[str, Any]:
    """The options that determine the points of a data set, and their number if they are synthesised.

    Args:
        source: the built-in data set.
        config: a validated config.
        asked: see `check_fits`.

    Returns:
        Options of `data.load`, by name.
    """
    found = {name: getattr(config, name) for name in source.settings}
    if source.maker is None:
        return found
    # One extra point, since the held-out part is rounded.
    needed = (most_points_asked(config) if asked is None else asked.max()) / (1.0 - config.test_fraction) + 1.0
    return found | source.maker.amount(needed, **found)


def load_dataset(config: Config, asked: np.ndarray | None = None) -> Dataset:
    """Loads the data set that a validated config names; synthesises as many points as needed.

    Args:
        config: a validated config.
        asked: see `check_fits`.

    Returns:
        The data set.

    Raises:
        DataError: the data set cannot be found or read.
    """
    return load(config.dataset, config.data_dir, **options_of(config, asked))


def what_is_read(config: Config, asked: np.ndarray | None = None) -> tuple[Any, ...]:
    """A key that is equal for configs that read the same data; `asked` as in `check_fits`."""
    return config.dataset, config.data_dir, options_of(config, asked)


def described(config: Config) -> Description:
    """Describes the data set that a config names, without reading it.

    Args:
        config: `dataset`, `data_dir` and `num_classes`.
    """
    found = describe(config.dataset)
    if config.data_dir is None or found.num_classes == config.num_classes:
        return found
    # A file may hold fewer modulations, whose names are unknown until it is read.
    return replace(found, class_names=tuple(f"class {number}" for number in range(config.num_classes)))
