"""What a config asks of a data set, and what the data set says: classes, owners, points to train and to test on."""

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

# --- what there is ---


def class_sizes(dataset: Dataset) -> np.ndarray:
    """Points of each class, [L] int.

    Args:
        dataset: points and labels.

    Returns:
        [L] int.
    """
    return np.bincount(dataset.y, minlength=dataset.num_classes)


def cells_of(dataset: Dataset) -> np.ndarray:
    """Number of owner and class of each point, [n] int64: owner after owner, class after class.

    Args:
        dataset: points with owners.

    Returns:
        [n] int64.
    """
    return np.asarray(dataset.owner, np.int64) * dataset.num_classes + dataset.y


def cell_sizes(dataset: Dataset) -> np.ndarray:
    """Points of each class that each owner has, held-out ones included, [N, L] int.

    Args:
        dataset: points with owners.

    Returns:
        [N, L] int.
    """
    owners = int(np.max(np.asarray(dataset.owner))) + 1
    return np.bincount(cells_of(dataset), minlength=owners * dataset.num_classes).reshape(owners, -1)


def owners_counts(dataset: Dataset, config: Config) -> np.ndarray:
    """Training points of each class that each owner has: `D`, [N, L] int32, equal in all runs.

    Args:
        dataset: points with owners.
        config: `test_fraction`.

    Returns:
        [N, L] int32.
    """
    sizes = cell_sizes(dataset)
    return (sizes - held_out_of_owners(sizes, config)).astype(np.int32)


def held_out_sizes(sizes: np.ndarray, config: Config) -> np.ndarray:
    """Held-out points of each class, [L] int: `test_fraction` of the class, rounded.

    Args:
        sizes: [L] int, points of each class.
        config: `test_fraction`.

    Returns:
        [L] int.
    """
    return np.rint(np.asarray(sizes) * config.test_fraction).astype(int)


