"""The data points (Section IV-A): the held-out split, and the points that each device starts with."""

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
    """Ownership of points: the cell (owner and class) of each point, and the held-out positions.

    Attributes:
        counts: `D`, [N, L] int32, training points of each class of each owner.
        cell: [n] int32, `owner * L + class` of each point, ascending.
        test: [n_test] int32, positions of the held-out points after shuffling within each cell.
        train: [n - n_test] int32, positions of all other points.
    """

    counts: Array
    cell: Array
    test: Array
    train: Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Points:
    """All points of a data set on the accelerator, sorted by class, or by owner and class.

    Attributes:
        x: [n, ...] uint8 or float32, as in the data set.
        y: [n] int32, class.
        mean: [] float32, mean of all bytes of images; 0 for other inputs.
        std: [] float32, standard deviation of all bytes of images; 1 for other inputs.
        sizes: points of each class. Static.
        owned: the owners of the points; None if they have none.
    """

    x: Array
    y: Array
    mean: Array
    std: Array
    sizes: tuple[int, ...] = field(metadata={"static": True})
    owned: Owned | None = None

    @property
    def bits_per_point(self) -> float:
        """Size of a transmitted point in bits; see the function `bits_per_point`."""
        return bits_per_point(self.x.shape[1:], self.x.dtype)


def bits_per_point(shape: tuple[int, ...], dtype: np.dtype) -> float:
    """Size of a transmitted point in bits: 8 per byte of an image, 64 per complex sample.

    Args:
        shape: shape of a point.
        dtype: type of its numbers.
    """
    return 8.0 * dtype.itemsize * int(np.prod(shape))


