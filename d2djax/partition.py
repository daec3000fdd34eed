"""Partitions: how many points of each class each device starts with (Section IV-A)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from d2djax.config import Config
from d2djax.rng import Stream, at, uniform_numbers


def num_points(config: Config) -> int:
    """`N P`, the points of all devices together, in every partition.

    Args:
        config: `num_devices` N and `points_per_device` P; not 0.
    """
    return config.num_devices * config.points_per_device


def num_decks(config: Config) -> int:
    """Number of decks in `deal_classes`; no class goes to more devices.

    Args:
        config: `num_devices`, `num_classes` and `classes_per_device`.
    """
    return -(-config.num_devices // (config.num_classes // config.classes_per_device))


def deal_classes(key: Array, config: Config) -> Array:
    """Assigns `classes_per_device` distinct classes to each device, each class about equally often.

    A deck is a shuffle of all L classes; each deck serves `floor(L / k)` devices with disjoint hands, and the rest
    of it is discarded. A class thus occurs at most once per deck, so classes go to similar numbers of devices.

    Args:
        key: key of the run.
        config: `num_devices` N, `num_classes` L, `classes_per_device` k.

    Returns:
        [N, k] int32, the classes of each device in the order of the deck.
    """
    hands_per_deck = config.num_classes // config.classes_per_device
    dealt = hands_per_deck * config.classes_per_device
    uniform = uniform_numbers(at(key, Stream.PARTITION), (num_decks(config), config.num_classes))
    decks = jnp.argsort(uniform, axis=-1)[:, :dealt].astype(jnp.int32)
    return decks.reshape(-1, config.classes_per_device)[: config.num_devices]


def k_classes(key: Array, config: Config) -> Array:
    """The paper's partition: `classes_per_device` classes per device, its points split evenly over them.

    Args:
        key: key of the run.
        config: `points_per_device` P; the first `P mod k` classes of a hand get one extra point.

    Returns:
        `D`, [N, L] int32; every row sums to P.
    """
    return hand_counts(deal_classes(key, config), config)


def hand_counts(hands: Array, config: Config) -> Array:
    """Counts of each class from the classes of each device; see `k_classes`.

    Args:
        hands: [N, k] int32, the classes of each device.
        config: `points_per_device`, `classes_per_device` k and `num_classes` L.

    Returns:
        [N, L] int32; each row sums to `points_per_device`.
    """
    share, extra = divmod(config.points_per_device, config.classes_per_device)
    points = share + (jnp.arange(config.classes_per_device) < extra)
    is_held = jax.nn.one_hot(hands, config.num_classes, dtype=jnp.int32)
    return jnp.sum(is_held * points[None, :, None], axis=1)


def labels(sizes: Sequence[int] | np.ndarray) -> np.ndarray:
    """Class of each point in a list that is sorted by class.

    Args:
        sizes: [L] int, points of each class.

    Returns:
        [n] int32, ascending; n is the sum of the sizes.
    """
    return np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)


def count_labels(label: Array, num_classes: int) -> Array:
    """Counts of each class from the classes of each device's points.

    Args:
        label: [N, P] int32, class of each point of each device.
        num_classes: L.

    Returns:
        [N, L] int32.
    """
    device = jnp.arange(label.shape[0])[:, None]
    return jnp.zeros((label.shape[0], num_classes), jnp.int32).at[device, label].add(1)


def pool_sizes(config: Config) -> np.ndarray:
    """Points of each class over all devices, as equal as possible; for all partitions but `k_classes`.

    Args:
        config: `num_devices`, `points_per_device` and `num_classes` L.

    Returns:
        [L] int, whose sum is `N P`.
    """
    share, extra = divmod(num_points(config), config.num_classes)
    return share + (np.arange(config.num_classes) < extra)


def dirichlet(key: Array, config: Config) -> Array:
    """Splits each class over the devices by shares from a Dirichlet distribution; the sizes of devices differ.

    Args:
        key: key of the run.
        config: `concentration` alpha: towards 0 a class goes to one device, towards infinity equally to all.

    Returns:
        `D`, [N, L] int32; column l sums to `pool_sizes[l]`, and all to `N P`. A device may have no points.
    """
    alpha = jnp.full(config.num_devices, config.concentration, jnp.float32)
    share = jax.random.dirichlet(at(key, Stream.PARTITION), alpha, (config.num_classes,))
    size = jnp.asarray(pool_sizes(config), jnp.int32)[:, None]
    # Rounding the cumulative sum keeps each part within one point of its share, and the total exact.
    end = jnp.minimum(jnp.rint(jnp.cumsum(share, axis=1) * size).astype(jnp.int32), size)
    end = end.at[:, -1].set(size[:, 0])
    return jnp.diff(end, axis=1, prepend=0).T


def shards(key: Array, config: Config) -> Array:
    """Cuts the points, sorted by class, into equal shards, and gives each device some of them at random.

    Args:
        key: key of the run.
        config: `shards_per_device`, a divisor of `points_per_device` P.

    Returns:
        `D`, [N, L] int32; every row sums to P.
    """
    of_shard = labels(pool_sizes(config)).reshape(config.num_devices * config.shards_per_device, -1)
    counts = jnp.asarray((of_shard[:, :, None] == np.arange(config.num_classes)).sum(1), jnp.int32)
    dealt = jax.random.permutation(at(key, Stream.PARTITION), counts)
    return jnp.sum(dealt.reshape(config.num_devices, config.shards_per_device, -1), axis=1)


def iid(key: Array, config: Config) -> Array:
    """Shuffles all points and gives each device the same number (i.i.d.).

    Args:
        key: key of the run.
        config: `points_per_device` P.

    Returns:
        `D`, [N, L] int32; every row sums to P.
    """
    dealt = jax.random.permutation(at(key, Stream.PARTITION), jnp.asarray(labels(pool_sizes(config))))
    return count_labels(dealt.reshape(config.num_devices, -1), config.num_classes)


PARTITIONS: dict[str, Callable[[Array, Config], Array]] = {
    "k_classes": k_classes,
    "dirichlet": dirichlet,
    "shards": shards,
    "iid": iid,
}


def check_dealt(config: Config) -> None:
    """Checks that the config names a partition of `PARTITIONS`.

    Args:
        config: `partition`.

    Raises:
        ValueError: `partition="own"`, although no counts are given.
    """
    if config.partition not in PARTITIONS:
        raise ValueError(
            "partition='own' stands for points that have owners, or for given counts; neither is given"
        )


def class_counts(key: Array, config: Config) -> Array:
    """Counts of each class at each device by the partition that the config names.

    Args:
        key: key of the run.
        config: `partition` and its settings.

    Returns:
        `D`, [N, L] int32; they sum to `N P`.

    Raises:
        ValueError: see `check_dealt`.
    """
    check_dealt(config)
    return PARTITIONS[config.partition](key, config)


def most_points_asked(config: Config) -> int:
    """Upper bound on the points of one class that all devices together need.

    Args:
        config: `partition` and the sizes.
    """
    if config.partition != "k_classes":
        return int(pool_sizes(config).max())
    return num_decks(config) * -(-config.points_per_device // config.classes_per_device)
