"""The points themselves (Section IV-A): the held-out split, and which points each device starts with."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from d2djax.checks import check_shape, check_values, is_traced, shown
from d2djax.config import Config
from d2djax.data.types import Dataset, Description
from d2djax.partition import labels, most_points_asked, num_points
from d2djax.rng import Stream, at

# Windows of a modulation and SNR with ten SNRs, what 25 devices with 990 points of 4 classes may ask for.
FEWEST_WINDOWS = 404


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Owned:
    """Points that belong to somebody: whose each is, and which places of a shuffled list are held out.

    Attributes:
        counts: `D`, [N, L] int32, training points of each class that each owner has.
        cell: [n] int32, number of owner and class of each point; the points of the data set are sorted by it.
        test: int32, places of the held-out points, after the points of each cell were shuffled.
        train: int32, places of all others.
    """

    counts: Array
    cell: Array
    test: Array
    train: Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Points:
    """All points of a data set on the accelerator, sorted by class; by owner first where they have one.

    Attributes:
        x: [n, ...] uint8 or float32, as in the data set.
        y: [n] int32, class.
        mean: [] float32, mean of all bytes of images; 0 for other inputs.
        std: [] float32, standard deviation of all bytes of images; 1 for other inputs.
        sizes: points of each class. Static.
        owned: whose they are; none: nobody's.
    """

    x: Array
    y: Array
    mean: Array
    std: Array
    sizes: tuple[int, ...] = field(metadata={"static": True})
    owned: Owned | None = None

    @property
    def bits_per_point(self) -> float:
        """Size of a point when it is sent: 8 bits a byte of an image, 64 a complex sample."""
        return bits_per_point(self.x.shape[1:], self.x.dtype)


def bits_per_point(shape: tuple[int, ...], dtype: np.dtype) -> float:
    """Size of a point of a shape when it is sent: 8 bits a byte of an image, 64 a complex sample."""
    return 8.0 * dtype.itemsize * int(np.prod(shape))


def check_classes(dataset: Dataset | Description, config: Config) -> None:
    """Checks that a data set has as many classes as a validated config says.

    Raises:
        ValueError: it has another number of them.
    """
    if dataset.num_classes != config.num_classes:
        raise ValueError(
            f"num_classes must be {dataset.num_classes}, the classes of {dataset.name}; got {config.num_classes}"
        )


def check_fits(dataset: Dataset, config: Config, asked: np.ndarray | None = None) -> None:
    """Checks that a data set has what a config asks for.

    Args:
        dataset: any labelled data set.
        config: a validated config; its `num_classes` must be that of the data set.
        asked: see `check_supply`.

    Raises:
        ValueError: config and data set differ in the number of classes, or a class has too few points for the
            config.
    """
    check_classes(dataset, config)
    if dataset.owner is None:
        check_supply(_sizes(dataset), dataset.class_names, config, asked)
    else:
        check_owners(dataset, config)


# What is dealt to whom where points are nobody's.
OF_PARTITION = ("partition", "classes_per_device", "concentration", "shards_per_device", "points_per_device")


def of_owners(config: Config, dataset: Dataset, axes: Collection[str] = ()) -> Config:
    """A config whose devices are the owners of the points of a data set; a second call changes nothing.

    `num_devices` is their number, and nothing is dealt: `partition="own"`, which does not use the settings of other
    partitions. `points_per_device`, which then is only in bounds, is what an owner has on average, rounded up.

    Args:
        config: not validated.
        dataset: points that have owners.
        axes: settings of which each point of a sweep has its own value.

    Raises:
        ValueError: the number of devices, the partition or an axis contradicts the owners.
    """
    sizes = cell_sizes(dataset)
    wrong = [name for name in ("num_devices", *OF_PARTITION) if name in axes]
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


def check_owners(dataset: Dataset, config: Config) -> None:
    """Checks that the owners of points are the devices, and that there are points for training and for testing.

    An owner may be left without a training point; it then weighs nothing wherever devices are averaged.

    Raises:
        ValueError: one line with the setting, the rule and what was found.
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


def _sizes(dataset: Dataset) -> np.ndarray:
    """Points of each class, [L] int."""
    return np.bincount(dataset.y, minlength=dataset.num_classes)


def arrange(dataset: Dataset, config: Config, asked: np.ndarray | None = None) -> Points:
    """Sorts the points of a data set by class and puts them on the accelerator, once for all runs.

    Arguments and errors as of `check_fits`.
    """
    check_fits(dataset, config, asked)
    order = np.argsort(dataset.y if dataset.owner is None else _cells(dataset), kind="stable")
    mean, std = _moments(dataset.x)
    return Points(
        x=jnp.asarray(dataset.x[order]),
        y=jnp.asarray(dataset.y[order], jnp.int32),
        mean=jnp.float32(mean),
        std=jnp.float32(std),
        sizes=tuple(int(size) for size in _sizes(dataset)),
        owned=owned_of(dataset, config),
    )