def arrange(
    dataset: Dataset, config: Config, asked: np.ndarray | None = None, like: Points | None = None
) -> Points:
    """Sorts the points of a data set by class, and puts them on the accelerator once for all runs.

    Args:
        dataset: points and labels.
        config: a validated config.
        asked: [L] int, most points of each class that all devices need, if counts are given; None: the need of the
            partition.
        like: points of the same data set that are already on the accelerator; their arrays are reused.

    Returns:
        The points, which all runs share.

    Raises:
        ValueError: the config has another number of classes or owners than the data set, or a class has too few
            points for training or none for testing; one line names the fault.
    """
    check_fits(dataset, config, asked)
    owned = owned_of(dataset, config)
    if like is not None:
        # Shares the arrays: a copy would take the memory of the whole data set on each accelerator.
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
    """The owners of a data set's points, and the held-out positions; None if points have no owners."""
    if dataset.owner is None:
        return None
    sizes, counts = cell_sizes(dataset).reshape(-1), owners_counts(dataset, config)
    cell = labels(sizes)
    place = np.arange(len(cell)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    is_test = place < (sizes - counts.reshape(-1))[cell]
    places = [np.flatnonzero(one).astype(np.int32) for one in (is_test, ~is_test)]
    return Owned(*map(jnp.asarray, (counts, cell, *places)))


def _moments(x: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation of all bytes of images; 0 and 1 for other inputs, which stay unchanged."""
    if x.dtype != np.uint8:
        return 0.0, 1.0
    # In blocks, since `bincount` takes eight times the memory of its input.
    blocks = np.array_split(x.reshape(-1), -(-x.size // 2**22))
    share = sum(np.bincount(block, minlength=256) for block in blocks) / x.size
    mean = share @ np.arange(256)
    return float(mean), float(np.sqrt(share @ (np.arange(256) - mean) ** 2)) or 1.0


def inputs(points: Points, numbers: Array) -> Array:
    """Inputs of a model; standardises images on use, so that they are stored as bytes.

    Args:
        points: all points.
        numbers: [...] int32, indices of points.

    Returns:
        [..., *shape of a point] float32; images have mean 0 and standard deviation 1 over the data set, other
        inputs are unchanged.
    """
    return (points.x[numbers].astype(jnp.float32) - points.mean) / points.std


def _shuffled(key: Array, group: Array) -> Array:
    """[n] int32, indices of points, shuffled within each group; `group` [n] int32 must be ascending."""
    bits = jax.random.bits(at(key, Stream.SPLIT), group.shape)
    point = jnp.arange(group.shape[0], dtype=jnp.int32)
    return jax.lax.sort((group, bits, point), num_keys=2)[2]


def split(key: Array, sizes: tuple[int, ...], config: Config) -> tuple[Array, Array]:
    """Shuffles each class and holds out the first `test_fraction` of it.

    Args:
        key: key of the run.
        sizes: L integers, points of each class; the points of the data set are sorted by class.
        config: `test_fraction`.

    Returns:
        `(test, train)`: int32 indices of points, sorted by class and shuffled within each class.
    """
    shuffled = _shuffled(key, jnp.asarray(labels(sizes)))
    held_out = held_out_sizes(np.array(sizes), config)
    is_test = np.concatenate([np.arange(size) < held for size, held in zip(sizes, held_out, strict=True)])
    return shuffled[np.flatnonzero(is_test)], shuffled[np.flatnonzero(~is_test)]


def sum_before(sizes: Array) -> Array:
    """Exclusive cumulative sum over rows, [N, ...] int32 to the same shape.

    The product with a triangle of ones is one kernel, where a scan needs several; it is exact for integers.
    """
    triangle = np.tril(np.ones((sizes.shape[0],) * 2, sizes.dtype), -1)
    return jnp.tensordot(triangle, sizes, axes=1)


def cell_starts(counts: Array) -> Array:
    """Start of each device's points of each class in a list sorted by device, then class.

    Args:
        counts: `D`, [N, L] int32.

    Returns:
        [N, L] int32.
    """
    return sum_before(jnp.sum(counts, axis=1))[:, None] + jnp.cumsum(counts, axis=1) - counts


def _sum(counts: Array, axis: int | None) -> Any:
    """Exact sums along an axis, for checks outside `jit`; returns traced counts unchanged."""
    return counts if is_traced(counts) else np.asarray(counts).sum(axis, dtype=np.int64)


def check_counts(counts: Array, total: int, is_full: bool = True) -> None:
    """Checks outside `jit` that counts are whole, 0 or more, and sum to the number of points.

    Args:
        counts: [N, L] points of each class that each device has.
        total: number of points, or of positions in their list.
        is_full: whether each position has a point; otherwise the sum may be less than `total`.

    Raises:
        ValueError: the counts break one of these rules.
    """
    whole = lambda values: (values >= 0) & (values == np.floor(values))  # noqa: E731
    check_values("counts", counts, "whole numbers, 0 or more", whole)
    rule = f"{total}, the number of points" if is_full else f"at most {total}, the length of the list"
    fits = lambda values: (values == total) if is_full else (values <= total)  # noqa: E731
    check_values("sum of counts", _sum(counts, None), rule, fits)


def assign(train: Array, counts: Array, sizes: tuple[int, ...], config: Config, places: int | None = None) -> Array:
    """Assigns points to devices; no point goes to two devices.

    Args:
        train: [n] int32, indices of the training points, sorted by class and shuffled within each class.
        counts: `D`, [N, L] int32, points of each class that each device gets; they sum to `N P`.
        sizes: L integers, points of each class in the data set.
        config: `num_devices` N, `points_per_device` P.
        places: length of the list if counts are given, whose sum may be smaller; None: `N P`.

    Returns:
        [N P] or [places] int32, indices of points, sorted by device, then class; -1 in positions after those of the
        last device.

    Raises:
        ValueError: shapes do not agree, or outside `jit` the counts do not match the available points.

    Example:
        Training points 7, 5 and 6 are of class a, 9 and 8 of class b. Device 0 gets one of each class, device 1 two
        of class a and one of class b: four cells, sorted by device.

            position in the list        0    1    2    3    4
            cell                       0 a  0 b  1 a  1 a  1 b
            position in `train`         0    3    1    2    4    class b starts at 3
            shift between the two       0   +2   -1   -1    0    constant within a cell
            steps                       0   +2   -3    0   +1    at the starts of cells; they sum up to the shift
            point                       7    9    5    6    8

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
    # A device's points of a class follow those of the devices before it.
    first = class_start[None, :] + sum_before(counts)
    start = cell_starts(counts).reshape(-1)
    # The shift from a position in the list to one in `train` is constant within a cell, so along the list it is the
    # cumulative sum of steps at the starts of cells.
    shift = first.reshape(-1) - start
    step = jnp.zeros(total + 1, jnp.int32).at[start].add(jnp.diff(shift, prepend=0))
    place = jnp.arange(total)
    dealt = train[place + jnp.cumsum(step)[:-1]]
    return dealt if places is None else jnp.where(place < jnp.sum(counts), dealt, -1)


def deal(
    key: Array, points: Points, counts: Array, config: Config, places: int | None = None
) -> tuple[Array, Array]:
    """Splits off the held-out points, and assigns the training points to their owners or by counts.

    Args:
        key: key of the run.
        points: all points.
        counts: `D`, [N, L] int32; those of the owners if points have owners.
        config: see `split` and `assign`.
        places: see `assign`.

    Returns:
        `(test, dealt)`: int32 indices of the held-out points, and of the training points in the order of `assign`.
    """
    if points.owned is not None:
        shuffled = _shuffled(key, points.owned.cell)
        return shuffled[points.owned.test], shuffled[points.owned.train]
    test, spare = split(key, points.sizes, config)
    return test, assign(spare, counts, points.sizes, config, places)
