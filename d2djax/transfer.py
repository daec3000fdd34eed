"""The real exchange before training (Section III-B): which data points each device holds afterwards."""

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
    """Who holds which points: one permutation of all points, cut into a stretch per device.

    A ragged partition in fixed shapes: every point stands in exactly one place, whatever the sizes.

    Attributes:
        points: [n] int32, numbers of points, device after device; -1 in places behind them that have no point.
        start: [N] int32, where each device's stretch begins.
        size: `|D-hat|`, [N] int32, points that each device holds.
    """

    points: Array
    start: Array
    size: Array


def floor_points(real: Array) -> Array:
    """Whole points in a real number of them, rounded down but for the error of float32.

    Args:
        real: [...] float, 0 or more.

    Returns:
        [...] float, whole numbers.
    """
    # Float32 may leave 12.999999 of the 13 points that 26 / 44 of 22 are: eight units in the last place.
    return jnp.floor(real * (1.0 + 1e-6))


def whole_points(key: Array, moved: Exchange, outage: Array, links: Array, config: Config) -> Array:
    """Points that really arrive, whole numbers (the exchange itself reckons with expectations).

    `expected`: `floor((1 - P_D) U)`. `sampled`: a binomial draw of `floor(U)` points with success `1 - P_D`.
    Rounding down keeps every bound of the exchange.

    Args:
        key: key of the run.
        moved: the exchange, fields [N, L].
        outage: `P_D`, [N, N] float of the state of the exchange.
        links: [N] int32.
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
    """[N, L] int32: points of the class that the transmitter gives to receivers of smaller index."""
    num_devices = links.shape[0]
    index = jnp.arange(num_devices)
    before = (links[:, None] == links[None, :]) & (index[None, :] < index[:, None])
    # An integer product: exact at any size, where a matrix unit might round.
    return jnp.matmul(before.astype(jnp.int32), received)


def _check_sent(counts: Array, links: Array, received: Array) -> None:
    """Outside `jit`: whole numbers of points move, and no device sends more of a class than it has."""
    if is_traced(counts) or is_traced(links) or is_traced(received):
        return
    whole = lambda values: (values >= 0) & (values == np.floor(values))  # noqa: E731
    check_values("received", received, "whole numbers, 0 or more", whole)
    held, sent = np.asarray(counts), np.zeros(counts.shape, np.int64)
    np.add.at(sent, np.asarray(links), np.asarray(received, np.int64))
    within = lambda values: values <= held  # noqa: E731
    check_values("sum of received over the receivers of a device", sent, "at most its counts", within)


def transfer(points: Array, counts: Array, links: Array, received: Array) -> Holding:
    """Moves whole points from transmitters to receivers; each point ends in exactly one place.

    The points of a class that leave a device are the first ones it holds; they are shuffled, so these are
    a random subset. Receivers of one transmitter are served in the order of their index.

    Args:
        points: [n] int32, numbers of points, device after device, each device's sorted by class, then -1 in places
            that have no point (see `points.assign`).
        counts: `D`, [N, L] int32, points of each class that each device has.
        links: [N] int32.
        received: [N, L] int32, points that each device receives; a transmitter's sum never exceeds its counts.

    Returns:
        The holding after the exchange.

    Raises:
        ValueError: shapes do not agree, or outside `jit` the counts do not add up to the points, or a device would
            send more of a class than it has.

    Example:
        Five points. Device 0 has 10, 11 and 12 of class a and 20 of class b, device 1 has 21 of class b, device 2
        has none. Both take from device 0: device 1 one point of each class, device 2 one of class a::

            point            10   11   12   20   21
            steps: a device                      +1    the points of device 1 begin
                   share 1   +1   -1        +1   -1    to device 1 and back, in class a and in class b
                   share 2        +2   -2              to device 2 and back
            their sum        +1   +1   -2   +1    0
            owner             1    2    0    1    1    the running sum

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
    # Along the list of points the owner is constant but for steps: by one where the next device's points begin,
    # and to a receiver and back where its share begins and ends. Their running sum is the owner.
    # Places without a point, behind those of the last device, belong to a device that there is not.
    step = jnp.broadcast_to((device - links)[:, None], received.shape)
    change = jnp.zeros(total + 1, jnp.int32).at[jnp.append(start[1:, 0], jnp.sum(counts))].add(1)
    owner = jnp.cumsum(change.at[first].add(step).at[first + received].add(-step))[:-1]
    order = jnp.argsort(owner, stable=True)
    size = jnp.zeros(num_devices, jnp.int32).at[owner].add(1)
    return Holding(points[order], sum_before(size), size)


def pool(key: Array, points: Array, num_devices: int, is_full: bool = True) -> Holding:
    """Deals all points anew, i.i.d. and as equally as they go: the upper bound of what any exchange can reach.

    Args:
        key: key of the run.
        points: [n] int32, numbers of points.
        num_devices: `N`.
        is_full: every place has a point; otherwise -1 stands in those that have none.

    Returns:
        A holding of P points for every device; where they are not `N P`, the first ones have one more.

    Raises:
        ValueError: there is no device.
    """
    if num_devices < 1:
        raise ValueError(f"num_devices must be at least 1; got {num_devices}")
    key, device = at(key, Stream.POOL), jnp.arange(num_devices, dtype=jnp.int32)
    if is_full:
        dealt, total = jax.random.permutation(key, points), points.shape[0]
    else:
        # By numbers that do not depend on how many places there are; those without a point stay behind.
        _, _, dealt = jax.lax.sort((points < 0, jax.random.bits(key, points.shape), points), num_keys=2)
        total = jnp.sum(points >= 0)
    share, extra = total // num_devices, total % num_devices
    start = share * device + jnp.minimum(device, extra)
    return Holding(dealt, start, share + (device < extra).astype(jnp.int32))
