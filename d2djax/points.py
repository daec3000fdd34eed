"""The points themselves (Section IV-A): the held-out split, and which points each device starts with."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from d2djax.checks import check_shape, check_values, is_traced
from d2djax.config import Config
from d2djax.data import Dataset
from d2djax.partition import labels, num_points
from d2djax.rng import Stream, at
from d2djax.supply import cell_sizes, cells_of, check_fits, class_sizes, held_out_sizes, owners_counts


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
    """Size of a point of a shape when it is sent: 8 bits a byte of an image, 64 a complex sample.

    Args:
        shape: of a point.
        dtype: of its numbers.

    Returns:
        Bits.
    """
    return 8.0 * dtype.itemsize * int(np.prod(shape))


def arrange(
    dataset: Dataset, config: Config, asked: np.ndarray | None = None, like: Points | None = None
) -> Points:
    """Sorts the points of a data set by class and puts them on the accelerator, once for all runs.

    Args:
        dataset: points and labels.
        config: a validated config, which the data set must fit.
        asked: [L] int, points of each class that all devices have at most, where their counts are given; none: what
            the partition may deal.
        like: points of the same data set that are on the accelerator already; they are not copied again.

    Returns:
        The points, which all runs share.

    Raises:
        ValueError: config and data set differ in the number of classes or of owners, or a class has too few points
            for training, or none for testing; one line says which.
    """
    check_fits(dataset, config, asked)
    owned = owned_of(dataset, config)
    if like is not None:
        # The arrays themselves: each copy would take the memory of the whole data set on every device.
        return replace(like, owned=owned)
    order = np.argsort(dataset.y if dataset.owner is None else cells_of(dataset), kind="stable")
    mean, std = _moments(dataset.x)
    return Points(
        x=jnp.asarray(dataset.x[order]),
        y=jnp.asarray(dataset.y[order], jnp.int32),
        mean=jnp.float32(mean),
        std=jnp.float32(std),
        sizes=tuple(int(size) for size in class_sizes(dataset)),
        owned=owned,
    )


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
