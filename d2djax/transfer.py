"""The exchange of data points before training (Section III-B): which points each device holds after it."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from d2djax.checks import check_links, check_shape, check_values, is_traced
from d2djax.config import Config
from d2djax.messages import Exchange
from d2djax.points import cell_starts, check_counts, sum_before
from d2djax.rng import Stream, at


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Holding:
    """The points of each device: a permutation of all points, in which each device has one contiguous range.

    This stores a ragged partition in fixed shapes; each point occurs exactly once.

    Attributes:
        points: [n] int32, indices of points, sorted by device; -1 in positions after the last point.
        start: [N] int32, start of each device's range.
        size: `|D-hat|`, [N] int32, number of points of each device.
    """

    points: Array
    start: Array
    size: Array


def floor_points(real: Array) -> Array:
    """Rounds numbers of points down to whole points, with a tolerance for float32 errors.

    Args:
        real: [...] float, 0 or more.

    Returns:
        [...] float, whole numbers.
    """
    # In float32, 26 / 44 of 22 points may be 12.999999 instead of 13; the tolerance is eight ulps.
    return jnp.floor(real * (1.0 + 1e-6))


def whole_points(key: Array, moved: Exchange, outage: Array, links: Array, config: Config) -> Array:
    """Whole points that arrive at each receiver (`Exchange` has expected numbers).

    With `expected` delivery `floor((1 - P_D) U)`; with `sampled` a binomial draw of `floor(U)` points with success
    probability `1 - P_D`. Rounding down preserves all bounds of the exchange.

    Args:
        key: key of the run.
        moved: the exchange, fields [N, L].
        outage: `P_D`, [N, N] float, in the state of the exchange.
        links: [N] int32, transmitter of each device.
        config: `delivery`.

    Returns:
        [N, L] int32.
    """
    if config.delivery == "expected":
        return floor_points(moved.received).astype(jnp.int32)
    success = 1.0 - jnp.asarray(outage)[jnp.arange(links.shape[0]), links]
    sent = floor_points(moved.transmitted)
    drawn = jax.random.binomial(at(key, Stream.DELIVERY), sent, success[:, None])
    return jnp.where(success[:, None] >= 1.0, sent, drawn).astype(jnp.int32)


def _offset_in_class(links: Array, received: Array) -> Array:
    """[N, L] int32: points of each class that the transmitter sends to its receivers of smaller index."""
    num_devices = links.shape[0]
    index = jnp.arange(num_devices)
    before = (links[:, None] == links[None, :]) & (index[None, :] < index[:, None])
    # An integer product is exact at any size; a floating-point one might round.
    return jnp.matmul(before.astype(jnp.int32), received)


def _check_sent(counts: Array, links: Array, received: Array) -> None:
    """Checks outside `jit` that whole points move, and that no device sends more of a class than it has."""
    if is_traced(counts) or is_traced(links) or is_traced(received):
        return
    whole = lambda values: (values >= 0) & (values == np.floor(values))  # noqa: E731
    check_values("received", received, "whole numbers, 0 or more", whole)
    held, sent = np.asarray(counts), np.zeros(counts.shape, np.int64)
    np.add.at(sent, np.asarray(links), np.asarray(received, np.int64))
    within = lambda values: values <= held  # noqa: E731
    check_values("sum of received over the receivers of a device", sent, "at most its counts", within)


def transfer(points: Array, counts: Array, links: Array, received: Array) -> Holding:
    """Moves whole points from transmitters to receivers; each point ends at exactly one device.

    A device sends the first points that it holds of a class, a random subset since they are shuffled. Receivers of
    one transmitter are served in the order of their index.

    Args:
        points: [n] int32, indices of points, sorted by device, then class; -1 in positions without a point (see
            `points.assign`).
        counts: `D`, [N, L] int32, points of each class that each device has.
        links: [N] int32, transmitter of each device.
        received: [N, L] int32, points that each device receives; their sum over the receivers of a transmitter must
            not exceed its counts.

    Returns:
        The holding after the exchange.

    Raises:
        ValueError: shapes do not agree, or outside `jit` the counts do not match the points or a device would send
            more of a class than it has.

    Example:
        Device 0 has points 10, 11 and 12 of class a and 20 of class b, device 1 has 21 of class b, device 2 has
        none. Both receive from device 0: device 1 one point of each class, device 2 one of class a::

            point              10   11   12   20   21
            steps: device 1                        +1    its points start
                   to device 1 +1   -1        +1   -1    start and end of its share, in class a and in class b
                   to device 2      +2   -2              start and end of its share
            their sum          +1   +1   -2   +1    0
            owner               1    2    0    1    1    the cumulative sum

        >>> counts, received = jnp.array([[3, 1], [0, 1], [0, 0]]), jnp.array([[0, 0], [1, 1], [1, 0]])
        >>> held = transfer(jnp.array([10, 11, 12, 20, 21]), counts, jnp.array([0, 0, 0]), received)
        >>> held.points.tolist(), held.start.tolist(), held.size.tolist()
        ([12, 10, 20, 21, 11], [0, 1, 4], [1, 3, 1])
    """
    num_devices, total = counts.shape[0], points.shape[0]
    check_links(links, num_devices)
    check_shape("received", received, counts.shape, "[N, L]")
    held = total if is_traced(points) else int(np.sum(np.asarray(points) >= 0))
    check_counts(counts, held, is_full=not is_traced(points))
    _check_sent(counts, links, received)
    device = jnp.arange(num_devices, dtype=jnp.int32)
    start = cell_starts(counts)
    first = start[links] + _offset_in_class(links, received)
    # Along the list of points, the owner changes in steps: by one at the start of the next device's points, and to
    # a receiver and back at the start and end of its share. The cumulative sum of these steps is the owner.
    step = jnp.broadcast_to((device - links)[:, None], received.shape)
    change = jnp.zeros(total + 1, jnp.int32).at[start[1:, 0]].add(1)
    owner = jnp.cumsum(change.at[first].add(step).at[first + received].add(-step))[:-1]
    # Positions without a point, after those of the last device, get the owner N, which does not exist.
    owner = jnp.where(points < 0, num_devices, owner)
    order = jnp.argsort(owner, stable=True)
    size = jnp.zeros(num_devices, jnp.int32).at[owner].add(1)
    return Holding(points[order], sum_before(size), size)


def pool(key: Array, points: Array, num_devices: int, is_full: bool = True) -> Holding:
    """Redistributes all points i.i.d. and as equally as possible, an upper bound for any exchange.

    Args:
        key: key of the run.
        points: [n] int32, indices of points.
        num_devices: `N`.
        is_full: whether each position has a point; otherwise positions without a point hold -1.

    Returns:
        The holding; if N does not divide the number of points, the first devices get one more.

    Raises:
        ValueError: `num_devices` is below 1.
    """
    if num_devices < 1:
        raise ValueError(f"num_devices must be at least 1; got {num_devices}")
    key, device = at(key, Stream.POOL), jnp.arange(num_devices, dtype=jnp.int32)
    if is_full:
        dealt, total = jax.random.permutation(key, points), points.shape[0]
    else:
        # Sorts by random bits that do not depend on the length of the list; positions without a point come last.
        _, _, dealt = jax.lax.sort((points < 0, jax.random.bits(key, points.shape), points), num_keys=2)
        total = jnp.sum(points >= 0)
    share, extra = total // num_devices, total % num_devices
    start = share * device + jnp.minimum(device, extra)
    return Holding(dealt, start, share + (device < extra).astype(jnp.int32))