def held_out_of_owners(sizes: np.ndarray, config: Config) -> np.ndarray:
    """Held-out points of each class of each owner, [N, L] int: `test_fraction` of the owner's points, rounded.

    Of each class an owner gives its share, rounded up or down: every so many-th point of a list sorted by class,
    from a place on that differs between owners. So owners with few points of each class together hold out about the
    same share of every class, and how many points a device has of a class does not depend on the seed.

    Args:
        sizes: points of each class that each owner has, [N, L] int.
        config: `test_fraction`.
    """
    # Ours: natural partitions are usually split at random within an owner, which leaves the counts to chance.
    sizes = np.asarray(sizes, np.int64)
    size = sizes.sum(axis=1, keepdims=True)
    held_out = np.rint(size * config.test_fraction).astype(np.int64)
    # Multiples of the golden ratio, which lie evenly between 0 and 1 for any number of owners.
    first = np.floor((np.arange(len(sizes)) * ((np.sqrt(5) - 1) / 2) % 1.0)[:, None] * size).astype(np.int64)
    return np.diff((np.cumsum(sizes, axis=1) * held_out + first) // size, axis=1, prepend=0)


# --- what the data say ---


def with_data(
    config: Config, data: Dataset | None, asked: np.ndarray | None = None, axes: Collection[str] = ()
) -> Config:
    """The config with all that data of one's own say of their classes and devices.

    Args:
        config: not validated.
        data: a data set of one's own; none: the one that the config names.
        asked: see `check_fits`.
        axes: settings of which each point of a sweep has its own value.

    Returns:
        The config, with `dataset="own"` for data of one's own.

    Raises:
        ValueError: the config contradicts the data, or data or counts of one's own should have been given.
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


# What says who the devices are and what is dealt to them; owners of points do.
OF_OWNERS = ("num_devices", "partition", "classes_per_device", "concentration", "shards_per_device")
OF_OWNERS += ("points_per_device",)


def _of_owners(config: Config, dataset: Dataset, axes: Collection[str]) -> Config:
    """A config whose devices are the owners of the points of a data set; a second call changes nothing.

    Nothing is dealt: `partition="own"`, which does not use the settings of other partitions. `points_per_device`,
    which then is only in bounds, is what an owner has on average, rounded up.
    """
    sizes = cell_sizes(dataset)
    wrong = [name for name in OF_OWNERS if name in axes]
    if wrong:
        raise ValueError(f"{wrong[0]} cannot be an axis where points have owners, as in {dataset.name}")
    # Whoever leaves a setting at its default has not said it.
    if config.num_devices not in (len(sizes), Config.num_devices):
        raise ValueError(
            f"num_devices must be {len(sizes)}, the owners of {dataset.name}; got {config.num_devices}"
        )
    if config.partition not in ("own", Config.partition):
        raise ValueError(
            f"partition must be 'own', as the points of {dataset.name} have owners; got {shown(config.partition)}"
        )
    # Ours: no paper has devices with points of their own.
    average = -(-sizes.sum() // len(sizes))
    return replace(config, num_devices=len(sizes), partition="own", points_per_device=int(average))


# --- what is asked ---


def check_fits(
    dataset: Dataset | Description, config: Config, asked: np.ndarray | None = None, *, trains: bool = True
) -> None:
    """Checks that a data set has what a config asks for.

    Args:
        dataset: any labelled data set.
        config: a validated config.
        asked: [L] int, points of each class that all devices have at most, where their counts are given; none: what
            the partition may deal.
        trains: the points themselves are used; a graph depends on their numbers alone, which owners have.

    Raises:
        ValueError: config and data set differ in the number of classes or of owners, or a class has too few points
            for training, or none for testing; one line says which.
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
    """Checks that the owners of points are the devices, and that there are points for training and for testing.

    An owner may be left without a training point; it then weighs nothing wherever devices are averaged.
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
    """Checks that every class, of which there are `sizes` points, has those that the devices may ask for."""
    who = "counts of the network ask"
    if asked is None:
        asked = np.full(len(sizes), most_points_asked(config))
        who = f"points_per_device={config.points_per_device} for num_devices={config.num_devices} asks"
    available = sizes - held_out_sizes(sizes, config)
    for name, most, there in zip(class_names, asked.tolist(), available.tolist(), strict=True):
        if most > there:
            raise ValueError(f"{who} for up to {most} training points of class {name!r}; {there} are available")
    if held_out_sizes(sizes, config).min() < 1:
        raise ValueError(f"test_fraction={config.test_fraction} leaves a class without a held-out point")


def options_of(config: Config, asked: np.ndarray | None = None) -> dict[str, Any]:
    """What the data set that a config names is loaded with; `asked` as of `check_fits`."""
    source = SOURCES[config.dataset]
    found = all_options(source, config, asked)
    return found if config.data_dir is None else {name: found[name] for name in source.settings}


def all_options(source: Source, config: Config, asked: np.ndarray | None = None) -> dict[str, Any]:
    """The settings that points of a data set depend on, and how many are made, where any are; see `check_fits`."""
    found = {name: getattr(config, name) for name in source.settings}
    if source.maker is None:
        return found
    # One more than the share says: the held-out part is rounded.
    needed = (most_points_asked(config) if asked is None else asked.max()) / (1.0 - config.test_fraction) + 1.0
    return found | source.maker.amount(needed, **found)


def load_dataset(config: Config, asked: np.ndarray | None = None) -> Dataset:
    """Loads the data set that a validated config names; of points made in process, as many as are needed.

    Args:
        config: a validated config.
        asked: as of `check_fits`.

    Returns:
        The data set.

    Raises:
        DataError: the data set cannot be found or read.
    """
    return load(config.dataset, config.data_dir, **options_of(config, asked))


def what_is_read(config: Config, asked: np.ndarray | None = None) -> tuple[Any, ...]:
    """What is equal for configs that read the same data set; `asked` as of `check_fits`."""
    return config.dataset, config.data_dir, options_of(config, asked)


def described(config: Config) -> Description:
    """What is known of the data set that a config names without reading it."""
    found = describe(config.dataset)
    if config.data_dir is None or found.num_classes == config.num_classes:
        return found
    # A file may hold fewer modulations; it is not read for their names.
    return replace(found, class_names=tuple(f"class {number}" for number in range(config.num_classes)))