def _cells(dataset: Dataset) -> np.ndarray:
    """Number of owner and class of each point, [n] int64: owner after owner, class after class."""
    return np.asarray(dataset.owner, np.int64) * dataset.num_classes + dataset.y


def cell_sizes(dataset: Dataset) -> np.ndarray:
    """Points of each class that each owner has, held-out ones included, [N, L] int."""
    owners = int(np.max(np.asarray(dataset.owner))) + 1
    return np.bincount(_cells(dataset), minlength=owners * dataset.num_classes).reshape(owners, -1)


def owners_counts(dataset: Dataset, config: Config) -> np.ndarray:
    """Training points of each class that each owner has: `D`, [N, L] int32, equal in all runs."""
    sizes = cell_sizes(dataset)
    return (sizes - held_out_of_owners(sizes, config)).astype(np.int32)


def owned_of(dataset: Dataset, config: Config) -> Owned | None:
    """Whose the points of a data set are, and which places are held out; none if they are nobody's."""
    if dataset.owner is None:
        return None
    sizes, counts = cell_sizes(dataset).reshape(-1), owners_counts(dataset, config)
    cell = labels(sizes)
    place = np.arange(len(cell)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    is_test = place < (sizes - counts.reshape(-1))[cell]
    places = [np.flatnonzero(one).astype(np.int32) for one in (is_test, ~is_test)]
    return Owned(*map(jnp.asarray, (counts, cell, *places)))


def _moments(x: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation of all bytes of images; 0 and 1, which change nothing, for other inputs."""
    if x.dtype != np.uint8:
        return 0.0, 1.0
    # In blocks: the count of bytes takes eight times the memory of what it counts.
    blocks = np.array_split(x.reshape(-1), -(-x.size // 2**22))
    share = sum(np.bincount(block, minlength=256) for block in blocks) / x.size
    mean = share @ np.arange(256)
    return float(mean), float(np.sqrt(share @ (np.arange(256) - mean) ** 2)) or 1.0


def inputs(points: Points, numbers: Array) -> Array:
    """Inputs of a model: images are standardised where they are used, so that bytes stay bytes at rest.

    Args:
        points: all points.
        numbers: [...] int32, numbers of points.

    Returns:
        [..., *shape of a point] float32; images with mean 0 and standard deviation 1 over the data set, other
        inputs as they are.
    """
    return (points.x[numbers].astype(jnp.float32) - points.mean) / points.std


def windows_per_key(config: Config, asked: np.ndarray | None = None) -> int:
    """Radio windows of each modulation and SNR: enough for the paper's setting, more if the devices ask for more.

    A fixed number for all small settings keeps their held-out points the same. `asked` as of `check_supply`.
    """
    num_snrs = sum(snr >= config.min_snr for snr in range(-20, 20, 2))
    # One more than the share says: the held-out part is rounded.
    needed = (most_points_asked(config) if asked is None else asked.max()) / (1.0 - config.test_fraction) + 1.0
    return max(FEWEST_WINDOWS * 10 // num_snrs, int(np.ceil(needed / num_snrs)))


def held_out_sizes(sizes: np.ndarray, config: Config) -> np.ndarray:
    """Held-out points of each class, [L] int: `test_fraction` of the class, rounded."""
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


def check_supply(
    sizes: np.ndarray, class_names: tuple[str, ...], config: Config, asked: np.ndarray | None = None
) -> None:
    """Checks that every class has the training points that the devices may ask for.

    Args:
        sizes: [L] int, points of each class in the data set.
        class_names: `L` names.
        config: the completed config.
        asked: [L] int, points of each class that all devices have at most, where their counts are given; none: what
            the partition may deal.

    Raises:
        ValueError: names the class, the points asked and the points available; or no point of a class is held out.
    """
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


def _shuffled(key: Array, group: Array) -> Array:
    """Numbers of points, [n] int32, in the order of their groups, which are sorted; shuffled within each."""
    bits = jax.random.bits(at(key, Stream.SPLIT), group.shape)
    point = jnp.arange(group.shape[0], dtype=jnp.int32)
    return jax.lax.sort((group, bits, point), num_keys=2)[2]


def split(key: Array, sizes: tuple[int, ...], config: Config) -> tuple[Array, Array]:
    """Shuffles each class and holds out the first `test_fraction` of it.

    Args:
        key: key of the run.
        sizes: points of each class; the points of the data set are sorted by class.
        config: `test_fraction`.

    Returns:
        `(test, train)`: int32 numbers of points, each sorted by class and shuffled within a class.
    """
    shuffled = _shuffled(key, jnp.asarray(labels(sizes)))
    held_out = held_out_sizes(np.array(sizes), config)
    is_test = np.concatenate([np.arange(size) < held for size, held in zip(sizes, held_out, strict=True)])
    return shuffled[np.flatnonzero(is_test)], shuffled[np.flatnonzero(~is_test)]


def sum_before(sizes: Array) -> Array:
    """Sum of all earlier rows, [N, ...] int32 to the same.

    A product with a triangle of ones is one kernel, a running sum of many rows several; whole numbers are exact.
    """
    triangle = jnp.tril(jnp.ones((sizes.shape[0],) * 2, sizes.dtype), -1)
    return jnp.tensordot(triangle, sizes, axes=1)


def cell_starts(counts: Array) -> Array:
    """Where each device's points of each class begin in a list device after device, class after class.

    Args:
        counts: `D`, [N, L] int32.

    Returns:
        [N, L] int32.
    """
    return sum_before(jnp.sum(counts, axis=1))[:, None] + jnp.cumsum(counts, axis=1) - counts


def _sum(counts: Array, axis: int | None) -> Any:
    """Exact sums outside `jit`, where they are checked; what is traced is not known yet."""
    return counts if is_traced(counts) else np.asarray(counts).sum(axis, dtype=np.int64)


def check_counts(counts: Array, total: int, is_full: bool = True) -> None:
    """Checks counts outside `jit`: whole, 0 or more, and as many in all as there are points.

    Args:
        counts: [N, L] points of each class that each device has.
        total: points, or places for them.
        is_full: every place has a point; otherwise there may be fewer.

    Raises:
        ValueError: they are not.
    """
    whole = lambda values: (values >= 0) & (values == np.floor(values))  # noqa: E731
    check_values("counts", counts, "whole numbers, 0 or more", whole)
    rule = f"the {total} points" if is_full else f"at most the {total} places"
    fits = lambda values: (values == total) if is_full else (values <= total)  # noqa: E731
    check_values("sum of counts", _sum(counts, None), rule, fits)


def assign(train: Array, counts: Array, sizes: tuple[int, ...], config: Config, places: int | None = None) -> Array:
    """Gives each device its points: no point to two devices.

    Args:
        train: [n] int32, numbers of the training points, sorted by class and shuffled within a class.
        counts: `D`, [N, L] int32, points that each device gets of each class; they sum to `N P`.
        sizes: points of each class in the data set.
        config: `num_devices` N, `points_per_device` P.
        places: length of the list where counts are given, which may sum to any number up to it; none: `N P`.

    Returns:
        [N P] or [places] int32, numbers of points, device after device, each device's sorted by class; -1 behind
        those of the last device.

    Raises:
        ValueError: shapes do not agree, or outside `jit` the counts do not add up to what there is.

    Example:
        Five training points, of class a 7, 5 and 6, of class b 9 and 8. Device 0 gets one of each class, device 1
        two of class a and one of class b: four cells, device after device.

            place in the list          0    1    2    3    4
            cell                      0 a  0 b  1 a  1 a  1 b
            place in training points   0    3    1    2    4    class b begins at 3
            shift between the two      0   +2   -1   -1    0    the same in all of a cell
            steps                      0   +2   -3    0   +1    at the cells' starts; the shift is their running sum
            point                      7    9    5    6    8

        >>> config = Config(num_devices=2)
        >>> assign(jnp.array([7, 5, 6, 9, 8]), jnp.array([[1, 1], [2, 1]]), (4, 2), config, places=5).tolist()
        [7, 9, 5, 6, 8]
    """
    left = np.array(sizes) - held_out_sizes(np.array(sizes), config)
    total = num_points(config) if places is None else places
    check_shape("counts", counts, (config.num_devices, len(sizes)), "[N, L]")
    check_shape("train", train, (left.sum(),), "the training points, [n]")
    check_counts(counts, total, is_full=places is None)
    check_values(
        "sum of counts over the devices",
        _sum(counts, 0),
        f"at most the training points of each class, {left.tolist()}",
        lambda values: values <= left,
    )
    class_start = jnp.asarray(np.concatenate([[0], np.cumsum(left)[:-1]]), jnp.int32)
    # A device's first point of a class comes after those of the devices before it.
    first = class_start[None, :] + sum_before(counts)
    start = cell_starts(counts).reshape(-1)
    # From a place in the list to a place among the training points: the same for all points of a cell, so along
    # the list a running sum of steps at the cells' starts.
    shift = first.reshape(-1) - start
    step = jnp.zeros(total + 1, jnp.int32).at[start].add(jnp.diff(shift, prepend=0))
    place = jnp.arange(total)
    dealt = train[place + jnp.cumsum(step)[:-1]]
    return dealt if places is None else jnp.where(place < jnp.sum(counts), dealt, -1)


def deal(
    key: Array, points: Points, counts: Array, config: Config, places: int | None = None
) -> tuple[Array, Array]:
    """Holds points out, and gives each device those that it trains on: its own, or what is dealt to it.

    Args:
        key: key of the run.
        points: all points.
        counts: `D`, [N, L] int32; those of the owners where points have one.
        config: as of `split` and `assign`.
        places: see `assign`.

    Returns:
        `(test, dealt)`: numbers of the held-out points and, as `assign` lists them, of the others.
    """
    if points.owned is not None:
        shuffled = _shuffled(key, points.owned.cell)
        return shuffled[points.owned.test], shuffled[points.owned.train]
    test, spare = split(key, points.sizes, config)
    return test, assign(spare, counts, points.sizes, config, places)
